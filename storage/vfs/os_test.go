// SPDX-License-Identifier: Apache-2.0

package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// holderEnv makes the test binary hold a record lock, as a JVM does, until its input ends.
const holderEnv = "VFS_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	path := os.Getenv(holderEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(killedEnv) != "" {
		holdWithMapping(path)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err == nil {
		arg := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &arg)
	}
	if err != nil {
		os.Exit(3)
	}
	_, _ = os.Stdout.WriteString("locked")
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// killedEnv makes it hold a store's lock and a large mapping instead, until it is killed.
const killedEnv = "VFS_TEST_HOLD_MAPPING"

func holdWithMapping(path string) {
	const size = 512 << 20
	lock, err := vfs.LockFile(path)
	if err != nil {
		os.Exit(4)
	}
	abort := filepath.Join(filepath.Dir(path), "abort")
	if err := os.WriteFile(abort, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		os.Exit(5)
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		os.Exit(6)
	}
	for i := 0; i < size; i += os.Getpagesize() {
		b[i] = 1
	}
	_, _ = os.Stdout.WriteString("locked")
	_, _ = os.Stdin.Read(b[:1])
	_ = lock.Close()
	os.Exit(0)
}

// TestLockAfterKill takes the lock right after its holder was killed: the dying process keeps it
// until its mappings are gone, and a supervisor that starts the next one at once must not fail.
func TestLockAfterKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+path, killedEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, len("locked")))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l, err := vfs.LockFile(path)
	if err != nil {
		t.Errorf("right after the holder was killed: %v", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func TestLockFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	l, err := vfs.LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); string(b) != "lock" || err != nil {
		t.Errorf("content %q %v", b, err)
	}
	var held *vfs.LockedError
	if _, err := vfs.LockFile(path); !errors.As(err, &held) || held.PID != 0 {
		t.Errorf("second lock in one process: %v", err)
	}
	write(t, filepath.Join(filepath.Dir(path), "abort"), []byte("4711\n"))
	if _, err := vfs.LockFile(path); !errors.As(err, &held) || held.PID != 4711 {
		t.Errorf("with an abort file: %v", err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	l, err = vfs.LockFile(path)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestLockFileJVM lets another process hold the kind of lock that Java takes.
func TestLockFileJVM(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	_, err = vfs.LockFile(path)
	var held *vfs.LockedError
	if !errors.As(err, &held) || held.PID != cmd.Process.Pid ||
		!strings.Contains(err.Error(), strconv.Itoa(held.PID)) {
		t.Errorf("got %v, holder is %d", err, cmd.Process.Pid)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	l, err := vfs.LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	fsys := vfs.OS()
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.OpenFile(filepath.Join(dir, "f"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	const size = 16 * vfs.PageSize
	if err := f.Allocate(size); errors.Is(err, vfs.ErrNotSupported) {
		err = f.Zero(0, size)
		if err != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	m, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Populate(0, size); err != nil && !errors.Is(err, vfs.ErrNotSupported) {
		t.Error(err)
	}
	copy(m.Bytes()[5000:], "hello")
	for _, r := range [][2]int{{5000, 5}, {0, 0}, {size - 1, 1}, {0, size}} {
		if err := m.Sync(r[0], r[1]); err != nil {
			t.Errorf("sync %v: %v", r, err)
		}
	}
	if err := f.WriteBehind(0, size); err != nil {
		t.Error(err)
	}
	if in, err := f.Resident(4096, 2*vfs.PageSize); !in && !errors.Is(err, vfs.ErrNotSupported) {
		t.Errorf("resident %v %v", in, err)
	}
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 5000); string(b) != "hello" || err != nil {
		t.Errorf("read %q %v", b, err)
	}
	if err := f.Zero(5001, size-5001); err != nil {
		t.Error(err)
	}
	if got := m.Bytes()[4999:5006]; !bytes.Equal(got, []byte("\x00h\x00\x00\x00\x00\x00")) {
		t.Errorf("after Zero: %q", got)
	}
	if at := f.NextData(0); at > 5000 {
		t.Errorf("first data at %d", at)
	}
	if at := f.NextData(size); at != size {
		t.Errorf("data at %d behind the end", at)
	}
	if n, err := f.Size(); n != size || err != nil {
		t.Errorf("size %d %v", n, err)
	}
	for range 2 {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if u, err := fsys.Usage(dir); err != nil || u.Total < u.Avail || u.UsedRatio() > 1 {
		t.Errorf("usage %+v %v", u, err)
	}
	if got := (vfs.Usage{Total: 100, Free: 40, Avail: 20}).UsedRatio(); got != 0.75 {
		t.Errorf("used ratio %v", got)
	}
}

// TestMappingResident: a mapping tells which of its pages are in the page cache, without touching them.
func TestMappingResident(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, size), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), f.Forget(0, size)); err != nil {
		t.Fatal(err)
	}
	if there, err := f.Resident(0, size); err != nil || there {
		t.Skipf("this kernel or file system does not drop pages on request: %v %v", there, err)
	}
	m, err := f.Map(size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Unmap() }()
	resident := func(from, n int) bool {
		t.Helper()
		there, err := m.Resident(from, n)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	if resident(0, 1) || resident(size-1, 1) || resident(0, size) {
		t.Error("dropped pages are taken to be in memory")
	}
	if _, err := f.ReadAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if !resident(0, size) || !resident(5000, 300_000) {
		t.Error("pages that were read are not in memory")
	}
	if err := f.Prefetch(0, size); err != nil {
		t.Error(err)
	}
}

// TestWriteZeros writes over nothing but what it is told to.
func TestWriteZeros(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte{1}, 5*vfs.PageSize)
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.WriteZeros(vfs.PageSize, 2*vfs.PageSize)
	if errors.Is(err, vfs.ErrNotSupported) {
		t.Skip("this file system takes no writes past the page cache")
	}
	if err != nil {
		t.Fatal(err)
	}
	clear(want[vfs.PageSize : 3*vfs.PageSize])
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes than those of two pages are zero: %v", err)
	}
}
