// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// sendOp is one request to a broker with all its attempts: a message, or a batch of them. It
// belongs to one goroutine at a time and is used again once it is settled, with its buffers.
type sendOp struct {
	producer *Producer
	topic    *topicSend
	message  *Message // that a selector sees; nil: any queue, or the pinned one
	pinned   bool     // queue was chosen before
	once     bool     // another queue would break what the caller asked for
	batch    bool
	code     remoting.RequestCode
	header   protocol.SendRequest
	body     []byte
	props    []byte // buffer of the property text
	ids      []byte // unique ids, one behind the other
	single   []byte // body of a batch that holds one message only
	frame    invoke.Request

	started  time.Time
	deadline time.Time
	queue    Queue
	broker   []byte // buffer of the broker's name
	addr     string
	conn     *invoke.Conn
	tryFrom  time.Time
	attempts []Attempt
	lost     bool   // a request went out and its answer did not come
	wentAway bool   // a broker said so, and the request is repeated there once
	notLast  string // broker of the attempt before
	stop     error  // why no attempt was made or none follows

	// The outcome of an attempt.
	ready  chan struct{} // capacity 1; for synchronous sends
	err    error
	answer answer

	// Asynchronous sends and batches.
	async   bool
	lane    *sendLane // that counts it; nil: none
	entries []entry
	one     [1]entry
	opened  time.Time // a batch; when its first message came
	epoch   uint64
	size    int // in the buffer
}

// answer is what a broker says of a stored message, copied out of the connection's buffer.
type answer struct {
	status   SendStatus
	offsetID []byte // of a batch: joined by commas
	queueID  int32
	offset   int64
	handle   string
	region   string
	traceOn  bool
}

// topicSend is what a producer knows of one topic that it sends to.
type topicSend struct {
	name     string
	wire     []byte
	entry    *routeEntry
	turn     atomic.Uint32 // round robin
	unrouted *serial[*sendOp]
	linger   lingering
}

// topicOf returns what the producer knows of a topic; the error wraps ErrInvalidMessage. Names are
// checked once.
func (p *Producer) topicOf(name string) (*topicSend, error) {
	if t, ok := p.topics.Load(name); ok {
		return t.(*topicSend), nil
	}
	return p.newTopic(name, false)
}

// newTopic enters a topic. system allows those that users may not send to.
func (p *Producer) newTopic(name string, system bool) (*topicSend, error) {
	wire := []byte(p.client.onWire(name))
	if err := protocol.ValidTopic(wire); err != nil {
		return nil, fmt.Errorf("client: topic %q: %w: %w", name, ErrInvalidMessage, err)
	}
	if !system && protocol.RefusedOnSend(name) {
		return nil, fmt.Errorf("client: topic %s belongs to the broker, choose another: %w",
			name, ErrInvalidMessage)
	}
	t := &topicSend{name: name, wire: wire, entry: p.client.routes.entry(name)}
	t.turn.Store(p.seed.Add(7919)) // each topic begins elsewhere
	t.unrouted = newSerial(&p.wg, p.route)
	t.linger.init(p, t)
	known, _ := p.topics.LoadOrStore(name, t)
	return known.(*topicSend), nil
}

// extras are what a send carries beyond its message.
type extras struct {
	sysFlag int32
	fields  []field // properties that users may not set
	code    remoting.RequestCode
}

// prepare checks a message and renders what all attempts share. The body is not copied unless it is
// compressed. The op is to be recycled.
func (p *Producer) prepare(m *Message, x *extras) (*sendOp, error) {
	if m == nil {
		return nil, fmt.Errorf("client: message is nil: %w", ErrInvalidMessage)
	}
	t, err := p.topicOf(m.Topic)
	if err != nil {
		return nil, err
	}
	if err := m.check(p.client.cfg.maxMessageSize); err != nil {
		return nil, err
	}
	op := p.newOp(t)
	op.ids = p.client.ids.Append(op.ids[:0])
	var more []field
	if x != nil {
		more = x.fields
		op.header.SysFlag = x.sysFlag
		if x.code != 0 {
			op.code = x.code
		}
	}
	op.props, err = p.appendProperties(op.props[:0], m, op.ids, more)
	if err != nil {
		p.recycle(op)
		return nil, err
	}
	op.header.Properties = op.props
	body, flag := p.compressor.compress(m.Body)
	op.header.SysFlag |= flag
	op.message, op.body = m, body
	op.once = m.Queue != nil || m.OrderingKey != "" || !spreads(p.cfg.selector)
	return op, nil
}

// spreads reports whether a selector leaves the choice of another queue to a retry.
func spreads(s Selector) bool {
	return s == nil || s == Selector(RoundRobin) || s == Selector(Random)
}

func (p *Producer) newOp(t *topicSend) *sendOp {
	op, _ := p.ops.Get().(*sendOp)
	if op == nil {
		op = &sendOp{ready: make(chan struct{}, 1)}
	}
	p.begin(op, t)
	return op
}

