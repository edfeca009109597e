// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestLatencyFaultTolerance: a broker that failed is passed over until its time is over.
func TestLatencyFaultTolerance(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.SetTopic("t", 1)
	p := newProducer(t, c, client.WithLatencyFaultTolerance(false))
	bad := s.Brokers[0]
	bad.Refuse(remoting.SystemError, 1)
	for range 40 {
		if _, err := p.Send(within(t), text("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := bad.Count(remoting.SendMessageV2); n > 2 {
		t.Errorf("the broker that failed was asked %d times in 40 sends", n)
	}
	other := newProducer(t, c) // without tolerance the broker has its turn
	for range 4 {
		if _, err := other.Send(within(t), text("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := bad.Count(remoting.SendMessageV2); n < 3 {
		t.Errorf("without tolerance the broker was asked %d times", n)
	}
}

// TestGoAway: a broker that drains is asked once more, over a new connection, and no other broker.
func TestGoAway(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.SetTopic("t", 1)
	var mu sync.Mutex
	var addrs []string
	gone := map[string]bool{}
	for _, b := range s.Brokers {
		b.Handle(remoting.SendMessageV2, func(r *scripttest.Request) *scripttest.Reply {
			mu.Lock()
			defer mu.Unlock()
			addrs = append(addrs, b.Name+" "+r.Conn.RemoteAddr().String())
			if !gone[b.Name] {
				gone[b.Name] = true
				return &scripttest.Reply{Code: remoting.GoAway}
			}
			return &scripttest.Reply{Header: sendAnswer{}}
		})
	}
	p := newProducer(t, c)
	if _, err := p.Send(within(t), text("x")); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(addrs) != 2 || addrs[0] == addrs[1] || strings.Fields(addrs[0])[0] != strings.Fields(addrs[1])[0] {
		t.Errorf("requests came as %q, want two connections of one broker", addrs)
	}
}

type sendAnswer struct{}

func (sendAnswer) AppendFields(e *remoting.Encoder) {
	e.String("msgId", strings.Repeat("0", 32))
	e.String("queueId", "0")
	e.String("queueOffset", "0")
}

// TestAttemptsAreBounded: there are retries + 1 attempts, each at another broker while there are some.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1, 2, 3} {
		s, c := cluster(t, 3)
		s.SetTopic("t", 2)
		for _, b := range s.Brokers {
			b.Refuse(remoting.ServiceNotAvailable, 100)
		}
		p := newProducer(t, c, client.WithRetries(retries))
		_, err := p.Send(within(t), text("x"))
		var se *client.SendError
		if !errors.As(err, &se) || len(se.Attempts) != retries+1 {
			t.Fatalf("%d retries: %v", retries, err)
		}
		brokers := map[string]bool{}
		for _, a := range se.Attempts {
			brokers[a.Queue.Broker] = true
		}
		if want := min(retries+1, 3); len(brokers) != want {
			t.Errorf("%d retries asked %d brokers, want %d", retries, len(brokers), want)
		}
	}
}

// TestEndedContexts: every call that can wait ends with its context, whoever it waits for.
func TestEndedContexts(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("known", 1)
	p := newProducer(t, c)
	m := &client.Message{Topic: "known", Body: []byte("x")}
	if _, err := p.Send(within(t), m); err != nil {
		t.Fatal(err)
	}
	tp, err := c.NewTransactionProducer("tg", commits)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t, c, "g", all("known"), fromFirst())
	got := poll(t, r, 1)[0]
	silence := func(*scripttest.Request) *scripttest.Reply { return nil }
	mute := func(server *scripttest.Server, codes ...remoting.RequestCode) {
		for _, code := range codes {
			server.Handle(code, silence)
		}
	}
	mute(s.NameServer, remoting.GetRouteInfoByTopic, remoting.GetBrokerClusterInfo)
	mute(s.Brokers[0].Server, remoting.SendMessageV2, remoting.SendBatchMessage, remoting.GetMaxOffset,
		remoting.GetMinOffset, remoting.SearchOffsetByTimestamp)
	full := newProducer(t, c, client.WithBuffer(1, 1<<20), client.WithSendTimeout(time.Minute))
	if err := full.SendAsync(within(t), m, nil); err != nil {
		t.Fatal(err)
	}
	q := got.Source
	for name, call := range map[string]func(ctx context.Context) error{
		"Ping":       c.Ping,
		"Queues":     func(ctx context.Context) error { _, err := c.Queues(ctx, "new"); return err },
		"Send":       func(ctx context.Context) error { _, err := p.Send(ctx, m); return err },
		"Send, new":  func(ctx context.Context) error { _, err := p.Send(ctx, text("x")); return err },
		"SendAsync":  func(ctx context.Context) error { return full.SendAsync(ctx, m, nil) },
		"SendBatch":  func(ctx context.Context) error { _, errs := p.SendBatch(ctx, m, m); return errs[1] },
		"SendOneWay": func(ctx context.Context) error { return p.SendOneWay(ctx, text("x")) },
		"Flush":      full.Flush,
		"Request":    func(ctx context.Context) error { _, err := p.Request(ctx, m); return err },
		"Begin":      func(ctx context.Context) error { _, err := tp.Begin(ctx, m); return err },
		"Poll":       func(ctx context.Context) error { _, err := r.Poll(ctx, 1); return err },
		"Seek":       func(ctx context.Context) error { return r.Seek(ctx, q, 0) },
		"SeekTime":   func(ctx context.Context) error { return r.SeekTime(ctx, q, time.Now()) },
		"Lag":        func(ctx context.Context) error { _, err := r.Lag(ctx); return err },
	} {
		for _, limit := range []time.Duration{0, 50 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(within(t), limit)
			from := time.Now()
			err := call(ctx)
			if took := time.Since(from); took > 2*time.Second { // calls have 3 s by themselves
				t.Errorf("%s: ended %s after its context", name, took)
			}
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrNoReply) {
				t.Errorf("%s within %s: %v", name, limit, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	if err := full.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
}

// TestLaterCloses: a second Close waits no longer than its own context allows, beside a first one that
// has time.
func TestLaterCloses(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 2)
	p := newProducer(t, c)
	r := newReader(t, c, "rg", all("t"), fromFirst(), client.WithCommitEvery(time.Hour))
	poll(t, r, 1)
	poll(t, r, 1) // the first is done
	var storing atomic.Bool
	answer := make(chan struct{})
	store := s.Brokers[0].Handler(remoting.UpdateConsumerOffset)
	s.Brokers[0].Handle(remoting.UpdateConsumerOffset, func(r *scripttest.Request) *scripttest.Reply {
		storing.Store(true)
		<-answer
		return store(r)
	})
	resume := s.Brokers[0].Stall()
	if err := p.SendAsync(within(t), text("x"), nil); err != nil {
		t.Fatal(err)
	}
	firsts := make(chan error, 2)
	later := func(name string, closing func(context.Context) error, begun func() bool) {
		go func() { firsts <- closing(within(t)) }()
		eventually(t, name+" closes", begun)
		ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
		defer cancel()
		from := time.Now()
		if err := closing(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second close of the %s: %v", name, err)
		}
		if took := time.Since(from); took > 2*time.Second {
			t.Errorf("second close of the %s took %s", name, took)
		}
	}
	closed := func(err error) bool { return errors.Is(err, client.ErrClosed) }
	later("producer", p.Close, func() bool { return closed(p.SendOneWay(within(t), text("x"))) })
	later("reader", r.Close, storing.Load)
	resume()
	close(answer)
	for range 2 {
		if err := <-firsts; err != nil {
			t.Errorf("a first close: %v", err)
		}
	}
}

// TestLaterCloseHurries: of the contexts of several calls of a consumer's Close the first to end has
// handlers' contexts end, and all calls return then.
func TestLaterCloseHurries(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 1)
	entered := make(chan struct{})
	running := consume(t, c, "g", func(ctx context.Context, _ *client.Received) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}, all("t"), fromFirst())
	<-entered
	first := make(chan error, 1)
	go func() { first <- running.k.Close(within(t)) }()
	eventually(t, "the consumer closes", func() bool {
		return errors.Is(running.k.Unsubscribe("none"), client.ErrClosed)
	})
	ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	from := time.Now()
	for name, err := range map[string]error{"second": running.k.Close(ctx), "first": <-first} {
		// The handler may return a moment after it was given up.
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s close: %v", name, err)
		}
	}
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("closing took %s", took)
	}
	<-running.done
}

