// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// A group that one of two brokers knows is reset there, and the error names the other one.
func TestPartialFailureIsVisible(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithoutAutoCreate(), clienttest.WithBrokers(2),
		clienttest.WithTopic("t", 1))
	a := admin.New(cluster.Client(t))
	done, err := a.PutGroup(within(t), admin.NewGroup("g"), admin.AtBroker("broker-a"))
	if err != nil || len(done) != 1 || done[0].Broker.Addr != cluster.Broker(0).Addr() {
		t.Fatalf("group made at %v: %v", done, err)
	}
	moved, err := a.ResetOffsets(within(t), admin.Reset{Group: "g", Topic: "t", To: admin.AtEnd()})
	var partial *admin.PartialError
	if !errors.As(err, &partial) || partial.Asked != 2 || len(partial.Failed) != 1 ||
		partial.Failed[0].Broker.Name != "broker-b" {
		t.Fatalf("error %v, want a partial one of broker-b", err)
	}
	if !errors.Is(err, admin.ErrNoGroup) || !strings.Contains(err.Error(), "1 of 2 servers failed") ||
		!strings.Contains(err.Error(), "PutGroup") {
		t.Errorf("error %v, want ErrNoGroup with a next step", err)
	}
	if len(moved) != 1 || moved[0].Queue.Broker != "broker-a" {
		t.Errorf("moved %v, want the queue of broker-a", moved)
	}
	configs, err := a.GroupConfig(within(t), "g") // one that has it is enough to answer
	if err != nil || len(configs) != 1 || configs[0].Broker.Name != "broker-a" {
		t.Errorf("configuration %v: %v", configs, err)
	}
}

// A topic of two brokers is deleted at both, also when one comes back later with what it had.
func TestDeleteTopicEverywhere(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithBrokers(2), clienttest.WithTopics("t"))
	a := admin.New(cluster.Client(t))
	done, err := a.DeleteTopic(within(t), "t", "")
	if err != nil || len(done) != 3 {
		t.Fatalf("deleted at %v: %v, want two brokers and a name server", done, err)
	}
	if _, err := a.TopicRoute(within(t), "t"); !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("route after delete: %v", err)
	}
	if err := cluster.Broker(1).Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.TopicRoute(within(t), "t"); !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("route after delete and restart: %v", err)
	}
}

func TestErrorsSayWhyAndWhatNext(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t)
	c := cluster.Client(t)
	a := admin.New(c)
	check := func(what string, err, want error, next string) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), next) {
			t.Errorf("%s: %v, want a next step with %q", what, err, next)
		}
	}
	cancelled, cancel := context.WithCancel(within(t))
	cancel()
	_, err := a.Topics(cancelled)
	check("cancelled", err, context.Canceled, "")
	_, err = a.TopicStatus(within(t), "absent")
	check("absent topic", err, client.ErrNoRoute, "PutTopic")
	_, err = a.Members(within(t), "absent")
	check("absent group", err, admin.ErrNotOnline, "start a member")
	if err := cluster.StopNameServer(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Topics(within(t))
	check("no name server", err, client.ErrNoNameServer, "check the name server addresses")
	if err := c.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	_, err = a.Topics(within(t))
	check("closed", err, client.ErrClosed, "new client")
}

