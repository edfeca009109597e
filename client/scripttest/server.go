// SPDX-License-Identifier: Apache-2.0

// Package scripttest runs small scripted servers that speak real frames over real sockets: a name
// server and a broker that keeps its queues in memory. Tests of clients use it to make faults
// happen that a real broker does not have at hand: lost answers, refusals, stalls, damaged records.
//
//	c := scripttest.NewCluster(t, 1)
//	c.Brokers[0].Refuse(remoting.SystemBusy, 2) // the next two sends
package scripttest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/skylarkmq/skylark/net/remoting"
)

// Request is one request to a server.
type Request struct {
	*remoting.Command          // owned by the handler
	Conn              net.Conn // for scripts that close it
	Done              <-chan struct{}
}

// Reply is an answer. A nil *Reply sends none.
type Reply struct {
	Code   remoting.ResponseCode
	Remark string
	Header remoting.Header
	Body   []byte
}

// Handler answers one request. It may block: each request has a goroutine of its own. Sends of one
// connection are handled one after the other.
type Handler func(r *Request) *Reply

// Server answers requests by code.
type Server struct {
	Addr string

	listener net.Listener
	wg       sync.WaitGroup
	done     chan struct{}

	mu       sync.Mutex
	handlers map[remoting.RequestCode]Handler
	conns    map[net.Conn]struct{}
	counts   map[remoting.RequestCode]int
	closed   bool
}

// NewServer listens on a free port of the loopback address until the test ends.
func NewServer(t testing.TB) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("scripttest: %v", err)
	}
	s := &Server{
		Addr: l.Addr().String(), listener: l, done: make(chan struct{}),
		handlers: map[remoting.RequestCode]Handler{}, conns: map[net.Conn]struct{}{},
		counts: map[remoting.RequestCode]int{},
	}
	s.wg.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// Handle sets the handler of a code.
func (s *Server) Handle(code remoting.RequestCode, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[code] = h
}

// Handler returns the handler of a code, for scripts that go on to it; nil when there is none.
func (s *Server) Handler(code remoting.RequestCode) Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handlers[code]
}

// Count returns how many requests with the code came.
func (s *Server) Count(code remoting.RequestCode) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[code]
}

// Drop closes every connection; clients may connect again.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// Close ends the server and waits for its goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.mu.Unlock()
	close(s.done)
	_ = s.listener.Close()
	s.Drop()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.wg.Go(func() { s.serve(c) })
		s.mu.Unlock()
	}
}

func (s *Server) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	var writing sync.Mutex
	var order chan struct{} // closed when the request before has been handled; sends keep their order
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		var cmd remoting.Command
		if err := cmd.Decode(frame); err != nil {
			return
		}
		if cmd.IsResponse() {
			continue
		}
		s.mu.Lock()
		h := s.handlers[cmd.Request()]
		s.counts[cmd.Request()]++
		s.mu.Unlock()
		r := &Request{Command: cmd.Clone(), Conn: c, Done: s.done}
		before, mine := order, chan struct{}(nil)
		if isSend(cmd.Request()) {
			mine = make(chan struct{})
			order = mine
		}
		s.wg.Go(func() {
			if mine != nil {
				if before != nil {
					<-before
				}
				defer close(mine)
			}
			s.answer(h, r, &writing)
		})
	}
}

func isSend(code remoting.RequestCode) bool {
	return code == remoting.SendMessageV2 || code == remoting.SendBatchMessage
}

func (s *Server) answer(h Handler, r *Request, writing *sync.Mutex) {
	reply := &Reply{Code: remoting.RequestCodeNotSupported, Remark: "not scripted"}
	if h != nil {
		reply = h(r)
	}
	if reply == nil || r.IsOneway() {
		return
	}
	e := remoting.Begin(nil, r.Reply(reply.Code))
	if reply.Remark != "" {
		e.Remark(reply.Remark)
	}
	if reply.Header != nil {
		reply.Header.AppendFields(&e)
	}
	frame := e.End(reply.Body)
	writing.Lock()
	defer writing.Unlock()
	_, _ = r.Conn.Write(frame)
}

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	total, err := remoting.FrameSize(head, remoting.MaxFrame)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, total-4)
	_, err = io.ReadFull(r, frame)
	return frame, err
}
