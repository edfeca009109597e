// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// bigCluster is a broker that takes messages of up to 64 MiB.
func bigCluster(t *testing.T) *clienttest.Cluster {
	t.Helper()
	return clienttest.Start(t, clienttest.WithTopic("big", 1),
		clienttest.WithBrokerConfig("maxMessageSize", "67108864"),
		clienttest.WithBrokerConfig("mappedFileSizeCommitLog", "201326592"))
}

// random makes a message to the topic big that no compression makes smaller.
func random(size int) *client.Message {
	body := make([]byte, size)
	seed := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)})
	_, _ = seed.Read(body)
	return &client.Message{Topic: "big", Body: body}
}

// With WithMaxMessageSize messages of up to 64 MiB go out every way there is, and arrive.
func TestE2EMaxMessageSize(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := newClient(t, bigCluster(t).NameServer(), client.WithMaxMessageSize(most))
	p := newProducer(t, c, client.WithSendTimeout(30*time.Second),
		client.WithCompression(client.NoCompression, 0, 1))
	want := []*client.Message{random(most), random(17 << 20), random(1<<20 - 200), random(2 << 20)}
	if _, err := p.Send(ctx, want[0]); err != nil {
		t.Fatal(err)
	}
	if err := p.SendAsync(ctx, want[1], nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if _, errs := p.SendBatch(ctx, want[2:]...); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	_, err := p.Send(ctx, &client.Message{Topic: "big", Body: make([]byte, most+1)})
	if !errors.Is(err, client.ErrMessageTooLarge) || !strings.Contains(err.Error(), "67108864") {
		t.Errorf("a byte more: %v", err)
	}

	r := newReader(t, c, "", client.WithSubscription("big", client.All()),
		client.WithStart(client.Earliest))
	for i := range want {
		ms, err := r.Poll(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ms[0].Body, want[i].Body) {
			t.Errorf("read %d: %d bytes, want %d as sent", i, len(ms[0].Body), len(want[i].Body))
		}
	}
	k, err := c.NewConsumer("gc", client.WithSubscription("big", client.All()),
		client.WithStart(client.Earliest), client.WithConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	n := 0
	err = k.Run(ctx, func(_ context.Context, m *client.Received) error {
		if !bytes.Equal(m.Body, want[n].Body) {
			t.Errorf("consumed %d: %d bytes, want %d as sent", n, len(m.Body), len(want[n].Body))
		}
		if n++; n == len(want) {
			stop()
		}
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d messages consumed, %v", n, err)
	}
}

// Whoever is too small for a message is told which limit it is: the sender at once, the reader by
// Poll, the owner of a consumer in the log, and the sender whose broker takes less.
func TestE2EMessageAboveTheLimit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := bigCluster(t)
	big := newClient(t, cluster.NameServer(), client.WithMaxMessageSize(64<<20))
	p := newProducer(t, big, client.WithSendTimeout(30*time.Second),
		client.WithCompression(client.NoCompression, 0, 1))
	if _, err := p.Send(ctx, random(17<<20)); err != nil {
		t.Fatal(err)
	}
	names := func(what string, err error, words ...string) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not name %s", what, err, w)
			}
		}
	}
	var log logText
	small := newClient(t, cluster.NameServer(), log.option())
	_, err := newProducer(t, small).Send(ctx, random(4<<20+1))
	names("default client", err, "4194304", "WithMaxMessageSize")
	_, errs := newProducer(t, small).SendBatch(ctx, random(4<<20+1))
	names("its batch", errs[0], "4194304", "WithMaxMessageSize")
	_, err = small.NewProducer("lingering", client.WithLinger(0, 4<<20+1))
	names("its linger", err, "4194304", "WithMaxMessageSize")

	r := newReader(t, small, "", client.WithSubscription("big", client.All()),
		client.WithStart(client.Earliest))
	_, err = r.Poll(ctx, 1)
	names("default reader", err, "16777216", "WithMaxMessageSize")
	if err := r.Close(ctx); err != nil { // each try costs the connection that the consumer uses, too
		t.Error(err)
	}

	k := consume(t, small, "gc", func(context.Context, *client.Received) error { return nil },
		client.WithSubscription("big", client.All()), client.WithStart(client.Earliest))
	eventually(t, "a line about the limit", func() bool { return log.has("WithMaxMessageSize") })
	k.stop()

	modest := clienttest.Start(t, clienttest.WithTopic("big", 1))
	c := newClient(t, modest.NameServer(), client.WithMaxMessageSize(8<<20))
	_, err = newProducer(t, c, client.WithCompression(client.NoCompression, 0, 1)).Send(ctx, random(5<<20))
	names("broker with 4 MiB", err, "4194304", "maxMessageSize")
	if !errors.Is(err, client.ErrInvalidMessage) {
		t.Errorf("broker with 4 MiB: %v", err)
	}
	for _, n := range []int{0, -1, 64<<20 + 1} {
		_, err := client.New([]string{"127.0.0.1:1"}, client.WithMaxMessageSize(n))
		names("option", err, "max message size", "67108864")
	}
}
