// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/storage/vfs/crashfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

// What TestCrashHistories once found, each as a test of its own.

// found is a store on a disk that can lose power, whose goroutines flush nothing by themselves.
type found struct {
	*storage.Store
	cfg  storage.Config
	disk *crashfs.FS
}

func newFound(t *testing.T, dir string, before func(op, path string) error) *found {
	t.Helper()
	f := &found{cfg: small(dir)}
	f.cfg.FlushInterval, f.cfg.FlushThorough = time.Hour, time.Hour
	f.cfg.QueueFlushInterval, f.cfg.QueueFlushThorough = time.Hour, time.Hour
	f.cfg.DiskFullRatio, f.cfg.DiskFreeRatio = 101, 100
	f.cfg.Retention = storage.Retention{
		Keep: time.Hour, MaxUsedRatio: 100, Every: time.Hour, Batch: 100,
	}
	disk, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk.Before = before
	f.disk, f.cfg.FS = disk, openFS{disk}
	f.open(t)
	return f
}

func (f *found) open(t *testing.T) {
	t.Helper()
	s, err := storage.Open(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it may not be able to
	f.Store = s
}

// lose loses power and all that was not synced, and opens what is left.
func (f *found) lose(t *testing.T) *found {
	t.Helper()
	dst := t.TempDir()
	if err := f.disk.Crash(dst, rand.New(rand.NewPCG(1, 1)), 0); err != nil {
		t.Fatal(err)
	}
	return newFound(t, dst, nil)
}

// die kills the process, and opens what is left.
func (f *found) die(t *testing.T) *found {
	t.Helper()
	return newFound(t, crash(t, f.cfg).RootDir, nil)
}

// fill sends n large messages to a queue.
func (f *found) fill(t *testing.T, topic string, n int) {
	t.Helper()
	for i := range n {
		send(t, f.Store, draft(topic, 0, fmt.Sprintf("%s %d %s", topic, i, strings.Repeat("x", 4000)), ""))
	}
}

// clean deletes all files of the log but the last two.
func (f *found) clean(t *testing.T) {
	t.Helper()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(f.cfg.RootDir, "commitlog", "*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files of the log, %v", len(files), err)
	}
	slices.Sort(files)
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range files[:len(files)-2] {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	f.CleanNow(time.Now())
}

// ends checks where a queue ends, and that all from its first message on is there.
func (f *found) ends(t *testing.T, topic string, want int) {
	t.Helper()
	low, end, _ := f.QueueBounds([]byte(topic), 0)
	if int(end) != want {
		t.Fatalf("queue of %s: %d to %d, want its end at %d", topic, low, end, want)
	}
	for at := low; at < end; at++ {
		got := bodies(t, read(f.Store, topic, 0, at, 1))
		if len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("%s %d ", topic, at)) {
			t.Fatalf("queue of %s at %d: %.40q", topic, at, got)
		}
	}
}

// TestCrashDeletedThenCut: the log lost its end behind which a topic had been deleted. New messages
// of that topic, stored where the lost ones were, are no deleted ones.
func TestCrashDeletedThenCut(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 1)
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	f.fill(t, "U", 6)
	if err := f.DeleteTopic("T"); err != nil {
		t.Fatal(err)
	}
	f = f.lose(t)
	f.ends(t, "T", 0)
	f.fill(t, "T", 3)
	f = f.die(t)
	f.ends(t, "T", 3)
}

// TestCrashDeletedList: the crash came while the list of deleted topics was renamed.
func TestCrashDeletedList(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 3)
	if err := f.DeleteTopic("T"); err != nil {
		t.Fatal(err)
	}
	dir := crash(t, f.cfg).RootDir
	list := filepath.Join(dir, "config", "deletedTopics")
	if err := os.Rename(list, list+".tmp"); err != nil {
		t.Fatal(err)
	}
	f = newFound(t, dir, nil)
	f.ends(t, "T", 0)
}