// TestErrorsSayWhatNext: the text of each error names its cause and one next step.
func TestErrorsSayWhatNext(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	p := newProducer(t, c, client.WithRetries(0), client.WithSendTimeout(time.Second))
	expect := func(what string, err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not say %q", what, err, w)
			}
		}
	}
	for code, words := range map[remoting.ResponseCode][]string{
		remoting.SystemBusy: {"SYSTEM_BUSY", "scripted refusal", "overloaded"}, remoting.NoPermission: {"credentials"},
		remoting.FlowControl: {"slower"}, remoting.SystemError: {"log"},
	} {
		s.Brokers[0].Refuse(code, 1)
		_, err := p.Send(within(t), text("x"))
		expect(code.String(), err, words...)
	}
	_, err := newProducer(t, c, client.WithDefaultTopicRoute(false)).Send(within(t),
		&client.Message{Topic: "absent", Body: []byte("x")})
	expect("absent topic", err, "absent", "create the topic")
	_, err = newProducer(t, newClient(t, "127.0.0.1:1")).Send(within(t), text("x"))
	expect("no name server", err, "127.0.0.1:1", "refused", "check the name server addresses")
	s.Brokers[0].Close()
	_, _ = p.Send(within(t), text("x")) // finds that the connection has ended
	_, err = p.Send(within(t), text("x"))
	expect("broker down", err, s.Brokers[0].Addr, "brokerIP1")
}

