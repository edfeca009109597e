// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/net/remoting"
)

// noSlot is the slot of tasks for the loop itself.
const noSlot = ^uint32(0)

// driver is what a backend does for one loop. All but wake is called on the loop.
type driver interface {
	// wake has Loop.round called soon. Any goroutine may call it; the loop sees to it that there
	// is at most one wake outstanding.
	wake()
	// flush sends what the socket takes and arranges to go on when it takes more. An error means
	// that the connection is broken.
	flush(c *Conn) error
	// shut closes the socket and releases the queue. The backend reports nothing about c after it.
	shut(c *Conn)
	// pause stops or resumes reading from the connection.
	pause(c *Conn, on bool)
}

// Loop owns a part of a server's connections.
type Loop struct {
	// Set before Listen returns, then constant.
	srv     *Server
	index   int
	handler Handler
	drv     driver

	// Confined to the loop.
	slots    []slot
	free     []uint32 // slots without a connection
	dirty    []*Conn  // have output since the start of this event
	doomed   []*Conn  // are closed at the end of this event
	cmds     []*remoting.Command
	shapes   remoting.Shapes // of the headers that come
	batch    int             // commands since the last turnDone
	held     [][]byte        // buffers of frames that are in use until turnDone
	bufs     bufferPool
	tables   [][]segment
	iov      [][]byte
	void     []byte // given out by Reserve of closed connections
	tick     uint32 // counts sweeps
	busy     int    // connections with unsent output
	draining bool
	sweeper  sweeper

	// One writer, the loop; any reader.
	open      atomic.Int64
	total     atomic.Uint64
	bytesIn   atomic.Uint64
	bytesOut  atomic.Uint64
	framesIn  atomic.Uint64
	drained   chan struct{} // closed when nothing is unsent while draining
	drainOnce sync.Once

	// mu guards what follows and is held for appends and swaps only. Entries are bounded by those
	// who post: parked requests, answers under way, one wake-up for each connection.
	mu      sync.Mutex
	inbox   []Posted
	spare   []Posted
	posted  bool // wake was called and round has not run since
	stopped bool // the loop is gone

	afterlife sync.Mutex // serialises tasks that are posted after the loop has ended
}

// slot holds a connection and the generation that its references must have.
type slot struct {
	conn *Conn
	gen  uint32
}

func newLoop(s *Server, index int) *Loop {
	l := &Loop{
		srv: s, index: index,
		iov:     make([][]byte, 0, iovMax),
		void:    make([]byte, 0, 4<<10),
		drained: make(chan struct{}),
	}
	l.sweeper.init(l)
	return l
}

// Index returns the number of the loop, from 0.
func (l *Loop) Index() int { return l.index }

// Post has tasks run, in order, with one wake-up for all; each connection that they write to is
// flushed once. All references must belong to this loop. The slice is copied. It does not block.
func (l *Loop) Post(ps []Posted) {
	if len(ps) == 0 {
		return
	}
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		l.runLate(ps)
		return
	}
	l.inbox = append(l.inbox, ps...)
	kick := !l.posted
	l.posted = true
	l.mu.Unlock()
	if kick {
		l.drv.wake()
	}
}

func (l *Loop) post(p Posted) {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		l.runLate([]Posted{p})
		return
	}
	l.inbox = append(l.inbox, p)
	kick := !l.posted
	l.posted = true
	l.mu.Unlock()
	if kick {
		l.drv.wake()
	}
}

// runLate runs tasks whose loop is gone, so that they release what they hold.
func (l *Loop) runLate(ps []Posted) {
	l.afterlife.Lock()
	defer l.afterlife.Unlock()
	for _, p := range ps {
		p.Task.Run(nil)
	}
}

// stop ends the inbox, after the last connection was closed.
func (l *Loop) stop() {
	l.mu.Lock()
	l.stopped = true
	ps := l.inbox
	l.inbox, l.spare = nil, nil
	l.mu.Unlock()
	l.runLate(ps)
}

// waiting reports whether there are tasks for round.
func (l *Loop) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.posted
}

// round runs the posted tasks and sends what they wrote. Backends call it on the loop.
func (l *Loop) round() {
	l.mu.Lock()
	ps := l.inbox
	l.inbox, l.spare = l.spare[:0], nil
	l.posted = false
	l.mu.Unlock()
	for i := range ps {
		p := &ps[i]
		p.Task.Run(l.conn(p.To.slot, p.To.gen))
		*p = Posted{}
	}
	l.turnDone() // tasks may have gone on with commands that waited
	l.finish()
	l.mu.Lock()
	if cap(ps) <= 4096 {
		l.spare = ps[:0]
	}
	l.mu.Unlock()
}

// conn returns the connection that a reference means, nil when it is gone.
func (l *Loop) conn(slot, gen uint32) *Conn {
	if slot >= uint32(len(l.slots)) {
		return nil
	}
	s := &l.slots[slot]
	if s.gen != gen || s.conn == nil || s.conn.doomed {
		return nil
	}
	return s.conn
}

