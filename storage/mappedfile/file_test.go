// SPDX-License-Identifier: Apache-2.0

package mappedfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/skylarkmq/skylark/storage/mappedfile"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

const testSize = 16 * vfs.PageSize

func create(t *testing.T) *mappedfile.File {
	t.Helper()
	f, err := mappedfile.Create(vfs.OS(), filepath.Join(t.TempDir(), "f"), testSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestCreateAndOpen(t *testing.T) {
	t.Parallel()
	f := create(t)
	copy(f.Bytes()[5000:], "hello")
	if err := f.Flush(5000, 5005); err != nil {
		t.Fatal(err)
	}
	if _, err := mappedfile.Create(vfs.OS(), f.Path(), testSize); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Create: %v", err)
	}
	var size *mappedfile.SizeError
	if _, err := mappedfile.Open(vfs.OS(), f.Path(), testSize-1); !errors.As(err, &size) ||
		size.Got != testSize || size.Want != testSize-1 {
		t.Errorf("Open with another size: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := mappedfile.Open(vfs.OS(), f.Path(), testSize)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := g.ReadAt(b, 5000); string(b) != "hello" || err != nil {
		t.Errorf("read %q %v", b, err)
	}
	if err := g.Flush(0, 1); !errors.Is(err, mappedfile.ErrClosed) {
		t.Errorf("flush before Map: %v", err)
	}
	checkTail(t, g)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// checkTail prepares an opened file for appending at 5001.
func checkTail(t *testing.T, g *mappedfile.File) {
	t.Helper()
	for name, err := range map[string]error{
		"zero": g.Zero(5001), "forget": g.ForgetTail(5001), "allocate": g.Allocate(),
		"map": g.Map(), "map again": g.Map(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := g.Bytes()[4999:5003]; string(got) != "\x00h\x00\x00" {
		t.Errorf("after Zero %q", got)
	}
	if in, err := g.Resident(0, 100); !in && !errors.Is(err, vfs.ErrNotSupported) {
		t.Errorf("resident %v %v", in, err)
	}
}

// TestHolds keeps the bytes of a deleted file in place until the last region goes.
func TestHolds(t *testing.T) {
	t.Parallel()
	f := create(t)
	copy(f.Bytes()[100:], "abcdef")
	r1, ok1 := f.Region(100, 3)
	r2, ok2 := f.Region(103, 3)
	if !ok1 || !ok2 || string(r1.Mem) != "abc" || string(r2.Mem) != "def" || r2.Off != 103 {
		t.Fatalf("%v %q, %v %q", ok1, r1.Mem, ok2, r2.Mem)
	}
	if cap(r1.Mem) < 6 {
		t.Error("the memory of a region does not reach its neighbour")
	}
	if err := f.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name is still there: %v", err)
	}
	r1.Release()
	r1.Release()
	select {
	case <-f.Gone():
		t.Fatal("torn down under a region")
	default:
	}
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, 103); string(b) != "def" || string(r2.Mem) != "def" || err != nil {
		t.Errorf("%q %q %v", b, r2.Mem, err)
	}
	r2.Release()
	<-f.Gone()
	if _, ok := f.Region(0, 1); ok || f.Retain() {
		t.Error("a hold on a file that is gone")
	}
	if err := f.Flush(0, 1); !errors.Is(err, mappedfile.ErrClosed) {
		t.Errorf("flush: %v", err)
	}
}

// TestHoldsConcurrent takes and gives regions while the owner deletes; the race detector watches.
func TestHoldsConcurrent(t *testing.T) {
	t.Parallel()
	f := create(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				r, ok := f.Region(0, testSize)
				if !ok {
					return
				}
				if r.Mem[testSize-1] != 0 {
					t.Error("wrong byte")
				}
				r.Release()
			}
		})
	}
	if err := f.Delete(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	<-f.Gone()
}

func TestPopulate(t *testing.T) {
	t.Parallel()
	for name, populate := range map[string]func(*mappedfile.File, int, int, int) (bool, error){
		"at once": (*mappedfile.File).Populate, "gently": (*mappedfile.File).PopulateGently,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := create(t)
			f.Bytes()[vfs.PageSize] = 7
			for calls := 1; ; calls++ {
				more, err := populate(f, vfs.PageSize+5, 9*vfs.PageSize, 2*vfs.PageSize)
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					if f.Populated() != 0 && (calls != 4 || f.Populated() != 9*vfs.PageSize) {
						t.Errorf("%d calls, populated up to %d", calls, f.Populated())
					}
					break
				}
			}
			if f.Bytes()[vfs.PageSize] != 7 {
				t.Error("a byte was lost")
			}
		})
	}
}

