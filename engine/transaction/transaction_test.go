// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// bench is a service on a real store, with a clock that the test moves.
type bench struct {
	t       *testing.T
	dir     string
	store   *storage.Store
	offsets *offset.Table
	service *transaction.Service
	change  func(*transaction.Config)

	queueFile  int64 // bytes of a queue file
	maxMessage int   // limit for bodies, 0: 64 KiB

	mu     sync.Mutex
	now    time.Time
	asked  []*transaction.Check
	alone  bool // no producer is connected
	said   []string
	deaf   map[string]bool // topics that do not exist
	failed error           // of GiveUpTopic
	room   int             // entries that the store still takes; negative: any number
}

// faulty is the store with a disk that can be full.
type faulty struct {
	*storage.Store
	bench *bench
}

func (f faulty) AppendAll(es []storage.Entry) int {
	room := f.bench.room
	if room < 0 || room >= len(es) {
		return f.Store.AppendAll(es)
	}
	stored := 0
	if room > 0 {
		stored = f.Store.AppendAll(es[:room])
	}
	for i := stored; i < len(es); i++ {
		es[i].Err = storage.ErrDiskFull
	}
	return stored
}

const interval = 30 * time.Second

var host = netip.MustParseAddrPort("127.0.0.1:10911")

func newBench(t *testing.T, change func(*transaction.Config)) *bench {
	t.Helper()
	b := &bench{
		t: t, dir: t.TempDir(), room: -1, queueFile: 6000, now: time.UnixMilli(1_800_000_000_000), change: change,
		deaf: map[string]bool{},
	}
	b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// after moves the clock and steps once.
func (b *bench) after(d time.Duration) time.Time {
	b.mu.Lock()
	b.now = b.now.Add(d)
	b.mu.Unlock()
	if err := b.store.Flush(); err != nil {
		b.t.Fatal(err)
	}
	return b.service.Step(b.clock())
}

// settle steps until nothing is left to do, and tells whether that came.
func (b *bench) settle() bool {
	for range 10 {
		if b.after(2 * time.Second).IsZero() {
			return true
		}
	}
	return false
}

func (b *bench) open() {
	b.t.Helper()
	cfg := storage.DefaultConfig(b.dir)
	cfg.SegmentSize, cfg.MaxMessageSize, cfg.QueueFileSize = 1<<20, 1<<16, b.queueFile
	if b.maxMessage > 0 {
		cfg.MaxMessageSize = b.maxMessage
	}
	cfg.IndexEnable = false
	cfg.Now = b.clock
	store, err := storage.Open(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.store = store
	if b.offsets, err = offset.Open(b.dir+"/config", offset.Config{}); err != nil {
		b.t.Fatal(err)
	}
	c := transaction.Config{
		Store: faulty{store, b}, Offsets: b.offsets, StoreHost: host, Interval: interval, Now: b.clock,
		Place:       func(name []byte, queue int32) (int32, bool) { return queue, !b.deaf[string(name)] },
		GiveUpTopic: func() error { return b.failed },
		Producer:    b.producer,
		Notice: func(msg string, kv ...any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.said = append(b.said, fmt.Sprint(append([]any{msg}, kv...)...))
		},
	}
	if b.change != nil {
		b.change(&c)
	}
	b.service = transaction.New(c)
	b.service.Load()
}

func (b *bench) producer(string) (transaction.Producer, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, !b.alone
}

// Ask implements transaction.Producer.
func (b *bench) Ask(checks []transaction.Check) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range checks {
		c.Record = slices.Clone(c.Record)
		b.asked = append(b.asked, &c)
	}
}

func (b *bench) close() {
	b.t.Helper()
	b.service.Close()
	if err := b.offsets.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.store.Close(); err != nil {
		b.t.Error(err)
	}
}

// again closes everything and opens it anew. A kill leaves the positions as they were.
func (b *bench) again(kill bool) {
	b.t.Helper()
	if kill {
		// The half messages and op records are there; the positions are those of the last write.
		b.offsets.RemoveGroup(transaction.Group)
		b.offsets.Commit([]byte("other"), []byte("other"), 0, 1)
		if err := b.offsets.Close(); err != nil {
			b.t.Error(err)
		}
	}
	b.close()
	b.open()
}

// half stores a half message for topic T as the send processor does, and returns its place.
func (b *bench) half(body string, props ...string) transaction.End {
	b.t.Helper()
	var p []byte
	for i := 0; i+1 < len(props); i += 2 {
		p = record.AppendProperty(p, props[i], props[i+1])
	}
	p = record.AppendProperty(p, "TRAN_MSG", "true")
	p = record.AppendProperty(p, "PGROUP", "G")
	p = record.AppendProperty(p, "TAGS", "TagA")
	p = record.AppendProperty(p, "UNIQ_KEY", "U"+body)
	p = transaction.AppendHalf(p, []byte("U"+body), "T", 3)
	e := []storage.Entry{{Draft: record.Draft{
		Topic: []byte(protocol.HalfTopic), BornMS: b.clock().UnixMilli(), BornHost: host,
		StoreHost: host, Body: []byte(body), Properties: p, Flag: 7, TagsCode: record.TagsCode([]byte("TagA")),
	}}}
	b.store.Append(e)
	if e[0].Err != nil {
		b.t.Fatal(e[0].Err)
	}
	b.service.Stored()
	return transaction.End{Group: "G", Offset: int64(e[0].QueueOffset), At: e[0].At}
}

func (b *bench) end(at transaction.End, commit bool) {
	b.t.Helper()
	at.Commit = commit
	if err := b.service.End(&at); err != nil {
		b.t.Fatalf("end %+v: %v", at, err)
	}
}

// answer ends the message that a check asked about.
func (b *bench) answer(c *transaction.Check, commit bool) {
	b.t.Helper()
	b.end(transaction.End{Group: "G", Offset: c.Offset, At: c.At, FromCheck: true}, commit)
}

// checks takes what producers were asked since the last call.
func (b *bench) checks() []*transaction.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.asked
	b.asked = nil
	return asked
}

