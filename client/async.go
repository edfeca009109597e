// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
)

// opOverhead is what a buffered message costs beside body and properties: its op with all buffers,
// its place in a lane, and the call that waits for its answer.
const opOverhead = 1280 // bytes

// SendAsync queues m, waiting only for buffer space. done (may be nil) runs exactly once unless an
// error is returned; m must not be changed before. Messages to one queue leave in the order of the
// calls. done runs on the producer's callback goroutine, one at a time: a callback that blocks
// delays others, never a connection; it must not call Close or Flush of this producer, nor Send
// with linger. A panic in it is logged.
func (p *Producer) SendAsync(ctx context.Context, m *Message, done func(SendResult, error)) error {
	m, w := p.watch(ctx, m)
	return p.queue(ctx, m, entry{done: done, watch: w}, true)
}

// TrySendAsync is SendAsync that returns ErrBufferFull instead of waiting.
func (p *Producer) TrySendAsync(
	ctx context.Context, m *Message, done func(SendResult, error),
) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	m, w := p.watch(ctx, m)
	return p.queue(ctx, m, entry{done: done, watch: w}, false)
}

// queue starts an asynchronous send; nothing is told to e when it returns an error, except to the
// hooks.
func (p *Producer) queue(ctx context.Context, m *Message, e entry, wait bool) error {
	taken, err := p.gather(ctx, m, e, wait)
	if !taken {
		err = p.queueAlone(ctx, m, e, wait)
	}
	if err != nil && e.watch != nil {
		p.unwatch(e.watch, SendResult{}, err)
	}
	return err
}

func (p *Producer) queueAlone(ctx context.Context, m *Message, e entry, wait bool) error {
	op, err := p.prepare(m, nil)
	if err != nil {
		return err
	}
	size := len(op.body) + len(op.props) + opOverhead
	if op.epoch, err = p.admit(ctx, size, wait); err != nil {
		p.recycle(op)
		return err
	}
	op.size = size
	op.one[0] = e
	op.entries = op.one[:]
	if p.cfg.lingerBytes > 0 && op.once {
		op.topic.linger.launchBehind(op)
	} else {
		p.launch(op)
	}
	return nil
}

// admit takes buffer space and tells the hooks.
func (p *Producer) admit(ctx context.Context, size int, wait bool) (epoch uint64, err error) {
	if wait {
		epoch, err = p.buffer.acquire(ctx, size)
	} else {
		epoch, err = p.buffer.tryAcquire(size)
	}
	if err == nil && len(p.client.cfg.hooks.buffer) > 0 {
		p.client.cfg.hooks.onBuffer(p.buffer.level())
	}
	return epoch, err
}

// launch starts an asynchronous op on its way. It does not wait for routes or connections.
func (p *Producer) launch(op *sendOp) {
	op.async = true
	if rt := op.topic.entry.writableRoute(); rt != nil && op.topic.unrouted.idle() {
		if err := p.choose(rt, op); err != nil {
			op.stop = err
			p.async.settling.push(op)
			return
		}
		p.async.lane(op.addr).push(op)
		return
	}
	op.topic.unrouted.push(op)
}

// route fetches the route of a topic for what waits for it, in order.
func (p *Producer) route(op *sendOp) {
	if err := p.pick(p.ctx, op); err != nil {
		op.stop = err
		p.async.settling.push(op)
		return
	}
	p.async.lane(op.addr).push(op)
}

// pipeline carries asynchronous sends: lane of a broker -> connection -> settling. The producer's
// buffer bounds what is in it. A broker that cannot be reached holds up its own lane only.
type pipeline struct {
	producer *Producer
	settling *serial[*sendOp] // answered, failed or out of time
	lanes    sync.Map         // of *sendLane by broker address
}

func newPipeline(p *Producer) *pipeline {
	l := &pipeline{producer: p}
	l.settling = newSerial(&p.wg, l.settle)
	return l
}

