// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/pool/goroutine"
	"golang.org/x/sys/unix"
)

// gnetBackend runs the loops on gnet, of which it uses accepting, reading, and running tasks. It
// never lets gnet write: gnet's buffer would reorder output with ours, and the end of gnet's
// writing cannot be observed.
type gnetBackend struct {
	gnet.BuiltinEventEngine

	srv  *Server
	dial []string // what gnet was given to listen on
	eng  gnet.Engine

	booted chan error    // result of OnBoot
	ended  chan struct{} // closed when gnet has ended
	err    error         // why, set before ended is closed

	mu    sync.Mutex // guards what follows
	loops map[gnet.EventLoop]*gnetDriver
}

// gnetDriver binds a Loop to one of gnet's, which it meets with that loop's first connection.
type gnetDriver struct {
	loop *Loop
	out  *writable

	mu    sync.Mutex // guards what follows
	el    gnet.EventLoop
	early bool // a wake came before there was a loop to wake
}

// releaseWorkers ends the pool of workers that gnet starts when it is imported, whatever backend
// is in use: nobody here needs it, and its ticker keeps an idle process at half a percent of a
// processor.
func releaseWorkers() { goroutine.DefaultWorkerPool.Release() }

func (b *gnetBackend) listen(s *Server, addrs []string) error {
	b.srv = s
	b.loops = make(map[gnet.EventLoop]*gnetDriver)
	b.booted, b.ended = make(chan error, 1), make(chan struct{})
	for i, a := range addrs {
		d, err := gnetAddr(a, i)
		if err == nil {
			err = probe(a)
		}
		if err != nil {
			return err
		}
		b.dial = append(b.dial, d)
	}
	for _, l := range s.loops {
		out, err := newWritable(l)
		if err != nil {
			b.closeWritables()
			return err
		}
		l.drv = &gnetDriver{loop: l, out: out}
		go out.run()
	}
	go b.run()
	select {
	case err := <-b.booted:
		if err != nil {
			<-b.ended
			b.closeWritables()
			return err
		}
		return nil
	case <-b.ended:
		b.closeWritables()
		return b.err
	}
}

// gnetAddr turns "host:port" into what gnet takes. Listeners can be told apart by this text only,
// so port 0 is written with as many zeros as make it unique.
func gnetAddr(addr string, index int) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if port == "" {
		port = "0"
	}
	return "tcp://" + net.JoinHostPort(host, strings.Repeat("0", index)+port), nil
}

// probe finds out whether an address can be bound. gnet leaves its first listener open when it
// cannot bind the second.
func probe(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return ln.Close()
}

func (b *gnetBackend) run() {
	defer close(b.ended)
	b.err = gnet.Rotate(b, b.dial,
		gnet.WithNumEventLoop(len(b.srv.loops)),
		gnet.WithLoadBalancing(gnet.LeastConnections),
		gnet.WithReuseAddr(true),
		gnet.WithReadBufferCap(b.srv.cfg.ReadBuffer),
		gnet.WithLogger(silent{}),
	)
	if b.err == nil {
		b.err = errors.New("gnet has ended")
	}
	if !b.srv.closing.Load() {
		b.srv.cfg.Notice("event loop ended", "err", b.err)
	}
}

// OnBoot learns the bound ports and prepares the listeners.
func (b *gnetBackend) OnBoot(eng gnet.Engine) gnet.Action {
	b.eng = eng
	if err := b.prepare(); err != nil {
		b.booted <- err
		return gnet.Shutdown
	}
	b.booted <- nil
	return gnet.None
}

func (b *gnetBackend) prepare() error {
	said := false
	for _, d := range b.dial {
		fd, err := b.eng.DupListener("tcp", strings.TrimPrefix(d, "tcp://"))
		if err != nil {
			return fmt.Errorf("listener of %s: %w", d, err)
		}
		addr, err := localAddr(fd)
		if err == nil && b.srv.cfg.Congestion != "" {
			if err := setCongestion(fd, b.srv.cfg.Congestion); err != nil && !said {
				said = true
				b.srv.cfg.Notice("congestion control left as it is",
					"wanted", b.srv.cfg.Congestion, "err", err)
			}
		}
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("listener of %s: getsockname: %w", d, err)
		}
		b.srv.addrs = append(b.srv.addrs, addr)
	}
	return nil
}

