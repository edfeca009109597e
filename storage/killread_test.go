// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// killed returns the directory of a process that died: 30 messages of topic A and 30 of B lie before the
// checkpoint, at, and 4 more of B behind it. All are in the index.
func killed(t *testing.T) (cfg storage.Config, at record.PhysicalOffset) {
	t.Helper()
	cfg = small(t.TempDir())
	s := open(t, cfg)
	for i := range 60 {
		topic := []string{"A", "B"}[i%2]
		at = send(t, s, draft(topic, 0, fmt.Sprintf("%020d", i), "")).At
	}
	s.FlushQueues()
	for i := range 4 {
		send(t, s, draft("B", 0, fmt.Sprintf("%020d", 60+i), ""))
	}
	if _, err := s.Query("B", "none", 64, 0, 1<<60); err != nil { // the index has caught up
		t.Fatal(err)
	}
	return crash(t, cfg), at
}

// checkKilled finds every message by its queue and by its key.
func checkKilled(t *testing.T, s *storage.Store) {
	t.Helper()
	for topic, want := range map[string]record.QueueOffset{"A": 30, "B": 34} {
		if low, end, _ := s.QueueBounds([]byte(topic), 0); low != 0 || end != want {
			t.Errorf("queue of %s from %d to %d, want 0 to %d", topic, low, end, want)
		}
		for at := range want {
			got := bodies(t, read(s, topic, 0, at, 1))
			if len(got) != 1 {
				t.Fatalf("queue of %s at %d: %q", topic, at, got)
			}
			res, err := s.Query(topic, "id-"+got[0], 64, 0, 1<<60)
			if err != nil || len(res.Regions) != 1 {
				t.Fatalf("key of %s: %d found, %v", got[0], len(res.Regions), err)
			}
			res.Regions[0].Release()
		}
	}
}

func indexNames(t *testing.T, cfg storage.Config) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(cfg.RootDir, "index", "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names
}

// TestKillReadsBehindCheckpoint: after a kill only what lies behind the checkpoint is read again, though
// it lies in the middle of a log file, and the index goes on in the file that it was writing.
func TestKillReadsBehindCheckpoint(t *testing.T) {
	t.Parallel()
	cfg, at := killed(t)
	names := indexNames(t, cfg)
	if vfs.OS().Life(cfg.RootDir) == "" {
		t.Skip("this system does not tell that only the process died")
	}
	for range 2 { // the second start is as the first: nothing was flushed meanwhile
		s := open(t, cfg)
		if r := s.Info().Recovery; r.Clean || r.From != at || r.Records != 5 || r.Units != 0 || r.Cut != 0 {
			t.Errorf("the checkpoint is at %d: %+v", at, r)
		}
		checkKilled(t, s)
		if diff := cmp.Diff(names, indexNames(t, cfg)); diff != "" {
			t.Error(diff)
		}
		cfg = crash(t, cfg)
	}
}

// TestKillLostQueue: a queue is missing whose messages all lie before the checkpoint; those behind it do
// not tell. It is made again.
func TestKillLostQueue(t *testing.T) {
	t.Parallel()
	cfg, _ := killed(t)
	if err := os.RemoveAll(filepath.Join(cfg.RootDir, "consumequeue", "A")); err != nil {
		t.Fatal(err)
	}
	checkKilled(t, open(t, cfg))
}

// TestKillForeignCheckpoint: RocketMQ wrote the checkpoint last. Its offset may be ahead of its queues, so
// the log file is read from its start.
func TestKillForeignCheckpoint(t *testing.T) {
	t.Parallel()
	cfg, at := killed(t)
	path := filepath.Join(cfg.RootDir, "checkpoint")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := storage.DecodeCheckpoint(text)
	if !c.Own || c.LogicsAt != at {
		t.Fatalf("%+v, want our own at %d", c, at)
	}
	s := open(t, cfg)
	low, _, _ := s.QueueBounds([]byte("A"), 0)
	u, ok := s.Unit([]byte("A"), 0, low+29)
	if !ok {
		t.Fatal("no unit")
	}
	c.LogicsAt = u.At
	c.Encode(text)
	cfg = crash(t, cfg)
	if err := os.WriteFile(filepath.Join(cfg.RootDir, "checkpoint"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if r := s.Info().Recovery; r.From != 0 || r.Records != 64 {
		t.Errorf("%+v", r)
	}
	checkKilled(t, s)
	if c := s.Info().Checkpoint; !c.Own {
		t.Errorf("checkpoint after it: %+v", c)
	}
}

// TestFailedFlushIsNoKill: after a failed flush of queues or index pages may be lost, though the system
// lives on. The next start does not rely on them.
func TestFailedFlushIsNoKill(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"consumequeue", "index"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			var fail atomic.Bool
			f := newFound(t, t.TempDir(), func(op, path string) error {
				if fail.Load() && op == "msync" && strings.Contains(path, "/"+folder+"/") {
					return syscall.EIO
				}
				return nil
			})
			life := filepath.Join(f.cfg.RootDir, "config", "lastBoot")
			if _, err := os.Stat(life); err != nil {
				t.Fatal(err)
			}
			fail.Store(true)
			f.fill(t, "T", 2*int(f.cfg.IndexEntries)) // the file of the index is full, and flushed
			f.FlushQueues()
			if _, err := f.Query("T", "none", 1, 0, 1<<60); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(life); !os.IsNotExist(err) {
				t.Errorf("lastBoot after a failed flush: %v", err)
			}
		})
	}
}
