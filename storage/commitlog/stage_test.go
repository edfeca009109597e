// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// slowDisk is a directory in which syncing the first segment can stand still and writes can fail.
type slowDisk struct {
	*crashfs.FS
	dir     string
	held    atomic.Bool
	fails   atomic.Bool
	entered chan struct{} // a sync stands still
	leave   chan struct{} // closed: no sync stands still any more
}

func newSlowDisk(t *testing.T) *slowDisk {
	t.Helper()
	d := &slowDisk{
		dir: t.TempDir(), entered: make(chan struct{}, 100), leave: make(chan struct{}),
	}
	c, err := crashfs.New(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	d.FS = c
	c.Before = func(op, path string) error {
		switch {
		case op == "sync" && path == segmentPath(d.dir, 0) && d.held.Load():
			d.entered <- struct{}{}
			<-d.leave
		case op == "write" && d.fails.Load():
			return syscall.EIO
		}
		return nil
	}
	return d
}

// hold makes syncs stand still and returns when the one of a first record does.
func (d *slowDisk) hold(t *testing.T, l *commitlog.Log) {
	t.Helper()
	d.held.Store(true)
	fill(t, l, 1, 100)
	<-d.entered
}

// letGo lets them go on.
func (d *slowDisk) letGo() {
	d.held.Store(false)
	close(d.leave)
}

// TestStaged: what comes during a flush is in no file and cannot be read until the flusher comes
// round, or until somebody asks for it to be written out, who need not wait for the disk.
func TestStaged(t *testing.T) {
	t.Parallel()
	disk := newSlowDisk(t)
	l, _ := open(t, commitlog.Config{Dir: disk.dir, FS: disk, Sync: true})
	disk.hold(t, l)
	flushed, wrote := l.Flushed(), l.Wrote()
	want := fill(t, l, 3, 700)
	at := record.PhysicalOffset(want.at[1])
	size := len(want.data[1])
	inFile := func() string {
		t.Helper()
		b, err := os.ReadFile(segmentPath(disk.dir, 0))
		if err != nil {
			t.Fatal(err)
		}
		return string(b[at:][:size])
	}
	if _, err := l.Region(at, int32(size)); !errors.Is(err, commitlog.ErrOutOfRange) {
		t.Errorf("a staged record can be read: %v", err)
	}
	if l.Wrote() != wrote || inFile() == want.data[1] {
		t.Errorf("wrote %d, and was %d before the staged records came", l.Wrote(), wrote)
	}
	if err := l.WriteOut(); err != nil {
		t.Fatal(err)
	}
	r, err := l.Region(at, int32(size))
	if err != nil || string(r.Mem) != want.data[1] || inFile() != want.data[1] {
		t.Fatalf("written out, but not there: %v", err)
	}
	r.Release()
	if l.Wrote() != l.Published() || l.Flushed() != flushed {
		t.Errorf("published %d, wrote %d, flushed %d", l.Published(), l.Wrote(), l.Flushed())
	}
	disk.letGo()
	if err := l.Flush(); err != nil || l.Flushed() != l.Published() {
		t.Errorf("flushed %d of %d: %v", l.Flushed(), l.Published(), err)
	}
}

// TestStagedRecords appends records of all sizes over several segments, larger ones than a chunk too,
// with zeros written right ahead of them, and reads them back from the files.
func TestStagedRecords(t *testing.T) {
	t.Parallel()
	for _, prewrite := range []bool{true, false} {
		t.Run(fmt.Sprintf("prewrite=%v", prewrite), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			cfg := commitlog.Config{
				Dir: t.TempDir(), Sync: true, SegmentSize: 2<<20 + 512, Prewrite: prewrite,
				PopulateStep: 64 << 10, PopulateWindow: 48 << 10,
			}
			l, _ := open(t, cfg)
			var want found
			for i := range 400 {
				n := r.IntN(3000)
				if r.IntN(20) == 0 {
					n = r.IntN(900 << 10)
				}
				d := draft(i, n+1)
				at, b, err := put(l, &d, i)
				if err != nil {
					t.Fatal(err)
				}
				want.at, want.data = append(want.at, at), append(want.data, b)
				switch r.IntN(12) {
				case 0:
					err = l.Flush()
				case 1:
					err = l.WriteOut()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			closeLog(t, l)
			cfg.Sync = false
			_, got := open(t, cfg)
			if diff := cmp.Diff(want.at, got.at); diff != "" {
				t.Fatalf("records lie elsewhere: %s", diff)
			}
			for i := range want.data {
				if want.data[i] != got.data[i] {
					t.Fatalf("record %d at %d differs", i, want.at[i])
				}
			}
		})
	}
}

// TestStageBound: while the disk stands still the appender writes into the file itself, in place of
// filling the memory, and goes on.
func TestStageBound(t *testing.T) {
	t.Parallel()
	disk := newSlowDisk(t)
	l, _ := open(t, commitlog.Config{Dir: disk.dir, FS: disk, Sync: true, SegmentSize: 64 << 20})
	disk.hold(t, l)
	for range 90 {
		fill(t, l, 1, 500<<10)
		if staged := l.Published() - l.Wrote(); staged > 32<<20 {
			t.Fatalf("%d bytes are staged", staged)
		}
	}
	if l.Wrote() < 10<<20 {
		t.Errorf("wrote %d of %d", l.Wrote(), l.Published())
	}
	disk.letGo()
}

// TestWriteOutFails makes a failed write final, as a failed flush is.
func TestWriteOutFails(t *testing.T) {
	t.Parallel()
	disk := newSlowDisk(t)
	var told atomic.Int64
	l, _ := open(t, commitlog.Config{
		Dir: disk.dir, FS: disk, Sync: true, OnFlushError: func(error) { told.Add(1) },
	})
	disk.hold(t, l)
	fill(t, l, 1, 100)
	wrote := l.Wrote()
	disk.fails.Store(true)
	for range 2 {
		if err := l.WriteOut(); !errors.Is(err, syscall.EIO) {
			t.Errorf("write out: %v", err)
		}
	}
	disk.fails.Store(false)
	d := draft(3, 100)
	if _, _, err := put(l, &d, 3); !errors.Is(err, syscall.EIO) {
		t.Errorf("append: %v", err)
	}
	disk.letGo()
	if err := l.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
	if l.Wrote() != wrote || told.Load() != 1 {
		t.Errorf("wrote %d, want %d; told %d times", l.Wrote(), wrote, told.Load())
	}
}

// TestAllocsStaged: appending, writing and flushing take no memory from the heap.
func TestAllocsStaged(t *testing.T) {
	l, _ := open(t, commitlog.Config{Dir: t.TempDir(), Sync: true, SegmentSize: 64 << 20})
	d := draft(1, 1024)
	n := d.Size()
	group := func() {
		var end record.PhysicalOffset
		for range 64 {
			dst, at, err := l.Reserve(n)
			if err != nil {
				t.Fatal(err)
			}
			d.Encode(dst, record.Place{Physical: at})
			end = at + record.PhysicalOffset(n)
		}
		if err := l.Commit(); err != nil {
			t.Fatal(err)
		}
		l.Publish(end, 1)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		group()
	}
	if got := testing.AllocsPerRun(50, group); got > 0.5 {
		t.Errorf("%v allocations for 64 records and a flush", got)
	}
}

// TestPrewrite: blocks ahead of the writer count as written, so that they are no holes any more.
func TestPrewrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := open(t, commitlog.Config{
		Dir: dir, Sync: true, Prewrite: true, SegmentSize: 16 << 20, PopulateWindow: 2 << 20,
	})
	f, err := vfs.OS().OpenFile(filepath.Join(dir, "00000000000000000000"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.WriteZeros(15<<20, 4096); errors.Is(err, vfs.ErrNotSupported) {
		t.Skip("this file system takes no writes past the page cache")
	}
	fill(t, l, 10, 1000)
	for end := time.Now().Add(10 * time.Second); f.NextData(3<<20) != 3<<20; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("no block is written ahead: the next with data is at %d", f.NextData(3<<20))
		}
	}
	b := make([]byte, 1<<20)
	if _, err := f.ReadAt(b, 3<<20); err != nil || !bytes.Equal(b, make([]byte, 1<<20)) {
		t.Errorf("what lies ahead of the writer is not zero: %v", err)
	}
}
