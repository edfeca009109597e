// SPDX-License-Identifier: Apache-2.0

package commitlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// spread is a log over three directories.
type spread struct {
	base string
	cfg  commitlog.Config
}

func newSpread(t *testing.T) *spread {
	t.Helper()
	s := &spread{base: t.TempDir()}
	s.cfg = commitlog.Config{SegmentSize: segmentSize, Dirs: []string{s.dir("c"), s.dir("a"), s.dir("b")}}
	return s
}

func (s *spread) dir(name string) string { return filepath.Join(s.base, name) }

// roll appends until the log has begun n more segments.
func roll(t *testing.T, l *commitlog.Log, n int) {
	t.Helper()
	for want := len(l.Segments()) + n; len(l.Segments()) < want; {
		fill(t, l, 1, 9000)
	}
}

// layout says which segment lies where, by number.
func (s *spread) layout(t *testing.T, l *commitlog.Log) (where []string) {
	t.Helper()
	for _, seg := range l.Segments() {
		rel, err := filepath.Rel(s.base, seg.Path)
		if err != nil {
			t.Fatal(err)
		}
		where = append(where, filepath.Dir(rel))
	}
	return where
}

// TestDirsGoRound: segments lie where RocketMQ puts them, in the sorted directories by turns, past
// those that are nearly full or read-only, and are found wherever they lie.
func TestDirsGoRound(t *testing.T) {
	t.Parallel()
	s := newSpread(t)
	var full atomic.Pointer[[]string]
	full.Store(&[]string{})
	s.cfg.FullDirs = func() []string { return *full.Load() }
	l, _, err := recoverLog(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	roll(t, l, 3)
	if diff := cmp.Diff([]string{"a", "b", "c", "a"}, s.layout(t, l)); diff != "" {
		t.Fatal(diff)
	}
	closeLog(t, l)

	full.Store(&[]string{s.dir("b")}) // a and c are left: number 4 in a, 5 in c
	l, got, err := recoverLog(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	records := len(got.at)
	roll(t, l, 2)
	if diff := cmp.Diff([]string{"a", "b", "c", "a", "a", "c"}, s.layout(t, l)); diff != "" {
		t.Fatal(diff)
	}
	closeLog(t, l)

	full.Store(&[]string{s.dir("a"), s.dir("b"), s.dir("c")}) // all the same again: 6 in a, 7 in b
	s.cfg.ReadOnlyDirs = []string{s.dir("b")}                 // but b, so 7 in c
	l, got, err = recoverLog(s.cfg)
	if err != nil || len(got.at) <= records {
		t.Fatalf("%d records, had %d: %v", len(got.at), records, err)
	}
	roll(t, l, 2)
	if diff := cmp.Diff([]string{"a", "b", "c", "a", "a", "c", "a", "c"}, s.layout(t, l)); diff != "" {
		t.Fatal(diff)
	}
	if n, err := l.DeleteFront(5 * segmentSize); err != nil || n != 5 {
		_ = l.Flush()
		if n, err = l.DeleteFront(5 * segmentSize); err != nil || n != 5 {
			t.Fatalf("deleted %d of 5: %v", n, err)
		}
	}
	closeLog(t, l)
	l, _, err = recoverLog(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c", "a", "c"}, s.layout(t, l)); diff != "" {
		t.Error(diff)
	}
	closeLog(t, l)
}

// TestDirsOneFails: a directory that cannot take a segment does not stop the log.
func TestDirsOneFails(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			s := newSpread(t)
			fs, err := crashfs.New(s.base)
			if err != nil {
				t.Fatal(err)
			}
			var broken atomic.Bool
			fs.Before = func(op, path string) error {
				if broken.Load() && filepath.Base(filepath.Dir(path)) == "b" && (op == "open" || op == "allocate") {
					return &os.PathError{Op: op, Path: path, Err: errno}
				}
				return nil
			}
			var told notices
			s.cfg.FS, s.cfg.Notice = fs, told.notice
			broken.Store(true)
			l, _, err := recoverLog(s.cfg)
			if err != nil {
				t.Fatal(err)
			}
			roll(t, l, 4)
			if diff := cmp.Diff([]string{"a", "c", "c", "a", "c"}, s.layout(t, l)); diff != "" {
				t.Fatal(diff)
			}
			if told.count() == 0 {
				t.Error("nobody was told")
			}
			broken.Store(false)
			closeLog(t, l)
			l, _, err = recoverLog(s.cfg)
			if err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
		})
	}
}

