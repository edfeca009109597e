// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/skylarkmq/skylark/zerocopy"
)

const (
	// iovMax is the number of buffers gathered for one writev.
	iovMax = 512
	// flushBudget is what one connection may send before others have their turn.
	flushBudget = 1 << 20
)

// waiter arranges for a flushWritable to be posted, once, when the socket of c takes bytes again.
type waiter interface{ await(c *Conn) error }

// flushFD sends the queue of a connection with a non-blocking descriptor.
//
// Cost: one system call for adjacent buffers, one for each file segment; nothing is allocated.
func (l *Loop) flushFD(c *Conn, w waiter) error {
	q := &c.out
	budget, corked := flushBudget, false
	var err error
	for !q.empty() && budget > 0 {
		s := &q.segs[q.head]
		var n, want int
		if s.asFile {
			if !corked && q.count() > 1 && q.segs[q.head+1].asFile {
				corked = true
				cork(c.fd, true)
			}
			want = min(s.region.Size, budget)
			n, err = zerocopy.Sendfile(c.fd, &s.region, want)
		} else {
			n, want, err = l.sendMemory(c, budget)
		}
		if n > 0 {
			budget -= n
			l.bytesOut.Add(uint64(n))
			c.idleAt = l.tick
			q.advance(l, n)
		}
		if n < want {
			// A short count means a full socket just as EAGAIN does; asking again would only
			// cost a call. Should there be room after all, the wait ends at once.
			break
		}
	}
	if corked {
		cork(c.fd, false)
	}
	switch {
	case err != nil && !errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("eventloop: send to %v: %w", c.remote, err)
	case q.empty():
		return nil
	case budget <= 0:
		l.post(Posted{To: c.Ref(), Task: flushAgain})
		return nil
	}
	c.armed = true
	return w.await(c)
}

// sendMemory sends the buffers at the head of the queue up to the next file segment.
func (l *Loop) sendMemory(c *Conn, budget int) (n, want int, err error) {
	q := &c.out
	iov, mapped := l.iov[:0], false
	at := q.head
	for ; at < len(q.segs) && !q.segs[at].asFile && len(iov) < iovMax && want < budget; at++ {
		b := q.segs[at].mem()
		mapped = mapped || q.segs[at].buf == nil
		iov = append(iov, b)
		want += len(b)
	}
	if len(iov) == 1 && !mapped {
		n, err = zerocopy.Send(c.fd, iov[0], at < len(q.segs))
	} else {
		n, err = zerocopy.Writev(c.fd, iov)
	}
	clear(iov)
	return n, want, err
}

// cork holds back incomplete packets while several file segments follow each other. It is only a
// matter of packet sizes, so that errors do not matter.
func cork(fd int, on bool) {
	v := 0
	if on {
		v = 1
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, v)
}

// prepareListener sets options that accepted sockets inherit. Only a refused congestion control is
// an error.
func prepareListener(fd int, cfg *Config) error {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if cfg.Congestion == "" {
		return nil
	}
	return setCongestion(fd, cfg.Congestion)
}

// setCongestion sets the congestion control that accepted sockets inherit from a listener.
func setCongestion(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}
