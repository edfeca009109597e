// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
)

// SendAsync queues m, waiting only for buffer space. done (may be nil) runs exactly once unless an
// error is returned; m must not be changed before. Messages to one queue leave in the order of the
// calls. done runs on the producer's callback goroutine, one at a time: a callback that blocks
// delays others, never a connection; it must not call Close or Flush of this producer. A panic in
// it is logged.
func (p *Producer) SendAsync(ctx context.Context, m *Message, done func(SendResult, error)) error {
	op, err := p.prepare(m)
	if err != nil {
		return err
	}
	epoch, err := p.buffer.acquire(ctx, len(op.body))
	if err != nil {
		return err
	}
	p.async.enqueue(op, epoch, done)
	return nil
}

// TrySendAsync is SendAsync that returns ErrBufferFull instead of waiting.
func (p *Producer) TrySendAsync(
	ctx context.Context, m *Message, done func(SendResult, error),
) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	op, err := p.prepare(m)
	if err != nil {
		return err
	}
	epoch, err := p.buffer.tryAcquire(len(op.body))
	if err != nil {
		return err
	}
	p.async.enqueue(op, epoch, done)
	return nil
}

// pipeline carries asynchronous sends: picker -> lane of a broker -> connection -> settler. Each
// stage is one goroutine with a queue in front, bounded together by the producer's buffer, so no
// stage ever blocks the one before it, and one broker that cannot be reached delays no other.
type pipeline struct {
	producer *Producer
	fresh    *fifo[*sendOp] // to be given a queue and sent
	settled  *fifo[*sendOp] // answered, failed or out of time

	wg      sync.WaitGroup
	started sync.Once

	mu      sync.Mutex
	stopped bool
	lanes   map[string]*fifo[*sendOp] // by broker address
}

func newPipeline(p *Producer) *pipeline {
	return &pipeline{
		producer: p, fresh: newFIFO[*sendOp](), settled: newFIFO[*sendOp](),
		lanes: map[string]*fifo[*sendOp]{},
	}
}

func (l *pipeline) enqueue(op *sendOp, epoch uint64, done func(SendResult, error)) {
	op.size, op.epoch, op.done = len(op.body), epoch, done
	l.started.Do(func() {
		l.wg.Go(l.pickQueues)
		l.wg.Go(l.settle)
	})
	l.fresh.push(op)
}

// stop ends the goroutines. Everything is settled, or fails at once since the producer's context
// has ended.
func (l *pipeline) stop() {
	_ = l.producer.buffer.wait(context.Background()) // sends fail fast by now: their contexts ended
	l.mu.Lock()
	l.stopped = true
	for _, lane := range l.lanes {
		lane.close()
	}
	l.mu.Unlock()
	l.fresh.close()
	l.settled.close()
	l.wg.Wait()
}

// pickQueues gives each message its queue and hands it to the lane of the broker.
func (l *pipeline) pickQueues() {
	p := l.producer
	for op := range l.fresh.all() {
		ctx, cancel := context.WithDeadlineCause(p.ctx, op.deadline, context.DeadlineExceeded)
		err := p.pick(ctx, op)
		cancel()
		if err != nil {
			op.err = err
			op.addr = ""
			l.settled.push(op)
			continue
		}
		l.lane(op.addr).push(op)
	}
}

func (l *pipeline) lane(addr string) *fifo[*sendOp] {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.lanes[addr]
	if lane == nil {
		lane = newFIFO[*sendOp]()
		if l.stopped {
			lane.close()
		}
		l.lanes[addr] = lane
		l.wg.Go(func() { l.transmit(lane) })
	}
	return lane
}

// transmit hands the messages of one broker to its connection.
func (l *pipeline) transmit(lane *fifo[*sendOp]) {
	p := l.producer
	for op := range lane.all() {
		op.tryFrom = time.Now()
		left := op.deadline.Sub(op.tryFrom)
		err := context.Cause(p.ctx)
		if err == nil && left <= 0 {
			err = context.DeadlineExceeded
		}
		if err == nil {
			err = l.start(op, left)
		}
		if err != nil {
			op.err = err
			l.settled.push(op)
		}
	}
}

// start sends one request; its outcome goes to the settler. The time-out is the connection's, which
// is cheaper than a context for each message.
func (l *pipeline) start(op *sendOp, left time.Duration) error {
	p := l.producer
	ctx, cancel := context.WithDeadline(p.ctx, op.deadline)
	defer cancel()
	conn, err := p.client.pool.Conn(ctx, op.addr)
	if err != nil {
		return err
	}
	r := op.request()
	r.Timeout = left
	return conn.Start(p.ctx, r, answerTo{op, l})
}

// answerTo is the waiter of one asynchronous attempt.
type answerTo struct {
	op   *sendOp
	line *pipeline
}

// Answered runs on the connection's reader, so it only passes the outcome on.
func (a answerTo) Answered(res *invoke.Response, err error) {
	a.op.res, a.op.err = res, err
	a.line.settled.push(a.op)
}

// settle runs callbacks, and sends again what another broker may take.
func (l *pipeline) settle() {
	for op := range l.settled.all() {
		var r SendResult
		err := op.err
		if err == nil {
			r, err = op.result(op.res)
		}
		op.res, op.err = nil, nil
		if err != nil {
			var stop error
			again := false
			if op.addr == "" {
				stop = err // no attempt was made
			} else {
				again = op.tried(op.tryFrom, err)
				if cause := context.Cause(l.producer.ctx); cause != nil {
					again, stop = false, cause
				} else if again && !time.Now().Before(op.deadline) {
					again, stop = false, context.DeadlineExceeded
				}
			}
			if again {
				l.fresh.push(op)
				continue
			}
			r, err = SendResult{}, op.fail(stop)
		}
		l.callBack(op, r, err)
		l.producer.buffer.release(op.epoch, op.size)
	}
}

func (l *pipeline) callBack(op *sendOp, r SendResult, err error) {
	if op.done == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			l.producer.client.cfg.logger.Error("panic in a send callback",
				"topic", op.topic, "err", v, "stack", string(debug.Stack()))
		}
	}()
	op.done(r, err)
}
