// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crashfs_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
)

// TestCrash keeps what was synced and nothing else when no page is to be kept.
func TestCrash(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "old")
	if err := os.WriteFile(path, []byte("there before"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.OpenFile(filepath.Join(root, "new"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, second := bytes.Repeat([]byte{1}, vfs.PageSize), bytes.Repeat([]byte{2}, vfs.PageSize)
	write := func(b []byte, at int64) {
		t.Helper()
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	write(first, 0)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	expect(t, c, 0, map[string][]byte{"old": []byte("there before")}) // its name is not synced
	if err := c.SyncDir(root); err != nil {
		t.Fatal(err)
	}
	write(second, 0)
	write(second, vfs.PageSize)
	if err := c.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect(t, c, 0, map[string][]byte{"old": []byte("there before"), "new": first})
	expect(t, c, 1, map[string][]byte{"new": append(second, second...)})
}

// expect loses power and compares what is left.
func expect(t *testing.T, c *crashfs.FS, keep float64, want map[string][]byte) {
	t.Helper()
	dst := t.TempDir()
	if err := c.Crash(dst, rand.New(rand.NewPCG(1, 1)), keep); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dst)
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%d files are left, want %d (%v)", len(entries), len(want), err)
	}
	for name, b := range want {
		if got, err := os.ReadFile(filepath.Join(dst, name)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes differ from the %d expected (%v)", name, len(got), len(b), err)
		}
	}
}

// TestBefore fails the call it is told to.
func TestBefore(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	c.Before = func(op, _ string) error {
		if op == "syncdir" {
			return syscall.EIO
		}
		return nil
	}
	if err := c.SyncDir(root); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v", err)
	}
}
