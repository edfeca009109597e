// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// TestReserveRoll checks the rule of the last 8 bytes: what leaves exactly 8 stays, what would
// leave 7 goes to the next segment as a whole, and earlier unpublished records stay where they are.
func TestReserveRoll(t *testing.T) {
	t.Parallel()
	l, _ := open(t, commitlog.Config{Dir: t.TempDir()})
	reserve := func(size int, want int64) {
		t.Helper()
		dst, at, err := l.Reserve(size)
		if err != nil || int64(at) != want || len(dst) != size || cap(dst) != size {
			t.Fatalf("Reserve(%d): at %d, %d bytes, %v; want %d", size, at, len(dst), err, want)
		}
	}
	reserve(1000, 0)
	reserve(segmentSize-1000-8, 1000) // leaves exactly 8
	reserve(segmentSize-8, segmentSize)
	reserve(1000, 2*segmentSize)
	reserve(segmentSize-1000-7, 3*segmentSize) // would have left 7
	if err := l.Commit(); err != nil {
		t.Fatal(err)
	}
	l.Publish(4*segmentSize-1007, 1)
	checkBlank(t, l, segmentSize-8, 8)
	checkBlank(t, l, 2*segmentSize-8, 8)
	checkBlank(t, l, 2*segmentSize+1000, segmentSize-1000)
	for _, size := range []int{segmentSize - 7, segmentSize, 0, -1} {
		if _, _, err := l.Reserve(size); !errors.Is(err, commitlog.ErrTooLarge) {
			t.Errorf("Reserve(%d): %v", size, err)
		}
	}
}

func checkBlank(t *testing.T, l *commitlog.Log, at record.PhysicalOffset, want int32) {
	t.Helper()
	b := make([]byte, record.BlankSize)
	if err := l.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	if size, blank, _ := record.PeekSize(b); size != want || !blank {
		t.Errorf("at %d: size %d blank=%v, want a blank of %d", at, size, blank, want)
	}
}

func TestPublishMisuse(t *testing.T) {
	t.Parallel()
	l, _ := open(t, commitlog.Config{Dir: t.TempDir()})
	if _, _, err := l.Reserve(100); err != nil {
		t.Fatal(err)
	}
	for _, end := range []record.PhysicalOffset{0, 101} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Publish(%d) is accepted", end)
				}
			}()
			l.Publish(end, 1)
		}()
	}
}

// TestRegion reads every record back, and refuses what is not one segment's published bytes.
func TestRegion(t *testing.T) {
	t.Parallel()
	l, _ := open(t, commitlog.Config{Dir: t.TempDir()})
	want := fill(t, l, 300, 700)
	for i, at := range want.at {
		r, err := l.Region(record.PhysicalOffset(at), int32(len(want.data[i])))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, r.Size)
		if _, err := syscall.Pread(r.FD, b, r.Off); err != nil {
			t.Fatal(err)
		}
		if string(r.Mem) != want.data[i] || string(b) != want.data[i] {
			t.Fatalf("record %d differs", i)
		}
		r.Release()
	}
	wrote := l.Wrote()
	for _, r := range []struct {
		at   record.PhysicalOffset
		size int32
	}{
		{-1, 1},
		{wrote, 1},
		{wrote - 1, 2},
		{segmentSize - 1, 2},
		{0, 0},
		{0, -5},
		{1 << 60, 1},
	} {
		if _, err := l.Region(r.at, r.size); !errors.Is(err, commitlog.ErrOutOfRange) {
			t.Errorf("Region(%d, %d): %v", r.at, r.size, err)
		}
	}
	r, err := l.Region(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if string(r.Mem) != want.data[0][:100] {
		t.Error("the bytes of a region are gone after Close")
	}
	r.Release()
	if _, err := l.Region(0, 100); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("Region after Close: %v", err)
	}
	if _, _, err := l.Reserve(100); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("Reserve after Close: %v", err)
	}
	closeLog(t, l)
}

// TestDeleteFront deletes under readers: regions stay, Min moves, the rest is found again.
func TestDeleteFront(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, commitlog.Config{Dir: dir})
	want := fill(t, l, 400, 700)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := l.Region(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.DeleteFront(2*segmentSize + 5); n != 2 || err != nil {
		t.Fatalf("deleted %d, %v", n, err)
	}
	if l.Min() != 2*segmentSize || string(r.Mem) != want.data[0][:100] {
		t.Errorf("min %d", l.Min())
	}
	r.Release()
	if _, err := l.Region(0, 100); !errors.Is(err, commitlog.ErrOutOfRange) {
		t.Errorf("Region of a deleted segment: %v", err)
	}
	if n, err := l.DeleteFront(l.Wrote() + segmentSize); err != nil || len(l.Segments()) != 1 {
		t.Errorf("deleted %d, %v, %d left", n, err, len(l.Segments()))
	}
	minimum := l.Min()
	fill(t, l, 200, 700)
	closeLog(t, l)
	l, got := open(t, commitlog.Config{Dir: dir})
	if l.Min() != minimum || got.at[0] != int64(minimum) {
		t.Errorf("min %d, first record at %d, want %d", l.Min(), got.at[0], minimum)
	}
}

