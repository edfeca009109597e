// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/net/protocol"
)

// member is a consumer of package client that runs.
type member struct {
	client *client.Client
	k      *client.Consumer
	done   chan error

	mu   sync.Mutex
	got  []*client.Received
	held map[client.Queue]bool
}

// join runs a consumer of our client until stop. handle may be nil.
func join(
	t *testing.T, at target, group string, handle client.Handler, opts ...client.ConsumerOption,
) *member {
	t.Helper()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{client: c, done: make(chan error, 1), held: map[client.Queue]bool{}}
	events := client.WithRebalanceEvents(
		func(_ context.Context, qs []client.Queue) { m.hold(qs, true) },
		func(_ context.Context, qs []client.Queue) { m.hold(qs, false) })
	m.k, err = c.NewConsumer(group, append(opts, client.WithStart(client.Earliest), events)...)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		m.done <- m.k.Run(context.Background(), func(ctx context.Context, r *client.Received) error {
			m.mu.Lock()
			m.got = append(m.got, r)
			m.mu.Unlock()
			if handle == nil {
				return nil
			}
			return handle(ctx, r)
		})
	}()
	t.Cleanup(func() { m.stop(t) })
	return m
}

func (m *member) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.client.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func (m *member) hold(qs []client.Queue, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range qs {
		if m.held[q] = true; !held {
			delete(m.held, q)
		}
	}
}

func (m *member) queues(topic string) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []int
	for q := range m.held {
		if q.Topic == topic {
			list = append(list, q.ID)
		}
	}
	slices.Sort(list)
	return list
}

func (m *member) received() []*client.Received {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.got)
}

func (m *member) bodies() []string {
	var list []string
	for _, r := range m.received() {
		list = append(list, string(r.Body))
	}
	return list
}

// A Java push consumer and ours in one group share the queues; when one leaves, the other takes all
// at once. Concurrent and orderly.
func TestOurConsumerWithJava(t *testing.T) {
	t.Parallel()
	for _, orderly := range []bool{false, true} {
		t.Run(fmt.Sprintf("orderly=%v", orderly), func(t *testing.T) {
			at, jvm := servers(t), java(t)
			topic, group := name(t, "T"), name(t, "CG")
			createTopic(t, at, topic, 8)
			p := producer(t, jvm, at, nil)
			opts := []client.ConsumerOption{client.WithSubscription(topic, client.All())}
			if orderly {
				opts = append(opts, client.WithOrdered(false))
			}
			want := many(t, jvm, p, topic, "before", 24)
			ours := join(t, at, group, nil, opts...)
			eventually(t, 20*time.Second, func() error { return sameSet(ours.bodies(), want) })
			theirs := open(t, jvm, "push", args{
				"namesrv": at.NameServer, "group": group, "topic": topic, "orderly": orderly,
			})
			eventually(t, 30*time.Second, func() error {
				a, b := ours.queues(topic), queuesOf(t, jvm, theirs, topic)
				if len(a) != 4 || len(b) != 4 || len(distinctInts(append(a, b...))) != 8 {
					return fmt.Errorf("ours %v, theirs %v", a, b)
				}
				return nil
			})
			want = append(want, many(t, jvm, p, topic, "shared", 32)...)
			eventually(t, 20*time.Second, func() error {
				return sameSet(append(ours.bodies(), bodies(awaitPush(t, jvm, theirs, 1, 10))...), want)
			})
			theirBodies := bodies(awaitPush(t, jvm, theirs, 1, 10))
			run(t, jvm, "push.stop", args{"handle": theirs})
			left := time.Now()
			eventually(t, 30*time.Second, func() error {
				if a := ours.queues(topic); len(a) != 8 {
					return fmt.Errorf("ours has queues %v", a)
				}
				return nil
			})
			if took := time.Since(left); took > 5*time.Second {
				t.Errorf("taking over took %s", took)
			}
			want = append(want, many(t, jvm, p, topic, "after", 16)...)
			eventually(t, 20*time.Second, func() error {
				return sameSet(append(ours.bodies(), theirBodies...), want)
			})
			theirs = open(t, jvm, "push", args{
				"namesrv": at.NameServer, "group": group, "topic": topic, "orderly": orderly,
			})
			eventually(t, 30*time.Second, func() error {
				if n := len(queuesOf(t, jvm, theirs, topic)); n != 4 {
					return fmt.Errorf("theirs has %d queues", n)
				}
				return nil
			})
			ours.stop(t)
			eventually(t, 10*time.Second, func() error {
				if n := len(queuesOf(t, jvm, theirs, topic)); n != 8 {
					return fmt.Errorf("theirs has %d queues", n)
				}
				return nil
			})
			many(t, jvm, p, topic, "last", 16)
			eventually(t, 20*time.Second, func() error {
				got := bodies(awaitPush(t, jvm, theirs, 1, 10))
				for _, body := range numbered("last", 16) {
					if !slices.Contains(got, body) {
						return fmt.Errorf("%s has not come", body)
					}
				}
				return nil
			})
		})
	}
}

