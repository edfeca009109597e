// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// beats are the heartbeats that a scripted broker got, and what it answers.
type beats struct {
	mu     sync.Mutex
	got    []protocol.HeartbeatData
	first  map[net.Conn]bool // whether the first one of a connection left subscriptions out
	answer protocol.HeartbeatResponse
}

func (b *beats) serve(t *testing.T, s *scripttest.Broker) {
	t.Helper()
	members := s.Handler(remoting.HeartBeat)
	s.Handle(remoting.HeartBeat, func(r *scripttest.Request) *scripttest.Reply {
		var h protocol.HeartbeatData
		if err := protocol.Unmarshal(r.Body, &h); err != nil {
			t.Error(err)
		}
		reply := members(r)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got = append(b.got, h)
		if _, known := b.first[r.Conn]; !known {
			b.first[r.Conn] = h.WithoutSub
		}
		answer := b.answer
		reply.Header = &answer
		return reply
	})
}

// set says what is answered from now on, and forgets what came.
func (b *beats) set(support, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = protocol.HeartbeatResponse{SupportV2: support, SubChanged: changed}
	b.got = nil
}

// await waits for n heartbeats in a row that are short, or full.
func (b *beats) await(t *testing.T, what string, n int, short bool) (last protocol.HeartbeatData) {
	t.Helper()
	eventually(t, what, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.got) < n {
			return false
		}
		for _, h := range b.got[len(b.got)-n:] {
			subs := 0
			for _, c := range h.ConsumerDataSet {
				subs += len(c.SubscriptionDataSet)
			}
			if h.WithoutSub != short || short != (subs == 0) || len(h.ConsumerDataSet) != 1 {
				return false
			}
		}
		last = b.got[len(b.got)-1]
		return true
	})
	return last
}

// TestHeartbeatV2: subscriptions are left out once a broker has them, and told again when it asks, when
// they change, and when the connection is another one. A broker that cannot is told all each time.
func TestHeartbeatV2(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	s.SetTopic("t", 1)
	s.SetTopic("u", 1)
	b := beats{first: map[net.Conn]bool{}}
	b.set(false, false)
	b.serve(t, s.Brokers[0])
	c := newClient(t, s.NameServer.Addr, client.WithHeartbeatV2(), client.WithBeatEvery(5*time.Millisecond))
	k := consume(t, c, "g", nothing, client.WithSubscription("t", client.All()))
	defer k.stop()
	first := b.await(t, "a broker that cannot", 4, false)
	if first.HeartbeatFingerprint == 0 {
		t.Error("no fingerprint")
	}
	b.set(true, false)
	if h := b.await(t, "short ones", 4, true); h.HeartbeatFingerprint != first.HeartbeatFingerprint {
		t.Errorf("fingerprint %d, then %d", first.HeartbeatFingerprint, h.HeartbeatFingerprint)
	}
	b.set(true, true)
	b.await(t, "full ones when the broker asks", 4, false)
	b.set(true, false)
	b.await(t, "short ones again", 4, true)
	if err := k.k.Subscribe("u", client.All()); err != nil {
		t.Fatal(err)
	}
	h := b.await(t, "short ones of two topics", 2, true)
	eventually(t, "another fingerprint", func() bool {
		h = b.await(t, "short ones", 1, true)
		return h.HeartbeatFingerprint != first.HeartbeatFingerprint
	})
	b.mu.Lock()
	told := false
	for _, full := range b.got {
		told = told || !full.WithoutSub && full.HeartbeatFingerprint == h.HeartbeatFingerprint
	}
	b.mu.Unlock()
	if !told {
		t.Error("the broker was not told of the second topic before it was left out")
	}
	for n := range 5 {
		s.Brokers[0].Drop()
		eventually(t, "a full one over a new connection, then short ones", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.first) > n+1 && len(b.got) > 0 && b.got[len(b.got)-1].WithoutSub
		})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn, short := range b.first {
		if short {
			t.Errorf("the first heartbeat from %s has no subscriptions", conn.RemoteAddr())
		}
	}
}

// TestE2EHeartbeatV2: a broker that was killed and knows no member any more is told the subscriptions
// again by clients that leave them out.
func TestE2EHeartbeatV2(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopic("t", 1))
	c := cluster.Client(t, client.WithHeartbeatV2(), client.WithBeatEvery(20*time.Millisecond))
	got := make(chan string, 100)
	k := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		got <- string(m.Body)
		return nil
	}, client.WithSubscription("t", client.Tags("a")), fromFirst())
	defer k.stop()
	a := admin.New(c)
	subscribed := func() bool {
		s, err := a.Subscription(within(t), "g", "t")
		return err == nil && s.Expression == "a"
	}
	eventually(t, "the subscription at the broker", subscribed)
	if err := cluster.Broker(0).Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Broker(0).Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the subscription at the broker after its death", subscribed)
	p := newProducer(t, c)
	eventually(t, "a message", func() bool {
		_, err := p.Send(within(t), &client.Message{Topic: "t", Tag: "a", Body: []byte("x")})
		return err == nil
	})
	select {
	case body := <-got:
		if body != "x" {
			t.Errorf("got %q", body)
		}
	case <-within(t).Done():
		t.Error("nothing arrives")
	}
}
