// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestConsumerFlow: a queue is not fetched on while it holds too many bytes, or while its oldest
// message is too far behind its newest; all of it comes in the end, and the position never passes
// what is not done.
func TestConsumerFlow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason      string
		messages    int
		body        int
		prefetch    client.ConsumerOption
		stuck       func(m *client.Received) bool
		least, most int // pulls until it stops
	}{
		// An answer has 32 messages: the first is more than the bound.
		{
			"bytes", 100, 1000, client.WithPrefetch(1000, 10_000),
			func(*client.Received) bool { return true }, 1, 1,
		},
		{
			"span", 5000, 1, client.WithPrefetch(100_000, 1<<20),
			func(m *client.Received) bool { return m.Offset == 0 }, 63, 64,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := scripttest.NewCluster(t, 1)
			log := &hookLog{}
			c := newClient(t, s.NameServer.Addr, client.WithHooks(log))
			s.SetTopic("t", 1)
			b := s.Brokers[0]
			for range tc.messages {
				b.Put("t", 0, 0, make([]byte, tc.body), nil)
			}
			release := make(chan struct{})
			box := newInbox()
			running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
				if tc.stuck(m) {
					<-release
				}
				box.add(m)
				return nil
			}, all("t"), fromFirst(), tc.prefetch, client.WithConcurrency(40))
			eventually(t, "the queue waits", func() bool {
				return log.has("throttle t/broker-0/0 " + tc.reason)
			})
			pulls := b.Count(remoting.PullMessage) // none of them of the retry topic, which is not there
			if pulls < tc.least || pulls > tc.most {
				t.Errorf("%d pulls until it waits, want %d to %d", pulls, tc.least, tc.most)
			}
			if at := b.Offset("g", "t", 0); at > 0 {
				t.Errorf("position %d passes the first message", at)
			}
			close(release)
			box.await(t, tc.messages)
			running.stop()
			if at := b.Offset("g", "t", 0); at != int64(tc.messages) {
				t.Errorf("position %d in the end", at)
			}
		})
	}
}

// TestConsumerPause: a paused topic hands out neither what was fetched nor what comes; other topics
// go on.
func TestConsumerPause(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("held", 1)
	s.SetTopic("free", 1)
	b := s.Brokers[0]
	put := func(topic string, n int) {
		for i := range n {
			b.Put(topic, 0, 0, []byte(fmt.Sprint(topic, i)), nil)
		}
	}
	put("held", 20)
	entered, release := make(chan struct{}, 100), make(chan struct{})
	var paused atomic.Bool
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		if m.Topic == "held" {
			if paused.Load() {
				t.Errorf("%s was handed out during the pause", m.Body)
			}
			entered <- struct{}{}
			<-release
		}
		box.add(m)
		return nil
	}, all("held"), all("free"), fromFirst(), client.WithConcurrency(2))
	<-entered
	<-entered
	running.k.Pause("held")
	paused.Store(true)
	close(release) // 18 others are in the cache
	put("held", 5)
	put("free", 10)
	box.await(t, 2+10)
	paused.Store(false)
	running.k.Resume("held")
	box.await(t, 25+10)
	running.stop()
}

// rooms has all of broker-0 and this client in one room.
type rooms struct{ self string }

func (r rooms) BrokerRoom(q client.Queue) string {
	return map[string]string{"broker-0": "north", "broker-1": "south"}[q.Broker]
}

func (r rooms) ClientRoom(id string) string {
	if id == r.self {
		return "north"
	}
	return "south"
}

// TestConsumerAssignors: a consumer has the queues that its assignor says, with a second member in the
// group that the broker names.
func TestConsumerAssignors(t *testing.T) {
	t.Parallel()
	fixed := client.Queue{Topic: "t", Broker: "broker-1", ID: 1}
	for name, tc := range map[string]struct {
		assignor func(self string) client.Assignor
		want     []string // empty: what the assignor says
	}{
		"averagely": {
			func(string) client.Assignor { return client.Averagely() },
			[]string{"t/broker-0/0", "t/broker-0/1", "t/broker-0/2", "t/broker-0/3"},
		},
		"by circle": {
			func(string) client.Assignor { return client.AveragelyByCircle() },
			[]string{"t/broker-0/0", "t/broker-0/2", "t/broker-1/0", "t/broker-1/2"},
		},
		"by configuration": {
			func(string) client.Assignor { return client.ByConfig(fixed) }, []string{"t/broker-1/1"},
		},
		"near by room": {
			func(self string) client.Assignor { return client.NearbyRoom(client.Averagely(), rooms{self}) },
			[]string{"t/broker-0/0", "t/broker-0/1", "t/broker-0/2", "t/broker-0/3"},
		},
		"consistent hash": {func(string) client.Assignor { return client.ConsistentHash() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := cluster(t, 2)
			s.SetTopic("t", 4)
			for _, b := range s.Brokers {
				b.AddMember("g", "zzz")
			}
			assignor := tc.assignor(c.ID())
			want := tc.want
			if want == nil {
				var queues []client.Queue
				for _, b := range s.Brokers {
					for id := range 4 {
						queues = append(queues, client.Queue{Topic: "t", Broker: b.Name, ID: id})
					}
				}
				for _, q := range assignor.Assign(c.ID(), []string{c.ID(), "zzz"}, queues) {
					want = append(want, q.String())
				}
			}
			got := make(chan []string, 8)
			running := consume(t, c, "g", nothing, all("t"), client.WithAssignor(assignor),
				client.WithRebalanceEvents(func(_ context.Context, qs []client.Queue) {
					var list []string
					for _, q := range qs {
						if !strings.HasPrefix(q.Topic, "%RETRY%") {
							list = append(list, q.String())
						}
					}
					got <- list
				}, nil))
			if list := <-got; !slices.Equal(list, want) {
				t.Errorf("got %v, want %v", list, want)
			}
			running.stop()
		})
	}
}
