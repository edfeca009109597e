// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"errors"
	"io"
	"net/netip"

	"github.com/skylarkmq/skylark/zerocopy"
)

// Conn is one connection. All its methods belong to the loop that owns it: they may be called from
// that loop's Handler and tasks only. After Close they do nothing.
type Conn struct {
	// Set before Open, then constant.
	loop     *Loop
	slot     uint32
	gen      uint32
	listener int
	remote   netip.AddrPort

	// Confined to the loop.
	value     any
	cause     error // why it is doomed
	dirty     bool  // in loop.dirty: to be flushed at the end of this event
	doomed    bool  // in loop.doomed: to be closed at the end of this event
	broken    bool  // the socket cannot be written to any more
	closed    bool  // Close was called
	busy      bool  // counted in loop.busy: it has unsent output
	paused    bool  // not read from, since too much output waits
	stopped   bool  // acc holds commands that were read and not handled for that reason
	uncounted bool  // being closed for what waits, which Server.outBytes leaves out
	spoke     bool  // it has sent a complete frame
	idleAt    uint32
	frameAt   uint32
	acc       []byte // start of an unfinished frame, in a buffer that grows with what arrives
	later     []Task // wait for room for output
	asked     bool   // a flushGoOn is on its way
	going     bool   // what was put aside is being handled
	out       outQueue
	counted   int64 // bytes of waiting that Server.outBytes counts

	// Of the backend.
	fd      int
	armed   bool // waits for the socket to become writable; flushing is pointless meanwhile
	watched bool // fd is in the epoll that tells it

	interest uint32 // events that the epoll looks for
	link     any
}

// Loop returns the owning loop. It may be called from any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// Ref returns the value by which other goroutines name this connection.
func (c *Conn) Ref() Ref { return Ref{loop: c.loop, slot: c.slot, gen: c.gen} }

// RemoteAddr returns the peer's address; an IPv4 address is one, not one mapped to IPv6.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Listener returns the index of the address, among those given to Listen, that the peer came to.
func (c *Conn) Listener() int { return c.listener }

// Value returns what SetValue stored, for the handler's own state.
func (c *Conn) Value() any { return c.value }

// SetValue stores state of the handler with the connection.
func (c *Conn) SetValue(v any) { c.value = v }

// Closed reports whether the connection is gone or about to be; what is written then is dropped.
func (c *Conn) Closed() bool { return c.closed || c.doomed }

// CloseWith closes the connection when the current call of the handler or task has returned, after
// one attempt to send what was queued. Handler.Close receives the first cause.
func (c *Conn) CloseWith(cause error) {
	if c.closed || c.doomed {
		return
	}
	c.doomed, c.cause = true, cause
	c.loop.doomed = append(c.loop.doomed, c)
}

// Reserve returns the tail of the output buffer, with room for a small frame: append one frame to
// it, at the end, and give it back with Commit before anything else is written to this connection.
//
// Cost: no allocation in the steady state, unless the frame outgrows the room; see ReserveSize.
func (c *Conn) Reserve() []byte { return c.ReserveSize(reserveMin) }

// ReserveSize is Reserve with room for at least size bytes.
func (c *Conn) ReserveSize(size int) []byte {
	if c.closed || c.doomed {
		return c.loop.void[:0]
	}
	return c.out.reserve(c.loop, size)
}

// Commit queues what was appended to the buffer from Reserve. It is sent after ReadDone, or after
// the tasks of this round.
func (c *Conn) Commit(b []byte) {
	if c.closed || c.doomed {
		return
	}
	c.out.commit(c.loop, b)
	c.queued()
}

// WriteRegions queues regions, to be sent after what was committed before and without anything in
// between. Ownership of the regions passes on, also when the connection is gone; the slice stays
// the caller's, its elements are cleared. The regions should be in the page cache: small ones are
// copied here and now.
//
// Cost: no allocation in the steady state; one copy of regions below Config.CopyBelow.
func (c *Conn) WriteRegions(rs []zerocopy.Region) {
	if c.closed || c.doomed {
		zerocopy.ReleaseAll(rs)
		return
	}
	runs := zerocopy.Merge(rs)
	cfg, scattered := &c.loop.srv.cfg, len(runs) > 1
	for i := 0; i < len(runs); {
		how := cfg.way(&runs[i], scattered)
		if how != wayCopy {
			c.out.push(c.loop, segment{region: runs[i], asFile: how == wayFile})
			i++
			continue
		}
		// Small ones that follow each other are copied together.
		first, size := i, runs[i].Size
		for i++; i < len(runs) && size+runs[i].Size <= copyTogether; i++ {
			if cfg.way(&runs[i], scattered) != wayCopy {
				break
			}
			size += runs[i].Size
		}
		c.copyRuns(runs[first:i], size)
	}
	clear(runs)
	c.queued()
}

// copyTogether is the most bytes that are copied into one buffer.
const copyTogether = 32 << 10

// copyRuns copies runs of size bytes in all into the output and releases them.
func (c *Conn) copyRuns(runs []zerocopy.Region, size int) {
	l := c.loop
	b, ok := appendMapped(c.out.reserve(l, size), runs)
	if ok {
		c.out.commit(l, b)
	} else {
		c.CloseWith(ErrRegionUnread)
	}
	zerocopy.ReleaseAll(runs)
}

// Queued returns the bytes of memory that wait to be sent. Of file regions only what keeps account of
// them is counted.
func (c *Conn) Queued() int64 { return c.out.bytes }

// queued notes that there is something to send. At the bound of memory it is sent at once: the peer may
// be quick, and only this one turn be large.
func (c *Conn) queued() {
	c.loop.touch(c)
	c.count()
	if c.overBound() {
		c.loop.flush(c)
	}
}

// count brings the server's total up to date.
func (c *Conn) count() {
	if c.uncounted {
		return
	}
	if grown := c.waiting() - c.counted; grown != 0 {
		c.counted += grown
		c.loop.srv.outBytes.Add(grown)
	}
}

// ended dooms the connection after its peer or socket has ended. A peer that has only finished
// sending may still read what was queued.
func (c *Conn) ended(cause error) {
	if c.closed {
		return
	}
	c.broken = c.broken || !errors.Is(cause, io.EOF)
	c.CloseWith(cause)
}

// fail dooms the connection after its socket has refused to take bytes.
func (c *Conn) fail(cause error) {
	c.broken = true
	c.CloseWith(cause)
}