// Bounds of what one broker has been sent and has not answered. The rest waits in the lane, where
// it exists once: requests on their way are also in the connection's buffer.
const (
	laneRequests = 2048
	laneBytes    = 4 << 20
)

// sendLane hands the requests for one broker to its connection, in order.
type sendLane struct {
	producer *Producer
	addr     string

	// Guards what follows. Never held across I/O.
	mu       sync.Mutex
	queue    []*sendOp
	head     int // queue[:head] has been taken
	busy     bool
	requests int // without an answer
	bytes    int
}

func (l *pipeline) lane(addr string) *sendLane {
	if x, ok := l.lanes.Load(addr); ok {
		return x.(*sendLane)
	}
	x, _ := l.lanes.LoadOrStore(addr, &sendLane{producer: l.producer, addr: addr})
	return x.(*sendLane)
}

// push appends an op. The caller sends what the broker may be sent, unless somebody does already,
// or there is no connection yet: then a goroutine waits for it.
func (l *sendLane) push(op *sendOp) {
	l.mu.Lock()
	l.queue = append(l.queue, op)
	l.pumpLocked()
}

// done counts an answer and sends what had to wait for it.
func (l *sendLane) done(bytes int) {
	l.mu.Lock()
	l.requests--
	l.bytes -= bytes
	l.pumpLocked()
}

// pumpLocked begins sending if nobody does, and releases the lock.
func (l *sendLane) pumpLocked() {
	if l.busy || l.head == len(l.queue) || !l.openLocked() {
		l.mu.Unlock()
		return
	}
	l.busy = true
	l.mu.Unlock()
	p := l.producer
	if conn := p.client.pool.Lookup(l.addr); conn != nil {
		if l.transmit(conn) {
			return
		}
	}
	p.wg.Go(func() {
		more := true
		for more {
			more = !l.transmit(nil)
		}
	})
}

// openLocked reports whether the broker may be sent more.
func (l *sendLane) openLocked() bool {
	return l.requests == 0 || l.requests < laneRequests && l.bytes < laneBytes
}

// burst is how many requests a sender passes on for others before a goroutine takes over.
const burst = 256

// transmit sends what it may; conn is nil when there is none yet. false: there is more.
func (l *sendLane) transmit(conn *invoke.Conn) (finished bool) {
	for range burst {
		op := l.take()
		if op == nil {
			return true
		}
		if err := l.start(op, conn); err != nil {
			l.fail(op, err)
		}
	}
	return false
}

// fail settles an op that could not be sent. When no connection could be made, those that wait for
// it fail with it, while they have time left for another broker.
func (l *sendLane) fail(op *sendOp, err error) {
	settling := l.producer.async.settling
	op.err = err
	settling.push(op)
	var ie *invoke.Error
	if !errors.As(err, &ie) || ie.Op != "dial" {
		return
	}
	l.mu.Lock()
	queued := append([]*sendOp(nil), l.queue[l.head:]...)
	clear(l.queue)
	l.queue, l.head = l.queue[:0], 0
	l.mu.Unlock()
	for _, op := range queued {
		op.err, op.tryFrom = err, time.Now()
		settling.push(op)
	}
}

// take removes the first op and counts it, or ends the work of the one who sends.
func (l *sendLane) take() *sendOp {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == len(l.queue) || !l.openLocked() {
		l.busy = false
		return nil
	}
	op := l.queue[l.head]
	l.queue[l.head] = nil
	l.head++
	if l.head == len(l.queue) {
		l.head = 0
		l.queue = l.queue[:0]
		if cap(l.queue) > keepItems {
			l.queue = nil
		}
	} else if l.head >= keepItems && l.head*2 >= len(l.queue) {
		l.queue = append(l.queue[:0], l.queue[l.head:]...)
		l.head = 0
	}
	l.requests++
	l.bytes += len(op.body)
	op.lane = l
	return op
}

