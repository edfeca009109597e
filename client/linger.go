// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// entryOverhead is what a message costs in a batch beside its bytes: its entry and its unique id.
const entryOverhead = 96 // bytes

// lingering gathers the messages of one topic into batches: one that any queue will do for, and one
// for each queue that a key, a selector or the caller asks for. A batch is sent when it is full,
// when its first message has waited long enough, by Flush, and, without a wait, when no other batch
// of the topic is on its way.
type lingering struct {
	producer *Producer
	topic    *topicSend
	timer    *time.Timer

	// Guards what follows. Never held across I/O or a callback.
	mu       sync.Mutex
	free     *sendOp           // open batch for any queue; nil: none
	pinned   map[Queue]*sendOp // open batches for one queue each
	sealed   []*sendOp         // in the order they were sealed, to be launched
	launches bool              // somebody launches them
	flying   int               // batches on their way
	last     int               // bytes of the batch sealed last: what the next one may need
	armed    bool
	stopped  bool
}

func (l *lingering) init(p *Producer, t *topicSend) {
	l.producer, l.topic = p, t
	l.pinned = map[Queue]*sendOp{}
}

// waiting is a Send whose message is part of a batch.
type waiting struct {
	ready  chan struct{} // capacity 1
	result SendResult
	err    error
}

// gather adds a message to a batch. taken is false when it has to go alone: it is delayed, would be
// compressed, is too large, or its queue cannot be known yet.
func (p *Producer) gather(
	ctx context.Context, m *Message, e entry, wait bool,
) (taken bool, err error) {
	if p.cfg.lingerBytes == 0 || m == nil || m.timed() || len(m.Body) >= p.cfg.lingerBytes ||
		p.compressor.codec != NoCompression && len(m.Body) >= p.compressor.minBytes ||
		strings.HasPrefix(m.Topic, protocol.RetryPrefix) {
		return false, nil
	}
	t, err := p.topicOf(m.Topic)
	if err == nil {
		err = m.check(p.client.cfg.maxMessageSize)
	}
	if err != nil {
		return true, err
	}
	var queue *Queue
	if !p.free(m) {
		rt := t.entry.writableRoute()
		if rt == nil || !t.unrouted.idle() {
			return false, nil
		}
		q := Queue{}
		if m.Queue != nil {
			q = *m.Queue
		} else if q, err = p.selectQueue(rt, m); err != nil {
			return true, err
		}
		queue = &q
	}
	return true, t.linger.add(ctx, m, e, queue, wait)
}

// add puts a message into the open batch of its queue, nil for any.
func (l *lingering) add(
	ctx context.Context, m *Message, e entry, queue *Queue, wait bool,
) error {
	p := l.producer
	var idRoom [64]byte
	var propRoom [512]byte
	id := p.client.ids.Append(idRoom[:0])
	props, err := p.appendProperties(propRoom[:0], m, id, nil)
	if err != nil {
		return err
	}
	bytes := record.BatchEntrySize(m.Body, props)
	if most := p.client.cfg.maxMessageSize; bytes > most {
		return fmt.Errorf("client: message to %s has %d bytes with properties, at most %d in a "+
			"batch (WithMaxMessageSize): %w", m.Topic, bytes, most, ErrMessageTooLarge)
	}
	epoch, err := p.admit(ctx, bytes+entryOverhead, wait)
	if err != nil {
		return err
	}
	l.mu.Lock()
	op := l.openLocked(queue)
	if op != nil && (op.epoch != epoch || len(op.body)+bytes > p.cfg.lingerBytes) {
		l.sealLocked(op)
		op = nil
	}
	if op == nil {
		op = l.beginLocked(queue, epoch)
	}
	op.body = record.AppendBatchEntry(op.body, 0, m.Body, props)
	op.ids = append(op.ids, id...)
	op.entries = append(op.entries, e)
	op.size += bytes + entryOverhead
	switch {
	case len(op.body) >= p.cfg.lingerBytes, p.cfg.linger == 0 && l.flying == 0, l.stopped,
		p.ctx.Err() != nil:
		l.sealLocked(op)
	case p.cfg.linger > 0 && !l.armed:
		l.armLocked(p.cfg.linger)
	}
	l.launchLocked()
	return nil
}

func (l *lingering) openLocked(queue *Queue) *sendOp {
	if queue == nil {
		return l.free
	}
	return l.pinned[*queue]
}

func (l *lingering) beginLocked(queue *Queue, epoch uint64) *sendOp {
	op := l.producer.newBatch(l.topic)
	op.epoch, op.opened = epoch, op.started
	if cap(op.body) < l.last {
		op.body = make([]byte, 0, l.last+l.last/8)
	}
	if queue == nil {
		l.free = op
		return op
	}
	op.queue, op.pinned, op.once = *queue, true, true
	l.pinned[*queue] = op
	return op
}

// sealLocked closes a batch to further messages and has it launched in turn.
func (l *lingering) sealLocked(op *sendOp) {
	if op.pinned {
		delete(l.pinned, op.queue)
	} else {
		l.free = nil
	}
	l.flying++
	l.last = len(op.body)
	l.sealed = append(l.sealed, op)
}

func (l *lingering) sealAllLocked() {
	if l.free != nil {
		l.sealLocked(l.free)
	}
	for _, op := range l.pinned {
		l.sealLocked(op)
	}
}

