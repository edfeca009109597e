// SPDX-License-Identifier: Apache-2.0

package timer_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

var powerSeed = flag.Uint64("seed", 0, "of the random choices of TestCrashPower, 0: a new one")

// openFS leaves files open: crashfs reads a file again when its mapping is synced.
type openFS struct{ *crashfs.FS }

type openFile struct{ vfs.File }

func (f openFS) OpenFile(path string, flag int, perm os.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return openFile{file}, nil
}

func (openFile) Close() error { return nil }

// TestCrashPower loses power again and again while messages come, are filed and delivered: every
// message that the CommitLog still has comes in the end, whatever pages of it, of wheel, log,
// checkpoint and progress were kept.
func TestCrashPower(t *testing.T) {
	t.Parallel()
	seed := *powerSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	b := newBench(t, t.TempDir())
	b.close()
	b.dir, b.segment = t.TempDir(), 1<<20 // several segments in a life
	sent := 0
	for range 8 {
		disk, err := crashfs.New(b.dir)
		if err != nil {
			t.Fatal(err)
		}
		b.fs = openFS{disk}
		b.open()
		for range 10 + r.IntN(30) {
			for range r.IntN(20) {
				b.send(fmt.Sprint("m", sent), fmt.Sprint("TIMER_DELAY_MS=", 1+r.IntN(9000)))
				sent++
			}
			b.step(time.Duration(r.IntN(500)) * time.Millisecond)
			if r.IntN(4) == 0 {
				if err := b.store.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		dst := t.TempDir()
		if err := disk.Crash(dst, r, []float64{0, 0.3, 0.9, 1}[r.IntN(4)]); err != nil {
			t.Fatal(err)
		}
		b.close()
		b.dir, b.fs = dst, nil
	}
	b.open()
	for range 20 {
		b.step(time.Second)
	}
	came := map[string]int{}
	b.records(topicName, func(v record.View) { came[string(v.Body())]++ })
	kept, lost := 0, 0
	b.records(timerName, func(v record.View) {
		kept++
		if came[string(v.Body())] == 0 {
			lost++
			t.Errorf("%s never came: %s", v.Body(), text(v.Properties()))
		}
	})
	if kept == 0 || lost > 0 {
		t.Errorf("%d of %d messages were kept by the log, %d of these are lost\n%q", kept, sent, lost, b.notices)
	}
	twice := 0
	for _, n := range came {
		twice += n - 1
	}
	t.Logf("%d sent, %d kept, %d came again", sent, kept, twice)
}
