// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	// batchTarget is the size at which a batch is sent, or the limit of a message where that is less:
	// brokers hold a batch to it as a whole.
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
		producer: p, ctx: ctx, messages: ms,
		results: make([]SendResult, len(ms)), errs: make([]error, len(ms)),
	}
	if p.client.cfg.hooks.watchesSends() || p.tracer != nil {
		b.messages, b.watches = append([]*Message(nil), ms...), make([]*watched, len(ms))
	}
	groups := b.groups()
	if len(groups) == 1 {
		b.sendGroup(groups[0])
	} else {
		var wg sync.WaitGroup
		slots := make(chan struct{}, batchesAtOnce)
		for _, indexes := range groups {
			slots <- struct{}{}
			wg.Go(func() {
				b.sendGroup(indexes)
				<-slots
			})
		}
		wg.Wait()
	}
	for i, w := range b.watches {
		if w != nil {
			p.unwatch(w, b.results[i], b.errs[i])
		}
	}
	return b.results, b.errs
}

// groups sorts the valid messages by where they must go. Most calls have one group, for which there
// is no map.
func (b *batchSend) groups() [][]int {
	var lists [][]int
	var first group
	var known map[group]int
	for i, m := range b.messages {
		if b.errs[i] = b.producer.checkInBatch(m); b.errs[i] != nil {
			continue
		}
		g := group{topic: m.Topic, key: m.OrderingKey}
		if m.Queue != nil {
			g = group{topic: m.Topic, queue: *m.Queue}
		}
		if b.watches != nil {
			b.messages[i], b.watches[i] = b.producer.watch(b.ctx, m)
		}
		switch {
		case lists == nil:
			first = g
			lists = append(lists, make([]int, 0, len(b.messages)-i))
			lists[0] = append(lists[0], i)
			continue
		case g == first:
			lists[0] = append(lists[0], i)
			continue
		case known == nil:
			known = map[group]int{}
		}
		at, ok := known[g]
		if !ok {
			at = len(lists)
			known[g] = at
			lists = append(lists, nil)
		}
		lists[at] = append(lists[at], i)
	}
	return lists
}

func (p *Producer) checkInBatch(m *Message) error {
	if m == nil {
		_, err := p.prepare(nil, nil)
		return err
	}
	if _, err := p.topicOf(m.Topic); err != nil {
		return err
	}
	return m.check(p.client.cfg.maxMessageSize)
}

// batchSend is one call of SendBatch. Groups write to places of their own.
type batchSend struct {
	producer *Producer
	ctx      context.Context
	messages []*Message
	watches  []*watched // nil: nobody watches
	results  []SendResult
	errs     []error
}

// chunk is what of a group goes into one request.
type chunk struct {
	op      *sendOp
	members []int
}

// sendGroup sends the messages with the given indexes, one request after the other.
func (b *batchSend) sendGroup(indexes []int) {
	p := b.producer
	t, err := p.topicOf(b.messages[indexes[0]].Topic)
	if err != nil {
		b.fail(indexes, err)
		return
	}
	if err := p.buffer.enter(); err != nil {
		b.fail(indexes, err)
		return
	}
	defer p.buffer.leave()
	c := chunk{op: p.newBatch(t)}
	defer func() { p.recycle(c.op) }()
	var idRoom [64]byte
	var room [256]byte
	props := room[:0]
	most := min(batchTarget, p.client.cfg.maxMessageSize)
	for _, i := range indexes {
		m := b.messages[i]
		op := c.op
		id := p.client.ids.Append(idRoom[:0])
		if props, err = p.appendProperties(props[:0], m, id, nil); err != nil {
			b.errs[i] = err
			props = room[:0]
			continue
		}
		size := record.BatchEntrySize(m.Body, props)
		if m.timed() || size > most {
			b.sendChunk(t, &c)
			b.results[i], b.errs[i] = p.sendAlone(b.ctx, m, nil, b.watch(i))
			continue
		}
		if len(op.body)+size > most {
			b.sendChunk(t, &c)
			op = c.op
		}
		op.ids = append(op.ids, id...)
		op.body = record.AppendBatchEntry(op.body, 0, m.Body, props)
		c.members = append(c.members, i)
	}
	b.sendChunk(t, &c)
}

func (b *batchSend) watch(i int) *watched {
	if b.watches == nil {
		return nil
	}
	return b.watches[i]
}

// newBatch begins an op for a batch.
func (p *Producer) newBatch(t *topicSend) *sendOp {
	op, _ := p.batches.Get().(*sendOp)
	if op == nil {
		op = &sendOp{ready: make(chan struct{}, 1)}
	}
	p.begin(op, t)
	op.batch, op.code, op.header.Batch = true, remoting.SendBatchMessage, true
	return op
}

func (b *batchSend) fail(indexes []int, err error) {
	for _, i := range indexes {
		b.errs[i] = err
	}
}

// sendChunk sends what was gathered, spreads the outcome over its messages and begins anew.
func (b *batchSend) sendChunk(t *topicSend, c *chunk) {
	p, op := b.producer, c.op
	switch len(c.members) {
	case 0:
		return
	case 1:
		i := c.members[0]
		// A message alone may be compressed.
		b.results[i], b.errs[i] = p.sendAlone(b.ctx, b.messages[i], nil, b.watch(i))
	default:
		op.batchProperties()
		if first := b.messages[c.members[0]]; !p.free(first) {
			op.message, op.once = first, true
		}
		if err := p.sendUntil(b.ctx, op); err != nil {
			b.fail(c.members, err)
		} else {
			op.results(len(c.members), func(i int, r SendResult) {
				b.results[c.members[i]] = r
				b.watch(c.members[i]).answered(op)
			})
		}
	}
	c.op, c.members = p.newBatch(t), c.members[:0]
	p.recycle(op)
}