// What a handler says decides: again by the group's table, again after a time, dead letter, skip.
func TestOurConsumerRetry(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	for _, body := range []string{"table", "soon", "dead", "skip", "fine"} {
		must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "tags": "x", "keys": "k", "body": body})
	}
	began := time.Now()
	ours := join(t, at, group, func(_ context.Context, m *client.Received) error {
		if m.Attempt > 1 {
			return nil
		}
		switch string(m.Body) {
		case "table":
			return errors.New("some error")
		case "soon":
			return client.RetryAfter(time.Second, nil)
		case "dead":
			return client.DeadLetter(errors.New("never"))
		case "skip":
			return client.Skip(nil)
		}
		return nil
	}, client.WithSubscription(topic, client.Tags("x", "y")))
	dead := join(t, at, group+"-dead", nil, client.WithSubscription(protocol.DLQPrefix+group, client.All()))
	attempts := func(body string) []*client.Received {
		var list []*client.Received
		for _, m := range ours.received() {
			if string(m.Body) == body {
				list = append(list, m)
			}
		}
		return list
	}
	for _, c := range []struct {
		body  string
		after time.Duration
	}{{"soon", time.Second}, {"table", 10 * time.Second}} {
		eventually(t, 30*time.Second, func() error {
			if n := len(attempts(c.body)); n != 2 {
				return fmt.Errorf("%s was delivered %d times", c.body, n)
			}
			return nil
		})
		if took := time.Since(began); took < c.after || took > c.after+8*time.Second {
			t.Errorf("%s came again after %s, want %s", c.body, took, c.after)
		}
		first, second := attempts(c.body)[0], attempts(c.body)[1]
		if second.Attempt != 2 || second.Topic != topic || second.Tag != "x" || second.ID != first.ID ||
			second.Source.Topic != protocol.RetryPrefix+group {
			t.Errorf("second delivery of %s: %+v", c.body, second)
		}
	}
	eventually(t, 20*time.Second, func() error {
		if got := dead.bodies(); len(got) != 1 || got[0] != "dead" {
			return fmt.Errorf("dead letters %v", got)
		}
		return nil
	})
	for _, body := range []string{"dead", "skip", "fine"} {
		if n := len(attempts(body)); n != 1 {
			t.Errorf("%s was delivered %d times", body, n)
		}
	}
}