// TestCrashDeletedQueuesComeBack: the removal of the queues was not on disk.
func TestCrashDeletedQueuesComeBack(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	f := newFound(t, t.TempDir(), func(op, path string) error {
		if fail.Load() && op == "remove" && strings.Contains(path, "consumequeue") {
			return syscall.EIO
		}
		return nil
	})
	f.fill(t, "T", 3)
	f.FlushQueues()
	fail.Store(true)
	if err := f.DeleteTopic("T"); err == nil {
		t.Fatal("the failed removal is not told")
	}
	f = f.die(t)
	f.ends(t, "T", 0)
	f.fill(t, "T", 2)
	f = f.die(t)
	f.ends(t, "T", 2)
}

// TestCrashEmptyFirstQueueFile: the name of a queue file was on disk, its length was not, and a
// later file was whole.
func TestCrashEmptyFirstQueueFile(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 13)
	dir := crash(t, f.cfg).RootDir
	first := filepath.Join(dir, "consumequeue", "T", "0", fmt.Sprintf("%020d", 0))
	if err := os.Truncate(first, 0); err != nil {
		t.Fatal(err)
	}
	f = newFound(t, dir, nil)
	f.ends(t, "T", 13)
}

// TestCrashRetentionKeepsQueueEnds: a queue all of whose records went with the old files of the log
// still ends where it did after a power loss.
func TestCrashRetentionKeepsQueueEnds(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "Old", 5)
	f.fill(t, "T", 80)
	f.clean(t)
	if f.Info().Min == 0 {
		t.Fatal("nothing was deleted")
	}
	f = f.lose(t)
	f.ends(t, "Old", 5)
	f.ends(t, "T", 80)
}

// TestCrashRetentionFails: a file that cannot be deleted leaves no gap behind it, neither in the log
// nor in a queue.
func TestCrashRetentionFails(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"commitlog", "consumequeue"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			var failures atomic.Int32
			f := newFound(t, t.TempDir(), func(op, path string) error {
				if op == "remove" && strings.Contains(path, folder) && failures.Add(1) == 1 {
					return syscall.EIO
				}
				return nil
			})
			f.fill(t, "T", 100)
			f.clean(t)
			f.clean(t)
			if failures.Load() == 0 {
				t.Fatal("nothing failed")
			}
			f = f.die(t)
			f.ends(t, "T", 100)
		})
	}
}

// TestCrashTwiceQueueEnds: a process died before its queues were on disk. The next one finds them in
// the page cache and must not take them for durable.
func TestCrashTwiceQueueEnds(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	f := newFound(t, t.TempDir(), func(op, path string) error {
		if fail.Load() && op == "msync" && strings.Contains(path, "consumequeue") {
			return syscall.EIO
		}
		return nil
	})
	f.fill(t, "Old", 5)
	f.fill(t, "T", 60)
	fail.Store(true)
	if err := f.Close(); err == nil {
		t.Fatal("the failed flush is not told")
	}
	fail.Store(false)
	f.open(t)
	f.fill(t, "U", 20)
	f.clean(t)
	f = f.lose(t)
	f.ends(t, "Old", 5)
	f.ends(t, "T", 60)
	f.ends(t, "U", 20)
}

// TestFlushFailureIsFinal: after a failed flush of the log nothing is taken any more and nothing is
// called flushed; reads go on, and what was flushed before survives.
func TestFlushFailureIsFinal(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	f := newFound(t, t.TempDir(), func(op, path string) error {
		if fail.Load() && op == "msync" && strings.Contains(path, "commitlog") {
			return syscall.EIO
		}
		return nil
	})
	f.fill(t, "T", 4)
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	flushed := f.Flushed()
	f.fill(t, "U", 1)
	fail.Store(true)
	if err := f.Flush(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("flush: %v", err)
	}
	fail.Store(false)
	if err := f.Flush(); err == nil || f.Flushed() != flushed || !f.Info().ReadOnly {
		t.Errorf("flush again: %v, flushed to %d, was %d; %+v", err, f.Flushed(), flushed, f.Info())
	}
	es := []storage.Entry{{Draft: draft("T", 0, "refused", "")}}
	if f.Append(es); !errors.Is(es[0].Err, storage.ErrReadOnly) {
		t.Errorf("append: %v", es[0].Err)
	}
	f.ends(t, "T", 4)
	f = f.lose(t)
	f.ends(t, "T", 4)
}

