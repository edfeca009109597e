// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		fmt.Fprintln(os.Stderr, victim(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// small returns a configuration with small files.
func small(dir string) storage.Config {
	cfg := storage.DefaultConfig(dir)
	cfg.SegmentSize = 64 << 10
	cfg.QueueFileSize, cfg.BatchFileSize = 10*20, 10*46
	cfg.BatchTopic = func(topic string) (batch, known bool) { return topic == batchTopic, true }
	cfg.IndexSlots, cfg.IndexEntries = 101, 150
	cfg.MaxMessageSize = 16 << 10
	return cfg
}

func open(t testing.TB, cfg storage.Config) *storage.Store {
	t.Helper()
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var (
	bornHost  = netip.MustParseAddrPort("10.1.2.3:40123")
	storeHost = netip.MustParseAddrPort("127.0.0.1:10911")
)

func draft(topic string, queue int32, body, tag string) record.Draft {
	d := record.Draft{
		Topic: []byte(topic), QueueID: queue, BornMS: 1700000000000, BornHost: bornHost,
		StoreHost: storeHost, Body: []byte(body),
	}
	d.Properties = record.AppendProperty(d.Properties, "UNIQ_KEY", "id-"+body[:min(len(body), 20)])
	if tag != "" {
		d.Properties = record.AppendProperty(d.Properties, "TAGS", tag)
		d.TagsCode = record.TagsCode([]byte(tag))
	}
	return d
}

// send appends one message and fails the test when that fails.
func send(t testing.TB, s *storage.Store, d record.Draft) storage.Entry {
	t.Helper()
	es := []storage.Entry{{Draft: d}}
	s.Append(es)
	if es[0].Err != nil {
		t.Fatal(es[0].Err)
	}
	return es[0]
}

// bodies parses the records of a result and releases its regions.
func bodies(t testing.TB, res *storage.ReadResult) []string {
	t.Helper()
	var out []string
	for i := range res.Regions {
		for b := res.Regions[i].Mem; len(b) > 0; {
			v, err := record.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if !v.CheckCRC() {
				t.Fatalf("record at %d fails its check sum", v.PhysicalOffset())
			}
			out = append(out, texts(t, v)...)
			b = b[v.TotalSize():]
		}
	}
	zerocopy.ReleaseAll(res.Regions)
	return out
}

// texts returns the bodies of the messages in a record.
func texts(t testing.TB, v record.View) []string {
	t.Helper()
	if v.SysFlag()&record.SysInnerBatch == 0 {
		return []string{string(v.Body())}
	}
	list, err := innerTexts(v)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func read(s *storage.Store, topic string, queue int32, from record.QueueOffset, n int,
	codes ...int32,
) *storage.ReadResult {
	res := &storage.ReadResult{}
	s.Read(&storage.ReadRequest{
		Topic: []byte(topic), Queue: queue, From: from, MaxMessages: n, TagCodes: codes,
	}, res)
	return res
}

// TestReadStatus covers RocketMQ's statuses and where a consumer goes on.
func TestReadStatus(t *testing.T) {
	t.Parallel()
	s := open(t, small(t.TempDir()))
	for i := range 35 {
		send(t, s, draft("T", 1, fmt.Sprintf("m%d", i), []string{"A", "B"}[i%2]))
	}
	tagA, tagB := int32(record.TagsCode([]byte("A"))), int32(record.TagsCode([]byte("B")))
	for _, c := range []struct {
		topic  string
		queue  int32
		from   record.QueueOffset
		n      int
		codes  []int32
		status storage.ReadStatus
		next   record.QueueOffset
		first  string
		count  int
	}{
		{"none", 0, 0, 32, nil, storage.NoMessageInQueue, 0, "", 0},
		{"none", -1, 0, 32, nil, storage.NoMatchedLogicQueue, 0, "", 0},
		{"T", 0, 7, 32, nil, storage.NoMessageInQueue, 0, "", 0},
		{"T", 1, -1, 32, nil, storage.OffsetTooSmall, 0, "", 0},
		{"T", 1, 35, 32, nil, storage.OffsetOverflowOne, 35, "", 0},
		{"T", 1, 36, 32, nil, storage.OffsetOverflowBadly, 35, "", 0},
		{"T", 1, 0, 1, nil, storage.Found, 1, "m0", 1},
		{"T", 1, 0, 10, nil, storage.Found, 10, "m0", 10},
		{"T", 1, 5, 32, nil, storage.Found, 10, "m5", 5}, // one queue file a read
		{"T", 1, 30, 32, nil, storage.Found, 35, "m30", 5},
		{"T", 1, 0, 3, []int32{tagB}, storage.Found, 6, "m1", 3},
		{"T", 1, 0, 32, []int32{tagA, tagB}, storage.Found, 10, "m0", 10},
		{"T", 1, 0, 32, []int32{12345}, storage.NoMatchedMessage, 10, "", 0},
	} {
		res := read(s, c.topic, c.queue, c.from, c.n, c.codes...)
		got := bodies(t, res)
		first := ""
		if len(got) > 0 {
			first = got[0]
		}
		if res.Status != c.status || res.Next != c.next || first != c.first || len(got) != c.count ||
			res.Messages != c.count {
			t.Errorf("%s/%d from %d: %s next %d first %q count %d, want %+v", c.topic, c.queue, c.from,
				res.Status, res.Next, first, len(got), c)
		}
	}
	if got := storage.OffsetOverflowBadly.String(); got != "OFFSET_OVERFLOW_BADLY" {
		t.Errorf("wire name %q", got)
	}
}

// TestReadLimits returns exactly 32 when 32 are there, one region for neighbours, and one message
// when that alone passes every limit.
func TestReadLimits(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	cfg.QueueFileSize, cfg.SegmentSize = 1000*20, 1<<20
	s := open(t, cfg)
	for i := range 40 {
		send(t, s, draft("T", 0, fmt.Sprintf("m%d", i), ""))
		send(t, s, draft("Big", 0, fmt.Sprintf("%d", i)+strings.Repeat("x", 15000), ""))
		send(t, s, draft("U", 0, "between", ""))
	}
	for i := range 40 {
		send(t, s, draft("Run", 0, fmt.Sprintf("m%d", i), ""))
	}
	if got := read(s, "T", 0, 0, 100); got.Messages != 32 || len(bodies(t, got)) != 32 {
		t.Errorf("%d messages, want 32", got.Messages)
	}
	if got := read(s, "T", 0, 8, 32); got.Messages != 32 || len(bodies(t, got)) != 32 || got.Next != 40 {
		t.Errorf("%d messages, next %d, want 32 and 40", got.Messages, got.Next)
	}
	run := read(s, "Run", 0, 4, 32)
	if len(run.Regions) != 1 || run.Messages != 32 || run.Regions[0].Size != run.Bytes {
		t.Errorf("%d regions for %d messages of %d bytes, want one", len(run.Regions), run.Messages,
			run.Bytes)
	}
	if got := bodies(t, run); got[31] != "m35" {
		t.Errorf("last message of the run %q", got[31])
	}
	big := read(s, "Big", 0, 0, 32)
	if n := len(bodies(t, big)); n != 17 || big.Bytes > 262144 {
		t.Errorf("%d big messages, %d bytes", n, big.Bytes)
	}
	var one storage.ReadResult
	s.Read(&storage.ReadRequest{Topic: []byte("Big"), MaxMessages: 32, MaxBytes: 100}, &one)
	if n := len(bodies(t, &one)); n != 1 {
		t.Errorf("%d messages over the byte limit, want 1", n)
	}
}

// one is the entry of a single message, several that of a client batch.
func one(topic string, queue int32, body string) storage.Entry {
	return storage.Entry{Draft: draft(topic, queue, body, "")}
}

func several(elements ...[]byte) storage.Entry {
	return storage.Entry{Batch: true, Draft: draft("T", 0, string(bytes.Join(elements, nil)), "")}
}

// TestAppendIllegal stores nothing of what RocketMQ refuses.
func TestAppendIllegal(t *testing.T) {
	t.Parallel()
	s := open(t, small(t.TempDir()))
	send(t, s, draft("T", 0, "first", ""))
	wrote := s.Info().Wrote
	good := record.AppendBatchEntry(nil, 0, []byte("abc"), nil)
	lying, zero := bytes.Clone(good), bytes.Clone(good)
	lying[19] = 200 // body length
	zero[3] = 0     // size
	long := one("T", 0, "b")
	long.Draft.Properties = bytes.Repeat([]byte("p"), 32768)
	none := one("T", 0, "")
	none.Draft.Body = nil
	large := strings.Repeat("b", 16<<10+1)
	for name, c := range map[string]struct {
		e     storage.Entry
		index int
	}{
		"no topic":        {one("", 0, "b"), -1},
		"long topic":      {one(strings.Repeat("t", 128), 0, "b"), -1},
		"longer retry":    {one("%RETRY%"+strings.Repeat("t", 249), 0, "b"), -1},
		"folder":          {one("../x", 0, "b"), -1},
		"negative queue":  {one("T", -1, "b"), -1},
		"body":            {one("T", 0, large), -1},
		"properties":      {long, -1},
		"no body":         {none, -1},
		"empty batch":     {several([]byte{}), -1},
		"lying body":      {several(good, lying), 1},
		"size zero":       {several(good, good, zero), 2},
		"batch cut":       {several(good[:len(good)-1]), 0},
		"batch too large": {several([]byte(large)), -1},
	} {
		es := []storage.Entry{c.e}
		s.Append(es)
		var illegal *storage.IllegalError
		if !errors.As(es[0].Err, &illegal) || illegal.Index != c.index {
			t.Errorf("%s: %v, want an IllegalError with index %d", name, es[0].Err, c.index)
		}
	}
	if got := s.Info().Wrote; got != wrote {
		t.Errorf("log grew from %d to %d", wrote, got)
	}
	if e := send(t, s, draft("T", 0, "second", "")); e.QueueOffset != 1 {
		t.Errorf("queue offset %d, want 1", e.QueueOffset)
	}
}

// TestAppendBatchProperties refuses a whole batch for one element's properties (RocketMQ issue
// 3786): a length of 32768 would be negative in the record.
func TestAppendBatchProperties(t *testing.T) {
	t.Parallel()
	cfg := storage.DefaultConfig(t.TempDir())
	cfg.SegmentSize = 8 << 20
	s := open(t, cfg)
	good := record.AppendBatchEntry(nil, 0, []byte("abc"), nil)
	bad := append(bytes.Clone(good[:len(good)-2]), 0x80, 0x00)
	bad = append(bad, bytes.Repeat([]byte("p"), 32768)...)
	binary.BigEndian.PutUint32(bad, uint32(len(bad)))
	es := []storage.Entry{several(good, bad, good)}
	es[0].Draft.Properties = nil
	s.Append(es)
	var illegal *storage.IllegalError
	if !errors.As(es[0].Err, &illegal) || illegal.Index != 1 {
		t.Errorf("append: %v", es[0].Err)
	}
	if _, _, ok := s.QueueBounds([]byte("T"), 0); ok || s.Info().Wrote != 0 {
		t.Error("a refused batch left something behind")
	}
}

// TestAppendBatch stores the elements in one file with consecutive offsets.
func TestAppendBatch(t *testing.T) {
	t.Parallel()
	s := open(t, small(t.TempDir()))
	var all []string
	for n := range 40 {
		var body []byte
		for i := range 1 + n%7 {
			text := fmt.Sprintf("b%d-%d-%s", n, i, strings.Repeat("x", 700))
			props := record.AppendProperty(nil, "TAGS", "T"+fmt.Sprint(i))
			body = record.AppendBatchEntry(body, int32(i), []byte(text), props)
			all = append(all, text)
		}
		es := []storage.Entry{{Batch: true, Draft: draft("T", 0, string(body), "")}}
		s.Append(es)
		e := es[0]
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		if int(e.Count) != 1+n%7 || len(e.Places) != int(e.Count) || e.At != e.Places[0] ||
			int(e.QueueOffset)+int(e.Count) != len(all) {
			t.Fatalf("batch %d: %+v", n, e)
		}
		if e.At/(64<<10) != (e.End-1)/(64<<10) {
			t.Fatalf("batch %d lies in two files: [%d, %d)", n, e.At, e.End)
		}
		u, ok := s.Unit([]byte("T"), 0, e.QueueOffset+record.QueueOffset(e.Count)-1)
		if want := record.TagsCode([]byte("T" + fmt.Sprint(n%7))); !ok || u.TagsCode != want {
			t.Fatalf("batch %d: unit %+v, want tags code %d", n, u, want)
		}
	}
	var got []string
	for from := record.QueueOffset(0); int(from) < len(all); {
		res := read(s, "T", 0, from, 32)
		got = append(got, bodies(t, res)...)
		from = res.Next
	}
	if strings.Join(got, ",") != strings.Join(all, ",") {
		t.Fatalf("%d messages read, %d sent, or their order differs", len(got), len(all))
	}
}

// TestOpenTwice names the process that holds the store.
func TestOpenTwice(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	s := open(t, cfg)
	_, err := storage.Open(cfg)
	var locked *vfs.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("second open: %v", err)
	}
	send(t, s, draft("T", 0, "still works", ""))
}

// TestOpenRefuses names what is wrong and what to do.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, cfg *storage.Config)
		want    string
	}{
		"rocksdb queues": {func(t *testing.T, cfg *storage.Config) {
			writeFile(t, filepath.Join(cfg.RootDir, "consumequeue", "CURRENT"), "x")
		}, "RocksDB"},
		"no writable log folder": {func(_ *testing.T, cfg *storage.Config) {
			cfg.CommitLogDir, cfg.CommitLogReadOnly = "/a,/b", "/b,/a"
		}, "readOnlyCommitLogStorePaths"},
		"read-only log folder is not there": {func(_ *testing.T, cfg *storage.Config) {
			cfg.CommitLogReadOnly = filepath.Join(cfg.RootDir, "older")
		}, "older"},
		"segment size": {func(t *testing.T, cfg *storage.Config) {
			s, err := storage.Open(*cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				send(t, s, draft("T", 0, strings.Repeat("x", 10_000), ""))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.SegmentSize = 1 << 20
		}, "mappedFileSizeCommitLog"},
		"not writeable": {func(t *testing.T, cfg *storage.Config) {
			writeFile(t, cfg.RootDir+"-file", "x")
			cfg.RootDir += "-file"
			cfg.CommitLogDir = ""
		}, "not a directory"},
		"no directory": {func(_ *testing.T, cfg *storage.Config) { cfg.RootDir = "" }, "no directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := small(filepath.Join(t.TempDir(), "store"))
			c.prepare(t, &cfg)
			s, err := storage.Open(cfg)
			if err == nil {
				_ = s.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %q does not say %q", err, c.want)
			}
		})
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestClosed refuses appends and removes abort.
func TestClosed(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	s := open(t, cfg)
	e := send(t, s, draft("T", 0, "m", ""))
	abort := filepath.Join(cfg.RootDir, "abort")
	if text, err := os.ReadFile(abort); err != nil || string(text) != fmt.Sprint(os.Getpid()) {
		t.Fatalf("abort holds %q, %v", text, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(abort); !os.IsNotExist(err) {
		t.Fatalf("abort after a clean stop: %v", err)
	}
	es := []storage.Entry{{Draft: draft("T", 0, "m", "")}}
	if s.Append(es); !errors.Is(es[0].Err, storage.ErrClosed) {
		t.Fatalf("append after close: %v", es[0].Err)
	}
	text, err := os.ReadFile(filepath.Join(cfg.RootDir, "checkpoint"))
	if err != nil || len(text) != 4096 {
		t.Fatalf("checkpoint has %d bytes, %v", len(text), err)
	}
	c := storage.DecodeCheckpoint(text)
	if c.LogicsAt != e.At || c.LogicsMS == 0 || c.PhysicMS != c.LogicsMS {
		t.Fatalf("checkpoint %+v, last record at %d", c, e.At)
	}
}

// TestSyncFlushVisibility shows messages only when they are on disk, and tells in that order.
func TestSyncFlushVisibility(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	cfg.SyncFlush = true
	flushed := make(chan record.PhysicalOffset, 1000)
	seen := make(chan record.QueueOffset, 1000)
	cfg.OnFlushed = func(at record.PhysicalOffset) { flushed <- at }
	cfg.OnDispatched = func(ds []storage.Dispatched) {
		for _, d := range ds {
			seen <- d.End
		}
	}
	s := open(t, cfg)
	for i := range 50 {
		e := send(t, s, draft("T", 0, fmt.Sprintf("m%d", i), ""))
		for at := <-flushed; at < e.End; {
			at = <-flushed
		}
		if s.Flushed() < e.End {
			t.Fatalf("flushed %d, told of %d", s.Flushed(), e.End)
		}
		if end := <-seen; end != e.QueueOffset+1 {
			t.Fatalf("told of end %d for offset %d", end, e.QueueOffset)
		}
		if got := bodies(t, read(s, "T", 0, e.QueueOffset, 1)); len(got) != 1 {
			t.Fatalf("flushed message %d is not visible", i)
		}
	}
}

// TestDispatchedOnce tells of each queue of a batch once.
func TestDispatchedOnce(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	var told []storage.Dispatched
	cfg.OnDispatched = func(ds []storage.Dispatched) { told = append(told, ds...) }
	s := open(t, cfg)
	es := make([]storage.Entry, 10)
	for i := range es {
		es[i].Draft = draft("T", int32(i%2), "m", "A")
	}
	s.Append(es)
	want := []storage.Dispatched{{Topic: "T", From: 0, End: 5}, {Topic: "T", Queue: 1, From: 0, End: 5}}
	if len(told) != 2 || told[0] != want[0] || told[1] != want[1] {
		t.Fatalf("told %+v, want %+v", told, want)
	}
	a := int32(record.TagsCode([]byte("A")))
	if !s.Matches([]byte("T"), 0, 3, 5, []int32{a}) || s.Matches([]byte("T"), 0, 3, 5, []int32{a + 1}) {
		t.Error("tags of new messages are not matched")
	}
}

// TestDeleteTopic forgets a topic for good, and takes a new one of that name from 0 on.
func TestDeleteTopic(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	s := open(t, cfg)
	for range 30 {
		send(t, s, draft("Old", 0, "old", ""))
		send(t, s, draft("Kept", 0, "kept", ""))
	}
	if err := s.DeleteTopic("Old"); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := s.QueueBounds([]byte("Old"), 0); ok {
		t.Fatal("deleted topic has a queue")
	}
	for i := range 5 {
		if e := send(t, s, draft("Old", 0, fmt.Sprintf("new%d", i), "")); int(e.QueueOffset) != i {
			t.Fatalf("queue offset %d of the new topic, want %d", e.QueueOffset, i)
		}
	}
	crashed := crash(t, cfg)
	if err := os.RemoveAll(filepath.Join(crashed.RootDir, "consumequeue")); err != nil {
		t.Fatal(err)
	}
	s = open(t, crashed)
	if got := bodies(t, read(s, "Old", 0, 0, 32)); len(got) != 5 || got[0] != "new0" {
		t.Fatalf("after a rebuild the new topic holds %q", got)
	}
	if _, hi, _ := s.QueueBounds([]byte("Kept"), 0); hi != 30 {
		t.Fatalf("other topic ends at %d", hi)
	}
}

// TestOffsetByTime finds messages by store time.
func TestOffsetByTime(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	clock := newClock()
	cfg.Now = clock.now
	s := open(t, cfg)
	// Two messages each at 1000, 1010, ... 1290.
	for i := range 60 {
		clock.set(1000 + int64(i/2)*10)
		send(t, s, draft("T", 0, "m", ""))
	}
	for _, c := range []struct{ ms, lower, upper int64 }{
		{0, 0, 0},
		{999, 0, 0},
		{1000, 0, 1},
		{1001, 2, 1},
		{1010, 2, 3},
		{1285, 58, 57},
		{1290, 58, 59},
		{1291, 60, 59},
		{1 << 40, 60, 59},
	} {
		lower := int64(s.OffsetByTime([]byte("T"), 0, c.ms, false))
		upper := int64(s.OffsetByTime([]byte("T"), 0, c.ms, true))
		if lower != c.lower || upper != c.upper {
			t.Errorf("time %d: lower %d upper %d, want %d %d", c.ms, lower, upper, c.lower, c.upper)
		}
	}
	if got := s.StoreTimeAt([]byte("T"), 0, 7); got != 1030 {
		t.Errorf("store time %d, want 1030", got)
	}
	if got := s.EarliestStoreTime([]byte("T"), 0); got != 1000 {
		t.Errorf("earliest %d, want 1000", got)
	}
	if got := s.EarliestTime(); got != 1000 {
		t.Errorf("earliest of the store %d, want 1000", got)
	}
	// A small step back of the clock keeps times in order, a large one is followed.
	clock.set(1200)
	send(t, s, draft("T", 0, "m", ""))
	if got := s.StoreTimeAt([]byte("T"), 0, 60); got != 1290 {
		t.Errorf("store time after a small step back %d, want 1290", got)
	}
}

// TestQuery finds messages by key right after they were sent, through several index files.
func TestQuery(t *testing.T) {
	t.Parallel()
	s := open(t, small(t.TempDir()))
	for i := range 200 {
		d := draft("T", int32(i%3), fmt.Sprintf("m%d", i), "Tag")
		d.Properties = record.AppendProperty(d.Properties, "KEYS", fmt.Sprintf("k%d  both", i))
		e := send(t, s, d)
		res, err := s.Query("T", fmt.Sprintf("k%d", i), 32, 0, 1<<60)
		if err != nil || len(res.Regions) != 1 || res.LastUpdateAt != e.At {
			t.Fatalf("message %d: %d found, last update %d, %v", i, len(res.Regions), res.LastUpdateAt, err)
		}
		zerocopy.ReleaseAll(res.Regions)
	}
	count := func(want int, req storage.QueryRequest) {
		t.Helper()
		res, err := s.Find(req)
		if err != nil || len(res.Regions) != want {
			t.Errorf("%+v: %d found, want %d, %v", req, len(res.Regions), want, err)
		}
		zerocopy.ReleaseAll(res.Regions)
	}
	count(1, storage.QueryRequest{Topic: "T", Key: "id-m17", Max: 32, EndMS: 1 << 60})
	count(0, storage.QueryRequest{Topic: "U", Key: "id-m17", Max: 32, EndMS: 1 << 60})
	count(0, storage.QueryRequest{Topic: "T", Key: "id-m17", Max: 32, EndMS: 1})
	count(32, storage.QueryRequest{Topic: "T", Key: "both", Max: 32, EndMS: 1 << 60})
	count(64, storage.QueryRequest{Topic: "T", Key: "both", Max: 1000, EndMS: 1 << 60})
	count(10, storage.QueryRequest{Topic: "T", Key: "Tag", Tags: true, Max: 10, EndMS: 1 << 60})
}

// TestAllocs holds the hot paths at zero allocations.
func TestAllocs(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.SegmentSize, cfg.QueueFileSize = 64<<20, 6_000_000
	cfg.OnDispatched = func([]storage.Dispatched) {}
	s := open(t, cfg)
	single := []storage.Entry{{Draft: draft("T", 0, "single", "A")}, {Draft: draft("T", 1, "x", "B")}}
	var body []byte
	for range 8 {
		body = record.AppendBatchEntry(body, 0, []byte("element"), record.AppendProperty(nil, "TAGS", "A"))
	}
	batch := []storage.Entry{{Batch: true, Draft: draft("T", 2, string(body), "")}}
	req := storage.ReadRequest{Topic: []byte("T"), MaxMessages: 32}
	var res storage.ReadResult
	check := func(name string, f func()) {
		t.Helper()
		f()
		if n := testing.AllocsPerRun(500, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
	check("append", func() { s.Append(single) })
	check("batch", func() { s.Append(batch) })
	check("read", func() {
		s.Read(&req, &res)
		if res.Messages != 32 {
			t.Fatalf("%d messages", res.Messages)
		}
		zerocopy.ReleaseAll(res.Regions)
	})
	if single[0].Err != nil || batch[0].Err != nil {
		t.Fatal(single[0].Err, batch[0].Err)
	}
}