// A server that takes connections and never answers costs the timeout, not the context's time.
func TestSilentBrokerCostsTheTimeout(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := admin.New(cluster.Client(t), admin.WithTimeout(100*time.Millisecond))
	began := time.Now()
	_, err = a.BrokerConfig(within(t), admin.AtAddr(silent.Addr().String()))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "reachable") {
		t.Errorf("silent broker: %v, want a deadline with a next step", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// An offset id is dialled only when a name server knows a broker there.
func TestOffsetIDOfAStranger(t *testing.T) {
	t.Parallel()
	cluster, other := clienttest.Start(t), clienttest.Start(t, clienttest.WithTopics("t"))
	c := other.Client(t)
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := p.Send(within(t), &client.Message{Topic: "t", Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	mine := cluster.Client(t)
	_, err = admin.New(mine).MessageByOffsetID(within(t), sent.OffsetID)
	if !errors.Is(err, admin.ErrNoBroker) {
		t.Errorf("id of another cluster: %v, want ErrNoBroker", err)
	}
	m, err := admin.New(mine, admin.WithAnyAddress()).MessageByOffsetID(within(t), sent.OffsetID)
	if err != nil || string(m.Body) != "hello" {
		t.Errorf("with any address: %q, %v", m.Body, err)
	}
}

// What a reset stored is overwritten by SetOffset, though the broker drops plain commits meanwhile.
func TestSetOffsetAfterReset(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopic("t", 1), clienttest.WithGroups("g"))
	c := cluster.Client(t)
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := p.Send(within(t), &client.Message{Topic: "t", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	a := admin.New(c)
	q := client.Queue{Topic: "t", Broker: "broker-a"}
	moved, err := a.ResetOffsets(within(t), admin.Reset{Group: "g", Topic: "t", To: admin.AtEnd()})
	if err != nil || len(moved) != 1 || moved[0] != (admin.QueueOffset{Queue: q, Offset: 3}) {
		t.Fatalf("moved %v: %v", moved, err)
	}
	if err := a.SetOffset(within(t), "g", q, 1); err != nil {
		t.Fatal(err)
	}
	if at, err := a.Offset(within(t), "g", q); err != nil || at != 1 {
		t.Errorf("offset %d: %v, want 1", at, err)
	}
}

// A consumer that waits at the end of its queue goes back at once when its group is reset, not when
// its pull has waited its time.
func TestResetReachesWaitingConsumer(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopic("t", 1), clienttest.WithGroups("g"))
	c := cluster.Client(t)
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(within(t), &client.Message{Topic: "t", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	k, err := c.NewConsumer("g", client.WithSubscription("t", client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t))
	came := make(chan int64, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- k.Run(ctx, func(_ context.Context, m *client.Received) error {
			came <- m.Offset
			return nil
		})
	}()
	a := admin.New(c)
	q := client.Queue{Topic: "t", Broker: "broker-a"}
	<-came
	await(t, func() bool { // it is done and the next pull waits
		info, err := a.HeldOffsets(within(t), "t", "g", c.ID())
		return err == nil && info[c.ID()][q] == 1
	})
	began := time.Now()
	if _, err := a.ResetOffsets(within(t), admin.Reset{Group: "g", Topic: "t", To: admin.AtStart()}); err != nil {
		t.Fatal(err)
	}
	if at := <-came; at != 0 {
		t.Errorf("offset %d came, want 0", at)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s; the pull waited for 15 s", took)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// await waits for a condition, for 20 s.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("it does not come to hold")
		}
	}
}

// Name servers that a resolver finds are told too, also by the first call of a client.
func TestNameServersOfAResolver(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t)
	found := client.ResolverFunc(func(context.Context) ([]string, error) {
		return []string{cluster.NameServer()}, nil
	})
	c, err := client.New(nil, client.WithResolver(found))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(within(t))
	done, err := admin.New(c).PutKV(within(t), "space", "key", "value")
	if err != nil || len(done) != 1 || done[0].Broker.Addr != cluster.NameServer() {
		t.Errorf("told %v: %v", done, err)
	}
}

// A half message whose end nobody told is asked about again, and its transaction can still end.
func TestRecheckHalf(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopic("t", 1),
		clienttest.WithBrokerConfig("transactionTimeOut", "100"),
		clienttest.WithBrokerConfig("transactionCheckMax", "1"))
	c := cluster.Client(t)
	asked := make(chan string, 64)
	tp, err := c.NewTransactionProducer("pg",
		func(_ context.Context, m *client.Received) client.TxState {
			asked <- m.ID
			return client.TxUnknown
		})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := tp.Begin(within(t), &client.Message{Topic: "t", Body: []byte("half")})
	if err != nil {
		t.Fatal(err)
	}
	if id := <-asked; id != tx.ID {
		t.Errorf("asked about %s, want %s", id, tx.ID)
	}
	if err := admin.New(c).RecheckHalf(within(t), "t", tx.OffsetID); err != nil {
		t.Fatal(err)
	}
	if id := <-asked; id != tx.ID {
		t.Errorf("asked again about %s, want %s", id, tx.ID)
	}
}

// Where a new group begins is told with the reason: an empty queue and a new one, and one that the
// group has read.
func TestStartOffsets(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopic("t", 3), clienttest.WithGroups("g"))
	c := cluster.Client(t)
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	var queues [3]client.Queue
	for i := range queues {
		queues[i] = client.Queue{Topic: "t", Broker: "broker-a", ID: i}
	}
	for _, q := range queues[1:] {
		m := &client.Message{Topic: "t", Body: []byte("x"), Queue: &q}
		if _, err := p.Send(within(t), m); err != nil {
			t.Fatal(err)
		}
	}
	a := admin.New(c)
	if err := a.SetOffset(within(t), "g", queues[2], 1); err != nil {
		t.Fatal(err)
	}
	want := []admin.QueueStart{
		{Queue: queues[0], Reason: admin.StartByClient, Offset: -1},
		{Queue: queues[1], Max: 1, Reason: admin.StartYoung},
		{Queue: queues[2], Max: 1, Reason: admin.StartCommitted, Offset: 1},
	}
	got, err := a.StartOffsets(within(t), "g", "t")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := a.StartOffsets(within(t), "g", "none"); !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("no such topic: %v", err)
	}
}