func (p *Producer) begin(op *sendOp, t *topicSend) {
	now := time.Now()
	op.producer, op.topic, op.code = p, t, remoting.SendMessageV2
	op.started, op.deadline = now, now.Add(p.cfg.sendTimeout)
	op.header = protocol.SendRequest{
		Group: p.wireGroup, Topic: t.wire, DefaultTopic: p.defaultTopic,
		DefaultTopicQueues: defaultTopicQueues, MaxReconsumeTimes: -1, BornMS: now.UnixMilli(),
	}
}

// keepBuffer is the size up to which buffers of an op are kept.
const keepBuffer = 4096

// recycle gives an op back; nothing may know of it any more.
func (p *Producer) recycle(op *sendOp) {
	clear(op.entries)
	kept := sendOp{
		ready: op.ready, ids: op.ids[:0], broker: op.broker[:0], props: op.props[:0],
		answer: answer{offsetID: op.answer.offsetID[:0]},
	}
	if !op.batch {
		if cap(kept.props) > keepBuffer {
			kept.props = nil
		}
		*op = kept
		p.ops.Put(op)
		return
	}
	kept.entries = op.entries[:0]
	if cap(op.body) <= max(2*p.cfg.lingerBytes, 2*batchTarget) {
		kept.body = op.body[:0]
	}
	*op = kept
	p.batches.Put(op)
}

// send makes attempts until one settles the message, or ctx ends.
func (p *Producer) send(ctx context.Context, op *sendOp) (SendResult, error) {
	if err := p.sendUntil(ctx, op); err != nil {
		return SendResult{}, err
	}
	return op.result(), nil
}

// sendUntil is send for an op of any kind; what the broker says is in op.answer.
func (p *Producer) sendUntil(ctx context.Context, op *sendOp) error {
	for {
		if err := p.pick(ctx, op); err != nil {
			return op.fail(err)
		}
		err := p.attempt(ctx, op)
		again := op.settled(err)
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return op.fail(cause)
		}
		if p.ctx.Err() != nil {
			return op.fail(ErrClosed)
		}
		if !again {
			return op.fail(nil)
		}
	}
}

// attempt sends the request once and waits for its outcome.
func (p *Producer) attempt(ctx context.Context, op *sendOp) error {
	op.tryFrom = time.Now()
	conn := p.client.pool.Lookup(op.addr)
	if conn == nil {
		dial, cancel := p.bound(ctx, op.dialUntil())
		var err error
		conn, err = p.client.pool.Conn(dial, op.addr)
		cancel()
		if err != nil {
			return err
		}
	}
	left := time.Until(op.deadline)
	if left <= 0 {
		return &invoke.Error{Addr: op.addr, Op: "call", Err: context.DeadlineExceeded}
	}
	op.conn = conn
	opaque, err := conn.Begin(ctx, op.request(left), op)
	if err != nil {
		return err
	}
	var cause error
	select {
	case <-op.ready:
		return op.err
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-p.ctx.Done():
		cause = ErrClosed
	}
	if conn.Abandon(opaque) {
		return &invoke.Error{Addr: op.addr, Op: "call", Sent: true, Err: cause}
	}
	<-op.ready
	return op.err
}

// dialUntil leaves time for another broker while one more attempt would be made.
func (op *sendOp) dialUntil() time.Time {
	if op.once || len(op.attempts) >= op.producer.cfg.retries {
		return op.deadline
	}
	left := op.deadline.Sub(op.tryFrom)
	return op.tryFrom.Add(left / 2)
}

// pick chooses queue and address of the next attempt, away from the broker of the last one.
func (p *Producer) pick(ctx context.Context, op *sendOp) error {
	rt := op.topic.entry.writableRoute()
	if rt == nil {
		bounded, cancel := p.bound(ctx, op.deadline)
		var err error
		rt, err = p.client.routes.forSend(bounded, op.topic.name, p.cfg.template)
		cancel()
		if err != nil {
			return err
		}
	}
	return p.choose(rt, op)
}

// request renders the attempt. The header is filled in anew each time, with the queue of this
// attempt.
func (op *sendOp) request(left time.Duration) *invoke.Request {
	op.header.QueueID = int32(op.queue.ID)
	op.broker = append(op.broker[:0], op.queue.Broker...)
	op.header.BrokerName = op.broker
	op.frame = invoke.Request{
		Code: op.code, Header: &op.header, Body: op.body, Timeout: left, Borrow: true,
	}
	if op.single != nil {
		op.frame.Body = op.single
	}
	return &op.frame
}

// Answered takes the outcome of an attempt over. It runs on the connection's reader, so it only
// copies and passes on.
func (op *sendOp) Answered(res *invoke.Response, err error) {
	if err == nil {
		err = op.read(res)
	}
	op.err = err
	if op.async {
		op.producer.async.settling.push(op)
		return
	}
	op.ready <- struct{}{}
}

