// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// spreadLog puts the log of a store into two directories beside it.
func spreadLog(cfg *storage.Config) (dirs [2]string) {
	dirs = [2]string{cfg.RootDir + "-a", cfg.RootDir + "-b"}
	cfg.CommitLogDir = dirs[0] + ", " + dirs[1]
	return dirs
}

// logFilesIn counts the files of a directory of the log.
func logFilesIn(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "0*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// sendMany sends n messages that tell their number, from a number on, to T/0.
func sendMany(t *testing.T, s *storage.Store, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		send(t, s, draft("T", 0, manyBody(i), ""))
	}
}

func manyBody(number int) string { return fmt.Sprintf("%09d%05000d", number, 0) }

// checkMany reads them from the first on.
func checkMany(t *testing.T, s *storage.Store, n int) {
	t.Helper()
	if _, end, _ := s.QueueBounds([]byte("T"), 0); int(end) != n {
		t.Errorf("the queue ends at %d, want %d", end, n)
	}
	for i := range n {
		got := bodies(t, read(s, "T", 0, record.QueueOffset(i), 1))
		if len(got) != 1 || got[0][:9] != fmt.Sprintf("%09d", i) {
			t.Fatalf("message %d: %.20q", i, got)
		}
	}
}

// TestDirs: a log in two directories is written, recovered, also without its queues, and deleted from.
func TestDirs(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	dirs := spreadLog(&cfg)
	s := open(t, cfg)
	sendMany(t, s, 0, 100)
	if a, b := logFilesIn(t, dirs[0]), logFilesIn(t, dirs[1]); a < 3 || b < 3 {
		t.Fatalf("%d files in one directory and %d in the other", a, b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(cfg.RootDir, "consumequeue")); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	checkMany(t, s, 100)
	sendMany(t, s, 100, 50)
	checkMany(t, s, 150)
}
