// SPDX-License-Identifier: Apache-2.0

package invoke_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

type reusedWaiter struct {
	ready chan struct{}
	size  int
}

func (w *reusedWaiter) Answered(r *invoke.Response, err error) {
	if err == nil {
		w.size = len(r.Body)
	}
	w.ready <- struct{}{}
}

// reusingEcho answers without allocating, since the count covers the whole process.
func reusingEcho() func(nc net.Conn, cmd *remoting.Command) {
	var out []byte
	return func(nc net.Conn, cmd *remoting.Command) {
		head := remoting.Head{Flag: remoting.FlagResponse, Opaque: cmd.Opaque}
		e := remoting.Begin(out[:0], head)
		out = e.End(cmd.Body)
		_, _ = nc.Write(out)
	}
}

// TestAllocsStart holds a request with Borrow and Timeout, and its answer, to no allocation. It
// is not parallel: it counts those of the process.
func TestAllocsStart(t *testing.T) {
	srv := serve(t, "127.0.0.1:0", reusingEcho())
	pool := newPool(t, invoke.Config{})
	c, err := pool.Dial(within(t), srv.addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &reusedWaiter{ready: make(chan struct{}, 1)}
	header := topicHeader("topic")
	r := &invoke.Request{
		Code: 10, Header: &header, Body: make([]byte, 1024), Borrow: true,
		Timeout: time.Minute,
	}
	send := func() {
		if err := c.Start(context.Background(), r, w); err != nil {
			t.Error(err)
			return
		}
		<-w.ready
	}
	for range 200 {
		send()
	}
	if n := testing.AllocsPerRun(500, send); n != 0 {
		t.Errorf("%v allocations for a request and its answer, want 0", n)
	}
	if w.size != 1024 {
		t.Errorf("answer of %d bytes, want 1024", w.size)
	}
}

func BenchmarkStart(b *testing.B) {
	srv := serve(b, "127.0.0.1:0", reusingEcho())
	pool := newPool(b, invoke.Config{})
	c, err := pool.Dial(within(b), srv.addr)
	if err != nil {
		b.Fatal(err)
	}
	const inFlight = 64
	w := &reusedWaiter{ready: make(chan struct{}, inFlight)}
	r := &invoke.Request{Code: 10, Body: make([]byte, 1024), Borrow: true, Timeout: time.Minute}
	b.ReportAllocs()
	for i := range b.N {
		if i >= inFlight {
			<-w.ready
		}
		if err := c.Start(context.Background(), r, w); err != nil {
			b.Fatal(err)
		}
	}
	for range min(b.N, inFlight) {
		<-w.ready
	}
}
