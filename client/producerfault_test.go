// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// The tests of this file are named after faults that users of rocketmq-client-go reported, on the
// producer's side; each fails with its fault.

// TestFaultShutdownPanic: sends of every kind while the producer closes; each ends, with its result
// or with ErrClosed, and each callback that was promised runs once.
func TestFaultShutdownPanic(t *testing.T) {
	// Fault 1: a send on a closed channel panicked at shutdown.
	t.Parallel()
	for _, opts := range [][]client.ProducerOption{
		nil, {client.WithLinger(time.Millisecond, 4<<10)}, {client.WithLinger(0, 4<<10)},
	} {
		for range 5 {
			_, c := cluster(t, 2)
			p := newProducer(t, c, opts...)
			ctx := within(t)
			if _, err := p.Send(ctx, text("first")); err != nil {
				t.Fatal(err)
			}
			var promised, called atomic.Int64
			var wg sync.WaitGroup
			begun := make(chan struct{}, 8)
			for g := range 8 {
				wg.Go(func() {
					for i := 0; ; i++ {
						if i == 20 {
							begun <- struct{}{}
						}
						err := sendSomehow(ctx, p, (g+i)%4, &promised, &called)
						if errors.Is(err, client.ErrClosed) && i >= 20 {
							return
						}
						if err != nil && !errors.Is(err, client.ErrClosed) {
							t.Errorf("send: %v", err)
							return
						}
					}
				})
			}
			<-begun
			if err := p.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
			wg.Wait()
			if promised.Load() != called.Load() {
				t.Errorf("after Close %d callbacks of %d have run", called.Load(), promised.Load())
			}
		}
	}
}

// sendSomehow sends in one of four ways and counts callbacks, those that are promised and those that
// run.
func sendSomehow(
	ctx context.Context, p *client.Producer, way int, promised, called *atomic.Int64,
) error {
	var err error
	switch way {
	case 0:
		_, err = p.Send(ctx, text("sync"))
	case 1:
		promised.Add(1)
		err = p.SendAsync(ctx, text("async"), func(client.SendResult, error) { called.Add(1) })
		if err != nil {
			promised.Add(-1)
		}
	case 2:
		_, errs := p.SendBatch(ctx, text("one"), text("two"))
		err = errs[0]
	default:
		err = p.SendOneWay(ctx, text("one-way"))
	}
	return err
}

// TestFaultNilBroker: a route that names a broker without an address, and one that is away.
func TestFaultNilBroker(t *testing.T) {
	// Fault 2: an asynchronous send dereferenced nil when a broker was away; nil callbacks panicked.
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("away", 2)
	s.Brokers[0].Close()
	data := protocol.TopicRouteData{
		BrokerDatas: []protocol.BrokerData{{BrokerName: "ghost", Cluster: "scripted"}},
		QueueDatas: []protocol.QueueData{{
			BrokerName: "ghost", Perm: protocol.PermRead | protocol.PermWrite, ReadQueueNums: 1,
			WriteQueueNums: 1,
		}},
	}
	names := scripttest.NewServer(t)
	names.Handle(remoting.GetRouteInfoByTopic, func(*scripttest.Request) *scripttest.Reply {
		return &scripttest.Reply{Body: protocol.Marshal(&data)}
	})
	ghost := newClient(t, names.Addr)
	for _, tc := range []struct {
		c     *client.Client
		topic string
	}{{c, "away"}, {ghost, "t"}} {
		p := newProducer(t, tc.c, client.WithSendTimeout(300*time.Millisecond))
		m := &client.Message{Topic: tc.topic, Body: []byte("x")}
		if err := p.SendAsync(within(t), m, nil); err != nil {
			t.Errorf("async: %v", err)
		}
		told := make(chan error, 1)
		if err := p.SendAsync(within(t), m, func(_ client.SendResult, err error) { told <- err }); err != nil {
			t.Errorf("async: %v", err)
		}
		if err := p.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
		var se *client.SendError
		if err := <-told; !errors.As(err, &se) {
			t.Errorf("callback got %v", err)
		}
		if _, err := p.Send(within(t), m); !errors.As(err, &se) {
			t.Errorf("sync: %v", err)
		}
		if err := p.SendOneWay(within(t), m); !errors.As(err, &se) {
			t.Errorf("one-way: %v", err)
		}
	}
}

