// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

// TestCrashPower loses power while messages come in. What the log had flushed is there, each queue
// holds an unbroken beginning of what was sent to it, every message is found by key, and the store
// goes on. Pages that were not synced are kept or lost at random.
func TestCrashPower(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{true, false} {
		t.Run(fmt.Sprintf("flush=sync:%v", sync), func(t *testing.T) {
			t.Parallel()
			powerRounds(t, sync)
		})
	}
}

// openFS leaves files open: crashfs reads a file again when its mapping is synced, and queues and
// index close theirs once it is mapped. The garbage collector closes them.
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

func powerRounds(t *testing.T, sync bool) {
	r := newRand(t)
	cfg := small(t.TempDir())
	cfg.SyncFlush = sync
	cfg.FlushInterval = 3 * time.Millisecond
	cfg.FlushThorough = 5 * time.Millisecond
	cfg.QueueFlushInterval = 2 * time.Millisecond
	cfg.QueueFlushThorough = 7 * time.Millisecond
	m := model{}
	for range 8 {
		disk, err := crashfs.New(cfg.RootDir)
		if err != nil {
			t.Fatal(err)
		}
		cfg.FS, cfg.CommitLogDir = openFS{disk}, ""
		s := open(t, cfg)
		ends := map[storage.QueueID][]record.PhysicalOffset{}
		for range r.IntN(60) {
			for _, e := range m.appendRandom(t, r, s) {
				id := storage.QueueID{Topic: string(e.Draft.Topic), Queue: e.Draft.QueueID}
				for i := 1; i < int(e.Count); i++ {
					end := e.End // of an inner batch
					if e.Batch {
						end = e.Places[i]
					}
					ends[id] = append(ends[id], end)
				}
				ends[id] = append(ends[id], e.End)
			}
			if r.IntN(10) == 0 { // so that flushes fall anywhere
				<-time.After(time.Duration(r.IntN(8)) * time.Millisecond)
			}
		}
		flushed := s.Flushed()
		dst := t.TempDir()
		keep := []float64{0, 0.3, 0.9, 1}[r.IntN(4)]
		if err := disk.Crash(dst, r, keep); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.RootDir, cfg.CommitLogDir, cfg.FS = dst, "", nil
		m.settle(t, cfg, ends, flushed)
	}
}

// settle opens what the power loss left, compares it with the model, and cuts the model to it. ends
// are where the records of the last round end, flushed is what was on disk for sure.
func (m model) settle(
	t *testing.T, cfg storage.Config, ends map[storage.QueueID][]record.PhysicalOffset,
	flushed record.PhysicalOffset,
) {
	t.Helper()
	s := open(t, cfg)
	for id, all := range m {
		least := len(all) - len(ends[id])
		for _, end := range ends[id] {
			if end <= flushed {
				least++
			}
		}
		_, hi, _ := s.QueueBounds([]byte(id.Topic), id.Queue)
		if int(hi) < least || int(hi) > len(all) {
			t.Fatalf("queue %s ends at %d, want between %d and %d (log flushed to %d, recovered to %d)",
				id, hi, least, len(all), flushed, s.Info().Wrote)
		}
		m[id] = all[:hi]
	}
	m.checkAll(t, s)
	for id, all := range m {
		for i, text := range all {
			if i%17 != 0 && i < len(all)-3 || id.Topic == batchTopic {
				continue // queries are slow: there are very many small index files; batches have no keys
			}
			key := text[:16]
			found := false
			for _, k := range []string{key, "id-" + text[:min(len(text), 20)]} {
				res, err := s.Query(id.Topic, k, 64, 0, 1<<60)
				if err != nil {
					t.Fatal(err)
				}
				found = found || len(res.Regions) > 0
				zerocopy.ReleaseAll(res.Regions)
			}
			if !found {
				t.Fatalf("queue %s: key of %.30q finds nothing", id, text)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