// A condition in SQL92 is the broker's to evaluate; one that does not parse fails at once.
func TestOurConsumerSQL(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer c.Close(ctx)
	p, err := c.NewProducer(name(t, "PG"))
	if err != nil {
		t.Fatal(err)
	}
	ours := join(t, at, name(t, "CG"), nil, client.WithSubscription(topic, client.SQL("n > 3 AND colour = 'red'")))
	for i := range 8 {
		colour := []string{"red", "blue"}[i%2]
		if _, err := p.Send(ctx, &client.Message{
			Topic: topic, Body: []byte(fmt.Sprint(i)),
			Properties: map[string]string{"n": fmt.Sprint(i), "colour": colour},
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, func() error { return sameSet(ours.bodies(), []string{"4", "6"}) })
	_ = jvm
	bad, err := c.NewConsumer(name(t, "BAD"), client.WithSubscription(topic, client.SQL("n >")))
	if err != nil {
		t.Fatal(err)
	}
	var be *client.BrokerError
	if err := bad.Run(ctx, func(context.Context, *client.Received) error { return nil }); !errors.As(err, &be) {
		t.Errorf("a condition that does not parse: %v", err)
	}
}

// Broker commands reach our consumer: reset of positions, status, running info, direct delivery.
func TestOurConsumerServesBroker(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	want := many(t, jvm, p, topic, "m", 10)
	ours := join(t, at, group, nil, client.WithSubscription(topic, client.All()))
	eventually(t, 20*time.Second, func() error { return sameSet(ours.bodies(), want) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	tool := admin.New(c)
	members, err := tool.Members(ctx, group)
	if err != nil || len(members.Members) != 1 {
		t.Fatalf("members %+v, %v", members, err)
	}
	id := members.Members[0].ClientID
	info, err := tool.RunningInfo(ctx, group, id, true)
	if err != nil {
		t.Fatal(err)
	}
	if info.Type != "CONSUME_PASSIVELY" || len(info.Queues) < 2 || info.Stacks == "" || len(info.Subscribed) != 2 {
		t.Errorf("running info %+v", info)
	}
	held, err := tool.HeldOffsets(ctx, topic, group, "")
	if err != nil || len(held) != 1 {
		t.Errorf("held offsets %v, %v", held, err)
	}
	if _, err := tool.ResetOffsets(ctx, admin.Reset{Group: group, Topic: topic, To: admin.AtStart()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 40*time.Second, func() error {
		if n := len(ours.received()); n != 20 {
			return fmt.Errorf("%d messages after a reset to the start", n)
		}
		return nil
	})
	first := ours.received()[0]
	m, err := tool.MessageByOffsetID(ctx, first.OffsetID)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tool.ConsumeDirectly(ctx, group, id, m)
	if err != nil || !res.OK() || len(ours.received()) != 21 {
		t.Errorf("direct delivery: %+v, %v", res, err)
	}
}

// Pop: brokers hand messages to any member; what is acknowledged does not come again, what fails does.
func TestOurConsumerPop(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 4)
	p := producer(t, jvm, at, nil)
	want := many(t, jvm, p, topic, "m", 40)
	var fails sync.Map
	handle := func(_ context.Context, m *client.Received) error {
		if string(m.Body) == "m7" {
			if _, again := fails.LoadOrStore("m7", true); !again {
				return client.RetryAfter(time.Second, errors.New("once"))
			}
		}
		return nil
	}
	opts := []client.ConsumerOption{
		client.WithSubscription(topic, client.All()), client.WithPop(10 * time.Second),
	}
	one, two := join(t, at, group, handle, opts...), join(t, at, group, handle, opts...)
	want = append(want, many(t, jvm, p, topic, "more", 40)...)
	got := func() []string { return append(one.bodies(), two.bodies()...) }
	eventually(t, 40*time.Second, func() error {
		if n := len(got()); n < len(want)+1 {
			return fmt.Errorf("%d deliveries", n)
		}
		return sameSet(got(), want)
	})
	want = append(want, many(t, jvm, p, topic, "last", 4)...)
	eventually(t, 30*time.Second, func() error { return sameSet(got(), want) })
	if n := len(got()); n != len(want)+1 {
		t.Errorf("%d deliveries of %d messages, one of which failed once", n, len(want))
	}
	for _, m := range append(one.received(), two.received()...) {
		if string(m.Body) == "m7" && m.Attempt > 1 && m.Topic != topic {
			t.Errorf("redelivery %+v", m)
		}
	}
}