// TestFaultTrace: a trace whose topic comes later, with two name servers of which one is dead, and
// whose brokers change; its goroutines end with the producer.
func TestFaultTrace(t *testing.T) {
	// Fault 3: the trace divided by zero without queues, broke with two name servers, never renewed its
	// route and was never closed.
	t.Parallel()
	s, _ := cluster(t, 1)
	s.SetTopic("t", 1)
	s.SetTopic(protocol.TBW102, 0) // brokers create no topics, so the trace topic is missing
	c := newClient(t, "127.0.0.1:1;"+s.NameServer.Addr)
	p := newProducer(t, c, client.WithTrace("traces"))
	fill := func() { // a whole message of records
		for range 10 {
			if _, err := p.Send(within(t), text("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill() // dropped
	s.SetTopic("traces", 1)
	ctx := within(t)
	for len(s.Brokers[0].Records("traces", 0)) == 0 {
		if ctx.Err() != nil {
			t.Fatal("no trace after its topic was made")
		}
		fill()
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestFaultProducerLeaks: clients that never got anywhere leave no goroutine. It is not parallel: it
// looks at all goroutines.
func TestFaultProducerLeaks(t *testing.T) {
	// Fault 4: goroutines stayed after time-outs, missing topics, failed starts, and after each create
	// and close.
	before := goleak.IgnoreCurrent()
	s := scripttest.NewCluster(t, 1)
	s.SetTopic("t", 1)
	s.Brokers[0].Swallow(1000)
	for i := range 10 {
		nameServer := s.NameServer.Addr
		if i%3 == 0 {
			nameServer = "127.0.0.1:1"
		}
		c, err := client.New([]string{nameServer})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.NewProducer("bad group"); err == nil {
			t.Error("a bad group was accepted")
		}
		if _, err := c.NewTransactionProducer("pg", nil); err == nil {
			t.Error("a nil checker was accepted")
		}
		p, err := c.NewProducer("pg", client.WithSendTimeout(20*time.Millisecond), client.WithTrace(""),
			client.WithLinger(time.Minute, 1<<10), client.WithLatencyFaultTolerance(true),
			client.WithDefaultTopicRoute(false))
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"t", "absent"} {
			_ = p.SendAsync(within(t), &client.Message{Topic: topic, Body: []byte("x")}, nil)
			_ = p.SendOneWay(within(t), &client.Message{Topic: topic, Body: []byte("x")})
		}
		for range 2 {
			if err := c.Close(within(t)); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
	s.NameServer.Close()
	s.Brokers[0].Close()
	goleak.VerifyNone(t, before)
}

// brokenDials gives each address a way to fail.
type brokenDials struct {
	hang    map[string]bool
	replace map[string]string
	hung    atomic.Int32
}

func (d *brokenDials) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.hang[addr] {
		d.hung.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if other := d.replace[addr]; other != "" {
		addr = other
	}
	var nd net.Dialer
	return nd.DialContext(ctx, network, addr)
}

// TestFaultOneBrokerDown: of three brokers one refuses connections and one does not answer them;
// sends of each kind succeed at the third.
func TestFaultOneBrokerDown(t *testing.T) {
	// Fault 17: sends failed when one of several brokers was down.
	t.Parallel()
	s := scripttest.NewCluster(t, 3)
	s.SetTopic("t", 1)
	s.Brokers[0].Close()
	d := &brokenDials{hang: map[string]bool{s.Brokers[1].Addr: true}}
	c := newClient(t, s.NameServer.Addr, client.WithDialer(d.dial))
	p := newProducer(t, c)
	lingering := newProducer(t, c, client.WithLinger(time.Millisecond, 1<<10))
	ctx := within(t)
	var failed atomic.Int32
	note := func(r client.SendResult, err error) {
		if err != nil || r.Queue.Broker != s.Brokers[2].Name {
			failed.Add(1)
			t.Errorf("%+v, %v", r, err)
		}
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			r, err := p.Send(ctx, text("sync"))
			note(r, err)
			results, errs := p.SendBatch(ctx, text("a"), text("b"))
			for i := range results {
				note(results[i], errs[i])
			}
		})
		for _, p := range []*client.Producer{p, lingering} {
			if err := p.SendAsync(ctx, text(fmt.Sprint(i)), note); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
	if err := errors.Join(p.Flush(ctx), lingering.Flush(ctx)); err != nil {
		t.Error(err)
	}
}

// TestFaultBlocksInConnect: a broker that takes no connection does not hold up SendAsync, nor sends
// to another topic's broker, and the caller's context ends its own wait only.
func TestFaultBlocksInConnect(t *testing.T) {
	// Fault 18: no deadline for reads and writes; an asynchronous send blocked in connect.
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	s.SetTopic("t", 1)
	away := scripttest.NewCluster(t, 1)
	s.NameServer.Handle(remoting.GetRouteInfoByTopic, routeOver(s, away, "slow"))
	d := &brokenDials{hang: map[string]bool{away.Brokers[0].Addr: true}}
	c := newClient(t, s.NameServer.Addr, client.WithDialer(d.dial))
	p := newProducer(t, c, client.WithSendTimeout(5*time.Second))
	slow := &client.Message{Topic: "slow", Body: []byte("x")}
	if err := p.SendAsync(within(t), slow, nil); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	for range 20 {
		if err := p.SendAsync(within(t), slow, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Send(within(t), text("x")); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(from); took > 2*time.Second {
		t.Errorf("sends took %s beside a broker that takes no connection", took)
	}
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	from = time.Now()
	if _, err := p.Send(ctx, slow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(from); took > 2*time.Second { // the connection would take 2.5 s
		t.Errorf("a context of 50 ms ended the wait after %s", took)
	}
	if d.hung.Load() == 0 {
		t.Error("the dead broker was not dialled")
	}
}

// routeOver answers the route of one topic with another cluster's brokers.
func routeOver(s, other *scripttest.Cluster, topic string) scripttest.Handler {
	route := func(c *scripttest.Cluster) *scripttest.Reply {
		var data protocol.TopicRouteData
		for _, b := range c.Brokers {
			data.BrokerDatas = append(data.BrokerDatas, protocol.BrokerData{
				BrokerName: b.Name, Cluster: "scripted", BrokerAddrs: map[int64]string{0: b.Addr},
			})
			data.QueueDatas = append(data.QueueDatas, protocol.QueueData{
				BrokerName: b.Name, Perm: protocol.PermRead | protocol.PermWrite, ReadQueueNums: 1,
				WriteQueueNums: 1,
			})
		}
		return &scripttest.Reply{Body: protocol.Marshal(&data)}
	}
	return func(r *scripttest.Request) *scripttest.Reply {
		var h protocol.RouteRequest
		if err := h.Decode(r.Command); err == nil && h.Topic == topic {
			return route(other)
		}
		return route(s)
	}
}

// TestFaultUnreadConnection: a broker that stops reading fails writes in their time and loses its
// connection, and a half-open one fails calls in theirs.
func TestFaultUnreadConnection(t *testing.T) {
	// Fault 18: a peer that reads nothing kept a send for ever.
	t.Parallel()
	s, _ := cluster(t, 1)
	s.SetTopic("t", 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // takes connections and never reads
		var kept []net.Conn
		for {
			nc, err := l.Accept()
			if err != nil {
				for _, nc := range kept {
					_ = nc.Close()
				}
				return
			}
			kept = append(kept, nc)
		}
	}()
	d := &brokenDials{replace: map[string]string{s.Brokers[0].Addr: l.Addr().String()}}
	c := newClient(t, s.NameServer.Addr, client.WithDialer(d.dial),
		client.WithConnTimeouts(time.Second, 100*time.Millisecond, time.Minute))
	p := newProducer(t, c, client.WithSendTimeout(500*time.Millisecond), client.WithCompression(0, 0, 1))
	from := time.Now()
	big := &client.Message{Topic: "t", Body: make([]byte, 4<<20)}
	for range 5 {
		if _, err := p.Send(within(t), big); err == nil {
			t.Fatal("a send to nobody succeeded")
		}
		_ = p.SendOneWay(within(t), big)
	}
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("sends to a peer that does not read took %s", took)
	}
}

// TestFaultTimeoutIgnored: whatever the kind of send and the number of retries, one deadline holds.
func TestFaultTimeoutIgnored(t *testing.T) {
	// Fault 19: the option for the send timeout had no effect, or each attempt had it anew.
	t.Parallel()
	s, c := cluster(t, 3)
	s.SetTopic("t", 1)
	for _, b := range s.Brokers {
		b.Swallow(1000)
	}
	// With a deadline for each attempt six of them would take 3 s.
	const limit, slack = 500 * time.Millisecond, 2 * time.Second
	for name, opts := range map[string][]client.ProducerOption{
		"plain": nil, "linger": {client.WithLinger(time.Millisecond, 1<<10)},
	} {
		p := newProducer(t, c, append(opts, client.WithSendTimeout(limit), client.WithRetries(5))...)
		for kind, send := range map[string]func() error{
			"sync": func() error { _, err := p.Send(within(t), text("x")); return err },
			"batch": func() error {
				_, errs := p.SendBatch(within(t), text("x"), text("y"))
				return errs[1]
			},
			"async": func() error {
				got := make(chan error, 1)
				err := p.SendAsync(within(t), text("x"), func(_ client.SendResult, err error) { got <- err })
				if err != nil {
					return err
				}
				return <-got
			},
		} {
			from := time.Now()
			err := send()
			took := time.Since(from)
			var se *client.SendError
			if !errors.As(err, &se) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s %s: %v", name, kind, err)
			}
			if took < limit/2 || took > limit+slack {
				t.Errorf("%s %s ended after %s, the limit is %s", name, kind, took, limit)
			}
		}
	}
}
