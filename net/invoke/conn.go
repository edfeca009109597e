// SPDX-License-Identifier: Apache-2.0

package invoke

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	keepBuffer = 1 << 20     // larger output buffers are not kept
	drainTime  = time.Second // for what is queued when this side closes
)

// Conn is one connection. Its methods may be called from any goroutine.
type Conn struct {
	// Constant.
	addr string
	pool *Pool
	nc   net.Conn
	born time.Time

	wake    chan struct{} // capacity 1: there is output, or the connection has failed
	touched atomic.Int64  // last traffic, nanoseconds since born
	heard   atomic.Int64  // last byte of the peer, nanoseconds since born

	// Guards what follows. Never held across I/O or a callback; headers are encoded under it.
	mu      sync.Mutex
	err     error // set once: no more requests
	out     []byte
	writing int           // bytes the writer took out and has not written yet
	room    chan struct{} // closed when output shrinks; nil when nobody waits
	wrote   uint64        // bytes given to the network so far
	retired bool          // to be closed when no call waits
	encoder remoting.Encoder
	opaque  remoting.Opaque
	pending map[remoting.Opaque]*call
	free    *call
	sweep   *time.Timer
	sweepAt time.Duration // since born; 0: not armed
}

// call is a request without an answer yet.
type call struct {
	waiter   Waiter
	borrow   bool
	deadline time.Duration // since born; 0: none
	stop     func() bool   // ends the watch of a context; nil: none
	next     *call         // in the free list
}

func newConn(p *Pool, addr string, nc net.Conn) *Conn {
	return &Conn{
		addr:    addr,
		pool:    p,
		nc:      nc,
		born:    time.Now(),
		wake:    make(chan struct{}, 1),
		pending: map[remoting.Opaque]*call{},
	}
}

// Addr returns the address as it was dialled.
func (c *Conn) Addr() string { return c.addr }

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Err returns why the connection is closed, nil while it is usable.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Silent is for how long the peer has sent nothing, since the connection was made at most. A call
// that ends without an answer after a silence as long as itself tells of a connection that is
// half open, or of a peer that stands still: see Pool.Retire.
func (c *Conn) Silent() time.Duration {
	return time.Since(c.born) - time.Duration(c.heard.Load())
}

// Close fails all calls with ErrClosed and closes the connection after what is queued was
// written, for at most a second. It does not wait for that. It is idempotent and returns nil.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

// Async sends r and has done called with the outcome exactly once, unless it returns an error.
func (c *Conn) Async(ctx context.Context, r *Request, done func(*Response, error)) error {
	return c.Start(ctx, r, WaiterFunc(done))
}

// Start sends r and gives the outcome to w exactly once, unless it returns an error. It blocks
// while more than Config.MaxQueued bytes wait to be written.
//
// With a context that cannot end and Request.Borrow it allocates nothing in steady state. The
// body is copied once, into the output buffer.
func (c *Conn) Start(ctx context.Context, r *Request, w Waiter) error {
	if err := context.Cause(ctx); err != nil {
		return &Error{Addr: c.addr, Op: "call", Err: err}
	}
	_, err := c.start(ctx, r, w, ctx.Done() != nil)
	return err
}

// Oneway sends r without expecting an answer.
func (c *Conn) Oneway(ctx context.Context, r *Request) error {
	_, err := c.oneway(ctx, r)
	return err
}

// oneway queues r and returns what Conn.wrote will be when it is written.
func (c *Conn) oneway(ctx context.Context, r *Request) (end uint64, err error) {
	if prepare := c.pool.cfg.Prepare; prepare != nil {
		q := *r
		if err := prepare(ctx, c.addr, &q); err != nil {
			return 0, &Error{Addr: c.addr, Op: "send", Err: err}
		}
		r = &q
	}
	if err := c.lockForOutput(ctx, r.Timeout); err != nil {
		return 0, &Error{Addr: c.addr, Op: "send", Err: err}
	}
	c.opaque++
	err = c.encodeLocked(r, c.opaque, remoting.FlagOneway)
	end = c.wrote + uint64(c.writing) + uint64(len(c.out))
	c.mu.Unlock()
	if err != nil {
		return 0, &Error{Addr: c.addr, Op: "send", Err: err}
	}
	c.signal()
	return end, nil
}

