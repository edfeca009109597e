// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// tightFS has no room for new files of the log and the queues while ballast lies on it, or at all.
type tightFS struct {
	*crashfs.FS
	root   string
	others atomic.Bool // somebody else has filled the disk
	errno  syscall.Errno
}

func newTight(t *testing.T, root string, errno syscall.Errno) *tightFS {
	t.Helper()
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	disk, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	d := &tightFS{FS: disk, root: root, errno: errno}
	disk.Before = func(op, path string) error {
		if op != "allocate" || !d.others.Load() || filepath.Base(path) == "ballast" {
			return nil
		}
		if _, err := os.Stat(filepath.Join(root, "ballast")); err == nil {
			return &os.PathError{Op: op, Path: path, Err: d.errno}
		}
		return nil
	}
	return d
}

// TestBallast: the ballast file is there a while after the start, and is given up by the first append
// that finds no space, which succeeds then. It comes back when there is room, a minute later.
func TestBallast(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			cfg := small(filepath.Join(t.TempDir(), "store"))
			disk := newTight(t, cfg.RootDir, errno)
			var told notices
			var now atomic.Int64
			now.Store(1_700_000_000_000)
			cfg.FS, cfg.BallastBytes, cfg.Notice = openFS{disk.FS}, 64<<10, told.add
			cfg.DiskFullRatio, cfg.DiskFreeRatio = 101, 100
			cfg.QueueFlushInterval = 2 * time.Millisecond
			cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
			s := open(t, cfg)
			path := filepath.Join(cfg.RootDir, "ballast")
			eventually(t, "the ballast is made", func() bool { return s.Info().Ballast == 64<<10 })
			if info, err := os.Stat(path); err != nil || info.Size() != 64<<10 {
				t.Fatalf("ballast: %v %v", info, err)
			}
			disk.others.Store(true)
			sendMany(t, s, 0, 40) // fails the test when one is refused
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) || s.Info().Ballast != 0 {
				t.Errorf("the ballast is still there: %v", err)
			}
			told.mu.Lock()
			if !strings.Contains(strings.Join(told.text, "\n"), "the ballast file was given up") {
				t.Errorf("told %q", told.text)
			}
			told.mu.Unlock()
			disk.others.Store(false)
			sendMany(t, s, 40, 5)
			if s.Info().Ballast != 0 {
				t.Error("it is back at once")
			}
			now.Add(2 * time.Minute.Milliseconds())
			sendMany(t, s, 45, 5)
			eventually(t, "the ballast is back", func() bool { return s.Info().Ballast == 64<<10 })
			checkMany(t, s, 50)
		})
	}
}

// TestBallastSizes: one of another size is replaced, none is wanted with 0, and by default it is half
// a percent of the disk.
func TestBallastSizes(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 101, 100
	cfg.QueueFlushInterval = 2 * time.Millisecond
	path := filepath.Join(cfg.RootDir, "ballast")
	for _, size := range []int64{40 << 10, 20 << 10, 0} {
		cfg.BallastBytes = size
		s, err := storage.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, draft("T", 0, "m", ""))
		eventually(t, "the ballast has its size", func() bool {
			info, err := os.Stat(path)
			return size == 0 && err != nil || err == nil && info.Size() == size
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
