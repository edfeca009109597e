// SPDX-License-Identifier: Apache-2.0

package delay_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// bench is a store with the service on it and a clock that the test turns.
type bench struct {
	t       *testing.T
	dir     string
	ms      atomic.Int64
	store   *storage.Store
	marks   *progress.File
	service *delay.Service
	levels  string
	notices []string
	reads   int // of queue entries

	segment, queueFile int64 // sizes of files
}

// counted counts how often the service reads a queue.
type counted struct {
	*storage.Store
	reads *int
}

func (c counted) ReadUnits(
	topic []byte, queue int32, from record.QueueOffset, dst []consumequeue.Unit,
) (int, error) {
	*c.reads++
	return c.Store.ReadUnits(topic, queue, from, dst)
}

func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir, levels: "1s 5s 10s", segment: 1 << 20, queueFile: 6000}
	b.ms.Store(nowMS)
	b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bench) now() time.Time { return time.UnixMilli(b.ms.Load()) }

func (b *bench) open() {
	b.t.Helper()
	levels, err := delay.ParseLevels(b.levels)
	if err != nil {
		b.t.Fatal(err)
	}
	cfg := storage.DefaultConfig(b.dir)
	cfg.SegmentSize, cfg.QueueFileSize, cfg.MaxMessageSize = b.segment, b.queueFile, 1<<18
	cfg.IndexEnable, cfg.Now, cfg.DelayLevels = false, b.now, levels
	if b.store, err = storage.Open(cfg); err != nil {
		b.t.Fatal(err)
	}
	config := filepath.Join(b.dir, "config")
	if b.marks, err = progress.Open(vfs.OS(), config); err != nil {
		b.t.Fatal(err)
	}
	b.service, err = delay.New(delay.Config{
		Dir: config, Store: counted{b.store, &b.reads}, Levels: levels, Interval: 10 * time.Second,
		Progress: b.marks, Now: b.now,
		Notice:    func(msg string, kv ...any) { b.notices = append(b.notices, fmt.Sprint(msg, kv)) },
		Delivered: func([]byte, int, int) {},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// close ends gracefully.
func (b *bench) close() {
	b.t.Helper()
	if b.store == nil {
		return
	}
	if err := b.service.Close(); err != nil {
		b.t.Error(err)
	}
	b.die()
}

// die ends without letting the service write its positions, as the death of the process does.
func (b *bench) die() {
	b.t.Helper()
	b.service.Settle()
	if err := b.store.Close(); err != nil {
		b.t.Error(err)
	}
	if err := b.marks.Close(); err != nil {
		b.t.Error(err)
	}
	b.store = nil
}

// send stores a message with a delay level.
func (b *bench) send(topic, body string, level int) {
	b.t.Helper()
	levels, _ := delay.ParseLevels(b.levels)
	rules := delay.Rules{Levels: levels}
	e := storage.Entry{Draft: record.Draft{
		Topic: []byte(topic), Body: []byte(body),
		Properties: properties(fmt.Sprintf("KEYS=k TAGS=red WAIT=true DELAY=%d", level)),
	}}
	if _, _, err := rules.Park(&e, nil, b.ms.Load()); err != nil {
		b.t.Fatal(err)
	}
	es := []storage.Entry{e}
	if b.store.Append(es); es[0].Err != nil {
		b.t.Fatal(es[0].Err)
	}
}

// step turns the clock on and lets the service work.
func (b *bench) step(by time.Duration) (next time.Duration) {
	b.t.Helper()
	b.ms.Add(by.Milliseconds())
	return time.Duration(b.service.Step(b.now())-b.ms.Load()) * time.Millisecond
}

// bodies reads a topic.
func (b *bench) bodies(topic string) string {
	b.t.Helper()
	var all []string
	var res storage.ReadResult
	for at := record.QueueOffset(0); ; at = res.Next {
		b.store.Read(&storage.ReadRequest{Topic: []byte(topic), From: at, MaxMessages: 1}, &res)
		if res.Status != storage.Found {
			return strings.Join(all, " ")
		}
		v, err := record.Parse(res.Regions[0].Mem)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, string(v.Body()))
		res.Regions[0].Release()
	}
}

func (b *bench) want(topic, bodies string) {
	b.t.Helper()
	if got := b.bodies(topic); got != bodies {
		b.t.Errorf("%s holds %q, want %q", topic, got, bodies)
	}
}

// TestClockDelivery delivers each level at its time, to the millisecond, and sleeps in between.
func TestClockDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	if next := b.service.Step(b.now()); next != 1<<63-1 {
		t.Errorf("with nothing to do it wakes at %d", next)
	}
	b.send("orders", "five", 2)
	b.send("orders", "one", 1)
	b.step(0)
	b.send("orders", "late", 1)
	if next := b.step(300 * time.Millisecond); next != 700*time.Millisecond {
		t.Errorf("next in %v, want 700ms", next)
	}
	b.send("orders", "later", 1)
	b.step(699 * time.Millisecond)
	b.want("orders", "")
	if next := b.step(time.Millisecond); next != 300*time.Millisecond {
		t.Errorf("next in %v, want 300ms", next)
	}
	b.want("orders", "one late")
	b.step(4 * time.Second)
	b.want("orders", "one late later five")
	if next := b.service.Step(b.now()); next != 1<<63-1 {
		t.Errorf("with everything delivered it wakes at %d", next)
	}
	if len(b.notices) > 0 {
		t.Errorf("notices %q", b.notices)
	}
}

// TestCostIsOfWhatIsDue: however many messages wait, a step reads only the levels that have one due.
func TestCostIsOfWhatIsDue(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	for range 2000 {
		b.send("orders", "waits", 3)
	}
	b.step(0)
	b.reads = 0
	for i := range 9 {
		b.send("orders", fmt.Sprint(i), 1)
		b.step(time.Second)
	}
	b.want("orders", "0 1 2 3 4 5 6 7 8")
	// The first level is read for what it has, and again to see that there is no more.
	if b.reads > 9*2 {
		t.Errorf("%d reads for 9 messages", b.reads)
	}
}

// TestDeliveredRecord holds what a delivered record keeps: all but its place.
func TestDeliveredRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("orders", "one", 1)
	b.step(time.Second)
	var res storage.ReadResult
	b.store.Read(&storage.ReadRequest{
		Topic: []byte("orders"), MaxMessages: 1, TagCodes: []int32{int32(record.TagsCode([]byte("red")))},
	}, &res)
	if res.Status != storage.Found {
		t.Fatalf("by tag: %v", res.Status)
	}
	defer res.Regions[0].Release()
	v, err := record.Parse(res.Regions[0].Mem)
	if err != nil {
		t.Fatal(err)
	}
	const want = "KEYS=k TAGS=red WAIT=true DELAY=1 REAL_TOPIC=orders REAL_QID=0"
	if got := text(v.Properties()); got != want {
		t.Errorf("properties %q, want %q", got, want)
	}
	if u, _ := b.store.Unit([]byte("SCHEDULE_TOPIC_XXXX"), 0, 0); u.TagsCode != nowMS+1000 {
		t.Errorf("the unit says %d, want %d", u.TagsCode, nowMS+1000)
	}
}

