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
)

// Tags choose, and what a handler says decides about each message.
func olderRetries(t *testing.T, o *older) {
	topic, group, p := o.topic(t, 2), name(t, "CG"), o.producer(t)
	for i, body := range []string{"table", "soon", "dead", "limit", "skip", "fine", "other"} {
		tag := []string{"x", "y"}[i%2]
		if body == "other" {
			tag = "z"
		}
		if _, err := p.Send(o.ctx, &client.Message{Topic: topic, Tag: tag, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	k := join(t, o.at, group, func(_ context.Context, m *client.Received) error {
		switch body := string(m.Body); {
		case body == "limit":
			return errors.New("always")
		case body == "dead":
			return client.DeadLetter(errors.New("never"))
		case body == "skip":
			return client.Skip(nil)
		case body == "table" && m.Attempt == 1:
			return errors.New("some error")
		case body == "soon" && m.Attempt < 3:
			return client.RetryAfter(time.Second, nil)
		}
		return nil
	}, client.WithSubscription(topic, client.Tags("x", "y")), client.WithMaxRetries(1))
	want := map[string]int{"table": 2, "soon": 2, "dead": 1, "limit": 2, "skip": 1, "fine": 1}
	dead := admin.DeadLetterTopic(group)
	eventually(t, 30*time.Second, func() error {
		got := counts(k.received())
		for body, n := range want {
			if got[body] != n {
				return fmt.Errorf("%s was delivered %d times, want %d", body, got[body], n)
			}
		}
		status, err := o.admin.TopicStatus(o.ctx, dead)
		var n int64
		for _, q := range status.Queues {
			n += q.Max - q.Min
		}
		if err != nil || n != 3 { // dead, limit, and soon, which asked for more tries than there are
			return fmt.Errorf("%d dead letters, %w", n, err)
		}
		return nil
	})
	for _, m := range k.received() {
		retry := m.Source.Topic == admin.RetryTopic(group)
		if m.Topic != topic || retry != (m.Attempt > 1) || m.Tag == "z" {
			t.Errorf("delivery %+v", m)
		}
	}
}

// Two members share the queues, one message of a queue at a time, in order over failures.
func olderOrdered(t *testing.T, o *older) {
	topic, group, p := o.topic(t, 4), name(t, "CG"), o.producer(t)
	var mu sync.Mutex
	done := map[string][]string{}
	failed := map[string]bool{}
	handle := func(_ context.Context, m *client.Received) error {
		mu.Lock()
		defer mu.Unlock()
		if body := string(m.Body); body == "k1-5" && !failed[body] {
			failed[body] = true
			return client.RetryAfter(100*time.Millisecond, errors.New("once"))
		}
		done[m.OrderingKey] = append(done[m.OrderingKey], string(m.Body))
		return nil
	}
	opts := []client.ConsumerOption{
		client.WithSubscription(topic, client.All()), client.WithOrdered(false),
	}
	one, two := join(t, o.at, group, handle, opts...), join(t, o.at, group, handle, opts...)
	eventually(t, 20*time.Second, func() error {
		a, b := one.queues(topic), two.queues(topic)
		if len(a) != 2 || len(b) != 2 || len(distinctInts(append(a, b...))) != 4 {
			return fmt.Errorf("queues %v and %v", a, b)
		}
		return nil
	})
	want := map[string][]string{}
	for i := range 20 {
		for k := range 5 {
			key := fmt.Sprint("k", k)
			body := fmt.Sprint(key, "-", i)
			want[key] = append(want[key], body)
			m := &client.Message{Topic: topic, OrderingKey: key, Body: []byte(body)}
			if _, err := p.Send(o.ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, 20*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		for key, list := range want {
			if !slices.Equal(done[key], list) {
				return fmt.Errorf("key %s: %v", key, done[key])
			}
		}
		return nil
	})
	two.stop(t)
	eventually(t, 10*time.Second, func() error {
		if a := one.queues(topic); len(a) != 4 {
			return fmt.Errorf("the one that is left has queues %v", a)
		}
		return nil
	})
}

// The broker evaluates conditions, and refuses one that does not parse.
func olderSQL(t *testing.T, o *older) {
	topic, p := o.topic(t, 2), o.producer(t)
	k := join(t, o.at, name(t, "CG"), nil,
		client.WithSubscription(topic, client.SQL("n > 3 AND colour = 'red'")))
	for i := range 8 {
		if _, err := p.Send(o.ctx, &client.Message{
			Topic: topic, Body: []byte(fmt.Sprint(i)), Properties: map[string]string{
				"n": fmt.Sprint(i), "colour": []string{"red", "blue"}[i%2],
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, func() error { return each(counts(k.received()), []string{"4", "6"}, 1) })
	bad, err := o.c.NewConsumer(name(t, "BAD"), client.WithSubscription(topic, client.SQL("n >")))
	if err != nil {
		t.Fatal(err)
	}
	var be *client.BrokerError
	err = bad.Run(o.ctx, func(context.Context, *client.Received) error { return nil })
	if !errors.As(err, &be) {
		t.Errorf("a condition that does not parse: %v", err)
	}
}

// Each member gets all messages, and goes on where it was.
func olderBroadcast(t *testing.T, o *older) {
	topic, group, p := o.topic(t, 2), name(t, "CG"), o.producer(t)
	enter := func(name string, store client.OffsetStore) *member {
		return join(t, o.at, group, nil, client.WithSubscription(topic, client.All()),
			client.WithBroadcast(name, store))
	}
	first, second := client.NewFileOffsets(t.TempDir()), client.NewFileOffsets(t.TempDir())
	one, two := enter("one", first), enter("two", second)
	want := numbered("m", 20)
	o.send(t, p, topic, want...)
	for _, m := range []*member{one, two} {
		eventually(t, 20*time.Second, func() error { return each(counts(m.received()), want, 1) })
	}
	one.stop(t)
	o.send(t, p, topic, "later")
	again := enter("one", first)
	eventually(t, 20*time.Second, func() error {
		return each(counts(again.received()), []string{"later"}, 1)
	})
}

// Positions are stored, found again, and can be moved.
func olderReader(t *testing.T, o *older) {
	topic, group, p := o.topic(t, 1), name(t, "CG"), o.producer(t)
	o.send(t, p, topic, numbered("m", 10)...)
	q := client.Queue{Topic: topic, Broker: o.at.BrokerName}
	r := o.reader(t, group, topic)
	first := o.poll(t, r, 4)
	if err := r.Commit(o.ctx, first...); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(o.ctx); err != nil {
		t.Fatal(err)
	}
	at, err := o.admin.Offset(o.ctx, group, q)
	if err != nil || at != 4 {
		t.Fatalf("stored offset %d, %v", at, err)
	}
	r = o.reader(t, group, topic)
	if m := o.poll(t, r, 1)[0]; string(m.Body) != "m4" {
		t.Errorf("the next reader begins at %s", m.Body)
	}
	if lag, err := r.Lag(o.ctx); err != nil || lag[q] < 5 || lag[q] > 6 {
		t.Errorf("lag %v, %v", lag, err)
	}
	for _, step := range []struct {
		move func() error
		want string
	}{
		{func() error { return r.Seek(o.ctx, q, 8) }, "m8"},
		{func() error { return r.SeekTime(o.ctx, q, first[0].StoredAt.Add(-time.Millisecond)) }, "m0"},
		{func() error { return r.SeekTime(o.ctx, q, time.UnixMilli(0)) }, "m0"},
	} {
		if err := step.move(); err != nil {
			t.Fatal(err)
		}
		if m := o.poll(t, r, 1)[0]; string(m.Body) != step.want {
			t.Errorf("read %s, want %s", m.Body, step.want)
		}
	}
	if err := r.Close(o.ctx); err != nil {
		t.Error(err)
	}
}