// TestDirsTwice: an unused file of the same name is set aside, and two used ones stop the start.
func TestDirsTwice(t *testing.T) {
	t.Parallel()
	s := newSpread(t)
	var told notices
	s.cfg.Notice = told.notice
	l, _, err := recoverLog(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	roll(t, l, 2)
	second := l.Segments()[1].Path
	closeLog(t, l)
	twin := filepath.Join(s.dir("a"), filepath.Base(second))
	for _, size := range []int64{0, 100, segmentSize} {
		if err := os.WriteFile(twin, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		l, _, err := recoverLog(s.cfg)
		if err != nil {
			t.Fatalf("a twin of %d zeros: %v", size, err)
		}
		closeLog(t, l)
		aside, err := filepath.Glob(twin + ".unused-*")
		if err != nil || len(aside) != 1 {
			t.Fatalf("set aside: %v %v", aside, err)
		}
		if err := os.Remove(aside[0]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(second)
	if err == nil {
		err = os.WriteFile(twin, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := recoverLog(s.cfg); err == nil || !strings.Contains(err.Error(), twin) ||
		!strings.Contains(err.Error(), second) {
		t.Errorf("two files of one name: %v", err)
	}
}

// TestDirsReadOnlyFiles: segments that cannot be written are read; an end of the log among them
// stops the start and names the file.
func TestDirsReadOnlyFiles(t *testing.T) {
	t.Parallel()
	s := newSpread(t)
	l, _, err := recoverLog(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	roll(t, l, 2)
	segs := l.Segments()
	closeLog(t, l)
	fs, err := crashfs.New(s.base)
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.FS = readOnlyDir{fs, s.dir("b")}
	l, got, err := recoverLog(s.cfg)
	if err != nil || len(got.at) == 0 {
		t.Fatalf("%d records: %v", len(got.at), err)
	}
	r, err := l.Region(segs[1].Base, 100)
	if err != nil || len(r.Mem) != 100 {
		t.Fatalf("region of a read-only segment: %v", err)
	}
	r.Release()
	roll(t, l, 1)
	closeLog(t, l)
	s.cfg.FS = readOnlyDir{fs, s.dir("a")} // segment 3, the last
	_, _, err = recoverLog(s.cfg)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(s.dir("a"), "0")) {
		t.Errorf("an end of the log that cannot be written: %v", err)
	}
}

// readOnlyDir lets nothing in one directory be opened for writing.
type readOnlyDir struct {
	*crashfs.FS
	dir string
}

func (r readOnlyDir) OpenFile(path string, flag int, perm os.FileMode) (vfs.File, error) {
	if filepath.Dir(path) == r.dir && flag&(os.O_RDWR|os.O_WRONLY) != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.EROFS}
	}
	return r.FS.OpenFile(path, flag, perm)
}

// TestDirsAllReadOnly refuses what can never be written, and a missing read-only directory.
func TestDirsAllReadOnly(t *testing.T) {
	t.Parallel()
	s := newSpread(t)
	s.cfg.ReadOnlyDirs = s.cfg.Dirs
	if _, err := commitlog.Open(s.cfg); err == nil {
		t.Error("a log without a writable directory was opened")
	}
	s.cfg.ReadOnlyDirs = []string{s.dir("gone")}
	if _, err := commitlog.Open(s.cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing read-only directory: %v", err)
	}
}