// TestMany delivers more than one batch, in order, and alternates between levels.
func TestMany(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	var want []string
	for i := range 300 {
		b.send("orders", fmt.Sprint(i), 1)
		want = append(want, fmt.Sprint(i))
	}
	b.step(time.Second)
	b.want("orders", strings.Join(want, " "))
}

// TestPositionsSurvive restarts in the middle: after a graceful end by delayOffset.json, after a
// death by the progress file, and by neither when the log has lost what they promise.
func TestPositionsSurvive(t *testing.T) {
	t.Parallel()
	for _, graceful := range []bool{true, false} {
		t.Run(fmt.Sprintf("graceful=%v", graceful), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, t.TempDir())
			b.send("orders", "one", 1)
			b.send("orders", "two", 1)
			b.send("orders", "five", 2)
			b.step(time.Second)
			if graceful {
				b.close()
			} else {
				b.die()
			}
			b.open()
			b.step(0)
			b.want("orders", "one two")
			want := map[int32]int64{1: 2}
			if got := b.service.Offsets().OffsetTable; !cmp.Equal(want, got) {
				t.Errorf("positions %v, want %v", got, want)
			}
			b.step(time.Minute)
			b.want("orders", "one two five")
			b.step(10 * time.Second)
			if err := b.service.Close(); err != nil { // waits for the write
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(b.dir, "config", delay.FileName))
			if err != nil || !strings.Contains(string(data), `"offsetTable":{1:2,2:1}`) {
				t.Errorf("the file after the interval: %v %s", err, data)
			}
		})
	}
}

