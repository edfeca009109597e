// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// netReadMax is the read buffer of each connection.
	netReadMax = 16 << 10
	// acceptPause is waited after an accept has failed, for want of descriptors for example.
	acceptPause = 50 * time.Millisecond
)

// netBackend serves connections with two goroutines each, one that reads and one that writes. A
// loop is a lock here: whoever holds it is the loop. It exists for platforms without epoll, and as
// the plain form that the others are held against.
type netBackend struct {
	srv  *Server
	lns  []net.Listener
	stop context.CancelFunc
	done <-chan struct{}
	wg   sync.WaitGroup // every goroutine
}

// netDriver is the loop's lock and the goroutine that runs its tasks.
type netDriver struct {
	loop *Loop
	kick chan struct{} // capacity 1: tasks wait
	mu   sync.Mutex    // whoever holds it is the loop
}

func (b *netBackend) listen(s *Server, addrs []string) error {
	b.srv = s
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.done = cancel, ctx.Done()
	for _, a := range addrs {
		ln, err := listenTCP(ctx, &s.cfg, a)
		if err != nil {
			cancel()
			closeAll(b.lns)
			return err
		}
		b.lns = append(b.lns, ln)
		s.addrs = append(s.addrs, ln.Addr().(*net.TCPAddr).AddrPort())
	}
	for _, l := range s.loops {
		d := &netDriver{loop: l, kick: make(chan struct{}, 1)}
		l.drv = d
		b.wg.Go(func() { d.run(b.done) })
	}
	for i, ln := range b.lns {
		b.wg.Go(func() { b.accept(ln, i) })
	}
	return nil
}

func (b *netBackend) accept(ln net.Listener, index int) {
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			b.serve(nc, index)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			b.srv.cfg.Notice("accept failed", "addr", ln.Addr().String(), "err", err)
			select {
			case <-b.done:
				return
			case <-time.After(acceptPause):
			}
		}
	}
}

// leastLoaded returns the loop with the fewest connections.
func (s *Server) leastLoaded() *Loop {
	best := s.loops[0]
	for _, l := range s.loops[1:] {
		if l.open.Load() < best.open.Load() {
			best = l
		}
	}
	return best
}

func (b *netBackend) serve(nc net.Conn, index int) {
	remote, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		_ = nc.Close()
		return
	}
	l := b.srv.leastLoaded()
	d := l.drv.(*netDriver)
	d.mu.Lock()
	defer d.mu.Unlock()
	c := l.add(remote.AddrPort(), index)
	if c == nil {
		_ = nc.Close()
		return
	}
	n := &netConn{c: c, d: d, nc: nc, wake: make(chan struct{}, 1), resume: make(chan struct{}, 1)}
	c.link = n
	b.wg.Go(n.read)
	b.wg.Go(n.write)
	l.opened(c)
}

func (b *netBackend) close() {
	closeAll(b.lns)
	for _, l := range b.srv.loops {
		d := l.drv.(*netDriver)
		d.mu.Lock()
		l.closeAll(ErrServerClosed)
		d.mu.Unlock()
	}
	b.stop()
	b.wg.Wait()
}

func (d *netDriver) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-d.kick:
			d.mu.Lock()
			d.loop.round()
			d.mu.Unlock()
		}
	}
}

func (d *netDriver) wake() { signal(d.kick) }

func (d *netDriver) flush(c *Conn) error {
	if n := c.link.(*netConn); !c.out.empty() && !n.writing {
		signal(n.wake)
	}
	return nil
}

func (d *netDriver) shut(c *Conn) { c.link.(*netConn).shut() }

func (d *netDriver) pause(c *Conn, on bool) {
	if !on {
		signal(c.link.(*netConn).resume)
	}
}

// signal wakes the one goroutine that waits on a channel of capacity 1, now or when it next does.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// sendError names the peer in an error of writing.
func sendError(c *Conn, err error) error {
	return fmt.Errorf("eventloop: send to %v: %w", c.remote, err)
}
