// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net"
	"time"
)

// netPoller is the portable poller: a goroutine for each connection reads and hands over what it
// read. It wakes up more often than epoll does and its timers are those of the runtime.
type netPoller struct {
	arrived chan *netSocket
	done    chan struct{}
	rest    []*netSocket // not read to the end of their arrival
	events  []event
	timer   *time.Timer
}

func newNetPoller() *netPoller {
	return &netPoller{
		arrived: make(chan *netSocket, 64), done: make(chan struct{}), timer: time.NewTimer(time.Hour),
	}
}

type netSocket struct {
	conn   net.Conn
	tag    int32
	poller *netPoller
	buf    []byte
	// Handed over with an arrival, and back through taken.
	unread []byte
	err    error
	taken  chan struct{}
}

func (p *netPoller) adopt(conn *net.TCPConn, tag int32) (socket, error) {
	s := &netSocket{
		conn: conn, tag: tag, poller: p, buf: make([]byte, readBuffer), taken: make(chan struct{}, 1),
	}
	go s.reader()
	return s, nil
}

// reader ends with its connection.
func (s *netSocket) reader() {
	for {
		n, err := s.conn.Read(s.buf)
		s.unread, s.err = s.buf[:n], err
		select {
		case s.poller.arrived <- s:
		case <-s.poller.done:
			return
		}
		if err != nil {
			return
		}
		select {
		case <-s.taken:
		case <-s.poller.done:
			return
		}
	}
}

func (s *netSocket) read(b []byte) (int, error) {
	n := copy(b, s.unread)
	s.unread = s.unread[n:]
	switch {
	case n > 0 && (len(s.unread) > 0 || s.err != nil):
		s.poller.rest = append(s.poller.rest, s) // ready again at once
	case n > 0:
		s.taken <- struct{}{} // has room: one arrival, one token
	case s.err != nil:
		return 0, s.err
	default:
		return 0, errAgain
	}
	return n, nil
}

// write waits for room, for as long as an answer may take.
func (s *netSocket) write(b []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(3 * time.Second))
	return s.conn.Write(b)
}

func (s *netSocket) watchWrites(bool) error { return nil }

func (s *netSocket) close() { _ = s.conn.Close() }

func (p *netPoller) wait(d time.Duration) ([]event, error) {
	p.events = p.events[:0]
	for _, s := range p.rest {
		p.events = append(p.events, event{tag: s.tag, readable: true})
	}
	p.rest = p.rest[:0]
	if d > 0 && len(p.events) == 0 {
		p.timer.Reset(d)
		select {
		case s := <-p.arrived:
			p.events = append(p.events, event{tag: s.tag, readable: true})
		case <-p.timer.C:
			return nil, nil
		}
	}
	for len(p.events) < cap(p.arrived) {
		select {
		case s := <-p.arrived:
			p.events = append(p.events, event{tag: s.tag, readable: true})
			continue
		default:
		}
		break
	}
	return p.events, nil
}

func (p *netPoller) close() { close(p.done) }
