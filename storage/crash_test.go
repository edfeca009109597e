// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedsFlag = flag.Int("seeds", 0,
		"how many seeds TestCrashHistories runs; 0: as many as end within a few seconds")
	fromSeedFlag = flag.Uint64("from-seed", 1, "the first of them")
)

// shortHistories is how long TestCrashHistories takes new seeds when none are asked for.
const shortHistories = 6 * time.Second

// TestCrashHistories runs histories that a seed decides: append, batch, flush, roll, checkpoint,
// retention, deletion of topics, faults of the disk, restart, power loss and death of the process
// at any call to the file system, recovery. After each crash the store is compared with a model.
//
// `make crash SEEDS=n` runs n seeds, `make crash SEED=x` one of them again. A seed decides all but
// how the store's goroutines run beside each other, which counts with SYNC_FLUSH only.
func TestCrashHistories(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		story, err := runHistory(*seedFlag, t.TempDir(), &tally{})
		t.Log(story)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var sum tally
	var next, failed atomic.Int64
	first := rand.Uint64() >> 16
	began, told := time.Now(), time.Now()
	var progress sync.Mutex
	more := func() (uint64, bool) {
		n := next.Add(1)
		if *seedsFlag == 0 {
			most := shortHistories
			if testing.Short() {
				most /= 4
			}
			return first + uint64(n), time.Since(began) < most
		}
		progress.Lock()
		defer progress.Unlock()
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			rate := float64(n) / time.Since(began).Seconds()
			fmt.Fprintf(os.Stderr, "crash: %d of %d seeds, %.0f/s, %s left, %d violations\n", n, *seedsFlag,
				rate, time.Duration(float64(*seedsFlag-int(n))/rate*1e9).Round(time.Second), failed.Load())
		}
		return *fromSeedFlag - 1 + uint64(n), n <= int64(*seedsFlag)
	}
	var workers sync.WaitGroup
	base := t.TempDir()
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, ok := more(); ok && failed.Load() < 10; seed, ok = more() {
				dir := filepath.Join(base, fmt.Sprint(seed))
				if story, err := runHistory(seed, dir, &sum); err != nil {
					failed.Add(1)
					t.Errorf("seed %d: %v\n%s", seed, err, story)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	line := fmt.Sprintf("crash: %s; %d violations; %s", &sum, failed.Load(),
		time.Since(began).Round(100*time.Millisecond))
	t.Log(line)
	if *seedsFlag > 0 {
		fmt.Fprintln(os.Stderr, line)
	}
	if sum.crashes.Load() == 0 || sum.checked.Load() == 0 {
		t.Error("nothing was tested")
	}
}

// tally counts what histories did.
type tally struct {
	seeds, appended, crashes, kills, inside, faults, restarts, deletes, cleaned, checked atomic.Int64
}

func (s *tally) String() string {
	return fmt.Sprintf("%d seeds, %d messages stored, %d power losses and %d kills (%d of them within "+
		"a call), %d disk faults, %d clean restarts, %d topics deleted, %d log files deleted, "+
		"%d messages compared", s.seeds.Load(), s.appended.Load(), s.crashes.Load(), s.kills.Load(),
		s.inside.Load(), s.faults.Load(), s.restarts.Load(), s.deletes.Load(), s.cleaned.Load(),
		s.checked.Load())
}
