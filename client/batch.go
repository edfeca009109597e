// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	// batchTarget is the size at which a batch is sent; the brokers' limit is 4 MiB by default.
	batchTarget = 1 << 20
	// batchesAtOnce bounds how many queues one SendBatch writes to at the same time.
	batchesAtOnce = 16
)

// group is the part of a SendBatch that must go to one queue, in order.
type group struct {
	topic string
	key   string // ordering key
	queue Queue  // explicit queue
}

// SendBatch sends messages in as few requests as their topics, queues and sizes allow, and waits.
// Results and errors have the order of ms, one for each message; a result counts only where its
// error is nil. Messages of one topic without queue and ordering key share a queue for each
// request. Delayed messages and those too large for a batch are sent singly. Bodies in a batch are
// not compressed.
func (p *Producer) SendBatch(ctx context.Context, ms ...*Message) ([]SendResult, []error) {
	b := &batchSend{
		producer: p, ctx: ctx, messages: append([]*Message(nil), ms...),
		watches: make([]*watched, len(ms)),
		results: make([]SendResult, len(ms)), errs: make([]error, len(ms)),
	}
	groups := map[group][]int{}
	var order []group
	for i, m := range ms {
		if b.errs[i] = p.checkInBatch(m); b.errs[i] != nil {
			continue
		}
		b.messages[i], b.watches[i] = p.watch(ctx, m)
		g := group{topic: m.Topic, key: m.OrderingKey}
		if m.Queue != nil {
			g = group{topic: m.Topic, queue: *m.Queue}
		}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], i)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, batchesAtOnce)
	for _, g := range order {
		slots <- struct{}{}
		wg.Go(func() {
			b.sendGroup(groups[g])
			<-slots
		})
	}
	wg.Wait()
	for i, w := range b.watches {
		if w != nil {
			p.unwatch(w, b.results[i], b.errs[i])
		}
	}
	return b.results, b.errs
}

func (p *Producer) checkInBatch(m *Message) error {
	if m == nil {
		_, err := p.prepare(nil, nil)
		return err
	}
	if _, err := p.topicOf(m.Topic); err != nil {
		return err
	}
	return m.check()
}

// batchSend is one call of SendBatch. Groups write to places of their own.
type batchSend struct {
	producer *Producer
	ctx      context.Context
	messages []*Message
	watches  []*watched
	results  []SendResult
	errs     []error
}

// sendGroup sends the messages with the given indexes, one request after the other.
func (b *batchSend) sendGroup(indexes []int) {
	p := b.producer
	var body, props, ids []byte
	var members []int
	flush := func() {
		switch len(members) {
		case 0:
			return
		case 1:
			i := members[0]
			b.results[i], b.errs[i] = p.sendAlone(b.ctx, b.messages[i], nil)
		default:
			b.sendChunk(body, ids, members)
		}
		body, ids, members = body[:0], ids[:0], members[:0]
	}
	for _, i := range indexes {
		m := b.messages[i]
		at := len(ids)
		ids = p.client.ids.Append(ids)
		var err error
		if props, err = p.appendProperties(props[:0], m, ids[at:], nil); err != nil {
			b.errs[i] = err
			ids = ids[:at]
			continue
		}
		size := record.BatchEntrySize(m.Body, props)
		if m.timed() || size > batchTarget {
			ids = ids[:at]
			flush()
			b.results[i], b.errs[i] = p.sendAlone(b.ctx, m, nil)
			continue
		}
		if len(body)+size > batchTarget {
			id := append([]byte(nil), ids[at:]...)
			ids = ids[:at]
			flush()
			ids = append(ids, id...)
		}
		body = record.AppendBatchEntry(body, 0, m.Body, props)
		members = append(members, i)
	}
	flush()
}

// sendChunk sends one batch and spreads its outcome over its messages.
func (b *batchSend) sendChunk(body, ids []byte, members []int) {
	p := b.producer
	fail := func(err error) {
		for _, i := range members {
			b.errs[i] = err
		}
	}
	if err := p.buffer.enter(); err != nil {
		fail(err)
		return
	}
	defer p.buffer.leave()
	first := b.messages[members[0]]
	t, err := p.topicOf(first.Topic)
	if err != nil {
		fail(err)
		return
	}
	op := p.newOp(t)
	op.code, op.header.Batch = remoting.SendBatchMessage, true
	op.body, op.ids = body, append(op.ids[:0], ids...)
	op.props = record.AppendProperty(op.props[:0], propUniqueID, p.client.ids.Append(nil))
	op.props = record.AppendProperty(op.props, propWait, "true")
	op.header.Properties = op.props
	if !p.free(first) {
		op.message, op.once = first, true
	}
	if _, err := p.send(b.ctx, op); err != nil {
		fail(err)
	} else {
		op.results(len(members), func(i int, r SendResult) { b.results[members[i]] = r })
	}
	p.recycle(op)
}
