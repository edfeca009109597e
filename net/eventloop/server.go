// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Server accepts connections on a few addresses and serves them with a few loops.
type Server struct {
	// Set before Listen returns, then constant.
	cfg     Config
	loops   []*Loop
	addrs   []netip.AddrPort
	backend backend
	notices noticer

	// Any goroutine.
	closing     atomic.Bool
	conns       atomic.Int64
	outBytes    atomic.Int64 // unsent memory of all connections
	refused     atomic.Uint64
	slowReaders atomic.Uint64
	idleClosed  atomic.Uint64

	closeOnce sync.Once
	closeErr  error
}

// backend is a way to accept, read and wait.
type backend interface {
	// listen binds the addresses, sets Server.addrs and the driver of each loop, and starts them.
	// On an error nothing is left behind.
	listen(s *Server, addrs []string) error
	// close stops accepting, closes every connection, and returns when all goroutines have ended.
	close()
}

// Stats are counters of a server since its start.
type Stats struct {
	Open        int64  // connections now
	Total       uint64 // connections accepted
	BytesIn     uint64 // read from sockets
	BytesOut    uint64 // taken by sockets
	Frames      uint64 // commands handed to handlers
	Refused     uint64 // connections closed for what they sent, or because there were too many
	SlowReaders uint64 // connections closed because their peers did not read
	IdleClosed  uint64 // others closed by IdleTimeout
}

// Listen binds the addresses, each "host:port" with port 0 for any free one, and serves them until
// Close. newHandler is called once for each loop, before any connection; it must not post yet. On
// an error nothing is left running.
func Listen(cfg Config, addrs []string, newHandler func(l *Loop) Handler) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("eventloop: listen: no address")
	}
	s := &Server{cfg: cfg}
	s.notices = noticer{out: cfg.Notice, last: make(map[netip.Addr]time.Time)}
	b, err := newBackend(cfg.Backend)
	if err != nil {
		return nil, fmt.Errorf("eventloop: backend %q: %w", cfg.Backend, err)
	}
	s.backend = b
	for i := range cfg.Loops {
		l := newLoop(s, i)
		l.sweeper.arm(l)
		l.handler = newHandler(l)
		s.loops = append(s.loops, l)
	}
	if err := b.listen(s, addrs); err != nil {
		return nil, fmt.Errorf("eventloop: listen on %v: %w", addrs, err)
	}
	return s, nil
}

// Addrs returns the addresses in the order given to Listen, with the ports that were bound.
func (s *Server) Addrs() []netip.AddrPort {
	return append([]netip.AddrPort(nil), s.addrs...)
}

// Stats returns the counters. It may be called from any goroutine; the values are not of one
// instant.
func (s *Server) Stats() Stats {
	st := Stats{
		Refused:     s.refused.Load(),
		SlowReaders: s.slowReaders.Load(),
		IdleClosed:  s.idleClosed.Load(),
	}
	for _, l := range s.loops {
		st.Open += l.open.Load()
		st.Total += l.total.Load()
		st.BytesIn += l.bytesIn.Load()
		st.BytesOut += l.bytesOut.Load()
		st.Frames += l.framesIn.Load()
	}
	return st
}

// Close refuses new connections and further requests, waits until queued output has been sent or
// ctx ends, closes every connection with ErrServerClosed, and returns when all goroutines have
// ended. Tasks that are posted meanwhile are still run. It returns the error of ctx if output was
// lost; further calls wait and return the same. It must not be called from a handler or task.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() {
		s.closing.Store(true)
		for _, l := range s.loops {
			if l.open.Load() == 0 {
				l.drainOnce.Do(func() { close(l.drained) })
				continue
			}
			l.do(func(l *Loop) {
				l.draining = true
				l.maybeDrained()
			})
		}
		for _, l := range s.loops {
			select {
			case <-l.drained:
			case <-ctx.Done():
				s.closeErr = ctx.Err()
			}
		}
		s.backend.close()
		for _, l := range s.loops {
			if l.sweeper.timer != nil {
				l.sweeper.timer.Stop()
			}
			l.stop()
		}
	})
	return s.closeErr
}

// listenerOf returns the index of the address by which a connection came, from its local address:
// the one that matches fully, else the wildcard with that port.
func (s *Server) listenerOf(local netip.AddrPort) int {
	at := 0
	for i, a := range s.addrs {
		if a.Port() != local.Port() {
			continue
		}
		if a.Addr().Unmap() == local.Addr().Unmap() {
			return i
		}
		at = i
	}
	return at
}