// read copies an answer; a *BrokerError when the message was not stored.
func (op *sendOp) read(res *invoke.Response) error {
	a := &op.answer
	switch res.Code {
	case remoting.Success:
		a.status = Stored
	case remoting.FlushDiskTimeout:
		a.status = FlushDiskTimeout
	case remoting.FlushSlaveTimeout:
		a.status = FlushSlaveTimeout
	case remoting.SlaveNotAvailable:
		a.status = SlaveNotAvailable
	default:
		return brokerError("send", op.queue.Broker, op.addr, res.Code, res.Remark)
	}
	var h protocol.SendResponse
	if err := h.Decode(res.Command); err != nil {
		return fmt.Errorf("client: send: answer of %s: %w", op.addr, err)
	}
	a.offsetID = append(a.offsetID[:0], h.MsgID...)
	a.queueID, a.offset = h.QueueID, h.QueueOffset
	a.handle = string(h.RecallHandle)
	a.region, a.traceOn = h.Region, h.TraceOn
	return nil
}

// result says where the one message of an op was stored. Cost: one allocation.
func (op *sendOp) result() SendResult {
	n := len(op.ids)
	op.props = append(append(op.props[:0], op.ids...), op.answer.offsetID...)
	texts := string(op.props)
	r := SendResult{
		Status: op.answer.status, ID: texts[:n], OffsetID: texts[n:], Queue: op.queue,
		Offset: op.answer.offset, RecallHandle: op.answer.handle,
	}
	r.Queue.ID = int(op.answer.queueID)
	return r
}

// results says where the n messages of a batch were stored, one after the other.
func (op *sendOp) results(n int, each func(i int, r SendResult)) {
	idLen := len(op.ids) / n
	offsetIDs := op.answer.offsetID
	if bytes.Count(offsetIDs, []byte{','}) != n-1 {
		offsetIDs = nil
	}
	op.props = append(append(op.props[:0], op.ids...), offsetIDs...)
	texts := string(op.props)
	rest := texts[len(op.ids):]
	r := SendResult{Status: op.answer.status, Queue: op.queue}
	r.Queue.ID = int(op.answer.queueID)
	for i := range n {
		r.ID = texts[i*idLen : (i+1)*idLen]
		r.Offset = op.answer.offset + int64(i)
		if offsetIDs != nil {
			r.OffsetID, rest, _ = strings.Cut(rest, ",")
		}
		each(i, r)
	}
}

// settled notes how an attempt ended. again: it failed, and another one makes sense, since another
// broker may do better and there are attempts and time left.
func (op *sendOp) settled(err error) (again bool) {
	p := op.producer
	took := time.Since(op.tryFrom)
	if len(p.client.cfg.hooks.request) > 0 {
		p.client.cfg.hooks.onRequest("send", op.addr, len(op.body), took, err)
	}
	if p.faults != nil {
		p.faults.note(op.queue.Broker, took, err)
	}
	if err == nil {
		return false
	}
	op.attempts = append(op.attempts, Attempt{Queue: op.queue, Took: took, Err: err})
	op.notLast = op.queue.Broker
	var ie *invoke.Error
	var be *BrokerError
	switch {
	case errors.As(err, &ie):
		op.lost = op.lost || ie.Sent
		again = !errors.Is(err, invoke.ErrTooLarge)
		if ie.Sent && op.conn != nil && unanswered(op.conn, took, err) {
			p.client.pool.Retire(op.conn)
		}
		p.client.routes.stale(op.topic.name)
	case errors.As(err, &be):
		code := remoting.ResponseCode(be.Code)
		if code == remoting.FlowControl || code == remoting.SystemBusy {
			p.client.cfg.hooks.onThrottle(op.queue, be.Remark)
		}
		if code == remoting.GoAway && !op.wentAway {
			// The broker drains: the request goes to it once more over a new connection.
			op.wentAway, op.notLast = true, ""
			p.client.pool.Retire(op.conn)
			return time.Now().Before(op.deadline)
		}
		again = retriable(code)
		if again {
			p.client.routes.stale(op.topic.name)
		}
	default:
		op.lost = true // an answer that says stored, and cannot be read
	}
	limit := p.cfg.retries
	if op.wentAway {
		limit++
	}
	return again && !op.once && len(op.attempts) <= limit && time.Now().Before(op.deadline)
}

// retriable are the codes after which RocketMQ's producer asks another broker.
func retriable(code remoting.ResponseCode) bool {
	switch code {
	case remoting.TopicNotExist, remoting.ServiceNotAvailable, remoting.SystemError,
		remoting.SystemBusy, remoting.NoPermission, remoting.NoBuyerID,
		remoting.NotInCurrentUnit, remoting.GoAway:
		return true
	default:
		return false
	}
}

// fail sums the attempts up. stop is why no further one was made, nil when the last one says it.
func (op *sendOp) fail(stop error) error {
	if errors.Is(stop, ErrInvalidMessage) && len(op.attempts) == 0 {
		return stop
	}
	e := &SendError{Topic: op.topic.name, Attempts: op.attempts, MaybeStored: op.lost, stop: stop}
	op.attempts = nil // the error's from here on
	return e
}

// bound puts a deadline and the producer's own end on a caller's context.
func (p *Producer) bound(
	ctx context.Context, until time.Time,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(ctx, until)
	out, give := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { give(ErrClosed) })
	return out, func() {
		stop()
		give(nil)
		cancel()
	}
}
