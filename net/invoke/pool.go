// SPDX-License-Identifier: Apache-2.0

package invoke

import (
	"context"
	"errors"
	"sync"

	"github.com/skylarkmq/skylark/net/remoting"
)

// Pool holds one connection for each address. The zero value is not usable.
type Pool struct {
	// Constant.
	cfg    Config
	ctx    context.Context // ends at Close; stops dials
	cancel context.CancelFunc

	wg sync.WaitGroup // dials, readers and writers

	// Guards what follows. Never held across I/O or a callback.
	mu     sync.Mutex
	closed bool
	conns  map[string]*Conn // usable, by address as the caller writes it
	dials  map[string]*dial // under way
	all    map[*Conn]struct{}
}

// dial is a connection that is being made. Its fields are set before done is closed.
type dial struct {
	done chan struct{}
	conn *Conn
	err  error
}

// NewPool makes a Pool. Nothing is dialled yet.
func NewPool(cfg Config) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &Pool{
		cfg:    cfg.withDefaults(),
		ctx:    ctx,
		cancel: cancel,
		conns:  map[string]*Conn{},
		dials:  map[string]*dial{},
		all:    map[*Conn]struct{}{},
	}
}

// Close fails all calls, closes all connections after what is queued was written (for at most a
// second) and waits for their goroutines. It is idempotent and returns nil.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	conns := make([]*Conn, 0, len(p.all))
	for c := range p.all {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	p.cancel()
	for _, c := range conns {
		_ = c.Close()
	}
	p.wg.Wait()
	return nil
}

// Call sends r to addr and waits for the answer, making the connection when there is none. The
// end of ctx ends only this wait. The answer is the caller's. An answer with an error code is not
// an error here, see Response.Err.
func (p *Pool) Call(ctx context.Context, addr string, r *Request) (*Response, error) {
	c, err := p.Conn(ctx, addr)
	if err != nil {
		return nil, err
	}
	return c.Call(ctx, r)
}

// Async sends r to addr and has done called with the outcome exactly once, unless it returns an
// error. It blocks while the connection is made and while the connection's queue is full.
func (p *Pool) Async(
	ctx context.Context, addr string, r *Request, done func(*Response, error),
) error {
	c, err := p.Conn(ctx, addr)
	if err != nil {
		return err
	}
	return c.Async(ctx, r, done)
}

// Oneway sends r to addr without expecting an answer. It returns when the request is queued; that
// it is written later is not promised, see Conn.OnewayWritten.
func (p *Pool) Oneway(ctx context.Context, addr string, r *Request) error {
	c, err := p.Conn(ctx, addr)
	if err != nil {
		return err
	}
	return c.Oneway(ctx, r)
}

// Respond answers a request of the peer at addr that OnRequest gave no answer to. It fails when
// the connection is gone; it never dials.
func (p *Pool) Respond(addr string, opaque remoting.Opaque, r *Response) error {
	p.mu.Lock()
	c := p.conns[addr]
	p.mu.Unlock()
	if c == nil {
		return &Error{Addr: addr, Op: "send", Err: ErrClosed}
	}
	return c.Respond(opaque, r)
}

// Conn returns the connection of addr, making it when there is none. Callers that ask meanwhile
// share one dial; the end of ctx ends only this wait.
func (p *Pool) Conn(ctx context.Context, addr string) (*Conn, error) {
	p.mu.Lock()
	if c := p.conns[addr]; c != nil {
		p.mu.Unlock()
		return c, nil
	}
	if p.closed {
		p.mu.Unlock()
		return nil, &Error{Addr: addr, Op: "dial", Err: ErrClosed}
	}
	d := p.dials[addr]
	if d == nil {
		d = &dial{done: make(chan struct{})}
		p.dials[addr] = d
		p.wg.Add(1)
		go p.dialPooled(addr, d)
	}
	p.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, &Error{Addr: addr, Op: "dial", Err: context.Cause(ctx)}
	}
}

func (p *Pool) dialPooled(addr string, d *dial) {
	defer p.wg.Done()
	d.conn, d.err = p.connect(p.ctx, addr, true)
	p.mu.Lock()
	delete(p.dials, addr)
	p.mu.Unlock()
	close(d.done)
}

// Dial makes a connection of its own for the caller, who closes it. The pool's Close closes it
// too.
func (p *Pool) Dial(ctx context.Context, addr string) (*Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return p.connect(ctx, addr, false)
}

// connect dials and starts a connection, and enters it before its goroutines can remove it.
func (p *Pool) connect(ctx context.Context, addr string, pooled bool) (*Conn, error) {
	target, err := dialAddr(addr)
	if err != nil {
		return nil, &Error{Addr: addr, Op: "dial", Err: err}
	}
	if p.cfg.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.cfg.DialTimeout)
		defer cancel()
	}
	nc, err := p.cfg.Dial(ctx, "tcp", target)
	if err != nil {
		if p.ctx.Err() != nil {
			err = errors.Join(ErrClosed, err)
		}
		return nil, &Error{Addr: addr, Op: "dial", Err: err}
	}
	c := newConn(p, addr, nc)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		_ = nc.Close()
		return nil, &Error{Addr: addr, Op: "dial", Err: ErrClosed}
	}
	p.all[c] = struct{}{}
	if pooled {
		p.conns[addr] = c
	}
	p.wg.Add(2)
	p.mu.Unlock()
	if p.cfg.OnOpen != nil {
		p.cfg.OnOpen(addr)
	}
	go c.readLoop()
	go c.writeLoop()
	return c, nil
}

// Lookup returns the connection of addr, nil when there is none. It never waits.
func (p *Pool) Lookup(addr string) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[addr]
}

// Abandon takes the calls out whose waiters match, on all connections, and returns these waiters:
// they get no outcome. It is for callers that end, not for each call. match must not block.
func (p *Pool) Abandon(match func(Waiter) bool) []Waiter {
	p.mu.Lock()
	conns := make([]*Conn, 0, len(p.all))
	for c := range p.all {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	var out []Waiter
	for _, c := range conns {
		c.mu.Lock()
		for opaque, k := range c.pending {
			if k.stop == nil && match(k.waiter) {
				out = append(out, k.waiter)
				delete(c.pending, opaque)
				c.freeCallLocked(k)
			}
		}
		c.mu.Unlock()
	}
	return out
}

// Retire has the next call to the address of c dial anew, and closes c once its calls have their
// answers. For peers that say that they go away.
func (p *Pool) Retire(c *Conn) {
	p.mu.Lock()
	if p.conns[c.addr] == c {
		delete(p.conns, c.addr)
	}
	p.mu.Unlock()
	c.mu.Lock()
	c.retired = true
	empty := len(c.pending) == 0
	c.mu.Unlock()
	if empty {
		c.fail(ErrClosed)
	}
}

// forget removes a connection that failed, so that the next call dials again.
func (p *Pool) forget(c *Conn) {
	p.mu.Lock()
	delete(p.all, c)
	if p.conns[c.addr] == c {
		delete(p.conns, c.addr)
	}
	p.mu.Unlock()
}