// TestLostCopies takes the log back to before the deliveries, as a loss of power does that the
// progress file survives: what was lost is delivered again.
func TestLostCopies(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), t.TempDir()
	b := newBench(t, dir)
	b.send("orders", "one", 1)
	b.die()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.step(time.Second)
	b.want("orders", "one")
	b.die()
	marks, err := os.ReadFile(filepath.Join(dir, "config", progress.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "config", progress.FileName), marks, 0o644); err != nil {
		t.Fatal(err)
	}
	b.dir = old
	b.open()
	b.send("other", "in the place of the copy", 2)
	b.step(0)
	b.want("orders", "one")
	// And once more: the positions that were not believed must not be believed later either.
	b.die()
	b.open()
	b.step(0)
	b.want("orders", "one")
}

// TestClockSetBack delivers at once what would be due only after the level's whole delay.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("orders", "one", 1)
	b.step(0) // it has seen when the message is due
	b.step(-time.Hour)
	b.want("orders", "one")
}

// TestForeignRecords passes over what cannot be delivered and goes on.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	for _, props := range []string{
		"DELAY=1", "DELAY=1 REAL_TOPIC=orders", "DELAY=1 REAL_TOPIC=orders REAL_QID=-1",
		"DELAY=1 REAL_TOPIC=RMQ_SYS_TRANS_HALF_TOPIC REAL_QID=0", "DELAY=1 REAL_TOPIC=a/b REAL_QID=0",
	} {
		es := []storage.Entry{{DelayMS: 1000, Draft: record.Draft{
			Topic: []byte("SCHEDULE_TOPIC_XXXX"), Body: []byte("x"), Properties: properties(props),
		}}}
		if b.store.Append(es); es[0].Err != nil {
			t.Fatal(es[0].Err)
		}
	}
	b.send("orders", "one", 1)
	b.step(time.Second)
	b.want("orders", "one")
	b.want("RMQ_SYS_TRANS_HALF_TOPIC", "")
	if len(b.notices) != 4 {
		t.Errorf("notices %q", b.notices)
	}
}

// TestShorterTable delivers what lies in the queue of a level that the table has no more.
func TestShorterTable(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("orders", "ten", 3)
	b.close()
	b.levels = "1s"
	b.open()
	b.step(9 * time.Second)
	b.want("orders", "")
	b.step(time.Second)
	b.want("orders", "ten")
}

// TestAgainAfterFailure tries again until the store takes messages.
func TestAgainAfterFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("orders", "one", 1)
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	if next := b.step(time.Second); next != time.Second {
		t.Errorf("next try in %v, want 1s", next)
	}
	b.store = nil
	_ = b.marks.Close()
	b.open()
	b.step(0)
	b.want("orders", "one")
}

// TestWakes runs the goroutine: it wakes for what is due earlier than what it sleeps for.
func TestWakes(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.service.Start()
	b.send("orders", "five", 2)
	b.service.Wake(1)
	b.send("orders", "one", 1)
	b.ms.Add(1000)
	b.service.Wake(0)
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.bodies("orders") != "one" {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("orders holds %q", b.bodies("orders"))
		}
	}
	if got := slices.Sorted(maps.Keys(b.service.Offsets().OffsetTable)); len(got) != 0 {
		t.Errorf("positions are out before the interval: %v", got)
	}
}