// launchLocked launches what is sealed, in order, unless somebody does, and releases the lock.
func (l *lingering) launchLocked() {
	if l.launches || len(l.sealed) == 0 {
		l.mu.Unlock()
		return
	}
	l.launches = true
	for len(l.sealed) > 0 {
		op := l.sealed[0]
		n := copy(l.sealed, l.sealed[1:])
		l.sealed[n] = nil
		l.sealed = l.sealed[:n]
		l.mu.Unlock()
		if op.batch {
			op.prepareBatch()
		}
		l.producer.launch(op)
		l.mu.Lock()
	}
	l.launches = false
	l.mu.Unlock()
}

// prepareBatch renders the properties of the request. A batch of one goes as a plain message, which
// topics take that refuse batches.
func (op *sendOp) prepareBatch() {
	if len(op.entries) == 1 {
		r := record.NewBatchReader(op.body)
		if _, body, props, ok := r.Next(); ok {
			op.code, op.header.Batch = remoting.SendMessageV2, false
			op.header.Properties, op.single = props, body
			return
		}
	}
	op.batchProperties()
}

// batchProperties renders the properties of a batch's request.
func (op *sendOp) batchProperties() {
	var room [64]byte
	id := op.producer.client.ids.Append(room[:0])
	op.props = record.AppendProperty(op.props[:0], propUniqueID, id)
	op.props = record.AppendProperty(op.props, propWait, "true")
	op.header.Properties = op.props
}

// launchBehind launches a message that goes alone behind the batches of its topic, since it may
// have to keep an order with them.
func (l *lingering) launchBehind(op *sendOp) {
	l.mu.Lock()
	l.sealAllLocked()
	l.sealed = append(l.sealed, op)
	l.launchLocked()
}

func (l *lingering) armLocked(d time.Duration) {
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.expire)
		return
	}
	l.timer.Reset(d)
}

// expire sends the batches that have waited long enough.
func (l *lingering) expire() {
	l.mu.Lock()
	l.armed = false
	now := time.Now()
	next := time.Duration(0)
	look := func(op *sendOp) {
		left := l.producer.cfg.linger - now.Sub(op.opened)
		if left <= 0 {
			l.sealLocked(op)
		} else if next == 0 || left < next {
			next = left
		}
	}
	if l.free != nil {
		look(l.free)
	}
	for _, op := range l.pinned {
		look(op)
	}
	if next > 0 {
		l.armLocked(next)
	}
	l.launchLocked()
}

// flush sends what is open.
func (l *lingering) flush() {
	l.mu.Lock()
	l.sealAllLocked()
	l.launchLocked()
}

// stop flushes; what is added later is sent at once.
func (l *lingering) stop() {
	l.mu.Lock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.sealAllLocked()
	l.launchLocked()
}

// arrived counts a batch that is settled; without a wait what came meanwhile follows.
func (l *lingering) arrived() {
	l.mu.Lock()
	l.flying--
	if l.producer.cfg.linger == 0 && l.flying == 0 {
		l.sealAllLocked()
	}
	l.launchLocked()
}

// sendGathered is Send with linger: the message takes the way of asynchronous ones, so that it can
// join a batch and keeps its order with them.
func (p *Producer) sendGathered(ctx context.Context, m *Message, w *watched) (SendResult, error) {
	e := entry{wait: p.newWaiting(), watch: w}
	if err := p.queue(ctx, m, e, true); err != nil {
		p.waits.Put(e.wait)
		return SendResult{}, err
	}
	select {
	case <-e.wait.ready:
		r, err := e.wait.result, e.wait.err
		e.wait.result, e.wait.err = SendResult{}, nil
		p.waits.Put(e.wait)
		return r, err
	case <-ctx.Done():
		return SendResult{}, &SendError{
			Topic: m.Topic, MaybeStored: true, stop: context.Cause(ctx),
		}
	}
}

func (p *Producer) newWaiting() *waiting {
	if w, ok := p.waits.Get().(*waiting); ok {
		return w
	}
	return &waiting{ready: make(chan struct{}, 1)}
}

// splits sends the messages of a batch one by one after a broker refused the whole: one bad message
// must not fail the others. Nothing of a refused batch is stored.
func (p *Producer) splits(op *sendOp, err error) bool {
	if len(op.entries) < 2 || !errors.Is(err, ErrInvalidMessage) || p.ctx.Err() != nil {
		return false
	}
	idLen := len(op.ids) / len(op.entries)
	r := record.NewBatchReader(op.body)
	for i := range op.entries {
		_, body, props, _ := r.Next() // as add wrote it
		one := p.newOp(op.topic)
		one.deadline = op.deadline
		one.queue, one.pinned, one.once = op.queue, op.pinned, op.once
		one.ids = append(one.ids[:0], op.ids[i*idLen:(i+1)*idLen]...)
		one.props = append(one.props[:0], props...)
		one.header.Properties = one.props
		one.body = append([]byte(nil), body...)
		one.epoch = op.epoch
		one.size = record.BatchEntrySize(body, props) + entryOverhead
		one.one[0] = op.entries[i]
		one.entries = one.one[:]
		p.launch(one)
	}
	op.topic.linger.arrived()
	p.recycle(op)
	return true
}