// TestPopulateGently has nothing read ahead of what it makes.
func TestPopulateGently(t *testing.T) {
	t.Parallel()
	const made, size = 1 << 20, 32 << 20
	f, err := mappedfile.Create(vfs.OS(), filepath.Join(t.TempDir(), "f"), size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.PopulateGently(0, made, made); err != nil {
		t.Fatal(err)
	}
	if f.Populated() == 0 {
		t.Skip("this kernel cannot populate")
	}
	in, err := f.Resident(0, made)
	if errors.Is(err, vfs.ErrNotSupported) {
		t.Skip("this kernel does not tell what is in memory")
	}
	if !in || err != nil {
		t.Errorf("the pages are not in memory: %v", err)
	}
	if in, _ := f.Resident(made+64<<10, 64<<10); in {
		t.Error("more than was asked for is in memory")
	}
}

func faulty(t *testing.T, before func(op, path string) error) (*crashfs.FS, string) {
	t.Helper()
	dir := t.TempDir()
	c, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Before = before
	return c, filepath.Join(dir, "f")
}

// TestFlushErrorIsFinal lets one msync fail; the file never claims to be flushed again.
// TestFlushDetaches: a flush of a long range leaves no page of it mapped, loses nothing of it, and the
// page at its end, where the writer goes on, stays.
func TestFlushDetaches(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can detach pages")
	}
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "f")
	f, err := mappedfile.Create(vfs.OS(), path, size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i / 251)
	}
	const end = size/2 + 100
	copy(f.Bytes(), want[:end])
	if err := f.Flush(0, end); err != nil {
		t.Fatal(err)
	}
	if n := mapped(t, f.Bytes()[:size/2]); n != 0 {
		t.Errorf("%d pages of what was flushed are mapped", n)
	}
	if n := mapped(t, f.Bytes()[size/2:end]); n != 1 {
		t.Error("the page that the writer goes on in is not mapped")
	}
	copy(f.Bytes()[end:], want[end:])
	copy(f.Bytes()[7:9], "x") // into a page that was detached
	copy(want[7:9], "x")
	if !bytes.Equal(f.Bytes(), want) {
		t.Error("the mapping lost bytes")
	}
	if err := f.Flush(0, size); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs: %v", err)
	}
	if f.Bytes()[0] != want[0] { // maps it
		t.Error("the first byte differs")
	}
	if err := f.Flush(0, 4096); err != nil || mapped(t, f.Bytes()[:4096]) != 1 {
		t.Errorf("a short range was detached, or %v", err)
	}
}

// mapped counts the pages of b that the page tables have.
func mapped(t *testing.T, b []byte) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first := uintptr(unsafe.Pointer(&b[0])) / vfs.PageSize
	last := uintptr(unsafe.Pointer(&b[len(b)-1])) / vfs.PageSize
	entries := make([]byte, 8*(last-first+1))
	if _, err := f.ReadAt(entries, int64(first)*8); err != nil {
		t.Fatal(err)
	}
	for ; len(entries) > 0; entries = entries[8:] {
		n += int(binary.LittleEndian.Uint64(entries) >> 63)
	}
	return n
}

func TestFlushErrorIsFinal(t *testing.T) {
	t.Parallel()
	fail := true
	c, path := faulty(t, func(op, _ string) error {
		if op == "msync" && fail {
			return syscall.EIO
		}
		return nil
	})
	f, err := mappedfile.Create(c, path, testSize)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first := f.Flush(0, 10)
	if !errors.Is(first, syscall.EIO) || !strings.Contains(first.Error(), path) {
		t.Fatalf("first flush: %v", first)
	}
	fail = false
	if err := f.Flush(0, 10); err != first { //nolint:errorlint // it must be the very same
		t.Errorf("second flush: %v", err)
	}
	if err := f.SyncAll(); err != first { //nolint:errorlint // it must be the very same
		t.Errorf("sync: %v", err)
	}
}

// TestCreateFull leaves nothing behind on a full disk, and TestCreateWithoutFallocate gets by.
func TestCreateFull(t *testing.T) {
	t.Parallel()
	c, path := faulty(t, func(op, _ string) error {
		if op == "allocate" {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := mappedfile.Create(c, path, testSize)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is left: %v", err)
	}
}

func TestCreateWithoutFallocate(t *testing.T) {
	t.Parallel()
	c, path := faulty(t, func(op, _ string) error {
		if op == "allocate" {
			return vfs.ErrNotSupported
		}
		return nil
	})
	f, err := mappedfile.Create(c, path, testSize)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != testSize || len(f.Bytes()) != testSize {
		t.Errorf("%v %v", info, err)
	}
}

// TestCrashFlush loses power: what was flushed is there, at its length and under its name.
func TestCrashFlush(t *testing.T) {
	t.Parallel()
	c, path := faulty(t, nil)
	f, err := mappedfile.Create(c, path, testSize)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	want := make([]byte, 0, testSize)
	for len(want)+3000 <= testSize {
		at := len(want)
		want = append(want, bytes.Repeat([]byte{byte(at>>8) | 1}, 3000)...)
		copy(f.Bytes()[at:], want[at:])
		if err := f.Flush(at, len(want)); err != nil {
			t.Fatal(err)
		}
		dst := t.TempDir()
		if err := c.Crash(dst, rng, 0); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dst, "f"))
		if err != nil || len(got) != testSize || !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("after %d bytes: %d bytes, %v", len(want), len(got), err)
		}
	}
}

// TestAllocsRegion holds taking and giving a region at no allocation.
func TestAllocsRegion(t *testing.T) {
	f := create(t)
	got := testing.AllocsPerRun(100, func() {
		r, ok := f.Region(10, 100)
		if !ok {
			t.Fatal("no region")
		}
		r.Release()
	})
	if got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
