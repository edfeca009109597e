// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// cutFiles cuts the files of a folder, all but the first n bytes of each, beneath the store.
func cutFiles(t *testing.T, pattern string, keep int64) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("files of %s: %v %v", pattern, files, err)
	}
	slices.Sort(files)
	for _, f := range files {
		if err := os.Truncate(f, keep); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func isFault(err error) bool {
	var fault *vfs.FaultError
	return errors.As(err, &fault)
}

// all is a filter that looks at properties.
type all struct{}

func (all) Match(properties []byte) bool { return len(properties) >= 0 }

// TestFaultLog cuts a file of the log beneath the store: every way to its records gives an error,
// and the other files are read as ever.
func TestFaultLog(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	s := open(t, cfg)
	sendMany(t, s, 0, 60)
	first, ok := s.Unit([]byte("T"), 0, 1)
	if !ok {
		t.Fatal("no unit")
	}
	cutFiles(t, filepath.Join(cfg.RootDir, "commitlog", "00000000000000000000"), 0)
	if _, err := s.RecordAt(first.At); !isFault(err) {
		t.Errorf("RecordAt: %v", err)
	}
	for name, req := range map[string]storage.ReadRequest{
		"touch":  {Touch: true},
		"filter": {Filter: all{}},
	} {
		req.Topic, req.MaxMessages = []byte("T"), 4
		var res storage.ReadResult
		s.Read(&req, &res)
		if !isFault(res.Err) || len(res.Regions) != 0 || res.Messages != 0 || res.Next != 0 {
			t.Errorf("%s: %v, %d messages, %d regions", name, res.Err, res.Messages, len(res.Regions))
		}
	}
	if ms := s.StoreTimeAt([]byte("T"), 0, 1); ms != -1 {
		t.Errorf("store time %d", ms)
	}
	if ms := s.EarliestStoreTime([]byte("T"), 0); ms != -1 {
		t.Errorf("earliest store time %d", ms)
	}
	if ms := s.EarliestTime(); ms != -1 {
		t.Errorf("earliest time %d", ms)
	}
	_ = s.OffsetByTime([]byte("T"), 0, 1, false)
	if got := bodies(t, read(s, "T", 0, 59, 1)); len(got) != 1 || got[0] != manyBody(59) {
		t.Errorf("the last message: %.20q", got)
	}
	sendMany(t, s, 60, 5)
	if got := bodies(t, read(s, "T", 0, 64, 1)); len(got) != 1 {
		t.Errorf("the next message: %.20q", got)
	}
}

// TestFaultQueue cuts the files of a queue beneath the store.
func TestFaultQueue(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	s := open(t, cfg)
	sendMany(t, s, 0, 25)
	send(t, s, draft("U", 0, "other", ""))
	files := cutFiles(t, filepath.Join(cfg.RootDir, "consumequeue", "T", "0", "*"), 0)
	for range 3 { // the mapping is given back each time, or this would hold it for ever
		var res storage.ReadResult
		s.Read(&storage.ReadRequest{Topic: []byte("T"), MaxMessages: 4}, &res)
		if !isFault(res.Err) {
			t.Fatalf("read: %v, %d messages", res.Err, res.Messages)
		}
	}
	if u, ok := s.Unit([]byte("T"), 0, 1); ok {
		t.Errorf("unit %v", u)
	}
	if n, err := s.ReadUnits([]byte("T"), 0, 0, make([]consumequeue.Unit, 4)); n != 0 || !isFault(err) {
		t.Errorf("units: %d %v", n, err)
	}
	if !s.Matches([]byte("T"), 0, 0, 4, []int32{1}) {
		t.Error("a pull sleeps on before units that cannot be read")
	}
	if ms := s.EarliestStoreTime([]byte("T"), 0); ms != -1 {
		t.Errorf("earliest store time %d", ms)
	}
	_ = s.OffsetByTime([]byte("T"), 0, 1, true)
	if err := s.CleanQueues(); err != nil && !isFault(err) {
		t.Error(err)
	}
	if got := bodies(t, read(s, "U", 0, 0, 1)); len(got) != 1 {
		t.Errorf("another queue: %q", got)
	}
	// A send to that queue cannot be stored. What was is there after the next start.
	es := []storage.Entry{{Draft: draft("U", 0, "with it", "")}, {Draft: draft("T", 0, "m", "")}}
	s.Append(es)
	for i := range es {
		if !errors.Is(es[i].Err, storage.ErrReadOnly) || !isFault(es[i].Err) {
			t.Errorf("append %d: %v", i, es[i].Err)
		}
	}
	if e := []storage.Entry{{Draft: draft("U", 0, "later", "")}}; true {
		if s.Append(e); !errors.Is(e[0].Err, storage.ErrReadOnly) {
			t.Errorf("append after it: %v", e[0].Err)
		}
	}
	if got := bodies(t, read(s, "U", 0, 0, 9)); len(got) != 1 {
		t.Errorf("another queue after it: %q", got)
	}
	_ = s.Close()
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, cfg)
	checkMany(t, s, 25)
	if got := bodies(t, read(s, "U", 0, 0, 9)); len(got) != 1 {
		t.Errorf("another queue after the start: %q", got)
	}
}

// TestFaultAppend cuts the file that is written to: the batch is refused as a whole, what was
// acknowledged before is on its way as ever, and the next start finds it.
func TestFaultAppend(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	cfg.SegmentSize = 1 << 20
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	sendMany(t, s, 0, 3)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	end := int64(s.Info().Wrote)
	keep := (end + vfs.PageSize - 1) / vfs.PageSize * vfs.PageSize
	cutFiles(t, filepath.Join(cfg.RootDir, "commitlog", "00000000000000000000"), keep)
	es := []storage.Entry{{Draft: draft("T", 0, "short", "")}, {Draft: draft("T", 0, manyBody(4), "")}}
	s.Append(es)
	for i := range es {
		if !errors.Is(es[i].Err, storage.ErrReadOnly) || !isFault(es[i].Err) {
			t.Errorf("append %d: %v", i, es[i].Err)
		}
	}
	if got := bodies(t, read(s, "T", 0, 2, 1)); len(got) != 1 || got[0] != manyBody(2) {
		t.Errorf("the last message: %.20q", got)
	}
	if i := s.Info(); !i.ReadOnly || i.Wrote != record.PhysicalOffset(end) {
		t.Errorf("after it: read-only %v, the log ends at %d", i.ReadOnly, i.Wrote)
	}
	_ = s.Close()
	checkMany(t, open(t, cfg), 3)
}

// TestFaultIndex cuts an index file: a query fails, and nothing else.
func TestFaultIndex(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	s := open(t, cfg)
	for i := range 400 {
		send(t, s, draft("T", 0, manyBody(i), "KEYS\x01k\x02"))
	}
	eventually(t, "all is indexed", func() bool { i := s.Info(); return i.Indexed >= i.Dispatched })
	cutFiles(t, filepath.Join(cfg.RootDir, "index", "*"), 0)
	if _, err := s.Query("T", "k", 32, 0, 1<<60); err == nil {
		t.Error("a query of files that are gone found all there was")
	}
	sendMany(t, s, 400, 5)
	if got := bodies(t, read(s, "T", 0, 404, 1)); len(got) != 1 {
		t.Errorf("after it: %q", got)
	}
}
