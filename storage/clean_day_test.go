// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestRetentionDay takes a store through a day, hour by hour. Its files were written an hour apart, up
// to 90 hours ago; those older than 72 hours go at 4 o'clock, all of them, and at no other hour, and
// what is younger then stays until the next day. Messages come in meanwhile.
func TestRetentionDay(t *testing.T) {
	t.Parallel()
	var steady atomic.Int64 // a day that passes, not a clock that is set
	a := newAged(t, func(c *storage.Config) {
		c.Retention.Every, c.Retention.Hours = time.Hour, []int{4}
		c.Steady = func() time.Duration { return time.Duration(steady.Load()) }
	})
	midnight := time.Date(2026, 6, 15, 0, 30, 0, 0, time.Local)
	a.set(midnight)
	a.CleanNow(midnight) // the cleaner's clocks begin here; nothing is old
	files := a.logFiles(t)
	if len(files) < 8 {
		t.Fatalf("%d files", len(files))
	}
	// The last of the first five is 72 hours old at 4:30, the next one an hour later.
	for i, f := range files {
		at := midnight.Add(time.Duration(i) * time.Hour).Add(-72 * time.Hour)
		if err := os.Chtimes(f, at, at); err != nil {
			t.Fatal(err)
		}
	}
	segment := record.PhysicalOffset(a.cfg.SegmentSize)
	for hour := range 24 {
		now := midnight.Add(time.Duration(hour) * time.Hour)
		steady.Store(int64(time.Duration(hour) * time.Hour))
		a.set(now)
		a.LookNow(now)
		want := record.PhysicalOffset(0)
		if hour >= 4 {
			want = 5 * segment
		}
		if low := a.Info().Min; low != want {
			t.Fatalf("at %s the log begins at %d, want %d", now.Format("15:04"), low, want)
		}
		e := []storage.Entry{{Draft: draft("day", 0, now.String(), "")}}
		if a.Append(e); e[0].Err != nil {
			t.Fatal(e[0].Err)
		}
	}
	next := midnight.Add(28 * time.Hour)
	steady.Store(int64(28 * time.Hour))
	a.set(next)
	a.LookNow(next)
	if low := a.Info().Min; low < 8*segment {
		t.Errorf("a day later the log begins at %d", low)
	}
	if _, end, _ := a.QueueBounds([]byte("day"), 0); end != 24 {
		t.Errorf("the queue of the day ends at %d", end)
	}
}