// OnewayWritten sends r without expecting an answer and returns when the network has taken its
// bytes. When ctx or the connection ends first, they may have been written all the same.
func (c *Conn) OnewayWritten(ctx context.Context, r *Request) error {
	end, err := c.oneway(ctx, r)
	if err != nil {
		return err
	}
	for {
		c.mu.Lock()
		if c.wrote >= end {
			c.mu.Unlock()
			return nil
		}
		if c.err != nil {
			err = c.err
			c.mu.Unlock()
			break
		}
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		select {
		case <-room:
			continue
		case <-ctx.Done():
		}
		err = context.Cause(ctx)
		break
	}
	return &Error{Addr: c.addr, Op: "send", Sent: true, Err: err}
}

// Respond answers a request of the peer. It never blocks, so that the reader can call it: a peer
// that asks and does not read, until twice Config.MaxQueued waits for it, loses its connection.
func (c *Conn) Respond(opaque remoting.Opaque, r *Response) error {
	c.mu.Lock()
	err := c.err
	if err == nil && len(c.out)+c.writing > 2*c.pool.cfg.MaxQueued {
		err = errUnread
	}
	if err != nil {
		c.mu.Unlock()
		c.fail(err)
		return &Error{Addr: c.addr, Op: "send", Err: err}
	}
	q := Request{Code: remoting.RequestCode(r.Code), Header: r.Header, Body: r.Body, Remark: r.Remark}
	err = c.encodeLocked(&q, opaque, remoting.FlagResponse)
	c.mu.Unlock()
	if err != nil {
		return &Error{Addr: c.addr, Op: "send", Err: err}
	}
	c.signal()
	return nil
}

func (c *Conn) start(
	ctx context.Context, r *Request, w Waiter, watch bool,
) (remoting.Opaque, error) {
	if prepare := c.pool.cfg.Prepare; prepare != nil {
		q := *r
		if err := prepare(ctx, c.addr, &q); err != nil {
			return 0, &Error{Addr: c.addr, Op: "call", Err: err}
		}
		r = &q
	}
	if err := c.lockForOutput(ctx, r.Timeout); err != nil {
		return 0, &Error{Addr: c.addr, Op: "call", Err: err}
	}
	if len(c.pending) >= c.pool.cfg.MaxPending {
		c.mu.Unlock()
		return 0, &Error{Addr: c.addr, Op: "call", Err: ErrBusy}
	}
	c.opaque++
	for c.pending[c.opaque] != nil { // after 2^32 requests, some still parked
		c.opaque++
	}
	opaque := c.opaque
	if err := c.encodeLocked(r, opaque, 0); err != nil {
		c.mu.Unlock()
		return 0, &Error{Addr: c.addr, Op: "call", Err: err}
	}
	k := c.newCallLocked()
	k.waiter, k.borrow = w, r.Borrow
	if r.Timeout > 0 {
		k.deadline = time.Since(c.born) + r.Timeout
		c.armLocked(k.deadline)
	}
	c.pending[opaque] = k
	if watch {
		c.watchLocked(ctx, k, opaque)
	}
	c.mu.Unlock()
	c.signal()
	return opaque, nil
}

// watchLocked ends the call when ctx ends. The function runs on a goroutine of its own, so the
// lock may be held here.
func (c *Conn) watchLocked(ctx context.Context, k *call, opaque remoting.Opaque) {
	k.stop = context.AfterFunc(ctx, func() {
		if w, ok := c.abandon(opaque); ok {
			w.Answered(nil, &Error{Addr: c.addr, Op: "call", Sent: true, Err: context.Cause(ctx)})
		}
	})
}