// add makes a connection of an accepted socket. It returns nil when there are too many or the
// server is closing: the backend then closes the socket. The backend sets its own fields between
// add and opened.
func (l *Loop) add(remote netip.AddrPort, listener int) *Conn {
	s := l.srv
	if s.closing.Load() {
		return nil
	}
	if s.conns.Add(1) > int64(s.cfg.MaxConns) {
		s.conns.Add(-1)
		s.refused.Add(1)
		s.notices.peer(remote, "connection refused: too many", "limit", s.cfg.MaxConns)
		return nil
	}
	var at uint32
	if n := len(l.free); n > 0 {
		at = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		at = uint32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	c := &Conn{
		loop: l, slot: at, gen: l.slots[at].gen, listener: listener, fd: -1,
		remote: netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port()),
		idleAt: l.tick,
	}
	l.slots[at].conn = c
	l.open.Add(1)
	l.total.Add(1)
	l.sweeper.start()
	return c
}

// opened tells the handler of a connection whose backend is ready.
func (l *Loop) opened(c *Conn) {
	l.handler.Open(c)
	l.finish()
}

// finish ends an event: it flushes what was written to, and closes what is doomed. Closing may
// write to other connections, and flushing may doom, hence the loop.
func (l *Loop) finish() {
	for len(l.dirty) > 0 || len(l.doomed) > 0 {
		for i := 0; i < len(l.dirty); i++ {
			c := l.dirty[i]
			l.dirty[i] = nil
			c.dirty = false
			l.flush(c)
		}
		l.dirty = l.dirty[:0]
		for i := 0; i < len(l.doomed); i++ {
			c := l.doomed[i]
			l.doomed[i] = nil
			l.drop(c)
		}
		l.doomed = l.doomed[:0]
	}
}

// flush sends what it can, unless the socket is known to be full.
func (l *Loop) flush(c *Conn) {
	if c.closed || c.broken {
		return
	}
	if !c.armed {
		if err := l.drv.flush(c); err != nil {
			c.fail(err)
			return
		}
	}
	l.settle(c)
	l.judge(c)
}

// settle draws the conclusions from the length of the queue, after it has changed.
func (l *Loop) settle(c *Conn) {
	if busy := !c.out.empty(); busy != c.busy {
		c.busy = busy
		if busy {
			l.busy++
		} else {
			l.busy--
		}
	}
	c.count()
	bytes, segments := l.limits(c)
	switch {
	case !c.paused && (c.out.bytes > bytes || c.out.count() > segments):
		c.paused = true
		l.drv.pause(c, true)
	case c.paused && c.out.bytes <= bytes/2 && c.out.count() <= segments/2:
		l.relieve(c)
	}
	l.maybeDrained()
}

// drop closes a connection, tells the handler, and gives up everything it has.
func (l *Loop) drop(c *Conn) {
	if c.closed {
		return
	}
	c.closed = true
	l.handler.Close(c, c.cause)
	l.drv.shut(c)
	l.srv.outBytes.Add(-c.counted)
	c.counted = 0
	l.bufs.put(c.acc)
	c.acc = nil
	for _, t := range c.later {
		t.Run(nil)
	}
	c.later = nil
	if c.busy {
		c.busy = false
		l.busy--
	}
	s := &l.slots[c.slot]
	s.conn = nil
	s.gen++
	l.free = append(l.free, c.slot)
	l.open.Add(-1)
	l.srv.conns.Add(-1)
	l.maybeDrained()
}

// gone closes a connection whose peer or socket has ended, outside a turn.
func (l *Loop) gone(c *Conn, cause error) {
	c.ended(cause)
	l.finish()
}

// closeAll closes every connection of the loop.
func (l *Loop) closeAll(cause error) {
	for i := range l.slots {
		if c := l.slots[i].conn; c != nil {
			c.CloseWith(cause)
		}
	}
	l.finish()
}

func (l *Loop) maybeDrained() {
	if l.draining && l.busy == 0 {
		l.drainOnce.Do(func() { close(l.drained) })
	}
}

// loopTask is work for the loop itself, as a task without a connection.
type loopTask struct {
	loop *Loop
	run  func(l *Loop)
}

func (t *loopTask) Run(*Conn) { t.run(t.loop) }

// do has f run on the loop.
func (l *Loop) do(f func(l *Loop)) {
	l.post(Posted{To: Ref{loop: l, slot: noSlot}, Task: &loopTask{loop: l, run: f}})
}

// flushTask goes on sending. It is a byte so that posting it does not allocate.
type flushTask uint8

const (
	flushAgain    flushTask = iota // the connection has used up its share of the last round
	flushWritable                  // the socket takes bytes again
	flushGoOn                      // there is room for more output
)

// Run implements Task. Writing nothing, it marks the connection itself.
func (t flushTask) Run(c *Conn) {
	if c == nil {
		return
	}
	switch t {
	case flushWritable:
		c.armed = false
	case flushGoOn:
		c.loop.goOn(c)
	case flushAgain:
	}
	c.loop.touch(c)
}

// touch has a connection flushed at the end of this event.
func (l *Loop) touch(c *Conn) {
	if !c.dirty {
		c.dirty = true
		l.dirty = append(l.dirty, c)
	}
}
