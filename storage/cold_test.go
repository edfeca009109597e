// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

// forget drops a store's log from the page cache.
func forget(t *testing.T, dir string) {
	t.Helper()
	forgetFiles(t, filepath.Join(dir, "commitlog", "0*"))
}

func forgetFiles(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		f, err := vfs.OS().OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := f.Forget(0, size); err != nil {
			t.Fatal(err)
		}
		if resident, err := f.Resident(0, min(size, 64<<10)); err != nil || resident {
			t.Skipf("this kernel or file system does not drop pages on request: %v %v", resident, err)
		}
		_ = f.Close()
	}
}

// TestColdReads proves that a read says when its bytes are not in memory, for one stretch and for
// scattered records, and that Warm brings them in.
func TestColdReads(t *testing.T) {
	t.Parallel()
	cfg := storage.DefaultConfig(t.TempDir())
	cfg.SegmentSize, cfg.MaxMessageSize = 64<<20, 1<<20
	cfg.IndexEnable = false
	cfg.HotBytes = 1
	s := open(t, cfg)
	body := strings.Repeat("x", 20000)
	for range 32 {
		send(t, s, draft("scattered", 0, body, ""))
		send(t, s, draft("scattered", 1, body, ""))
	}
	for range 32 {
		send(t, s, draft("together", 0, body, ""))
	}
	for range 400 { // pages near the end are mapped and cannot be dropped
		send(t, s, draft("after", 0, body, ""))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	for _, topic := range []string{"scattered", "together"} {
		forget(t, cfg.RootDir) // read-ahead for the topic before brings in this one's records
		var res storage.ReadResult
		req := storage.ReadRequest{Topic: []byte(topic), MaxMessages: 8}
		s.Read(&req, &res)
		if res.Status != storage.Found || !res.Cold {
			t.Fatalf("%s: %v, cold %v after the pages were dropped", topic, res.Status, res.Cold)
		}
		before, bytes := s.Info().Cold, res.Bytes
		if err := s.Warm(res.Regions); err != nil {
			t.Fatal(err)
		}
		if c := s.Info().Cold; c.Reads != before.Reads+1 || c.Bytes != before.Bytes+int64(bytes) {
			t.Errorf("%s: counted %+v after %+v and a read of %d bytes", topic, c, before, bytes)
		}
		zerocopy.ReleaseAll(res.Regions)
		s.Read(&req, &res)
		if res.Cold {
			t.Errorf("%s: still cold after Warm", topic)
		}
		zerocopy.ReleaseAll(res.Regions)
	}
}

// TestColdReadsKeepNothing: what a cold read is read into is used again. Thousands a second come when a
// reader catches up.
func TestColdReadsKeepNothing(t *testing.T) {
	s := open(t, small(t.TempDir()))
	send(t, s, draft("T", 0, strings.Repeat("x", 1000), ""))
	var res storage.ReadResult
	s.Read(&storage.ReadRequest{Topic: []byte("T"), MaxMessages: 1}, &res)
	defer zerocopy.ReleaseAll(res.Regions)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const count = 200
	for range count {
		if err := s.Warm(res.Regions); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector drops every fourth.
	if each := (after.TotalAlloc - before.TotalAlloc) / count; each > 128<<10 {
		t.Errorf("%d bytes are allocated for a cold read", each)
	}
}

// TestColdUnits: who must not wait for the disk is told that units of the queue may be there, and
// another reader brings them in. It is counted.
func TestColdUnits(t *testing.T) {
	t.Parallel()
	cfg := storage.DefaultConfig(t.TempDir())
	// Log files so small that a start reads few of them, and leaves the older units alone.
	cfg.SegmentSize, cfg.MaxMessageSize, cfg.QueueFileSize = 1<<20, 64<<10, 200_000
	cfg.IndexEnable = false
	cfg.HotBytes = 1
	s := open(t, cfg)
	es := make([]storage.Entry, 100)
	for range 1500 { // more than one file of the queue, and more than is taken to be fresh
		for i := range es {
			es[i] = storage.Entry{Draft: draft("T", 0, "m", "")}
		}
		if s.Append(es); es[0].Err != nil {
			t.Fatal(es[0].Err)
		}
	}
	var res storage.ReadResult
	req := storage.ReadRequest{Topic: []byte("T"), MaxMessages: 8, MemoryOnly: true, From: 55_000}
	expect := func(when string, cold bool) {
		t.Helper()
		s.Read(&req, &res)
		if res.ColdUnits != cold || cold != (res.Messages == 0) || res.Max != 150000 {
			t.Fatalf("%s: cold %v, %d messages, %s", when, res.ColdUnits, res.Messages, res.Status)
		}
		zerocopy.ReleaseAll(res.Regions)
	}
	expect("just written", false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	forgetFiles(t, filepath.Join(cfg.RootDir, "consumequeue", "T", "0", "*1000000"))
	expect("neither mapped nor in memory", true)
	if s.Recent([]byte("T"), 0, 55_000) {
		t.Error("a unit that is not in memory is recent")
	}
	req.MemoryOnly = false
	expect("by the pool", false)
	if err := s.Warm(nil); err != nil {
		t.Fatal(err)
	}
	req.MemoryOnly = true
	expect("brought in", false)
	if c := s.Info().Cold; c.Units != 1 || c.Reads != 0 {
		t.Errorf("counted %+v", c)
	}
}
