// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
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
	for range 100 {
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
	if took := time.Since(from); took > time.Second {
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
	// With a deadline for each attempt six of them would take 1.2 s.
	const limit, slack = 200 * time.Millisecond, 700 * time.Millisecond
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
			if !errors.As(err, &se) || !errors.Is(err, context.DeadlineExceeded) || !se.MaybeStored {
				t.Errorf("%s %s: %v", name, kind, err)
			}
			if took < limit/2 || took > limit+slack {
				t.Errorf("%s %s ended after %s, the limit is %s", name, kind, took, limit)
			}
		}
	}
}

// TestFaultTwoClusters: two clients of one process, alike in group and instance name, keep to their
// own clusters, and one that ends does not disturb the other.
func TestFaultTwoClusters(t *testing.T) {
	// Fault 20: clusters shared an instance or a list of name servers, and routes went stale.
	t.Parallel()
	one, two := scripttest.NewCluster(t, 1), scripttest.NewCluster(t, 1)
	var clients []*client.Client
	for _, s := range []*scripttest.Cluster{one, two} {
		s.SetTopic("t", 1)
		c, err := client.New([]string{s.NameServer.Addr}, client.WithInstanceName("same"))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	var producers []*client.Producer
	for i, c := range clients {
		p := newProducer(t, c)
		producers = append(producers, p)
		for range i + 1 {
			if _, err := p.Send(within(t), text("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := len(one.Brokers[0].Records("t", 0)), len(two.Brokers[0].Records("t", 0)); a != 1 || b != 2 {
		t.Errorf("the clusters have %d and %d messages, want 1 and 2", a, b)
	}
	if err := clients[0].Close(within(t)); err != nil {
		t.Error(err)
	}
	if _, err := producers[1].Send(within(t), text("x")); err != nil {
		t.Errorf("after the other client ended: %v", err)
	}
	if err := clients[1].Close(within(t)); err != nil {
		t.Error(err)
	}
}

// TestFaultNoisyLogger: nothing is printed without a logger, and each client has its own. It is not
// parallel: it watches the process's output.
func TestFaultNoisyLogger(t *testing.T) {
	// Fault 23: one logger for the whole package, which wrote to standard output by itself.
	s, _ := cluster(t, 1)
	s.SetTopic("t", 1)
	use := func(opts ...client.Option) {
		c := newClient(t, "127.0.0.1:1;"+s.NameServer.Addr, opts...)
		p := newProducer(t, c, client.WithSendTimeout(50*time.Millisecond))
		_, _ = p.Send(within(t), text("x"))
		_, _ = p.Send(within(t), &client.Message{Topic: "absent%", Body: []byte("x")})
		_ = p.SendAsync(within(t), text("x"), func(client.SendResult, error) { panic("user") })
		_ = c.Close(within(t))
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := os.Stdout, os.Stderr
	defaultLogger := slog.Default()
	os.Stdout, os.Stderr = write, write
	slog.SetDefault(slog.New(slog.NewTextHandler(write, nil)))
	use()
	os.Stdout, os.Stderr = stdout, stderr
	slog.SetDefault(defaultLogger)
	_ = write.Close()
	if printed, _ := io.ReadAll(read); len(printed) > 0 {
		t.Errorf("printed without a logger: %s", printed)
	}
	var one, two bytes.Buffer
	use(client.WithLogger(slog.New(slog.NewTextHandler(&one, nil))))
	use(client.WithLogger(slog.New(slog.NewTextHandler(&two, nil))))
	for _, b := range []*bytes.Buffer{&one, &two} {
		if n := strings.Count(b.String(), "panic in a send callback"); n != 1 {
			t.Errorf("the panic was logged %d times:\n%s", n, b)
		}
	}
}

// TestFaultTransactionContext: the caller's context reaches the local transaction, with its values
// and its end; the checker's ends with the producer.
func TestFaultTransactionContext(t *testing.T) {
	// Fault 24: listeners of transactions got no context.
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := newAsking(s.Brokers[0])
	checking, ended := make(chan struct{}), make(chan error, 1)
	tp, err := c.NewTransactionProducer("pg",
		func(ctx context.Context, _ *client.Received) client.TxState {
			close(checking)
			<-ctx.Done()
			ended <- ctx.Err()
			return client.TxUnknown
		})
	if err != nil {
		t.Fatal(err)
	}
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(within(t), key{}, 7))
	_, err = tp.Transact(ctx, text("x"), func(ctx context.Context, _ *client.Tx) error {
		cancel()
		if ctx.Value(key{}) != 7 {
			t.Error("the context's value is missing")
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// It was rolled back although its context had ended.
	if len(b.ends) != 1 || b.ends[0].CommitOrRollback != protocol.TransactionRollback {
		t.Errorf("ends %+v", b.ends)
	}
	b.check(t, "pg", "id")
	<-checking
	short, stop := context.WithTimeout(within(t), 20*time.Millisecond)
	defer stop()
	if err := tp.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the checker's context did not end")
	}
}

// TestFaultRaces uses everything at once; it is the race detector that fails it.
func TestFaultRaces(t *testing.T) {
	// Fault 25: data races.
	t.Parallel()
	s := scripttest.NewCluster(t, 2)
	s.SetTopic("t", 2)
	var h spy
	c := newClient(t, s.NameServer.Addr, client.WithHooks(&h, &sendSpy{}))
	ctx := within(t)
	p := newProducer(t, c, client.WithLinger(time.Millisecond, 1<<10), client.WithTrace("traces"),
		client.WithLatencyFaultTolerance(true), client.WithBuffer(100, 1<<20))
	tp, err := c.NewTransactionProducer("tg", commits)
	if err != nil {
		t.Fatal(err)
	}
	newAsking(s.Brokers[0])
	newAsking(s.Brokers[1])
	shared := &client.Message{
		Topic: "t", Body: []byte("shared"), Keys: []string{"k"}, Properties: map[string]string{"a": "b"},
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 30 {
				switch (g + i) % 9 {
				case 0:
					_, _ = p.Send(ctx, shared)
				case 1:
					_ = p.SendAsync(ctx, shared, func(client.SendResult, error) {})
				case 2:
					_, _ = p.SendBatch(ctx, shared, shared, text("x"))
				case 3:
					_ = p.SendOneWay(ctx, shared)
				case 4:
					_, _ = tp.Transact(ctx, shared, func(context.Context, *client.Tx) error { return nil })
				case 5:
					_, _ = c.Queues(ctx, "t")
				case 6:
					s.Brokers[g%2].Refuse(remoting.SystemBusy, 1)
					s.Brokers[g%2].Drop()
				case 7:
					_ = p.Flush(ctx)
				default:
					ordered := *shared
					ordered.OrderingKey = fmt.Sprint(i)
					_ = p.TrySendAsync(ctx, &ordered, nil)
				}
			}
		})
	}
	wg.Wait()
	_ = p.Close(ctx)
}

// sendSpy adds a property to each message.
type sendSpy struct{ sends, ends, buffers atomic.Int32 }

func (s *sendSpy) OnSend(ctx context.Context, m *client.Message) context.Context {
	s.sends.Add(1)
	m.Properties["traceparent"] = fmt.Sprint("00-", s.sends.Load())
	return ctx
}

func (s *sendSpy) OnSent(context.Context, *client.Message, client.SendResult, error) { s.ends.Add(1) }

func (s *sendSpy) OnBuffer(int, int) { s.buffers.Add(1) }

// TestFaultOneStatusForABatch: of a batch to two topics the part that is refused fails alone.
func TestFaultOneStatusForABatch(t *testing.T) {
	// Fault 27: a batch had one status for all its messages.
	t.Parallel()
	s, c := cluster(t, 1)
	p := newProducer(t, c, client.WithRetries(0))
	ms := []*client.Message{
		{Topic: "good", Body: []byte("0")},
		{Topic: "good", Body: []byte("1")},
		{Topic: "bad topic", Body: []byte("2")},
		{Topic: "good", Body: nil},
		{Topic: "good", Body: []byte("4")},
		{Topic: "good", OrderingKey: "k", Body: []byte("5")},
	}
	results, errs := p.SendBatch(within(t), ms...)
	for i := range ms {
		if bad := i == 2 || i == 3; bad != (errs[i] != nil) || bad != (results[i].Status == 0) {
			t.Errorf("message %d: %+v, %v", i, results[i], errs[i])
		}
	}
	if results[1].Offset != results[0].Offset+1 || results[0].ID == results[1].ID {
		t.Errorf("results %+v", results[:2])
	}
	s.Brokers[0].Refuse(remoting.FlowControl, 1)
	_, errs = p.SendBatch(within(t), text("a"), text("b"))
	if !errors.Is(errs[0], client.ErrFlowControl) || !errors.Is(errs[1], client.ErrFlowControl) {
		t.Errorf("refused batch: %v", errs)
	}
}

// TestFaultCompressionEmptiesBody: bodies of all kinds come back from each codec as they were, and the
// caller's body is not touched.
func TestFaultCompressionEmptiesBody(t *testing.T) {
	// Fault 27: a compressed message arrived with an empty body.
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	bodies := map[string][]byte{
		"text": bytes.Repeat([]byte("hello "), 5000), "zeroes": make([]byte, 1<<20),
		"one": {7}, "limit": bytes.Repeat([]byte{1, 2}, 2048), "random": make([]byte, 100_000),
	}
	for i := range bodies["random"] {
		bodies["random"][i] = byte(random.Uint32())
	}
	for _, codec := range []client.Codec{client.Zlib, client.LZ4, client.Zstd} {
		s, c := cluster(t, 1)
		s.SetTopic("t", 1)
		p := newProducer(t, c, client.WithCompression(codec, 5, 1))
		for name, body := range bodies {
			before := bytes.Clone(body)
			m := &client.Message{Topic: "t", Tag: name, Body: body}
			if _, err := p.Send(within(t), m); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Body, before) {
				t.Errorf("codec %d changed the caller's body %s", codec, name)
			}
		}
		r := newReader(t, c, "", client.WithSubscription("t", client.All()),
			client.WithStart(client.Earliest))
		for _, m := range poll(t, r, len(bodies)) {
			if !bytes.Equal(m.Body, bodies[m.Tag]) {
				t.Errorf("codec %d: body %s of %d bytes came back with %d", codec, m.Tag,
					len(bodies[m.Tag]), len(m.Body))
			}
		}
	}
}

// TestFaultReflection: the client needs the standard library, this module and two compression
// libraries, none of which looks inside the runtime.
func TestFaultReflection(t *testing.T) {
	// Fault 30: a reflection library broke the client with a new release of Go.
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		known := false
		for _, prefix := range []string{
			"github.com/skylarkmq/skylark/", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4",
		} {
			known = known || strings.HasPrefix(pkg, prefix)
		}
		if !known {
			t.Errorf("the client imports %s", pkg)
		}
	}
}
