// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	// batchMax is the most commands that are alive between two calls of ReadDone.
	batchMax = 128
	// accMin is the least memory of an unfinished frame, accGrowth how much more than has arrived
	// may be reserved for it, so that a large body is copied about once.
	accMin    = 1 << 10
	accGrowth = 4
	// restMin is from how many bytes on the rest of a frame is read to where it is gathered.
	restMin = 16 << 10
)

// input takes what one read brought. data is borrowed until the turn ends (turnDone); an unfinished
// frame at its end is kept in a buffer of the connection. It does not flush: finish does.
//
// Cost: no allocation and no copy for frames that arrive whole.
func (l *Loop) input(c *Conn, data []byte) {
	l.bytesIn.Add(uint64(len(data)))
	c.idleAt = l.tick
	if c.stopped && !c.Closed() {
		l.putAside(c, data) // behind what waits
		return
	}
	l.frames(c, data)
}

// frames handles the commands of data, up to the one whose answers leave no room for more output.
func (l *Loop) frames(c *Conn, data []byte) {
	if l.draining {
		return
	}
	frames := 0
	for (len(data) > 0 || l.whole(c)) && !c.closed && !c.doomed {
		if c.Full() {
			l.putAside(c, data)
			break
		}
		if l.batch == batchMax {
			l.turnDone() // before the next frame is taken: it would give that one's buffer back too
		}
		var frame []byte
		if len(c.acc) > 0 {
			frame, data = l.join(c, data)
		} else {
			frame, data = l.cut(c, data)
		}
		if frame == nil {
			break
		}
		cmd := l.command(l.batch)
		if err := cmd.Decode(frame); err != nil {
			l.refuse(c, "connection closed: bad frame", err)
			break
		}
		c.spoke = true
		l.batch++
		frames++
		l.handler.Command(c, cmd)
	}
	if frames > 0 {
		l.framesIn.Add(uint64(frames))
	}
}

// turnDone ends a turn. The frames handed over in it, and the buffers that they lie in, are nobody's
// any more.
func (l *Loop) turnDone() {
	if l.batch > 0 {
		l.handler.ReadDone()
		l.batch = 0
	}
	for i, b := range l.held {
		l.bufs.put(b)
		l.held[i] = nil
	}
	l.held = l.held[:0]
}

// command returns the i-th command of a batch.
func (l *Loop) command(i int) *remoting.Command {
	if i == len(l.cmds) {
		l.cmds = append(l.cmds, &remoting.Command{Shapes: &l.shapes})
	}
	return l.cmds[i]
}

// cut takes one frame from the front of data; an unfinished one is put aside.
func (l *Loop) cut(c *Conn, data []byte) (frame, rest []byte) {
	total, err := remoting.FrameSize(data, l.srv.cfg.MaxFrame)
	if err != nil {
		l.refuseStart(c, data, err)
		return nil, nil
	}
	if total == 0 || total > len(data) {
		l.keep(c, data, total)
		return nil, nil
	}
	return data[4:total:total], data[total:]
}

// join continues the unfinished frame of c. The buffer of a finished one lives until turnDone.
func (l *Loop) join(c *Conn, data []byte) (frame, rest []byte) {
	if need := 4 - len(c.acc); need > 0 {
		n := min(need, len(data))
		c.acc = append(c.acc, data[:n]...)
		if data = data[n:]; len(c.acc) < 4 {
			return nil, nil
		}
	}
	total, err := remoting.FrameSize(c.acc, l.srv.cfg.MaxFrame)
	if err != nil {
		l.refuseStart(c, append(c.acc[:len(c.acc):len(c.acc)], data...), err)
		return nil, nil
	}
	n := min(total-len(c.acc), len(data))
	l.grow(c, len(c.acc)+n, total)
	c.acc = append(c.acc, data[:n]...)
	if len(c.acc) < total {
		return nil, nil
	}
	frame = c.acc[4:total:total]
	l.held = append(l.held, c.acc)
	c.acc = nil
	return frame, data[n:]
}

// rest returns memory for the rest of c's unfinished frame, when that is long: what is read there is
// not copied once more. nil: it is short, or not known yet.
func (l *Loop) rest(c *Conn) []byte {
	have := len(c.acc)
	if have < restMin || c.stopped {
		return nil
	}
	total, err := remoting.FrameSize(c.acc, l.srv.cfg.MaxFrame)
	if err != nil || total-have < restMin {
		return nil
	}
	l.grow(c, have+1, total)
	return c.acc[have:min(cap(c.acc), total)]
}

// whole reports whether the frame that c gathers is complete.
func (l *Loop) whole(c *Conn) bool {
	if len(c.acc) < restMin || c.stopped {
		return false
	}
	total, _ := remoting.FrameSize(c.acc, l.srv.cfg.MaxFrame)
	return total == len(c.acc)
}

// keep puts aside the start of a frame of total bytes, 0 if that is not known yet.
func (l *Loop) keep(c *Conn, data []byte, total int) {
	c.frameAt = l.tick
	l.grow(c, len(data), total)
	c.acc = append(c.acc, data...)
}

// grow makes room for size bytes of an unfinished frame of total bytes. What is reserved depends on
// what has arrived, never on total alone: a peer gets memory by sending, not by announcing.
func (l *Loop) grow(c *Conn, size, total int) {
	if size <= cap(c.acc) {
		return
	}
	b := l.bufs.get(max(accMin, size, min(total, accGrowth*size)))
	b = append(b, c.acc...)
	l.bufs.put(c.acc)
	c.acc = b
}

// refuseStart closes a connection for what stands where a frame should begin, and says which other
// protocol it is if these are the peer's first bytes.
func (l *Loop) refuseStart(c *Conn, head []byte, err error) {
	if !c.spoke {
		if f, ok := recognise(head); ok {
			if f.page {
				c.Commit(append(c.ReserveSize(512), httpPage()...))
			}
			l.refuse(c, f.notice, ErrOtherProtocol)
			return
		}
	}
	l.refuse(c, "connection closed: bad frame", err)
}

func (l *Loop) refuse(c *Conn, msg string, cause error) {
	l.srv.refused.Add(1)
	l.srv.notices.peer(c.remote, msg, "err", cause)
	c.CloseWith(cause)
}