// TestSendHooks: hooks see each send once, whatever its kind, may add properties to a copy of their
// own, and hear of the buffer.
func TestSendHooks(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]client.ProducerOption{
		"plain": nil, "linger": {client.WithLinger(time.Millisecond, 1<<10)},
	} {
		s := scripttest.NewCluster(t, 1)
		s.SetTopic("t", 1)
		var h sendSpy
		c := newClient(t, s.NameServer.Addr, client.WithHooks(&h))
		p := newProducer(t, c, opts...)
		s.Brokers[0].Refuse(remoting.SystemBusy, 1) // attempts do not count
		m := text("x")
		if _, err := p.Send(within(t), m); err != nil {
			t.Fatal(err)
		}
		if err := p.SendAsync(within(t), m, nil); err != nil {
			t.Fatal(err)
		}
		if _, errs := p.SendBatch(within(t), m, m); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		if err := p.SendOneWay(within(t), m); err != nil {
			t.Fatal(err)
		}
		if err := p.SendAsync(within(t), &client.Message{Topic: "t"}, nil); err == nil {
			t.Error("a message without a body was taken")
		}
		if err := p.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
		if h.sends.Load() != 6 || h.ends.Load() != 6 || h.buffers.Load() < 2 || m.Properties != nil {
			t.Errorf("%s: %d sends, %d ends, %d of the buffer, message %+v", name, h.sends.Load(),
				h.ends.Load(), h.buffers.Load(), m)
		}
		r := newReader(t, c, "", all("t"), client.WithStart(client.Earliest))
		seen := map[string]bool{}
		for _, m := range poll(t, r, 5) {
			seen[m.Properties["traceparent"]] = true
		}
		if len(seen) != 5 {
			t.Errorf("%s: properties %v, want five different ones", name, seen)
		}
	}
}

