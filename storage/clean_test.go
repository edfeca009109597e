// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// aged is a store with several files of log and queues, whose clock the test sets.
type aged struct {
	*storage.Store
	cfg storage.Config

	mu  sync.Mutex
	now time.Time
}

const agedMessages = 600

// newAged writes messages to two queues until the log has many files. At first nothing is deleted:
// the hour is not that of deleteWhen.
func newAged(t *testing.T, change func(*storage.Config)) *aged {
	t.Helper()
	noon := time.Now().Truncate(24 * time.Hour).Add(12 * time.Hour)
	a := &aged{now: noon, cfg: storage.DefaultConfig(t.TempDir())}
	a.cfg.SegmentSize, a.cfg.QueueFileSize = 64<<10, 20*32
	a.cfg.MaxMessageSize = 8 << 10
	a.cfg.IndexSlots, a.cfg.IndexEntries = 50, 100
	a.cfg.QueueFlushInterval, a.cfg.QueueFlushThorough = 5*time.Millisecond, 10*time.Millisecond
	a.cfg.DiskFullRatio, a.cfg.DiskFreeRatio = 100, 100
	a.cfg.Retention = storage.Retention{
		Keep: 72 * time.Hour, Hours: []int{noon.Local().Hour() - 1}, MaxUsedRatio: 100, Forcibly: true,
		Every: 5 * time.Millisecond, Batch: 100,
	}
	a.cfg.Now = func() time.Time {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.now
	}
	if change != nil {
		change(&a.cfg)
	}
	a.open(t)
	for i := range agedMessages {
		e := storage.Entry{Draft: record.Draft{
			Topic: []byte("T"), QueueID: int32(i % 2), Body: fmt.Appendf(nil, "%0900d", i),
			Properties: fmt.Appendf(nil, "KEYS\x01k%d\x02", i),
		}}
		a.Append([]storage.Entry{e})
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *aged) open(t *testing.T) {
	t.Helper()
	s, err := storage.Open(a.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	a.Store = s
}

func (a *aged) set(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = now
}

// logFiles lists the files of the log, oldest first.
func (a *aged) logFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.cfg.RootDir, "commitlog", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// age makes the first n files of the log old.
func (a *aged) age(t *testing.T, n int) record.PhysicalOffset {
	t.Helper()
	files := a.logFiles(t)
	for _, f := range files[:n] {
		old := a.cfg.Now().Add(-80 * time.Hour)
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	return record.PhysicalOffset(int64(n) * a.cfg.SegmentSize)
}

// check reads everything that is left and compares it with what was written; it returns the first
// offset of queue 0.
func (a *aged) check(t *testing.T) record.QueueOffset {
	t.Helper()
	var first record.QueueOffset
	eventually(t, "the queues follow the log", func() bool {
		for queue := range int32(2) {
			low, _, _ := a.QueueBounds([]byte("T"), queue)
			if u, ok := a.Unit([]byte("T"), queue, low); ok && u.At < a.Info().Min {
				return false
			}
		}
		return true
	})
	for queue := range int32(2) {
		low, end, ok := a.QueueBounds([]byte("T"), queue)
		if !ok || end != agedMessages/2 {
			t.Fatalf("queue %d: bounds %d to %d", queue, low, end)
		}
		if queue == 0 {
			first = low
		}
		for at := low; at < end; at++ {
			u, ok := a.Unit([]byte("T"), queue, at)
			if !ok {
				t.Fatalf("queue %d has no unit %d of %d to %d", queue, at, low, end)
			}
			r, err := a.RecordAt(u.At)
			if err != nil {
				t.Fatalf("queue %d offset %d: %v", queue, at, err)
			}
			v, err := record.Parse(r.Mem)
			want := fmt.Sprintf("%0900d", int(at)*2+int(queue))
			if err != nil || string(v.Body()) != want {
				t.Errorf("queue %d offset %d: body %.20q, %v", queue, at, v.Body(), err)
			}
			r.Release()
		}
		var res storage.ReadResult
		a.Read(&storage.ReadRequest{Topic: []byte("T"), Queue: queue, MaxMessages: 1}, &res)
		if low > 0 && (res.Status != storage.OffsetTooSmall || res.Next != low) {
			t.Errorf("read of a deleted message: %v, next %d, want %d", res.Status, res.Next, low)
		}
		for i := range res.Regions {
			res.Regions[i].Release()
		}
	}
	return first
}

func (a *aged) queueFiles(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.cfg.RootDir, "consumequeue", "T", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestRetentionAtItsHour: old files go in the hour of deleteWhen and not before, queues and index
// follow, a reader keeps what it holds, and the store opens again as it was.
func TestRetentionAtItsHour(t *testing.T) {
	t.Parallel()
	a := newAged(t, nil)
	low := a.age(t, 3)
	held, err := a.RecordAt(0)
	if err != nil {
		t.Fatal(err)
	}
	body := string(held.Mem)
	files := a.queueFiles(t)
	eventually(t, "queue files are flushed", func() bool { return a.Info().Checkpoint.PhysicMS >= 0 })
	if a.Info().Min != 0 {
		t.Fatalf("deleted outside the hour: min %d", a.Info().Min)
	}
	a.set(a.cfg.Now().Add(-time.Hour))
	eventually(t, "the files are deleted", func() bool {
		return a.Info().Min == low && len(a.logFiles(t)) > 0
	})
	eventually(t, "queue files follow", func() bool { return a.queueFiles(t) < files })
	if string(held.Mem) != body {
		t.Error("a region has changed under its reader")
	}
	held.Release()
	first := a.check(t)
	if first == 0 {
		t.Error("the queue begins where it did")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.open(t)
	if again := a.check(t); again != first || a.Info().Min != low {
		t.Errorf("after a restart: first offset %d, was %d; min %d, was %d", again, first, a.Info().Min, low)
	}
}

// TestRetentionClockJump: with the clock set forward by years every file looks old; nothing is deleted
// for a day, which is long enough to set it right.
func TestRetentionClockJump(t *testing.T) {
	t.Parallel()
	var passed, looks atomic.Int64
	told := make(chan struct{}, 1)
	a := newAged(t, func(c *storage.Config) {
		c.Steady = func() time.Duration {
			looks.Add(1)
			return time.Duration(passed.Load())
		}
		c.Notice = func(msg string, _ ...any) {
			if strings.Contains(msg, "clock was set forward") {
				told <- struct{}{}
			}
		}
	})
	const years = 24 * 365 * 24 * time.Hour
	ahead := a.cfg.Now().Add(years)
	hour := a.cfg.Retention.Hours[0]
	for ahead.Local().Hour() != hour {
		ahead = ahead.Add(-time.Hour)
	}
	files := len(a.logFiles(t))
	a.set(ahead)
	<-told
	before := looks.Load()
	eventually(t, "the cleaner looks again", func() bool { return looks.Load() > before+10 })
	if n := len(a.logFiles(t)); n != files {
		t.Fatalf("%d of %d files are left", n, files)
	}
	passed.Store(int64(25 * time.Hour))
	a.set(ahead.Add(24 * time.Hour))
	eventually(t, "old files go in the end", func() bool { return len(a.logFiles(t)) == 1 })
	a.check(t)
}

// TestRetentionKeepsTheLast: however old they are, the file that is written to stays.
func TestRetentionKeepsTheLast(t *testing.T) {
	t.Parallel()
	a := newAged(t, nil)
	a.age(t, len(a.logFiles(t)))
	a.set(a.cfg.Now().Add(-time.Hour))
	wrote := a.Info().Wrote
	last := wrote - wrote%record.PhysicalOffset(a.cfg.SegmentSize)
	eventually(t, "all but the last are deleted", func() bool { return a.Info().Min == last })
	a.check(t)
}

// TestRetentionByHand: code 329 does not wait for the hour, and takes old files only.
func TestRetentionByHand(t *testing.T) {
	t.Parallel()
	a := newAged(t, func(c *storage.Config) { c.Retention.Every = time.Hour })
	low := a.age(t, 2)
	a.DeleteExpired()
	eventually(t, "the files are deleted", func() bool { return a.Info().Min == low })
	a.check(t)
}

// TestRetentionOnAFullDisk: above the ratio young files go too, unless that is switched off.
func TestRetentionOnAFullDisk(t *testing.T) {
	t.Parallel()
	full := func(forcibly bool) func(*storage.Config) {
		return func(c *storage.Config) {
			c.DiskFreeRatio, c.Retention.Forcibly = -1, forcibly // any disk is fuller than that
		}
	}
	a := newAged(t, full(true))
	eventually(t, "young files are deleted", func() bool { return len(a.logFiles(t)) == 1 })
	a.check(t)
	b := newAged(t, full(false))
	low := b.age(t, 1)
	eventually(t, "the old file is deleted", func() bool { return b.Info().Min == low })
	b.check(t)
}

func TestParseHours(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{"04": {4}, "0;12; 23": {0, 12, 23}, "": nil, ";": nil} {
		if got, err := storage.ParseHours(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"24", "-1", "four", "04:00"} {
		if _, err := storage.ParseHours(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// eventually waits until the store's goroutines have done something.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}