// start sends one request; its outcome goes to the settler. The time-out is the connection's, which
// is cheaper than a context for each message.
func (l *sendLane) start(op *sendOp, conn *invoke.Conn) error {
	p := l.producer
	op.tryFrom = time.Now()
	if err := p.ctx.Err(); err != nil {
		return &invoke.Error{Addr: op.addr, Op: "call", Err: ErrClosed}
	}
	if conn == nil || conn.Err() != nil {
		dial, cancel := context.WithDeadlineCause(p.ctx, op.dialUntil(), context.DeadlineExceeded)
		defer cancel()
		var err error
		if conn, err = p.client.pool.Conn(dial, op.addr); err != nil {
			return err
		}
	}
	left := time.Until(op.deadline)
	if left <= 0 {
		return &invoke.Error{Addr: op.addr, Op: "call", Err: context.DeadlineExceeded}
	}
	op.conn = conn
	_, err := conn.Begin(p.ctx, op.request(left), op)
	return err
}

// settle runs callbacks, and sends again what another broker may take.
func (l *pipeline) settle(op *sendOp) {
	p := l.producer
	if op.lane != nil {
		op.lane.done(len(op.body))
		op.lane = nil
	}
	err, stop := op.err, op.stop
	op.err, op.stop = nil, nil
	if stop == nil {
		again := op.settled(err)
		if err == nil {
			l.deliver(op)
			return
		}
		if p.ctx.Err() != nil {
			stop = ErrClosed
		} else if again {
			p.launch(op)
			return
		}
	}
	if p.splits(op, err) {
		return
	}
	failure := op.fail(stop)
	for i := range op.entries {
		p.conclude(&op.entries[i], SendResult{}, failure)
	}
	p.finish(op)
}

// deliver tells each message of an op where it is.
func (l *pipeline) deliver(op *sendOp) {
	p := l.producer
	for i := range op.entries {
		op.entries[i].watch.answered(op)
	}
	if !op.batch {
		p.conclude(&op.entries[0], op.result(), nil)
	} else {
		op.results(len(op.entries), func(i int, r SendResult) { p.conclude(&op.entries[i], r, nil) })
	}
	p.finish(op)
}

// finish gives the buffer space of a settled op back, and the op.
func (p *Producer) finish(op *sendOp) {
	if op.batch {
		op.topic.linger.arrived()
	}
	p.buffer.release(op.epoch, len(op.entries), op.size)
	if len(p.client.cfg.hooks.buffer) > 0 {
		p.client.cfg.hooks.onBuffer(p.buffer.level())
	}
	p.recycle(op)
}

// entry is one message of an asynchronous op.
type entry struct {
	done  func(SendResult, error) // nil: nobody asks
	wait  *waiting                // a Send that waits; nil: none
	watch *watched                // for hooks and trace; nil: none
}

// conclude tells whoever asks how a message ended.
func (p *Producer) conclude(e *entry, r SendResult, err error) {
	if e.watch != nil {
		p.unwatch(e.watch, r, err)
	}
	if e.wait != nil {
		e.wait.result, e.wait.err = r, err
		e.wait.ready <- struct{}{}
		return
	}
	if e.done == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			p.client.cfg.logger.Error("panic in a send callback",
				"group", p.group, "err", v, "stack", string(debug.Stack()))
		}
	}()
	e.done(r, err)
}

// abandonAll ends the wait for answers once the producer's context has ended, until nothing is
// left.
func (l *pipeline) abandonAll() {
	p := l.producer
	mine := func(w invoke.Waiter) bool {
		op, ok := w.(*sendOp)
		return ok && op.producer == p && op.async
	}
	all := p.buffer.mark()
	for {
		for _, w := range p.client.pool.Abandon(mine) {
			op := w.(*sendOp)
			op.err = &invoke.Error{Addr: op.addr, Op: "call", Sent: true, Err: ErrClosed}
			l.settling.push(op)
		}
		// A request that was being handed to a connection meanwhile is found by the next look.
		look := time.NewTimer(lookAgain)
		select {
		case <-all.ready:
			look.Stop()
			return
		case <-look.C:
		}
	}
}

// lookAgain is how often the end of a producer looks for what came in between.
const lookAgain = 10 * time.Millisecond