// lockForOutput returns with the lock held when the connection is usable and has room, or with an
// error and without it. A positive limit bounds the wait as ctx does.
func (c *Conn) lockForOutput(ctx context.Context, limit time.Duration) error {
	var late <-chan time.Time
	for {
		c.mu.Lock()
		if c.err != nil {
			err := c.err
			c.mu.Unlock()
			return err
		}
		if waiting := len(c.out) + c.writing; waiting == 0 || waiting < c.pool.cfg.MaxQueued {
			return nil
		}
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		if limit > 0 && late == nil {
			t := time.NewTimer(limit)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-room:
		case <-late:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Conn) encodeLocked(r *Request, opaque remoting.Opaque, flag int32) error {
	before, size := len(c.out), len(r.Body)
	for _, b := range r.Bodies {
		size += len(b)
	}
	if size > c.pool.cfg.MaxFrame {
		return ErrTooLarge
	}
	// The encoder lives in the connection, since a local one would move to the heap when the
	// header's interface method gets its address.
	c.encoder = remoting.Begin(c.out, remoting.Head{
		Code:      int32(r.Code),
		Flag:      flag,
		Language:  c.pool.cfg.Language,
		Version:   remoting.ProtocolVersion,
		Opaque:    opaque,
		Serialize: c.pool.cfg.Serialize,
	})
	if r.Remark != "" {
		c.encoder.Remark(r.Remark)
	}
	if r.Header != nil {
		r.Header.AppendFields(&c.encoder)
	}
	if len(r.Bodies) == 0 {
		c.out = c.encoder.End(r.Body)
	} else {
		c.out = append(c.encoder.EndRegions(size), r.Body...)
		for _, b := range r.Bodies {
			c.out = append(c.out, b...)
		}
	}
	c.encoder = remoting.Encoder{}
	if len(c.out)-before > c.pool.cfg.MaxFrame {
		c.out = c.out[:before]
		return ErrTooLarge
	}
	return nil
}

func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// writeLoop writes what is queued, all of it in one call. It ends when the connection has failed.
func (c *Conn) writeLoop() {
	defer c.pool.wg.Done()
	var spare []byte
	for range c.wake {
		runtime.Gosched() // lets callers that are ready add theirs to this write
		c.mu.Lock()
		out, failed := c.out, c.err != nil
		c.out, c.writing = spare[:0], len(out)
		if len(out) > 0 { // under the lock, so that it does not undo the shorter one of fail
			c.limitWrite(failed)
		}
		c.mu.Unlock()
		written := 0
		if len(out) > 0 {
			var err error
			if written, err = c.write(out); err != nil {
				c.fail(err)
			}
		}
		if failed {
			break
		}
		spare = out
		if cap(out) > keepBuffer {
			spare = nil
		}
		c.mu.Lock()
		c.wrote += uint64(written)
		c.writing = 0
		if c.room != nil {
			close(c.room)
			c.room = nil
		}
		c.mu.Unlock()
	}
	_ = c.nc.Close()
}

// writePiece is how much one write gives the network at most, so that a large frame may take longer
// than the time-out of a write as long as the peer takes some of it.
const writePiece = 1 << 20 // bytes

// write writes all of b; the time for its first piece has been set.
func (c *Conn) write(b []byte) (written int, err error) {
	for {
		n, err := c.nc.Write(b[written:min(written+writePiece, len(b))])
		written += n
		c.touch()
		if err != nil || written == len(b) {
			return written, err
		}
		c.mu.Lock()
		if c.err == nil { // else fail has set the last deadline
			c.limitWrite(false)
		}
		c.mu.Unlock()
	}
}

// limitWrite sets the deadline of the write under way and of the next one.
func (c *Conn) limitWrite(closing bool) {
	limit := c.pool.cfg.WriteTimeout
	if closing {
		limit = min(limit, drainTime)
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(limit))
}

func (c *Conn) touch() { c.touched.Store(int64(time.Since(c.born))) }

// fail closes the connection for cause, once. ErrClosed lets the writer finish first.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = cause
	pending := c.pending
	c.pending = nil
	if c.sweep != nil {
		c.sweep.Stop()
	}
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	drain := errors.Is(cause, ErrClosed)
	if drain {
		c.limitWrite(true)
	} else {
		c.out = nil
	}
	c.mu.Unlock()
	if !drain {
		_ = c.nc.Close()
	}
	c.pool.forget(c)
	c.signal()
	for _, k := range pending {
		if k.stop != nil {
			k.stop()
		}
		k.waiter.Answered(nil, &Error{Addr: c.addr, Op: "call", Sent: true, Err: cause})
	}
	if c.pool.cfg.OnClose != nil {
		c.pool.cfg.OnClose(c.addr, cause)
	}
}
