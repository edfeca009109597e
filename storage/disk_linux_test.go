// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// smallDisk mounts a file system of a few megabytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs the right to mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// notices collects what a store tells.
type notices struct {
	mu   sync.Mutex
	text []string
}

func (n *notices) add(msg string, _ ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text = append(n.text, msg)
}

// TestDiskFull fills the disk for real: sends fail with ErrDiskFull, reads go on, nothing crashes,
// and sends work again when there is space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "6m")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := small(filepath.Join(dir, "store"))
	cfg.SegmentSize, cfg.MaxMessageSize = 1<<20, 64<<10
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 101, 100 // so that the disk itself says no
	s := open(t, cfg)
	sent := fillUp(t, s, 100_000)
	if got := len(bodies(t, read(s, "T", 0, record.QueueOffset(sent-1), 1))); got != 1 {
		t.Fatalf("last message of %d cannot be read", sent)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if e := send(t, s, draft("T", 0, "again", "")); int(e.QueueOffset) != sent {
		t.Fatalf("queue offset %d after the disk was full, want %d", e.QueueOffset, sent)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if _, hi, _ := s.QueueBounds([]byte("T"), 0); int(hi) != sent+1 {
		t.Fatalf("after a restart the queue ends at %d, want %d", hi, sent+1)
	}
}

// fillUp sends until the store refuses, and returns how many were taken.
func fillUp(t *testing.T, s *storage.Store, most int) int {
	t.Helper()
	for n := range most {
		es := []storage.Entry{{Draft: draft("T", 0, strings.Repeat("x", 5000), "")}}
		s.Append(es)
		if err := es[0].Err; err != nil {
			if !errors.Is(err, storage.ErrDiskFull) {
				t.Fatalf("message %d: %v", n, err)
			}
			t.Logf("%d messages, then: %v", n, err)
			return n
		}
	}
	t.Fatalf("%d messages and the disk is not full", most)
	return 0
}

// TestDiskFullIndex lets the sparse index file run into the full disk: it stops, says so,
// and goes on by itself when there is room.
func TestDiskFullIndex(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "4m")
	var told notices
	cfg := small(filepath.Join(dir, "store"))
	cfg.SegmentSize, cfg.MaxMessageSize = 1<<20, 64<<10
	cfg.IndexSlots, cfg.IndexEntries = 5_000_000, 20_000_000
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 101, 100
	cfg.Notice = told.add
	s := open(t, cfg)
	send(t, s, draft("T", 0, "m", ""))
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 8<<20), 0o644); err == nil {
		t.Fatal("the ballast fits")
	}
	for i := range 2000 {
		es := []storage.Entry{{Draft: draft("T", 0, string(rune('a'+i%26))+strings.Repeat("k", i%13), "")}}
		s.Append(es)
		if es[0].Err != nil {
			break
		}
	}
	if _, err := s.Query("T", "id-m", 32, 0, 1<<60); err != nil {
		t.Logf("query: %v", err)
	}
	said := func(text string) bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return strings.Contains(strings.Join(told.text, "\n"), text)
	}
	eventually(t, "the store says that the index stops", func() bool { return said("index stops") })
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the index goes on", func() bool {
		send(t, s, draft("T", 0, "again", ""))
		i := s.Info()
		return said("the index goes on") && i.Indexed > 0
	})
}

// TestDiskRatio refuses above one ratio and takes messages again below the other.
func TestDiskRatio(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "10m")
	cfg := small(filepath.Join(dir, "store"))
	cfg.QueueFlushInterval = 2 * time.Millisecond
	cfg.DiskFullRatio, cfg.DiskFreeRatio = 80, 60
	s := open(t, cfg)
	send(t, s, draft("T", 0, "m", ""))
	ballast := filepath.Join(dir, "ballast")
	await := func(want error) error {
		deadline := time.After(10 * time.Second)
		for {
			es := []storage.Entry{{Draft: draft("T", 0, "m", "")}}
			s.Append(es)
			if errors.Is(es[0].Err, want) {
				return es[0].Err
			}
			select {
			case <-deadline:
				t.Fatalf("append gives %v, want %v", es[0].Err, want)
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	shrink := func(size int64) {
		t.Helper()
		if err := os.Truncate(ballast, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	err := await(storage.ErrDiskFull)
	if !strings.Contains(err.Error(), cfg.RootDir) || !strings.Contains(err.Error(), "limit is 80") {
		t.Errorf("error %q does not name path and limit", err)
	}
	shrink(6 << 20) // between the two: still full
	if !s.Info().DiskFull {
		t.Error("taken again between the ratios")
	}
	shrink(1 << 20)
	if err := await(nil); err != nil {
		t.Fatal(err)
	}
}
