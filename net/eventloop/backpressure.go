// SPDX-License-Identifier: Apache-2.0

package eventloop

// A connection whose output is not taken as fast as it is made is left alone for a while: it is not read
// from, what was read and not handled yet is kept, and tasks that would make more output wait. All of
// it goes on when half has gone. So a peer that reads, however slowly, gets all that it has asked for.
// One that does not is closed when nothing has moved for the idle timeout, or at the bounds of memory.

// crowdedBytes is what a connection may have unsent while all of them together have too much.
const crowdedBytes = 256 << 10

// Full reports whether so much output waits that no more should be made for now. A task that would
// make some calls Later instead; answers to commands need not ask, no command is handed over meanwhile.
func (c *Conn) Full() bool {
	return !c.going && (c.paused || len(c.later) > 0) || c.loop.crammed(c)
}

// Later has t run as a task of this connection, in the order of the calls, when there is room for
// output again. Should the connection end first, t runs without one.
func (c *Conn) Later(t Task) {
	c.later = append(c.later, t)
	c.loop.pause(c)
}

// limits returns the unsent bytes and pieces from which on a connection is full.
func (l *Loop) limits(c *Conn) (bytes int64, segments int) {
	cfg := &l.srv.cfg
	bytes = cfg.MaxOutBytes / 8
	if c.out.bytes > crowdedBytes && l.srv.outBytes.Load() > cfg.MaxOutTotal/2 {
		bytes = crowdedBytes
	}
	return bytes, cfg.MaxOutSegments
}

func (l *Loop) crammed(c *Conn) bool {
	bytes, segments := l.limits(c)
	return c.out.bytes > bytes || c.out.count() > segments
}

// pause stops reading from a connection, until settle finds that half of what waits has gone.
func (l *Loop) pause(c *Conn) {
	if c.paused {
		return
	}
	c.paused = true
	l.drv.pause(c, true)
	l.touch(c) // should nothing wait after all
}

// relieve has a full connection go on, after half of what it had to send has gone: with what was put
// aside, and when there is nothing of that any more with reading.
func (l *Loop) relieve(c *Conn) {
	if !c.stopped && len(c.later) == 0 {
		c.paused = false
		l.drv.pause(c, false)
		return
	}
	if !c.asked {
		c.asked = true
		l.post(Posted{To: c.Ref(), Task: flushGoOn})
	}
}

// putAside keeps what has been read and is not to be handled now.
func (l *Loop) putAside(c *Conn, data []byte) {
	l.pause(c)
	c.stopped = true
	if len(data) == 0 {
		return
	}
	size := len(c.acc) + len(data)
	l.grow(c, size, size)
	c.acc = append(c.acc, data...)
	c.count()
	l.judge(c) // gnet goes on reading
}

// goOn takes up what was put aside: first the tasks, then the commands that were read behind them. What
// there is no room for stays there, in its order.
func (l *Loop) goOn(c *Conn) {
	c.asked, c.going = false, true
	for len(c.later) > 0 && !c.Closed() && !l.crammed(c) {
		t := c.later[0]
		c.later[0] = nil
		if c.later = c.later[1:]; len(c.later) == 0 {
			c.later = nil
		}
		t.Run(c)
	}
	if c.stopped && len(c.later) == 0 && !c.Closed() && !l.crammed(c) {
		data := c.acc
		c.acc, c.stopped = nil, false
		l.frames(c, data)
		l.held = append(l.held, data)
	}
	c.going = false
	l.touch(c) // settle looks at what has come of it
}

// waiting returns the bytes of memory that wait for the peer to read: its unsent answers, and what was
// read from it and not handled for that reason.
func (c *Conn) waiting() int64 {
	if c.stopped {
		return c.out.bytes + int64(len(c.acc))
	}
	return c.out.bytes
}

// overBound reports whether a connection has more unsent than it may have.
func (c *Conn) overBound() bool {
	s := c.loop.srv
	n := c.waiting()
	return n > s.cfg.MaxOutBytes || n > crowdedBytes && s.outBytes.Load() > s.cfg.MaxOutTotal
}

// jammed reports whether the socket has stopped taking bytes, as far as that is known.
func (c *Conn) jammed() bool { return c.armed || c.fd < 0 }

// judge closes connections at the bounds of memory. Where all of them together have too much, that is
// the one that has taken nothing for longest, and of those the one with the most.
func (l *Loop) judge(c *Conn) {
	if !c.overBound() || !c.jammed() || c.Closed() {
		return
	}
	worst := c
	if c.waiting() <= l.srv.cfg.MaxOutBytes {
		for i := range l.slots {
			o := l.slots[i].conn
			if o == nil || o.Closed() || !o.jammed() || o.waiting() <= crowdedBytes {
				continue
			}
			silent, most := l.tick-o.idleAt, l.tick-worst.idleAt
			if silent > most || silent == most && o.waiting() > worst.waiting() {
				worst = o
			}
		}
	}
	l.tooSlow(worst)
}

// tooSlow closes a connection whose peer does not read. What it has unsent counts no more.
func (l *Loop) tooSlow(c *Conn) {
	l.srv.slowReaders.Add(1)
	l.srv.notices.peer(c.remote, "connection closed: peer does not read its answers",
		"bytes", c.waiting(), "segments", c.out.count())
	c.CloseWith(ErrSlowReader)
	c.broken = true
	l.srv.outBytes.Add(-c.counted)
	c.counted, c.uncounted = 0, true
}