// messages reads a queue from its start.
func (b *bench) messages(topic string, queue int32) []record.View {
	b.t.Helper()
	var out []record.View
	_, end, _ := b.store.QueueBounds([]byte(topic), queue)
	for at := record.QueueOffset(0); at < end; at++ {
		u, ok := b.store.Unit([]byte(topic), queue, at)
		if !ok {
			b.t.Fatalf("%s/%d has no unit %d", topic, queue, at)
		}
		region, err := b.store.RecordAt(u.At)
		if err != nil {
			b.t.Fatal(err)
		}
		v, err := record.Parse(append([]byte(nil), region.Mem...))
		region.Release()
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func (b *bench) delivered(want ...string) {
	b.t.Helper()
	var got []string
	for _, v := range b.messages("T", 3) {
		got = append(got, string(v.Body()))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("delivered (-want +got):\n%s", diff)
	}
}

func (b *bench) positions() [2]int64 {
	half, _ := b.offsets.Committed([]byte(transaction.Group), []byte(protocol.HalfTopic), 0)
	op, _ := b.offsets.Committed([]byte(transaction.Group), []byte(protocol.OpHalfTopic), 0)
	return [2]int64{half, op}
}

func property(v record.View, name string) string {
	value, _ := record.Property(v.Properties(), name)
	return string(value)
}

// A commit delivers the message as it came, a rollback nothing, and neither is checked.
func TestEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	one, two := b.half("one", "colour", "green"), b.half("two")
	b.end(one, true)
	b.end(two, false)
	b.delivered("one")
	v := b.messages("T", 3)[0]
	if v.Flag() != 7 || v.SysFlag() != record.SysCommit || v.PreparedOffset() != int64(one.At) {
		t.Errorf("flag %d, sysFlag %d, prepared at %d", v.Flag(), v.SysFlag(), v.PreparedOffset())
	}
	got := map[string]string{}
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		got[string(name)] = string(value)
		return true
	})
	want := map[string]string{
		"colour": "green", "TRAN_MSG": "true", "PGROUP": "G", "TAGS": "TagA", "UNIQ_KEY": "Uone",
		"__transactionId__": "Uone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	if u, _ := b.store.Unit([]byte("T"), 3, 0); u.TagsCode != record.TagsCode([]byte("TagA")) {
		t.Errorf("tags code %d", u.TagsCode)
	}
	var ops []string
	for _, v := range b.messages(protocol.OpHalfTopic, 0) {
		ops = append(ops, property(v, "TAGS")+" "+string(v.Body()))
	}
	if diff := cmp.Diff([]string{"d 0,", "d 1,"}, ops); diff != "" {
		t.Errorf("op records (-want +got):\n%s", diff)
	}
	b.after(7 * time.Second)
	if !b.settle() || len(b.checks()) != 0 || b.service.Waiting() != 0 {
		t.Error("it does not come to rest")
	}
	if got := b.positions(); got != [2]int64{2, 2} {
		t.Errorf("positions %v, want 2 and 2", got)
	}
}