// TestCrashRetentionNotOnDisk: a file of the log was deleted, and its directory could not be synced.
// Queues must not follow: a power loss brings the file back, and they would hide it (seed 4648). The
// store was cleaned before, so that its recovery does not go by a log that is whole.
func TestCrashRetentionNotOnDisk(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	f := newFound(t, t.TempDir(), func(op, path string) error {
		if fail.Load() && op == "syncdir" && strings.HasSuffix(path, "commitlog") {
			return syscall.ENOSPC
		}
		return nil
	})
	f.fill(t, "T", 100)
	f.clean(t)
	before := f.Info().Min
	first, _, _ := f.QueueBounds([]byte("T"), 0)
	if before == 0 || first == 0 {
		t.Fatal("nothing was deleted")
	}
	f.fill(t, "T", 100)
	fail.Store(true)
	f.clean(t)
	if f.Info().Min == before {
		t.Fatal("nothing more was deleted")
	}
	if err := f.disk.SyncDir(filepath.Join(f.cfg.RootDir, "consumequeue", "T", "0")); err != nil {
		t.Fatal(err)
	}
	lost := f.lose(t)
	if low, _, _ := lost.QueueBounds([]byte("T"), 0); low != first || lost.Info().Min != before {
		t.Errorf("the log begins at %d, the queue at %d, want %d", lost.Info().Min, low, first)
	}
	fail.Store(false)
	f.CleanNow(time.Now())
	lost = f.lose(t)
	if low, _, _ := lost.QueueBounds([]byte("T"), 0); low <= first || lost.Info().Min <= before {
		t.Errorf("later the log begins at %d, the queue at %d", lost.Info().Min, low)
	}
}

// TestCrashCutQueueStaysCut: a recovery cut a queue whose records were lost with the end of the log.
// That cut must be on disk before the log is deleted up to a place where nothing contradicts the old
// units any more (seed 1050).
func TestCrashCutQueueStaysCut(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 3)
	f.fill(t, "U", 20)
	f.FlushQueues() // and the checkpoint: the recovery does not come by the first messages
	mark := int64(f.Flushed())
	f.fill(t, "T", 4)
	// The queue gets to disk, the end of the log does not.
	dir := crash(t, f.cfg).RootDir
	cutLog(t, dir, mark)
	f = newFound(t, dir, nil)
	f.ends(t, "T", 3)
	f.fill(t, "U", 80)
	f.clean(t)
	if f.Info().Min == 0 {
		t.Fatal("nothing was deleted")
	}
	f = f.lose(t)
	if _, end, _ := f.QueueBounds([]byte("T"), 0); end != 3 {
		t.Fatalf("the queue ends at %d, want 3", end)
	}
}

