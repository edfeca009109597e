// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
)

// consuming is a Run under way.
type consuming struct {
	t    *testing.T
	k    *client.Consumer
	done chan error
}

// consume runs a consumer until the end of the test or stop.
func consume(
	t *testing.T, c *client.Client, group string, h client.Handler, opts ...client.ConsumerOption,
) *consuming {
	t.Helper()
	k, err := c.NewConsumer(group, opts...)
	if err != nil {
		t.Fatal(err)
	}
	r := &consuming{t: t, k: k, done: make(chan error, 1)}
	go func() { r.done <- k.Run(context.Background(), h) }()
	return r
}

// stop closes the consumer and expects a clean end.
func (r *consuming) stop() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.k.Close(ctx); err != nil {
		r.t.Errorf("close consumer: %v", err)
	}
	if err := <-r.done; err != nil {
		r.t.Errorf("run: %v", err)
	}
}

// inbox collects what handlers get.
type inbox struct {
	mu      sync.Mutex
	got     []*client.Received
	changed chan struct{}
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{})} }

func (b *inbox) add(m *client.Received) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, m)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *inbox) handle(_ context.Context, m *client.Received) error {
	b.add(m)
	return nil
}

func (b *inbox) bodies() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for _, m := range b.got {
		list = append(list, string(m.Body))
	}
	return list
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// await waits until n messages came.
func (b *inbox) await(t *testing.T, n int) []*client.Received {
	t.Helper()
	ctx := within(t)
	for {
		b.mu.Lock()
		got, changed := slices.Clone(b.got), b.changed
		b.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d of %d messages came", len(got), n)
		}
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func all(topic string) client.ConsumerOption {
	return client.WithSubscription(topic, client.All())
}

func fromFirst() client.ConsumerOption { return client.WithStart(client.Earliest) }

func sendAll(t *testing.T, c *client.Client, topic string, from, n int) (bodies []string) {
	t.Helper()
	p, err := c.NewProducer("sender")
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < from+n; i++ {
		body := fmt.Sprint(i)
		if _, err := p.Send(within(t), &client.Message{Topic: topic, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	if err := p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	return bodies
}

// covers reports whether all of want is in the inboxes.
func covers(want []string, boxes ...*inbox) bool {
	got := map[string]bool{}
	for _, b := range boxes {
		for _, body := range b.bodies() {
			got[body] = true
		}
	}
	for _, body := range want {
		if !got[body] {
			return false
		}
	}
	return true
}

// TestE2EConsume: two members of a group on the real broker share queues, one takes over at once
// when the other leaves, and nothing comes twice then since each stores its positions before it
// goes. (A member that joins may ask for positions before the other has stored them.)
func TestE2EConsume(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	c1, c2 := newClient(t, cluster.NameServer()), newClient(t, cluster.NameServer())
	want := sendAll(t, c1, "shared", 0, 200)
	one, two := newInbox(), newInbox()
	first := consume(t, c1, "g", one.handle, all("shared"), fromFirst())
	one.await(t, 200)
	second := consume(t, c2, "g", two.handle, all("shared"), fromFirst())
	round := 200
	eventually(t, "both members get messages", func() bool {
		want = append(want, sendAll(t, c1, "shared", round, 8)...)
		round += 8
		return two.count() >= 4
	})
	eventually(t, "all is handled", func() bool { return covers(want, one, two) })
	first.stop()
	later := sendAll(t, c2, "shared", round, 40)
	want = append(want, later...)
	eventually(t, "the one that stays gets all", func() bool { return covers(want, one, two) })
	second.stop()
	n := 0
	for _, body := range append(one.bodies(), two.bodies()...) {
		if slices.Contains(later, body) {
			n++
		}
	}
	if n != 40 {
		t.Errorf("%d messages came for 40 after one member left", n)
	}
	// What was done is stored: a new member gets only what is new.
	three := newInbox()
	third := consume(t, c1, "g", three.handle, all("shared"), fromFirst())
	sendAll(t, c2, "shared", 10_000, 1)
	if m := three.await(t, 1)[0]; string(m.Body) != "10000" || three.count() != 1 {
		t.Errorf("the group begins again with %s", m.Body)
	}
	third.stop()
}

// TestConsumerDrain: Run's context ends while handlers run. They finish, and positions behind them
// are stored.
func TestConsumerDrain(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 10)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	k, err := c.NewConsumer("g", all("t"), fromFirst(), client.WithConcurrency(4))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- k.Run(ctx, func(ctx context.Context, _ *client.Received) error {
			entered <- struct{}{}
			<-release
			return ctx.Err()
		})
	}()
	for range 4 {
		<-entered
	}
	cancel()
	eventually(t, "the consumer is draining", func() bool {
		return errors.Is(k.Subscribe("u", client.All()), client.ErrClosed)
	})
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if at := s.Brokers[0].Offset("g", "t", 0); at != 4 || len(entered) != 0 {
		t.Errorf("position %d after 4 handled messages, %d more were started", at, len(entered))
	}
	if list := s.Brokers[0].Members("g"); len(list) != 0 {
		t.Errorf("members %v are left", list)
	}
}

// TestConsumerOptions: what contradicts is named at once, all of it.
func TestConsumerOptions(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	_, err := c.NewConsumer("a b", client.WithConcurrency(0), client.WithPrefetch(0, 0),
		client.WithSubscription("bad topic", client.All()), client.WithHandlerTimeout(-1),
		client.WithAssignor(nil), client.WithMaxRetries(-2), client.WithSubscription("x", client.SQL("")))
	for _, part := range []string{
		"a b", "concurrency", "prefetch", "bad topic", "handler timeout", "assignor", "max retries", `"x"`,
	} {
		if err == nil || !containsText(err, part) {
			t.Errorf("%q is not told of: %v", part, err)
		}
	}
	for _, opts := range [][]client.ConsumerOption{
		{client.WithPop(time.Minute), client.WithOrdered(false)},
		{client.WithPop(time.Minute), client.WithBroadcast("", nil)},
		{client.WithPop(time.Hour)},
		{client.WithBroadcast("a/b", nil)},
	} {
		if _, err := c.NewConsumer("pop", opts...); err == nil {
			t.Error("contradicting options are taken")
		}
	}
	if _, err := c.NewReader("g", client.WithConcurrency(2)); err == nil {
		t.Error("a reader takes WithConcurrency")
	}
	k, err := c.NewConsumer("g")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewConsumer("g"); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("second consumer of a group: %v", err)
	}
	if err := k.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := k.Run(within(t), nil); err == nil {
		t.Error("run without handler")
	}
	if err := k.Run(within(t), newInbox().handle); !errors.Is(err, client.ErrClosed) {
		t.Errorf("run after close: %v", err)
	}
	if _, err := c.NewConsumer("g"); err != nil {
		t.Errorf("the group is free again: %v", err)
	}
}

func containsText(err error, part string) bool { return strings.Contains(err.Error(), part) }

// TestConsumerBatch: batches hold messages of one queue, in order; entries steer each message.
func TestConsumerBatch(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 2)
	fill(t, c, 40)
	k, err := c.NewConsumer("g", all("t"), fromFirst())
	if err != nil {
		t.Fatal(err)
	}
	box := newInbox()
	largest := 0
	go func() {
		_ = k.RunBatch(context.Background(), 8, func(_ context.Context, ms []*client.Received) []error {
			errs := make([]error, len(ms))
			for i, m := range ms {
				if i > 0 && (m.Source != ms[0].Source || m.Offset <= ms[i-1].Offset) {
					t.Errorf("%s %d follows %s %d", m.Source, m.Offset, ms[i-1].Source, ms[i-1].Offset)
				}
				if string(m.Body) == "7" && m.Attempt == 1 {
					errs[i] = errors.New("not yet")
					continue
				}
				box.mu.Lock()
				largest = max(largest, len(ms))
				box.mu.Unlock()
				box.add(m)
			}
			return errs
		})
	}()
	got := box.await(t, 40)
	if err := k.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if largest < 2 || largest > 8 {
		t.Errorf("batches of up to %d messages, at most 8 were asked for", largest)
	}
	for _, m := range got {
		if string(m.Body) == "7" && (m.Attempt != 2 || m.Topic != "t" ||
			m.Source.Topic != protocol.RetryPrefix+"g") {
			t.Errorf("second delivery: attempt %d, topic %s from %s", m.Attempt, m.Topic, m.Source)
		}
	}
}