// An end that comes again changes nothing.
func TestEndTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	one := b.half("one")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { b.end(one, true) })
	}
	wg.Wait()
	b.delivered("one")
	b.again(true)
	b.end(one, true)
	b.delivered("one")
}

// A log that ends between a commit, or a copy, and its op record is understood.
func TestTornEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	one, two := b.half("one"), b.half("two")
	b.end(two, false)
	first := b.messages(protocol.HalfTopic, 0)[0]
	d := first.Draft()
	d.Topic, d.QueueID, d.SysFlag, d.PreparedOffset = []byte("T"), 3, record.SysCommit, int64(one.At)
	b.store.Append([]storage.Entry{{Draft: d}})
	again := first.Draft() // as RocketMQ copies it before it knows that it was committed
	b.store.Append([]storage.Entry{{Draft: again}})
	three := b.half("three")
	copied := b.messages(protocol.HalfTopic, 0)[3].Draft()
	copied.Properties = record.AppendProperty(
		append([]byte(nil), copied.Properties...), "TRAN_MOVED", fmt.Sprint(three.Offset))
	b.store.Append([]storage.Entry{{Draft: copied}})
	b.again(true)
	b.after(7 * time.Second)
	checks := b.checks()
	if len(checks) != 1 || checks[0].Offset < 5 {
		t.Fatalf("%d checks, want one of the copy", len(checks))
	}
	b.end(three, true) // an answer to an earlier check
	b.answer(checks[0], true)
	b.delivered("one", "three")
	if property(b.messages("T", 3)[1], "TRAN_MOVED") != "" {
		t.Error("a property of ours is delivered")
	}
}

func TestEndRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	good := b.half("one", "CHECK_IMMUNITY_TIME_IN_SECONDS", "10")
	for name, c := range map[string]struct {
		change func(*transaction.End)
		want   string
	}{
		"group":    {func(e *transaction.End) { e.Group = "H" }, "The producer group wrong"},
		"offset":   {func(e *transaction.End) { e.Offset = 5 }, "The transaction state table offset wrong"},
		"no place": {func(e *transaction.End) { e.At++ }, "Find prepared transaction message failed"},
		"beyond":   {func(e *transaction.End) { e.At += 1 << 30 }, "Find prepared transaction message failed"},
	} {
		bad := good
		bad.Commit = true
		c.change(&bad)
		if err := b.service.End(&bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b.deaf["T"] = true
	good.Commit = true
	if err := b.service.End(&good); err == nil || !strings.Contains(err.Error(), "not exist") {
		t.Errorf("commit to a deleted topic: %v", err)
	}
	b.deaf["T"] = false
	b.after(11 * time.Second)
	if err := b.service.End(&good); err == nil || !strings.Contains(err.Error(), "immunity") {
		t.Errorf("commit after the immunity time: %v", err)
	}
	if checks := b.checks(); len(checks) != 1 {
		t.Fatalf("%d checks", len(checks))
	} else {
		b.answer(checks[0], true)
	}
	b.delivered("one")
	// A record that is no half message cannot be committed, though it says a producer group.
	v := b.messages("T", 3)[0]
	err := b.service.End(&transaction.End{Commit: true, Group: "G", At: v.PhysicalOffset()})
	if err == nil {
		t.Error("a committed message was committed once more")
	}
}
