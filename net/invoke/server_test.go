// SPDX-License-Identifier: Apache-2.0

package invoke_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a server that hands each frame to a function, which writes what it likes.
type peer struct {
	addr     string
	accepted atomic.Int32
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func serve(t testing.TB, listen string, handle func(nc net.Conn, cmd *remoting.Command)) *peer {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{addr: l.Addr().String(), listener: l}
	p.wg.Add(1)
	go p.accept(handle)
	t.Cleanup(func() {
		_ = l.Close()
		p.closeConns()
		p.wg.Wait()
	})
	return p
}

func (p *peer) accept(handle func(nc net.Conn, cmd *remoting.Command)) {
	defer p.wg.Done()
	for {
		nc, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.mu.Lock()
		p.conns = append(p.conns, nc)
		p.mu.Unlock()
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			defer func() { _ = nc.Close() }()
			frames(nc, handle)
		}()
	}
}

func (p *peer) closeConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, nc := range p.conns {
		_ = nc.Close()
	}
	p.conns = nil
}

func frames(nc net.Conn, handle func(nc net.Conn, cmd *remoting.Command)) {
	var cmd remoting.Command
	var buf []byte
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		total, err := remoting.FrameSize(head, 0)
		if err != nil {
			return
		}
		if cap(buf) < total {
			buf = make([]byte, total)
		}
		buf = buf[:total-4]
		if _, err := io.ReadFull(nc, buf); err != nil {
			return
		}
		if err := cmd.Decode(buf); err != nil {
			return
		}
		handle(nc, &cmd)
	}
}

// answer returns a response frame.
func answer(cmd *remoting.Command, code remoting.ResponseCode, remark string, body []byte) []byte {
	e := remoting.Begin(nil, remoting.Head{
		Code: int32(code), Flag: remoting.FlagResponse, Opaque: cmd.Opaque, Version: 513,
	})
	if remark != "" {
		e.Remark(remark)
	}
	return e.End(body)
}

// echo answers with the request's body.
func echo(nc net.Conn, cmd *remoting.Command) {
	if cmd.IsResponse() || cmd.IsOneway() {
		return
	}
	_, _ = nc.Write(answer(cmd, remoting.Success, "", cmd.Body))
}

// silent never answers.
func silent(net.Conn, *remoting.Command) {}

func newPool(t testing.TB, cfg invoke.Config) *invoke.Pool {
	t.Helper()
	p := invoke.NewPool(cfg)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// receive waits for a value with a bound, so that a fault fails one test and not the run.
func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
	}
	panic("unreachable")
}