// TestOneWayIsWritten: SendOneWay returns when the peer can have the bytes, and fails when nobody
// takes them.
func TestOneWayIsWritten(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	s.SetTopic("t", 1)
	var mu sync.Mutex
	written := 0
	c := newClient(t, s.NameServer.Addr, client.WithDialer(
		func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, addr)
			return countingConn{nc, func(n int) { mu.Lock(); written += n; mu.Unlock() }}, err
		}))
	p := newProducer(t, c)
	if _, err := p.Send(within(t), text("first")); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		mu.Lock()
		before := written
		mu.Unlock()
		if err := p.SendOneWay(within(t), &client.Message{Topic: "t", Body: make([]byte, 3000)}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if written-before < 3000 {
			t.Errorf("%d bytes were written when SendOneWay returned", written-before)
		}
		mu.Unlock()
	}
}

type countingConn struct {
	net.Conn
	count func(n int)
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.count(n)
	return n, err
}

// TestE2ENamespace: two namespaces with the same topic and group do not meet, on the real broker, and
// users see plain names.
func TestE2ENamespace(t *testing.T) {
	t.Parallel()
	server := enginetest.Start(t)
	for _, ns := range []string{"one", "two"} {
		c := newClient(t, server.NameServer(), client.WithNamespace(ns))
		p := newProducer(t, c)
		res, err := p.Send(within(t), text("from "+ns))
		if err != nil || res.Queue.Topic != "t" {
			t.Fatalf("%+v, %v", res, err)
		}
		r := newReader(t, c, "g", all("t"), client.WithStart(client.Earliest))
		m := poll(t, r, 1)[0]
		if m.Topic != "t" || string(m.Body) != "from "+ns || m.Source.Topic != "t" {
			t.Errorf("%s: received %+v", ns, m)
		}
	}
	plain := newClient(t, server.NameServer())
	if qs, err := plain.Queues(within(t), "one%t"); err != nil || len(qs) == 0 {
		t.Errorf("the topic's name at the broker: %v, %v", qs, err)
	}
}

// TestNamespaceProperty: messages say which namespace they are of.
func TestNamespaceProperty(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	c := newClient(t, s.NameServer.Addr, client.WithNamespace("ns"))
	if _, err := newProducer(t, c).Send(within(t), text("x")); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for q := range int32(4) {
		all = append(all, s.Brokers[0].Records("ns%t", q)...)
	}
	if len(all) != 1 {
		t.Fatalf("%d messages in the topic of the namespace", len(all))
	}
	v, err := record.Parse(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if ns, _ := record.Property(v.Properties(), "INSTANCE_ID"); string(ns) != "ns" {
		t.Errorf("properties %q", v.Properties())
	}
}

// TestWithEnv reads the environment only when asked to. It is not parallel: it sets variables.
func TestWithEnv(t *testing.T) {
	s := scripttest.NewCluster(t, 1)
	t.Setenv("NAMESRV_ADDR", s.NameServer.Addr)
	t.Setenv("ROCKETMQ_ZONE", "z1")
	if _, err := client.New(nil); err == nil {
		t.Error("the environment was read without WithEnv")
	}
	zone := make(chan string, 4)
	s.NameServer.Handle(remoting.GetBrokerClusterInfo, func(r *scripttest.Request) *scripttest.Reply {
		v, _ := r.Fields.Get("__ZONE_NAME")
		zone <- string(v)
		return &scripttest.Reply{}
	})
	c, err := client.New(nil, client.WithEnv())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(within(t)) }()
	if err := c.Ping(within(t)); err != nil {
		t.Error(err)
	}
	if z := <-zone; z != "z1" {
		t.Errorf("zone %q", z)
	}
	given := newClient(t, s.NameServer.Addr) // without WithEnv
	if err := given.Ping(within(t)); err != nil {
		t.Error(err)
	}
	if z := <-zone; z != "" {
		t.Errorf("zone %q without WithEnv", z)
	}
}

