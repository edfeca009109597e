// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"slices"
	"testing"

	"github.com/skylarkmq/skylark/client"
)

// last always chooses the last queue.
type last struct{}

func (last) Select(_ *client.Message, queues []client.Queue) int { return len(queues) - 1 }

// TestSelectors: where messages go by each policy, by a selector of one's own, and by ordering key.
func TestSelectors(t *testing.T) {
	t.Parallel()
	const queues, n = 4, 400
	for name, tc := range map[string]struct {
		selector    client.Selector
		key         string
		least, most int // messages of a queue
		used        int // queues
	}{
		"round robin": {client.RoundRobin, "", n / queues, n / queues, queues},
		"random":      {client.Random, "", n / queues / 3, n / queues * 2, queues},
		"own":         {last{}, "", n, n, 1},
		// Without a policy of hashes a key still keeps its messages in one queue, Java's: -392709271 mod 4.
		"key":       {client.RoundRobin, "order-created", n, n, 1},
		"java hash": {client.HashJava, "order-created", n, n, 1},
		"fnv hash":  {client.HashFNV, "order-created", n, n, 1},
		"fnv alone": {client.HashFNV, "", n / queues / 3, n / queues * 2, queues},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := cluster(t, 1)
			s.SetTopic("t", queues)
			p := newProducer(t, c, client.WithSelector(tc.selector))
			for range n {
				m := text("x")
				m.OrderingKey = tc.key
				if err := p.SendAsync(within(t), m, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
			var counts []int
			for q := range int32(queues) {
				if got := len(s.Brokers[0].Records("t", q)); got > 0 {
					counts = append(counts, got)
				}
			}
			if len(counts) != tc.used || slices.Min(counts) < tc.least || slices.Max(counts) > tc.most {
				t.Errorf("messages by queue: %v, want %d to %d in %d queues", counts, tc.least, tc.most,
					tc.used)
			}
			at := map[string]int32{"own": queues - 1, "key": 3, "java hash": 3, "fnv hash": 2}
			if q, ok := at[name]; ok && len(s.Brokers[0].Records("t", q)) != n {
				t.Errorf("queue %d has %d messages", q, len(s.Brokers[0].Records("t", q)))
			}
		})
	}
}

// TestHashFNV holds the other hash to the values of Go's hash/fnv, which Go client v2 takes.
func TestHashFNV(t *testing.T) {
	t.Parallel()
	queues := make([]client.Queue, 1000)
	// FNV-1a of 32 bits: offset basis 2166136261, prime 16777619.
	for key, hash := range map[string]uint32{"a": 0xe40c292c, "foobar": 0xbf9cf968} {
		got := client.HashFNV.Select(&client.Message{OrderingKey: key}, queues)
		if got != int(hash%1000) {
			t.Errorf("%s: queue %d, want %d", key, got, hash%1000)
		}
	}
}
