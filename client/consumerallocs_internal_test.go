// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"net/netip"
	"testing"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/record"
)

const allocBatch = 32 // records of one answer

// answerOf encodes records as a pull answers them: with tag, keys, ordering key and unique id.
func answerOf(from int64) []byte {
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	var body []byte
	for i := range int64(allocBatch) {
		var props []byte
		props = record.AppendProperty(props, propTags, "tag")
		props = record.AppendProperty(props, propKeys, "key1 key2")
		props = record.AppendProperty(props, propUniqueID, "C00002022B58797EC11194F8D0310000")
		props = record.AppendProperty(props, propWait, "true")
		d := record.Draft{
			Topic: []byte("topic"), BornHost: host, StoreHost: host, Body: make([]byte, 256),
			Properties: props,
		}
		b := make([]byte, d.Size())
		d.Encode(b, record.Place{Queue: record.QueueOffset(from + i), Physical: 1})
		body = append(body, b...)
	}
	return body
}

// TestAllocsConsume holds the way of a message from the answer of a broker through a handler to its
// settlement to one allocation at most, amortised over an answer of 32. It is not parallel: it
// counts those of the process.
func TestAllocsConsume(t *testing.T) {
	c, err := New([]string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.NewConsumer("g", WithSubscription("topic", Tags("tag")))
	if err != nil {
		t.Fatal(err)
	}
	handled := 0
	k.phase, k.values = running, context.Background()
	k.work = workload{size: 1, one: func(_ context.Context, m *Received) error {
		if m.Tag == "tag" && len(m.Keys) == 2 && len(m.Body) == 256 {
			handled++
		}
		return nil
	}}
	k.cfg.concurrency = 0 // this test is the only worker
	q := k.newQueue(Queue{Topic: "topic", Broker: "b"}, 0, true)
	q.sub, q.lane = &k.subs["topic"].data, &lane{k: k, events: newFIFO[*pull]()}
	w := &worker{k: k}
	body := answerOf(0)
	at := int64(0)
	run := func() {
		p := &pull{q: q, at: at, res: &invoke.Response{Body: bytes.Clone(body)}}
		q.pull = p
		ds, next := q.lane.decode(p, q.sub, &protocol.PullResponse{
			OffsetDelta: at, NextOffset: at + allocBatch,
		})
		q.lane.arrive(p, q.sub, ds, next)
		at = next
		k.mu.Lock()
		for k.nextLocked(w) {
			k.mu.Unlock()
			w.handle()
			k.mu.Lock()
			w.finishLocked()
		}
		k.mu.Unlock()
		q.lane.events.items = q.lane.events.items[:0]
	}
	run()
	k.crew.watching = true
	n := testing.AllocsPerRun(100, run) / allocBatch
	if handled != 102*allocBatch || q.positionLocked() != at {
		t.Fatalf("%d messages handled, position %d of %d", handled, q.positionLocked(), at)
	}
	t.Logf("%.2f allocations a message", n)
	if n > 1 {
		t.Errorf("%.2f allocations a message, want at most 1", n)
	}
	k.phase = fresh
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestAllocsRead is the same for a reader.
func TestAllocsRead(t *testing.T) {
	c, err := New([]string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.NewReader("")
	if err != nil {
		t.Fatal(err)
	}
	q := Queue{Topic: "topic", Broker: "b"}
	f := newFetcher(r, q, protocol.SubscriptionData{SubString: "*"}, Earliest)
	f.next = 0
	body := answerOf(0)
	read := 0
	run := func() {
		ms, err := f.decode(bytes.Clone(body), f.next)
		if err != nil {
			t.Error(err)
		}
		f.keep(0, ms, f.next+allocBatch, false)
		got, err := r.Poll(context.Background(), allocBatch)
		if err != nil {
			t.Error(err)
		}
		read += len(got)
	}
	n := testing.AllocsPerRun(100, run) / allocBatch
	if read != 101*allocBatch {
		t.Fatalf("%d messages read", read)
	}
	t.Logf("%.2f allocations a message", n)
	if n > 1 {
		t.Errorf("%.2f allocations a message, want at most 1", n)
	}
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// BenchmarkConsume is the client's own work for one message.
func BenchmarkConsume(b *testing.B) {
	c, err := New([]string{"127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	k, err := c.NewConsumer("g", WithSubscription("topic", All()))
	if err != nil {
		b.Fatal(err)
	}
	k.phase, k.values = running, context.Background()
	k.work = workload{size: 1, one: func(context.Context, *Received) error { return nil }}
	k.cfg.concurrency = 0
	q := k.newQueue(Queue{Topic: "topic", Broker: "b"}, 0, true)
	q.sub, q.lane = &k.subs["topic"].data, &lane{k: k, events: newFIFO[*pull]()}
	w := &worker{k: k}
	body := answerOf(0)
	b.ReportAllocs()
	for i := 0; i < b.N; i += allocBatch {
		p := &pull{q: q, at: int64(i), res: &invoke.Response{Body: body}}
		q.pull = p
		ds, next := q.lane.decode(p, q.sub, &protocol.PullResponse{
			OffsetDelta: int64(i), NextOffset: int64(i) + allocBatch,
		})
		q.lane.arrive(p, q.sub, ds, next)
		k.mu.Lock()
		for k.nextLocked(w) {
			k.mu.Unlock()
			w.handle()
			k.mu.Lock()
			w.finishLocked()
		}
		k.mu.Unlock()
		q.lane.events.items = q.lane.events.items[:0]
	}
	b.StopTimer()
	k.phase = fresh
	_ = c.Close(context.Background())
}
