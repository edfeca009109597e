// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/skylarkmq/skylark/storage/record"
)

// TestDirsOneFull fills the disk of one directory of the log from outside. The log goes on in the
// other one, nothing is refused, and when there is room the directory is used again.
func TestDirsOneFull(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	dirs := spreadLog(&cfg)
	dirs[1] = smallDisk(t, "4m")
	cfg.CommitLogDir = dirs[0] + "," + dirs[1]
	s := open(t, cfg)
	sendMany(t, s, 0, 60)
	ballast := filepath.Join(dirs[1], "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the disk takes more than it has")
	}
	before := logFilesIn(t, dirs[1])
	sendMany(t, s, 60, 100)
	if s.Info().DiskFull {
		t.Error("the store calls itself full")
	}
	// One file more: it was made ahead, before the disk was full.
	if after := logFilesIn(t, dirs[1]); after > before+1 {
		t.Errorf("%d files more on a full disk", after-before)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store sees that there is room", func() bool {
		sendMany(t, s, int(s.Info().Put.Messages), 1)
		return logFilesIn(t, dirs[1]) > before+3
	})
	checkMany(t, s, int(s.Info().Put.Messages))
}

// TestDirsOneReadOnly mounts one directory of the log read-only: its files are read, the log goes on
// in the other.
func TestDirsOneReadOnly(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	dirs := spreadLog(&cfg)
	dirs[1] = smallDisk(t, "4m")
	cfg.CommitLogDir = dirs[0] + "," + dirs[1]
	s := open(t, cfg)
	sent := 0
	for at := record.PhysicalOffset(0); sent < 40 || int64(at)/cfg.SegmentSize%2 != 0; sent++ {
		at = send(t, s, draft("T", 0, manyBody(sent), "")).At
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dirs[1], "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	before := logFilesIn(t, dirs[1])
	s = open(t, cfg)
	checkMany(t, s, sent)
	sendMany(t, s, sent, 60)
	checkMany(t, s, sent+60)
	if after := logFilesIn(t, dirs[1]); after != before {
		t.Errorf("%d files more on a read-only disk", after-before)
	}
}
