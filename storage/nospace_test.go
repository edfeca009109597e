// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// TestNoSpaceAnywhere lets every call that can need space fail for a while, one kind of call and one
// kind of file at a time, wherever the store comes by. Sends are taken or refused as on a full disk,
// reads go on, nothing is read-only afterwards, and when there is room the store goes on by itself.
func TestNoSpaceAnywhere(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		for _, op := range []string{"open", "allocate", "write", "truncate"} {
			for _, where := range []string{"commitlog", "consumequeue", "index", "config", ""} {
				t.Run(fmt.Sprintf("%v %s %s", errno, op, where), func(t *testing.T) {
					t.Parallel()
					noSpace(t, errno, op, where)
				})
			}
		}
	}
}

func noSpace(t *testing.T, errno syscall.Errno, op, where string) {
	cfg := small(filepath.Join(t.TempDir(), "store"))
	if err := os.MkdirAll(cfg.RootDir, 0o755); err != nil {
		t.Fatal(err)
	}
	disk, err := crashfs.New(cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	var full atomic.Bool
	disk.Before = func(called, path string) error {
		rel, err := filepath.Rel(cfg.RootDir, path)
		if err == nil && full.Load() && called == op && (where == "" && filepath.Dir(rel) == "." ||
			where != "" && len(rel) > len(where) && rel[:len(where)] == where) {
			return &os.PathError{Op: op, Path: path, Err: errno}
		}
		return nil
	}
	cfg.FS = openFS{disk}
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 101, 100
	cfg.QueueFlushInterval, cfg.QueueFlushThorough = time.Millisecond, 2*time.Millisecond
	s := open(t, cfg)
	sendMany(t, s, 0, 5)
	full.Store(true)
	sent := 5
	for i := range 60 {
		es := []storage.Entry{{Draft: draft("T", 0, manyBody(sent), fmt.Sprintf("KEYS\x01k%d\x02", i))}}
		switch s.Append(es); {
		case es[0].Err == nil:
			sent++
		case !errors.Is(es[0].Err, storage.ErrDiskFull):
			t.Fatalf("message %d: %v", sent, es[0].Err)
		}
	}
	_ = s.DeleteTopic("other") // its list is a file of the configuration
	checkMany(t, s, sent)
	full.Store(false)
	sendMany(t, s, sent, 30)
	sent += 30
	if i := s.Info(); i.ReadOnly || i.DiskFull {
		t.Errorf("read-only %v, full %v", i.ReadOnly, i.DiskFull)
	}
	checkMany(t, s, sent)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	checkMany(t, s, sent)
}
