// SPDX-License-Identifier: Apache-2.0

package timer_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/engine/timer"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

const (
	startMS   = 1_795_978_000_300 // time at which a bench begins
	topicName = "orders"
	timerName = "rmq_sys_wheel_timer"
)

// bench is a store with the service on it and a clock that the test turns.
type bench struct {
	t       testing.TB
	dir     string
	ms      atomic.Int64
	config  timer.Config
	store   *storage.Store
	marks   *progress.File
	service *timer.Service
	notices []string
	segment int64
	levels  delay.Levels
	fs      vfs.FS // nil: the system's
}

func newBench(t testing.TB, dir string) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir, segment: 64 << 20, config: timer.Config{
		PrecisionMS: 1000, FileSize: 4096, RollTicks: 172800, Interval: time.Second,
	}}
	b.levels, _ = delay.ParseLevels(delay.DefaultLevels)
	b.ms.Store(startMS)
	b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bench) now() time.Time { return time.UnixMilli(b.ms.Load()) }

func (b *bench) open() {
	b.t.Helper()
	b.openStore()
	b.openService()
}

func (b *bench) openStore() {
	b.t.Helper()
	cfg := storage.DefaultConfig(b.dir)
	cfg.SegmentSize, cfg.QueueFileSize, cfg.MaxMessageSize = b.segment, b.segment/1200*20, 1<<18
	cfg.IndexEnable, cfg.Now, cfg.FS = false, b.now, b.fs
	var err error
	if b.store, err = storage.Open(cfg); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) openService() {
	b.t.Helper()
	cfg := b.config
	cfg.FS, cfg.Root, cfg.Dir = vfs.OS(), b.dir, filepath.Join(b.dir, "config")
	if b.fs != nil {
		cfg.FS = b.fs
	}
	var err error
	if b.marks, err = progress.Open(cfg.FS, cfg.Dir); err != nil {
		b.t.Fatal(err)
	}
	cfg.Store, cfg.Progress, cfg.Now = b.store, b.marks, b.now
	cfg.Notice = func(msg string, kv ...any) { b.notices = append(b.notices, fmt.Sprint(msg, kv)) }
	cfg.Delivered = func([]byte, int, int) {}
	if b.service, err = timer.Open(cfg); err != nil {
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

// die ends without letting the service write its checkpoint, as the death of the process does.
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

// send stores a message with properties of "NAME=value" separated by blanks.
func (b *bench) send(body, props string) {
	b.t.Helper()
	b.put(topicName, body, props+" UNIQ_KEY=key-of-"+strings.ReplaceAll(body, " ", "-"))
}

func (b *bench) put(topic, body, props string) {
	b.t.Helper()
	var text []byte
	for pair := range strings.FieldsSeq(props) {
		name, value, _ := strings.Cut(pair, "=")
		text = record.AppendProperty(text, name, value)
	}
	rules := delay.Rules{Levels: b.levels, PrecisionMS: b.config.PrecisionMS, TimerMaxMS: 259200000}
	es := []storage.Entry{{Draft: record.Draft{
		Topic: []byte(topic), Body: []byte(body), Properties: text,
	}}}
	if _, _, err := rules.Park(&es[0], nil, b.ms.Load()); err != nil {
		b.t.Fatal(err)
	}
	if b.store.Append(es); es[0].Err != nil {
		b.t.Fatal(es[0].Err)
	}
}

// recall stores what takes the message back that is due in a while from the start.
func (b *bench) recall(body string, outMS int64) {
	b.t.Helper()
	b.send("0", fmt.Sprintf("TIMER_DELIVER_MS=%d TIMER_DEL_UNIQKEY=key-of-%s", outMS+1, body))
}

// step turns the clock on and lets the service work.
func (b *bench) step(by time.Duration) (next time.Duration) {
	b.t.Helper()
	b.ms.Add(by.Milliseconds())
	at := b.service.Step(b.now())
	if at == 1<<63-1 {
		return -1
	}
	return time.Duration(at-b.ms.Load()) * time.Millisecond
}

// records reads a topic.
func (b *bench) records(topic string, show func(v record.View)) {
	b.t.Helper()
	var res storage.ReadResult
	for at := record.QueueOffset(0); ; at = res.Next {
		b.store.Read(&storage.ReadRequest{Topic: []byte(topic), From: at, MaxMessages: 1}, &res)
		if res.Status != storage.Found {
			return
		}
		v, err := record.Parse(res.Regions[0].Mem)
		if err != nil {
			b.t.Fatal(err)
		}
		show(v)
		res.Regions[0].Release()
	}
}

func (b *bench) bodies(topic string) string {
	var all []string
	b.records(topic, func(v record.View) { all = append(all, string(v.Body())) })
	return strings.Join(all, " ")
}

func (b *bench) want(bodies string) {
	b.t.Helper()
	if got := b.bodies(topicName); got != bodies {
		b.t.Errorf("delivered %q, want %q", got, bodies)
	}
}

// text shows properties as send takes them.
func text(props []byte) string {
	var pairs []string
	record.EachProperty(props, func(name, value []byte) bool {
		pairs = append(pairs, string(name)+"="+string(value))
		return true
	})
	return strings.Join(pairs, " ")
}