// TestConcurrent appends and deletes while others read; the race detector watches.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	l, _ := open(t, commitlog.Config{Dir: t.TempDir(), Sync: true})
	var last, done atomic.Int64
	last.Store(-1)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for done.Load() == 0 {
				at := last.Load()
				if at < 0 {
					continue
				}
				d := draft(0, 500)
				r, err := l.Region(record.PhysicalOffset(at), int32(d.Size()))
				if errors.Is(err, commitlog.ErrOutOfRange) && at < int64(l.Min()) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if v, err := record.Parse(r.Mem); err != nil || int64(v.PhysicalOffset()) != at {
					t.Errorf("at %d: %v", at, err)
				}
				r.Release()
			}
		})
	}
	d := draft(0, 500)
	var ats []int64
	for i := range 2000 {
		at, _, err := put(l, &d, i)
		if err != nil {
			t.Fatal(err)
		}
		ats = append(ats, at)
		for len(ats) > 0 && ats[0]+int64(d.Size()) <= int64(l.Wrote()) {
			last.Store(ats[0])
			ats = ats[1:]
		}
		if i%500 == 499 {
			if _, err := l.DeleteFront(l.Flushed() - segmentSize); err != nil {
				t.Error(err)
			}
		}
	}
	done.Store(1)
	wg.Wait()
}

// TestFullDisk cannot make the next segment for a while; appends fail with the path, then go on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	var full atomic.Bool
	c.Before = func(op, _ string) error {
		if op == "allocate" && full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}
	var told atomic.Int64
	l, _ := open(t, commitlog.Config{Dir: dir, FS: c, Notice: func(msg string, _ ...any) {
		if strings.Contains(msg, "could not be created") {
			told.Add(1)
		}
	}})
	full.Store(true)
	d, n := draft(0, 5000), 0
	for ; ; n++ {
		if _, _, err = put(l, &d, n); err != nil {
			break
		}
	}
	for range 50 {
		if _, _, err = put(l, &d, n); err == nil {
			t.Fatal("taken on a full disk")
		}
	}
	if got := told.Load(); got != 1 {
		t.Errorf("told %d times, want once a minute", got)
	}
	path := segmentPath(dir, segmentSize)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("full disk: %v", err)
	}
	full.Store(false)
	at, _, err := put(l, &d, n)
	if err != nil || at != segmentSize {
		t.Fatalf("with room again: at %d, %v", at, err)
	}
	closeLog(t, l)
	if _, got := open(t, commitlog.Config{Dir: dir}); len(got.at) != n+1 {
		t.Errorf("%d records, want %d", len(got.at), n+1)
	}
}

// TestCloseDropsPrepared leaves no segment behind that was created ahead and not used.
func TestCloseDropsPrepared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, commitlog.Config{Dir: dir})
	fill(t, l, 70, 700) // more than half a segment
	closeLog(t, l)
	if _, err := os.Stat(segmentPath(dir, segmentSize)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("prepared segment: %v", err)
	}
}

// TestOpenRefuses expects an error that names the file.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, dir string){
		"segment size": func(t *testing.T, dir string) {
			truncate(t, segmentPath(dir, 0), segmentSize/2)
		},
		"long last": func(t *testing.T, dir string) {
			truncate(t, segmentPath(dir, 3*segmentSize), segmentSize+1)
		},
		"gap": func(t *testing.T, dir string) {
			if err := os.Remove(segmentPath(dir, segmentSize)); err != nil {
				t.Fatal(err)
			}
		},
		"name": func(t *testing.T, dir string) {
			old := segmentPath(dir, 3*segmentSize)
			err := os.Rename(old, filepath.Join(dir, fmt.Sprintf("%020d", 3*segmentSize+1)))
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		dir := unpack(t, "base")
		damage(t, dir)
		_, _, err := recoverLog(commitlog.Config{Dir: dir, SegmentSize: segmentSize})
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := recoverLog(commitlog.Config{Dir: t.TempDir(), SegmentSize: 50}); err == nil {
		t.Error("a segment size of 50 bytes is accepted")
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// TestGapSkipped goes on behind a missing segment when told to.
func TestGapSkipped(t *testing.T) {
	t.Parallel()
	dir := unpack(t, "base")
	if err := os.Remove(segmentPath(dir, segmentSize)); err != nil {
		t.Fatal(err)
	}
	var told notices
	l, got := open(t, commitlog.Config{Dir: dir, Damage: commitlog.DamageSkip, Notice: told.notice})
	if l.Wrote() != 243278 || len(got.at) == 0 || told.count() != 1 {
		t.Errorf("wrote %d, %d records, %v", l.Wrote(), len(got.at), told.msgs)
	}
	if slices.ContainsFunc(got.at, func(at int64) bool { return at/segmentSize == 1 }) {
		t.Error("a record of the missing segment is visited")
	}
	closeLog(t, l)
	l, again := open(t, commitlog.Config{Dir: dir}) // the gap is no more
	if l.Wrote() != 243278 || !slices.Equal(again.at, got.at) {
		t.Errorf("wrote %d, %d records, want %d", l.Wrote(), len(again.at), len(got.at))
	}
	if n, err := l.DeleteFront(segmentSize); n != 1 || err != nil || l.Min() != segmentSize {
		t.Errorf("deleted %d, %v, min %d", n, err, l.Min())
	}
}

// TestAllocsAppend holds reserving, encoding and publishing at no allocation.
func TestAllocsAppend(t *testing.T) {
	l, _ := open(t, commitlog.Config{Dir: t.TempDir(), SegmentSize: 64 << 20})
	d := draft(1, 100)
	size := d.Size()
	got := testing.AllocsPerRun(1000, func() {
		dst, at, err := l.Reserve(size)
		if err != nil {
			t.Fatal(err)
		}
		d.Encode(dst, record.Place{Physical: at})
		if err := l.Commit(); err != nil {
			t.Fatal(err)
		}
		l.Publish(at+record.PhysicalOffset(size), 1)
		r, err := l.Region(at, int32(size))
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	})
	if got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
