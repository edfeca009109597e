// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/remoting"
)

// numbered yields n messages, and runs at before each.
func numbered(n int, at func(i int)) iter.Seq[*client.Message] {
	return func(yield func(*client.Message) bool) {
		for i := range n {
			at(i)
			if !yield(text(fmt.Sprint(i))) {
				return
			}
		}
	}
}

// SendAll sends all of a sequence through a buffer that is far smaller, and says what is missing.
func TestSendAll(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	p := newProducer(t, c, client.WithBuffer(10, 1<<20))
	ctx := within(t)
	if err := p.SendAll(ctx, numbered(500, func(int) {})); err != nil {
		t.Fatal(err)
	}
	if n := s.Brokers[0].Count(remoting.SendMessageV2); n != 500 {
		t.Errorf("the broker got %d", n)
	}

	err := p.SendAll(ctx, func(yield func(*client.Message) bool) {
		_ = yield(text("a")) && yield(&client.Message{Topic: "t"}) && yield(text("b"))
	})
	var all *client.SendAllError
	if !errors.As(err, &all) || all.Taken != 3 || all.Stored != 2 || !errors.Is(err, client.ErrInvalidMessage) {
		t.Errorf("one without a body: %v", err)
	}

	ending, end := context.WithCancel(ctx)
	err = p.SendAll(ending, numbered(1_000_000, func(i int) {
		if i == 100 {
			end()
		}
	}))
	if !errors.As(err, &all) || !errors.Is(err, context.Canceled) || all.Taken > 1000 || all.Stored < 80 {
		t.Errorf("a context that ended: %v", err)
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	err = p.SendAll(ctx, numbered(10, func(int) {}))
	if !errors.As(err, &all) || !errors.Is(err, client.ErrClosed) || all.Taken != 1 || all.Stored != 0 {
		t.Errorf("a closed producer: %v", err)
	}
}

// Read and Consume refuse what NewReader and NewConsumer refuse, and leave nothing behind when they
// end: the group is free for the next one, and no goroutine stays (TestMain).
func TestReadAndConsume(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	for i := range 3 {
		s.Brokers[0].Put("t", 0, 0, fmt.Append(nil, i), nil)
	}
	ctx := within(t)
	topic := client.WithSubscription("t", client.All())
	first := client.WithStart(client.Earliest)
	loops := 0
	for m, err := range c.Read(ctx, "g", topic, first, client.WithConcurrency(2)) {
		if loops++; m != nil || err == nil {
			t.Errorf("an option of consumers: %v, %v", m, err)
		}
	}
	if loops != 1 {
		t.Errorf("%d errors", loops)
	}
	for range 2 { // the second one begins anew, since the first left without finishing a message
		for m, err := range c.Read(ctx, "g", topic, first) {
			if err != nil {
				t.Fatal(err)
			}
			if got := string(m.Body); got != "0" {
				t.Errorf("read %q", got)
			}
			break
		}
	}
	if err := c.Consume(ctx, "g", nil, topic); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("no handler: %v", err)
	}
	if err := c.Consume(ctx, "g", nothing, topic, client.WithConcurrency(0)); err == nil {
		t.Error("no concurrency was accepted")
	}
	running, stop := context.WithCancel(ctx)
	var got []string
	err := c.Consume(running, "g", func(_ context.Context, m *client.Received) error {
		if got = append(got, string(m.Body)); len(got) == 3 {
			stop()
		}
		return nil
	}, topic, first, client.WithConcurrency(1), client.WithDrainTimeout(5*time.Second))
	if err != nil || fmt.Sprint(got) != "[0 1 2]" {
		t.Errorf("consumed %v, %v", got, err)
	}
}

func nothing(context.Context, *client.Received) error { return nil }
