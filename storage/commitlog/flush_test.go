// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// TestClockFlush follows the asynchronous rules: four pages after the period, less after ten
// seconds, many bytes at once, and no work while nothing is dirty.
func TestClockFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var flushes atomic.Int64
		l, _ := open(t, commitlog.Config{
			Dir: t.TempDir(), SegmentSize: 1 << 20, FlushBytes: 128 << 10,
			OnFlushed: func(record.PhysicalOffset) { flushes.Add(1) },
		})
		expect := func(wait time.Duration, want int64) {
			t.Helper()
			<-time.After(wait) // in the bubble: no time passes outside
			synctest.Wait()
			if got := flushes.Load(); got != want {
				t.Fatalf("%d flushes, want %d", got, want)
			}
		}
		expect(time.Hour, 0)
		fill(t, l, 1, 20000)
		expect(499*time.Millisecond, 0)
		expect(time.Millisecond, 1)
		fill(t, l, 1, 100)
		expect(9*time.Second, 1)
		expect(1100*time.Millisecond, 2)
		expect(time.Hour, 2)
		fill(t, l, 8, 20000) // reaches FlushBytes
		expect(0, 3)
		fill(t, l, 1, 100)
		l.NeedFlush(l.Wrote())
		expect(0, 4)
		if l.Flushed() != l.Wrote() || l.FlushedMS() != 1000 {
			t.Errorf("flushed %d of %d, time %d", l.Flushed(), l.Wrote(), l.FlushedMS())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSyncFlush flushes what is published without being asked, in order, over segments.
func TestSyncFlush(t *testing.T) {
	t.Parallel()
	seen := make(chan record.PhysicalOffset, 1000)
	l, _ := open(t, commitlog.Config{
		Dir: t.TempDir(), Sync: true,
		OnFlushed: func(at record.PhysicalOffset) { seen <- at },
	})
	want := fill(t, l, 150, 900)
	var last record.PhysicalOffset
	for last != l.Published() {
		at := <-seen
		if at <= last {
			t.Fatalf("flushed went from %d to %d", last, at)
		}
		last = at
	}
	if l.Flushed() != last || l.Wrote() != last || len(want.at) != 150 {
		t.Errorf("flushed %d, wrote %d, told %d", l.Flushed(), l.Wrote(), last)
	}
}

// TestFlushGroup flushes once for all that came during the flush before.
func TestFlushGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	var syncs atomic.Int64
	entered, leave := make(chan struct{}), make(chan struct{})
	var opened atomic.Bool
	c.Before = func(op, _ string) error {
		if op == "sync" && opened.Load() && syncs.Add(1) == 1 {
			entered <- struct{}{}
			<-leave
		}
		return nil
	}
	l, _ := open(t, commitlog.Config{Dir: dir, FS: c, Sync: true, SegmentSize: 1 << 20})
	opened.Store(true)
	fill(t, l, 1, 100)
	<-entered
	fill(t, l, 500, 100)
	close(leave)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := syncs.Load(); got != 2 {
		t.Errorf("%d flushes for 501 records, want 2", got)
	}
}

// TestFlushFails makes a failed flush final: it is told once, waiting ends, appends are refused,
// reads go on, flushed stays.
func TestFlushFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	var fails atomic.Int64
	c.Before = func(op, _ string) error {
		if op == "msync" && fails.Add(1) == 2 {
			return syscall.EIO
		}
		return nil
	}
	var mu sync.Mutex
	var told []error
	l, _ := open(t, commitlog.Config{
		Dir: dir, FS: c, OnFlushError: func(err error) {
			for range 1000 { // those who wait, if they were told first, get their chance to see it
				runtime.Gosched()
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		},
	})
	fill(t, l, 1, 100)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	flushed := l.Flushed()
	want := fill(t, l, 2, 100)
	for range 2 {
		if err := l.Flush(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("flush: %v", err)
		}
		mu.Lock()
		if len(told) != 1 {
			t.Error("the one who waited is told before the owner")
		}
		mu.Unlock()
	}
	d := draft(3, 100)
	if _, _, err := put(l, &d, 3); !errors.Is(err, syscall.EIO) {
		t.Errorf("append: %v", err)
	}
	r, err := l.Region(record.PhysicalOffset(want.at[1]), int32(len(want.data[1])))
	if err != nil || string(r.Mem) != want.data[1] {
		t.Errorf("read: %v", err)
	}
	r.Release()
	if err := l.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
	if l.Flushed() != flushed || fails.Load() != 2 || len(told) != 1 {
		t.Errorf("flushed %d, %d calls, told %v", l.Flushed(), fails.Load(), told)
	}
}

// TestFlushedMS never names a time of a record that is not flushed.
func TestFlushedMS(t *testing.T) {
	t.Parallel()
	var l *commitlog.Log
	var bad atomic.Int64
	ends := make([]atomic.Int64, 2000)
	l, _ = open(t, commitlog.Config{Dir: t.TempDir(), Sync: true, SegmentSize: 1 << 20})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l.Flushed() == 0 || l.FlushedMS() < 1999 {
			if ms := l.FlushedMS(); ms > 0 && ends[ms].Load() > int64(l.Flushed()) {
				bad.Add(1)
			}
		}
	}()
	d := draft(0, 100)
	for i := 1; i < 2000; i++ {
		dst, at, err := l.Reserve(d.Size())
		if err != nil {
			t.Fatal(err)
		}
		d.Encode(dst, record.Place{Physical: at})
		ends[i].Store(int64(at) + int64(len(dst)))
		if err := l.Commit(); err != nil {
			t.Fatal(err)
		}
		l.Publish(at+record.PhysicalOffset(len(dst)), int64(i))
	}
	<-done
	if bad.Load() != 0 || slices.IndexFunc(l.Segments(), func(s commitlog.SegmentInfo) bool {
		return s.Path == ""
	}) >= 0 {
		t.Errorf("%d times too late", bad.Load())
	}
}

// BenchmarkLogAppend appends records to a log that is flushed asynchronously.
func BenchmarkLogAppend(b *testing.B) {
	for _, size := range []int{128, 1024} {
		b.Run(map[int]string{128: "size=128", 1024: "size=1024"}[size], func(b *testing.B) {
			l, _ := open(b, commitlog.Config{Dir: b.TempDir(), SegmentSize: 1 << 30})
			d := draft(1, size)
			n := d.Size()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				dst, at, err := l.Reserve(n)
				if err != nil {
					b.Fatal(err)
				}
				d.Encode(dst, record.Place{Physical: at})
				if err := l.Commit(); err != nil {
					b.Fatal(err)
				}
				l.Publish(at+record.PhysicalOffset(n), 1)
			}
		})
	}
}