// TestCallbackThatBlocks: Close gives up on a callback that does not return, and says so.
func TestCallbackThatBlocks(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	p := newProducer(t, c)
	release := make(chan struct{})
	defer close(release)
	if err := p.SendAsync(within(t), text("x"), func(client.SendResult, error) { <-release }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	err := p.Close(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "callback") {
		t.Errorf("close: %v", err)
	}
}

// panicking is a user's code that panics wherever it is asked.
type panicking struct{}

func (panicking) Select(*client.Message, []client.Queue) int { panic("user") }
func (panicking) Credentials(context.Context) (client.Credentials, error) {
	panic("user")
}
func (panicking) Resolve(context.Context) ([]string, error) { panic("user") }

// TestUserPanics: a panic in what the user gave is an error of the call, on whatever goroutine it was.
func TestUserPanics(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	p := newProducer(t, c, client.WithSelector(panicking{}))
	got := make(chan error, 1)
	if err := p.SendAsync(within(t), text("x"), func(_ client.SendResult, err error) { got <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, client.ErrInvalidMessage) {
		t.Errorf("selector: %v", err)
	}
	s := scripttest.NewCluster(t, 1)
	signed := newClient(t, s.NameServer.Addr, client.WithCredentials(panicking{}))
	if err := signed.Ping(within(t)); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("credentials: %v", err)
	}
	lost, err := client.New(nil, client.WithResolver(panicking{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := lost.Ping(within(t)); !errors.Is(err, client.ErrNoNameServer) {
		t.Errorf("resolver: %v", err)
	}
	if err := lost.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// TestRouteIsRenewedAtOnce: after the answer that a topic does not exist, the route is asked for
// without waiting for its turn, and a broker that is new to it gets the messages.
func TestRouteIsRenewedAtOnce(t *testing.T) {
	t.Parallel()
	old, moved := scripttest.NewCluster(t, 1), scripttest.NewCluster(t, 1)
	old.SetTopic("t", 1)
	c := newClient(t, old.NameServer.Addr)
	p := newProducer(t, c)
	ctx := within(t)
	if _, err := p.Send(ctx, text("x")); err != nil {
		t.Fatal(err)
	}
	old.NameServer.Handle(remoting.GetRouteInfoByTopic, routeOver(old, moved, "t"))
	old.Brokers[0].Refuse(remoting.TopicNotExist, 1<<20)
	for ctx.Err() == nil {
		if _, err := p.Send(ctx, text("x")); err == nil {
			break
		}
	}
	if n := len(moved.Brokers[0].Records("t", 0)); n != 1 {
		t.Errorf("the new broker has %d messages, want 1", n)
	}
}

// throttled hears of brokers that ask for less.
type throttled struct{ heard chan string }

func (h throttled) OnThrottle(q client.Queue, reason string) { h.heard <- q.Topic + " " + reason }

func TestThrottleHook(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	h := throttled{make(chan string, 8)}
	c := newClient(t, s.NameServer.Addr, client.WithHooks(h))
	s.Brokers[0].Refuse(remoting.FlowControl, 1)
	if _, err := newProducer(t, c).Send(within(t), text("x")); !errors.Is(err, client.ErrFlowControl) {
		t.Errorf("got %v", err)
	}
	if got := <-h.heard; got != "t scripted refusal" {
		t.Errorf("heard %q", got)
	}
}

// TestHalfOpenConnection: a connection whose peer is gone without a word fails calls in their time and
// is replaced, so the next send is answered.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	s.SetTopic("t", 1)
	var mu sync.Mutex
	var broken bool
	conns := 0
	c := newClient(t, s.NameServer.Addr, client.WithDialer(
		func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, addr)
			if addr != s.Brokers[0].Addr || err != nil {
				return nc, err
			}
			mu.Lock()
			defer mu.Unlock()
			conns++
			first := conns == 1
			return swallowingConn{nc, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return first && broken
			}}, nil
		}))
	p := newProducer(t, c, client.WithSendTimeout(time.Second))
	if _, err := p.Send(within(t), text("x")); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	broken = true
	mu.Unlock()
	if _, err := p.Send(within(t), text("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("half open: %v", err)
	}
	if _, err := p.Send(within(t), text("x")); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// swallowingConn loses what is written while lost says so.
type swallowingConn struct {
	net.Conn
	lost func() bool
}

func (c swallowingConn) Write(b []byte) (int, error) {
	if c.lost() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
