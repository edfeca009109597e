// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// epollBackend runs each loop on an epoll of its own. Go's listeners do the binding and Go's
// runtime poller waits for connections; accepted descriptors never enter that poller.
type epollBackend struct {
	srv  *Server
	lns  []*os.File // listening sockets
	stop context.CancelFunc
	done <-chan struct{}
	accs sync.WaitGroup // acceptors
	runs sync.WaitGroup // loops
}

func (b *epollBackend) listen(s *Server, addrs []string) error {
	b.srv = s
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.done = cancel, ctx.Done()
	err := b.prepare(ctx, addrs)
	if err != nil {
		cancel()
		b.closeListeners()
		for _, l := range s.loops {
			if d, ok := l.drv.(*epollDriver); ok {
				d.release()
			}
		}
		return err
	}
	for _, l := range s.loops {
		b.runs.Go(l.drv.(*epollDriver).run)
	}
	for i, ln := range b.lns {
		b.accs.Go(func() { b.accept(ln, i) })
	}
	return nil
}

func (b *epollBackend) prepare(ctx context.Context, addrs []string) error {
	for _, a := range addrs {
		ln, err := listenTCP(ctx, &b.srv.cfg, a)
		if err != nil {
			return err
		}
		// The raw descriptor of a listener of package net can be had but not waited for; that of a
		// file can. They share the socket.
		f, err := ln.(*net.TCPListener).File()
		b.srv.addrs = append(b.srv.addrs, ln.Addr().(*net.TCPAddr).AddrPort())
		_ = ln.Close()
		if err != nil {
			return err
		}
		b.lns = append(b.lns, f)
	}
	for _, l := range b.srv.loops {
		d, err := newEpollDriver(l)
		if err != nil {
			return err
		}
		l.drv = d
	}
	return nil
}

// accept hands the connections of one listener to the loops until the listener is closed.
func (b *epollBackend) accept(ln *os.File, index int) {
	raw, err := ln.SyscallConn()
	for err == nil {
		var acceptErr error
		err = raw.Read(func(fd uintptr) bool {
			acceptErr = b.acceptAll(int(fd), index)
			return acceptErr != nil
		})
		if err != nil {
			return // the listener is closed
		}
		b.srv.cfg.Notice("accept failed", "addr", b.srv.addrs[index].String(), "err", acceptErr)
		select {
		case <-b.done:
			return
		case <-time.After(acceptPause):
		}
	}
}

// acceptAll accepts what waits. An error is one that waiting for the next connection does not cure.
func (b *epollBackend) acceptAll(fd, index int) error {
	for {
		sock, sa, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			return err
		}
		remote, err := addrPort(sa)
		if err != nil {
			_ = unix.Close(sock)
			continue
		}
		l := b.srv.leastLoaded()
		a := &adoption{loop: l, sock: sock, remote: remote, listener: index}
		l.post(Posted{To: Ref{loop: l, slot: noSlot}, Task: a})
	}
}

// adoption is an accepted socket on its way to its loop.
type adoption struct {
	loop     *Loop
	sock     int
	remote   netip.AddrPort
	listener int
}

// Run implements Task. On a loop that has ended add refuses.
func (a *adoption) Run(*Conn) {
	d := a.loop.drv.(*epollDriver)
	c := a.loop.add(a.remote, a.listener)
	if c == nil {
		_ = unix.Close(a.sock)
		return
	}
	c.fd, c.interest = a.sock, unix.EPOLLIN
	ev := unix.EpollEvent{Events: c.interest, Fd: int32(c.slot), Pad: int32(c.gen)}
	err := unix.EpollCtl(d.epfd, unix.EPOLL_CTL_ADD, c.fd, &ev)
	a.loop.opened(c)
	if err != nil {
		a.loop.gone(c, fmt.Errorf("eventloop: epoll_ctl for %v: %w", c.remote, err))
	}
}

func (b *epollBackend) closeListeners() {
	for _, f := range b.lns {
		_ = f.Close()
	}
}

func (b *epollBackend) close() {
	b.closeListeners()
	b.stop()
	b.accs.Wait()
	for _, l := range b.srv.loops {
		l.do(func(l *Loop) {
			l.closeAll(ErrServerClosed)
			l.drv.(*epollDriver).ended = true
		})
	}
	b.runs.Wait()
	for _, l := range b.srv.loops {
		l.drv.(*epollDriver).release()
	}
}