// cutLog zeroes the log of a store's folder from an offset in its only segment with data on.
func cutLog(t *testing.T, dir string, at int64) {
	t.Helper()
	const segment = 64 << 10
	last := filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", at/segment*segment))
	log, err := os.OpenFile(last, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.WriteAt(make([]byte, segment-at%segment), at%segment); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCrashQueueWithoutItsBeginning: a queue's first file is gone and its second one has messages that
// the log has lost. It ends behind the last message that the log has, not where that file begins
// (seed 1547).
func TestCrashQueueWithoutItsBeginning(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 2)
	mark := int64(f.Info().Wrote)
	f.fill(t, "T", 11)
	dir := crash(t, f.cfg).RootDir
	cutLog(t, dir, mark)
	first := filepath.Join(dir, "consumequeue", "T", "0", fmt.Sprintf("%020d", 0))
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	f = newFound(t, dir, nil)
	if low, end, _ := f.QueueBounds([]byte("T"), 0); low != 0 || end != 2 {
		t.Fatalf("the queue has %d to %d, want 0 to 2", low, end)
	}
	f.ends(t, "T", 2)
}

// TestCrashDeletedEmptyFile: of the queues of a deleted topic only an empty file came back, which
// says that the queue had come so far (seed 1942).
func TestCrashDeletedEmptyFile(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 3)
	if err := f.DeleteTopic("T"); err != nil {
		t.Fatal(err)
	}
	dir := crash(t, f.cfg).RootDir
	queue := filepath.Join(dir, "consumequeue", "T", "0")
	if err := os.MkdirAll(queue, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(queue, fmt.Sprintf("%020d", 200))
	if err := os.WriteFile(file, make([]byte, 200), 0o600); err != nil {
		t.Fatal(err)
	}
	f = newFound(t, dir, nil)
	f.ends(t, "T", 0)
	f.fill(t, "T", 2)
	f = f.die(t)
	f.ends(t, "T", 2)
}

// TestCrashHoleInTheLog: zeros in front of valid records, behind what the checkpoint vouches for,
// are cut when the system has died since, and damage when only the process has.
func TestCrashHoleInTheLog(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 2)
	f.FlushQueues() // and the checkpoint
	f.fill(t, "T", 5)
	res := read(f.Store, "T", 0, 4, 1)
	at := res.Regions[0].Off
	zerocopy.ReleaseAll(res.Regions)
	hole := func(at int64) string {
		dir := crash(t, f.cfg).RootDir
		log, err := os.OpenFile(filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", 0)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		end := (at/512 + 3) * 512
		if _, err := log.WriteAt(make([]byte, 20), end-20); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	died := newFound(t, hole(at), nil) // crashfs makes up a boot of its own
	if _, end, _ := died.QueueBounds([]byte("T"), 0); end != 4 {
		t.Fatalf("the queue ends at %d, want 4", end)
	}
	cfg := small(hole(at))
	cfg.FS = lifeOf{vfs.OS(), f.disk.Boot}
	var damage *commitlog.CorruptionError
	if _, err := storage.Open(cfg); !errors.As(err, &damage) || int64(damage.Offset) != at {
		t.Fatalf("only the process died: %v", err)
	}
	cfg = small(hole(100)) // in the first record, which the checkpoint vouches for
	if _, err := storage.Open(cfg); !errors.As(err, &damage) || damage.Offset != 0 {
		t.Fatalf("in front of the checkpoint: %v", err)
	}
}

// lifeOf is a file system whose page cache lives a named life.
type lifeOf struct {
	vfs.FS
	life string
}

func (f lifeOf) Life(string) string { return f.life }

// TestWriteOutFails: a message that does not wait for its flush, and whose write fails, is not refused,
// as it may be in the file, and not acknowledged either (seed 292).
func TestWriteOutFails(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	cfg := small(t.TempDir())
	disk, err := crashfs.New(cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	disk.Before = func(op, path string) error {
		if fail.Load() && op == "write" && strings.Contains(path, "commitlog") {
			return syscall.EIO
		}
		return nil
	}
	cfg.FS, cfg.SyncFlush = openFS{disk}, true
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	es := []storage.Entry{
		{Draft: draft("T", 0, "waits", ""), AwaitsFlush: true}, {Draft: draft("T", 0, "does not", "")},
	}
	fail.Store(true)
	s.Append(es)
	if es[0].Err != nil || !errors.Is(es[1].Err, storage.ErrUnsure) ||
		!errors.Is(es[1].Err, syscall.EIO) {
		t.Errorf("errors %v and %v", es[0].Err, es[1].Err)
	}
	if es[1].QueueOffset != 1 || es[1].End <= es[1].At || s.Flushed() >= es[0].End {
		t.Errorf("entry %+v, flushed to %d", es[1], s.Flushed())
	}
	if s.Append(es); !errors.Is(es[0].Err, storage.ErrReadOnly) {
		t.Errorf("append after it: %v", es[0].Err)
	}
}

// TestBulkWriteFails: a write of large messages fails. All messages of the round are refused, the store is
// read-only, and the next start has what was acknowledged and nothing else; the units of what was refused
// lay in the queues' files and made the next start believe in one more message (seed 30318).
func TestBulkWriteFails(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	cfg := small(t.TempDir())
	cfg.BulkLeast = 1000
	disk, err := crashfs.New(cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	disk.Before = func(op, path string) error {
		if fail.Load() && op == "write" && strings.Contains(path, "commitlog") {
			return syscall.EIO
		}
		return nil
	}
	cfg.FS = openFS{disk}
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1500)
	const kept = 100
	for range kept {
		send(t, s, draft("T", 0, large, ""))
	}
	fail.Store(true)
	es := []storage.Entry{{Draft: draft("T", 0, "small", "")}, {Draft: draft("T", 0, large, "")}}
	s.Append(es)
	for i := range es {
		if !errors.Is(es[i].Err, storage.ErrReadOnly) || !errors.Is(es[i].Err, syscall.EIO) {
			t.Errorf("entry %d of the round: %v", i, es[i].Err)
		}
	}
	if s.Append(es); !errors.Is(es[0].Err, storage.ErrReadOnly) {
		t.Errorf("append after it: %v", es[0].Err)
	}
	check := func(s *storage.Store) {
		t.Helper()
		if _, end, _ := s.QueueBounds([]byte("T"), 0); end != kept {
			t.Errorf("the queue has %d messages, want %d", end, kept)
		}
		res := read(s, "T", 0, kept-1, 10)
		if got := bodies(t, res); len(got) != 1 || got[0] != large {
			t.Errorf("the last message is %.20q", got)
		}
	}
	check(s)
	killed := crash(t, cfg)
	_ = s.Close()
	for _, next := range []storage.Config{cfg, killed} {
		next.FS = nil
		s, err := storage.Open(next)
		if err != nil {
			t.Fatal(err)
		}
		check(s)
		_ = s.Close()
	}
}

// TestBulkRollFails: the write that ends a log file fails, and with it the only message of its round. That
// message was refused as if the next could be taken.
func TestBulkRollFails(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	cfg := small(t.TempDir())
	cfg.BulkLeast = 1000
	disk, err := crashfs.New(cfg.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	disk.Before = func(op, path string) error {
		if fail.Load() && op == "write" && strings.Contains(path, "commitlog") {
			return syscall.EIO
		}
		return nil
	}
	cfg.FS = openFS{disk}
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	e := send(t, s, draft("T", 0, strings.Repeat("x", 1500), ""))
	for size := e.End - e.At; int64(e.End+size)+8 <= cfg.SegmentSize; {
		e = send(t, s, draft("T", 0, strings.Repeat("x", 1500), ""))
	}
	fail.Store(true)
	es := []storage.Entry{{Draft: draft("T", 0, strings.Repeat("x", 1500), "")}}
	if s.Append(es); !errors.Is(es[0].Err, storage.ErrReadOnly) || !errors.Is(es[0].Err, syscall.EIO) {
		t.Errorf("the message behind the end of the file: %v", es[0].Err)
	}
}

// TestCrashAbortAway: a start after an unclean stop replaces the file abort. It was away for a moment,
// and a start after a death in it, or after an error, took the last stop for a clean one: queues that
// nobody had flushed were trusted.
func TestCrashAbortAway(t *testing.T) {
	t.Parallel()
	f := newFound(t, t.TempDir(), nil)
	f.fill(t, "T", 3)
	dir := crash(t, f.cfg).RootDir
	var looked atomic.Int64
	var started atomic.Bool
	next := newFound(t, dir, func(op, path string) error {
		if _, err := os.Stat(filepath.Join(dir, "abort")); err != nil && !started.Load() {
			t.Errorf("before %s %s: %v", op, path, err)
		}
		looked.Add(1)
		return nil
	})
	started.Store(true)
	if looked.Load() == 0 {
		t.Fatal("the start changed nothing")
	}
	next.ends(t, "T", 3)
}
