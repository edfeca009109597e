// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"net"
	"time"

	"github.com/skylarkmq/skylark/zerocopy"
)

const (
	// netGather is how many segments the writer takes at a time, netChunk how much of a file
	// region it reads at a time, in bytes.
	netGather = 64
	netChunk  = 64 << 10
	// netLast is how long a closing connection may take to send what was queued.
	netLast = 100 * time.Millisecond
)

// netConn is the socket of a connection of the net backend.
//
// The writer looks at the head of the queue under the loop's lock, sends it without, and removes it
// under the lock again. Meanwhile the loop may append; it does not touch what the writer has
// sealed, and leaves it to the writer to release the queue of a closed connection.
type netConn struct {
	c      *Conn
	d      *netDriver
	nc     net.Conn
	wake   chan struct{} // capacity 1: there is something to write, or the end has come
	resume chan struct{} // capacity 1: reading may go on

	// Under the loop's lock.
	writing bool // the writer is at work and will look again
	last    bool // closed: send the rest and end

	// Of the writer.
	bufs  net.Buffers
	work  net.Buffers // what WriteTo consumes; a field, so that it need not be allocated
	chunk []byte
}

func (n *netConn) read() {
	buf := make([]byte, min(n.d.loop.srv.cfg.ReadBuffer, netReadMax))
	for {
		got, err := n.nc.Read(buf)
		n.d.mu.Lock()
		closed, paused := n.take(buf[:got], err)
		n.d.mu.Unlock()
		if closed {
			return
		}
		if paused {
			<-n.resume
		}
	}
}

// take handles the result of one read, on the loop.
func (n *netConn) take(data []byte, err error) (closed, paused bool) {
	c, l := n.c, n.d.loop
	if c.closed {
		return true, false
	}
	if len(data) > 0 {
		l.input(c, data)
		l.turnDone()
		l.finish()
	}
	if err != nil {
		l.gone(c, plainEOF(err))
	}
	return c.closed, c.paused
}

// shut is called on the loop.
func (n *netConn) shut() {
	n.last = true
	if n.c.broken {
		_ = n.nc.Close()
	} else {
		_ = n.nc.SetDeadline(time.Now().Add(netLast))
	}
	signal(n.resume)
	signal(n.wake)
}

func (n *netConn) write() {
	l := n.d.loop
	for range n.wake {
		for {
			n.d.mu.Lock()
			more, end := n.gather()
			n.d.mu.Unlock()
			if end {
				_ = n.nc.Close()
				return
			}
			if !more {
				break
			}
			sent, err := n.send()
			n.d.mu.Lock()
			l.bytesOut.Add(uint64(sent))
			n.c.idleAt = l.tick
			n.c.out.advance(l, sent)
			if err != nil {
				n.c.broken = true
				l.gone(n.c, sendError(n.c, err))
			} else if !n.c.closed {
				l.settle(n.c)
			}
			n.d.mu.Unlock()
		}
	}
}

// gather seals and collects what can be sent next. At the end of the connection it releases the
// queue, which is the writer's from the moment it was shut.
func (n *netConn) gather() (more, end bool) {
	c, q := n.c, &n.c.out
	if n.last && (q.empty() || c.broken) {
		q.release(n.d.loop)
		return false, true
	}
	n.writing = !q.empty()
	n.bufs = n.bufs[:0]
	for at := q.head; at < len(q.segs) && len(n.bufs) < netGather; at++ {
		s := &q.segs[at]
		if s.asFile {
			break
		}
		s.sealed = true
		n.bufs = append(n.bufs, s.mem())
	}
	return n.writing, false
}

// send writes what was gathered or, if that is nothing, a piece of the file region at the head.
func (n *netConn) send() (int, error) {
	if len(n.bufs) > 0 {
		n.work = n.bufs
		sent, err := n.work.WriteTo(n.nc)
		clear(n.bufs)
		return int(sent), err
	}
	n.d.mu.Lock()
	r := n.c.out.segs[n.c.out.head].region
	n.d.mu.Unlock()
	return n.sendRegion(&r)
}

func (n *netConn) sendRegion(r *zerocopy.Region) (int, error) {
	if n.chunk == nil {
		n.chunk = make([]byte, netChunk)
	}
	piece := n.chunk[:min(len(n.chunk), r.Size)]
	if _, err := r.ReadAt(piece, 0); err != nil {
		return 0, err
	}
	return n.nc.Write(piece)
}
