// SPDX-License-Identifier: Apache-2.0

package invoke_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// A retired connection answers what it was asked and is closed then; new calls go over another.
func TestRetire(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		if string(cmd.Body) == "slow" {
			<-release
		}
		echo(nc, cmd)
	})
	closed := make(chan error, 2)
	var opened atomic.Int32
	pool := newPool(t, invoke.Config{
		OnOpen: func(string) { opened.Add(1) }, OnClose: func(_ string, err error) { closed <- err },
	})
	old, err := pool.Conn(within(t), srv.addr)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	err = old.Async(within(t), &invoke.Request{Code: 1, Body: []byte("slow")},
		func(_ *invoke.Response, err error) { got <- err })
	if err != nil {
		t.Fatal(err)
	}
	pool.Retire(old)
	if pool.Lookup(srv.addr) != nil {
		t.Error("a retired connection is still found")
	}
	if _, err := pool.Call(within(t), srv.addr, &invoke.Request{Code: 1}); err != nil {
		t.Errorf("beside it: %v", err)
	}
	if old.Err() != nil {
		t.Errorf("it was closed before its answer: %v", old.Err())
	}
	close(release)
	if err := receive(t, got); err != nil {
		t.Errorf("its own call: %v", err)
	}
	if err := receive(t, closed); !errors.Is(err, invoke.ErrClosed) {
		t.Errorf("closed for %v", err)
	}
	if opened.Load() != 2 || srv.accepted.Load() != 2 {
		t.Errorf("%d opened, %d accepted, want 2", opened.Load(), srv.accepted.Load())
	}
}

// slowConn lets a write begin and end when the test says so.
type slowConn struct {
	net.Conn
	gate chan struct{}
}

func (c slowConn) Write(b []byte) (int, error) {
	<-c.gate
	return c.Conn.Write(b)
}

// OnewayWritten returns with the write, not with the queueing, and with the context before that.
func TestOnewayWritten(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", silent)
	gate := make(chan struct{})
	pool := newPool(t, invoke.Config{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, addr)
			return slowConn{nc, gate}, err
		},
	})
	c, err := pool.Conn(within(t), srv.addr)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	var ie *invoke.Error
	err = c.OnewayWritten(short, &invoke.Request{Code: 1})
	if !errors.As(err, &ie) || !ie.Sent || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the write: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- c.OnewayWritten(within(t), &invoke.Request{Code: 1}) }()
	select {
	case err := <-done:
		t.Errorf("returned before the write: %v", err)
	case gate <- struct{}{}: // the first request's
	}
	close(gate)
	if err := receive(t, done); err != nil {
		t.Error(err)
	}
}

// Abandon takes out the calls whose waiters match, and only those.
func TestAbandonMatching(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", silent)
	pool := newPool(t, invoke.Config{})
	c, err := pool.Conn(within(t), srv.addr)
	if err != nil {
		t.Fatal(err)
	}
	mine, other := &reusedWaiter{ready: make(chan struct{}, 1)}, &reusedWaiter{ready: make(chan struct{}, 1)}
	for _, w := range []*reusedWaiter{mine, other} {
		if _, err := c.Begin(within(t), &invoke.Request{Code: 1, Borrow: true}, w); err != nil {
			t.Fatal(err)
		}
	}
	got := pool.Abandon(func(w invoke.Waiter) bool { return w == invoke.Waiter(mine) })
	if len(got) != 1 || got[0] != invoke.Waiter(mine) {
		t.Errorf("abandoned %v", got)
	}
	_ = c.Close()
	receive(t, other.ready)
	select {
	case <-mine.ready:
		t.Error("an abandoned waiter got an outcome")
	default:
	}
}

// Prepare changes what is sent, of a copy, and its error fails the call unsent.
func TestPrepare(t *testing.T) {
	t.Parallel()
	srv := serve(t, "127.0.0.1:0", func(nc net.Conn, cmd *remoting.Command) {
		topic, _ := cmd.Fields.Get("topic")
		_, _ = nc.Write(answer(cmd, remoting.Success, "", topic))
	})
	refused := errors.New("no")
	pool := newPool(t, invoke.Config{Prepare: func(_ context.Context, _ string, r *invoke.Request) error {
		if r.Remark == "refuse" {
			return refused
		}
		r.Header = topicHeader("signed")
		return nil
	}})
	r := &invoke.Request{Code: 1}
	res, err := pool.Call(within(t), srv.addr, r)
	if err != nil || string(res.Body) != "signed" || r.Header != nil {
		t.Errorf("%+v, %v, request %+v", res, err, r)
	}
	var ie *invoke.Error
	_, err = pool.Call(within(t), srv.addr, &invoke.Request{Code: 1, Remark: "refuse"})
	if !errors.Is(err, refused) || !errors.As(err, &ie) || ie.Sent {
		t.Errorf("got %v", err)
	}
}