// driver returns the driver of one of gnet's loops, and binds a free one to a loop not seen yet.
func (b *gnetBackend) driver(el gnet.EventLoop) *gnetDriver {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.loops[el]
	if d == nil {
		d = b.srv.loops[len(b.loops)].drv.(*gnetDriver)
		b.loops[el] = d
		d.bind(el)
	}
	return d
}

// OnOpen makes a Conn of what gnet accepted.
func (b *gnetBackend) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	l := b.driver(gc.EventLoop()).loop
	remote, _ := gc.RemoteAddr().(*net.TCPAddr)
	local, err := localAddr(gc.Fd())
	if remote == nil || err != nil {
		return nil, gnet.Close
	}
	c := l.add(remote.AddrPort(), b.srv.listenerOf(local))
	if c == nil {
		return nil, gnet.Close
	}
	c.fd, c.link = gc.Fd(), gc
	gc.SetContext(c)
	l.opened(c)
	if c.closed {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

// OnTraffic takes the whole read, so that gnet's own buffer stays empty and Peek never copies.
func (b *gnetBackend) OnTraffic(gc gnet.Conn) gnet.Action {
	c, _ := gc.Context().(*Conn)
	if c == nil || c.closed {
		return gnet.Close
	}
	data, err := gc.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	c.loop.input(c, data)
	c.loop.turnDone()
	_, _ = gc.Discard(-1)
	c.loop.finish()
	if c.closed {
		return gnet.Close
	}
	return gnet.None
}

// OnClose hears of every end, those that we have asked for included.
func (b *gnetBackend) OnClose(gc gnet.Conn, cause error) gnet.Action {
	c, _ := gc.Context().(*Conn)
	if c == nil || c.closed {
		return gnet.None
	}
	c.link = nil // gnet closes the socket itself
	if cause == nil {
		cause = ErrServerClosed
	}
	c.loop.gone(c, plainEOF(cause))
	return gnet.None
}

// close stops gnet. Its own Stop looks for the end twice a second; a context that has ended makes
// it return at once, and the end is seen here.
func (b *gnetBackend) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.eng.Stop(ctx)
	<-b.ended
	b.closeWritables()
}

func (b *gnetBackend) closeWritables() {
	for _, l := range b.srv.loops {
		if d, ok := l.drv.(*gnetDriver); ok {
			d.out.close()
		}
	}
}

func (d *gnetDriver) bind(el gnet.EventLoop) {
	d.mu.Lock()
	d.el = el
	early := d.early
	d.mu.Unlock()
	if early {
		d.wake()
	}
}

func (d *gnetDriver) wake() {
	d.mu.Lock()
	el := d.el
	d.early = el == nil
	d.mu.Unlock()
	if el != nil {
		// It fails only when gnet has ended, and then Loop.stop runs what is left.
		_ = el.Execute(context.Background(), d)
	}
}

// Run implements gnet.Runnable.
func (d *gnetDriver) Run(context.Context) error {
	d.loop.round()
	return nil
}

func (d *gnetDriver) flush(c *Conn) error { return d.loop.flushFD(c, d.out) }

func (d *gnetDriver) shut(c *Conn) {
	d.out.forget(c)
	c.out.release(d.loop)
	c.fd = -1
	if gc, ok := c.link.(gnet.Conn); ok {
		c.link = nil
		_ = gc.EventLoop().Close(gc)
	}
}

// pause makes the socket look empty until a gigabyte has arrived, of which the kernel makes half of
// the largest receive buffer: it bounds what a peer can send rather than stopping it. The end of
// the connection is reported all the same.
func (d *gnetDriver) pause(c *Conn, on bool) {
	mark := 1
	if on {
		mark = 1 << 30
	}
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, mark)
}

// silent is gnet's logger. What matters is reported as a Notice or a cause of Handler.Close.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}
