// SPDX-License-Identifier: Apache-2.0

package invoke

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	readBuffer = 64 << 10
	lengthSize = 4 // bytes of a frame's length field
)

// reader assembles frames. It belongs to the connection's reading goroutine.
type reader struct {
	conn       *Conn
	buf        []byte
	start, end int // unread bytes are buf[start:end]
	command    remoting.Command
	response   Response // lent to waiters of borrowed answers
}

// readLoop reads until the connection fails.
func (c *Conn) readLoop() {
	defer c.pool.wg.Done()
	r := reader{conn: c, buf: make([]byte, readBuffer)}
	c.fail(r.run())
}

func (r *reader) run() error {
	c := r.conn
	c.extendIdle(0)
	for {
		n, err := c.nc.Read(r.buf[r.end:])
		if n > 0 {
			r.end += n
			c.touch()
			c.heard.Store(int64(time.Since(c.born)))
			if err := r.frames(); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := c.checkIdle(); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			return errEnded
		default:
			return err
		}
	}
}

// checkIdle decides, when the read deadline has passed, whether the connection is idle. It is not
// while calls wait: a dead peer is found by TCP keep-alive.
func (c *Conn) checkIdle() error {
	idle := time.Since(c.born) - time.Duration(c.touched.Load())
	c.mu.Lock()
	waiting := len(c.pending)
	c.mu.Unlock()
	if waiting == 0 && idle >= c.pool.cfg.IdleTimeout {
		return ErrIdle
	}
	c.extendIdle(idle)
	return nil
}

func (c *Conn) extendIdle(idle time.Duration) {
	limit := c.pool.cfg.IdleTimeout
	if limit < 0 {
		return
	}
	wait := max(limit-idle, limit/8, time.Millisecond)
	_ = c.nc.SetReadDeadline(time.Now().Add(wait))
}

// frames handles each complete frame and makes room for the rest of the last one.
func (r *reader) frames() error {
	limit := r.conn.pool.cfg.MaxFrame
	total := 0
	for r.end-r.start >= lengthSize {
		var err error
		total, err = remoting.FrameSize(r.buf[r.start:r.end], limit)
		if err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		if r.end-r.start < total {
			break
		}
		frame := r.buf[r.start+lengthSize : r.start+total]
		r.start += total
		total = 0
		if err := r.command.Decode(frame); err != nil {
			return fmt.Errorf("decode a frame: %w", err)
		}
		r.handle(&r.command)
	}
	r.makeRoom(total)
	return nil
}

// makeRoom keeps the buffer small when it is empty and lets it grow with what has arrived, at
// most to double, not to the size a frame announces.
func (r *reader) makeRoom(total int) {
	unread := r.end - r.start
	switch {
	case unread == 0:
		r.start, r.end = 0, 0
		if len(r.buf) > keepBuffer {
			r.buf = make([]byte, readBuffer)
		}
	case r.end == len(r.buf) || r.start+total > len(r.buf):
		size := len(r.buf)
		if unread == size || (total > size && unread*2 > size) {
			size = min(2*size, max(total, size+lengthSize))
		}
		buf := r.buf
		if size > len(buf) {
			buf = make([]byte, size)
		}
		copy(buf, r.buf[r.start:r.end])
		r.buf, r.start, r.end = buf, 0, unread
	}
}

func (r *reader) handle(cmd *remoting.Command) {
	c := r.conn
	if !cmd.IsResponse() {
		r.request(cmd)
		return
	}
	w, borrow, ok := c.take(cmd.Opaque)
	if !ok {
		return // nobody waits for it any more
	}
	if !borrow {
		owned := cmd.Clone()
		w.Answered(&Response{
			Code:    remoting.ResponseCode(owned.Code),
			Remark:  string(owned.Remark),
			Version: owned.Version,
			Body:    owned.Body,
			Command: owned,
		}, nil)
		return
	}
	r.response = Response{
		Code:    remoting.ResponseCode(cmd.Code),
		Version: cmd.Version,
		Body:    cmd.Body,
		Command: cmd,
	}
	if r.response.Code != remoting.Success {
		r.response.Remark = string(cmd.Remark)
	}
	w.Answered(&r.response, nil)
}

func (r *reader) request(cmd *remoting.Command) {
	on := r.conn.pool.cfg.OnRequest
	if on == nil {
		return
	}
	opaque, oneway := cmd.Opaque, cmd.IsOneway()
	answer := on(r.conn.addr, cmd)
	if answer == nil || oneway {
		return
	}
	_ = r.conn.Respond(opaque, answer) // the peer sees the connection close when this fails
}
