// SPDX-License-Identifier: Apache-2.0

package invoke

import (
	"context"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

// sweepStep is the least time between two looks for calls whose deadline passed.
const sweepStep = 20 * time.Millisecond

// outcome is a Waiter for one goroutine.
type outcome struct {
	ready    chan struct{}
	response *Response
	err      error
}

func (o *outcome) Answered(r *Response, err error) {
	o.response, o.err = r, err
	close(o.ready)
}

// Call sends r and waits for the answer, which is then the caller's. The end of ctx ends only
// this wait.
func (c *Conn) Call(ctx context.Context, r *Request) (*Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, &Error{Addr: c.addr, Op: "call", Err: err}
	}
	q := *r
	q.Borrow = false
	o := &outcome{ready: make(chan struct{})}
	opaque, err := c.start(ctx, &q, o, false)
	if err != nil {
		return nil, err
	}
	select {
	case <-o.ready:
	case <-ctx.Done():
		if _, ok := c.abandon(opaque); ok {
			err := context.Cause(ctx)
			return nil, &Error{Addr: c.addr, Op: "call", Sent: true, Err: err}
		}
		<-o.ready // the reader has it in hand
	}
	return o.response, o.err
}

// Begin is Start without a watch on ctx, which only bounds the wait for room in the output: what it
// returns ends the call early with Abandon. With Request.Borrow it allocates nothing.
func (c *Conn) Begin(ctx context.Context, r *Request, w Waiter) (remoting.Opaque, error) {
	return c.start(ctx, r, w, false)
}

// Abandon ends a call: its waiter gets no outcome any more. false: it has had it or is getting it.
func (c *Conn) Abandon(opaque remoting.Opaque) bool {
	_, ok := c.abandon(opaque)
	return ok
}

// abandon takes a call out whose waiter shall get no answer any more. ok is false when its
// outcome is on the way.
func (c *Conn) abandon(opaque remoting.Opaque) (w Waiter, ok bool) {
	w, _, ok = c.take(opaque)
	return w, ok
}

// take removes a pending call. The call's memory is reused from here on.
func (c *Conn) take(opaque remoting.Opaque) (w Waiter, borrow, ok bool) {
	c.mu.Lock()
	k := c.pending[opaque]
	if k == nil {
		c.mu.Unlock()
		return nil, false, false
	}
	delete(c.pending, opaque)
	w, borrow, stop := k.waiter, k.borrow, k.stop
	c.freeCallLocked(k)
	last := c.retired && len(c.pending) == 0
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	if last {
		c.fail(ErrClosed)
	}
	return w, borrow, true
}

func (c *Conn) newCallLocked() *call {
	k := c.free
	if k == nil {
		return &call{}
	}
	c.free = k.next
	k.next = nil
	return k
}

func (c *Conn) freeCallLocked(k *call) {
	*k = call{next: c.free}
	c.free = k
}

// armLocked has expire run at the given time or before.
func (c *Conn) armLocked(at time.Duration) {
	if c.sweepAt != 0 && c.sweepAt <= at {
		return
	}
	c.sweepAt = at
	wait := max(at-time.Since(c.born), sweepStep)
	if c.sweep == nil {
		c.sweep = time.AfterFunc(wait, c.expire)
		return
	}
	c.sweep.Reset(wait)
}

// expire ends the calls whose deadline has passed. It runs when the earliest deadline that was
// armed comes, so with equal timeouts it runs about once in such a timeout, not once a call.
func (c *Conn) expire() {
	var due []Waiter
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.sweepAt = 0
	now := time.Since(c.born)
	var earliest time.Duration
	for opaque, k := range c.pending {
		switch {
		case k.deadline == 0:
		case k.deadline <= now:
			delete(c.pending, opaque)
			due = append(due, k.waiter)
			if k.stop != nil {
				k.stop()
			}
			c.freeCallLocked(k)
		case earliest == 0 || k.deadline < earliest:
			earliest = k.deadline
		}
	}
	if earliest != 0 {
		c.armLocked(max(earliest, now+sweepStep))
	}
	c.mu.Unlock()
	for _, w := range due {
		w.Answered(nil, &Error{Addr: c.addr, Op: "call", Sent: true, Err: context.DeadlineExceeded})
	}
}
