// SPDX-License-Identifier: Apache-2.0

package route_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/nameserver/route"
)

var seed = flag.Uint64("seed", 0, "seed of the model tests; 0 takes the time")

// slot is a process at one address. Each address has one name and one id here: role switches have
// tests of their own.
type slot struct {
	broker  route.Broker
	session route.Session
	seenMS  int64
	timeout int64
	up      bool
}

// model is what the table should show, kept as a list and searched from end to end.
type model struct {
	slots  []*slot
	topics map[string]map[string]bool // topic, broker name; entries outlive a data version
}

func newModel() *model {
	m := &model{topics: map[string]map[string]bool{}}
	for n := range 3 {
		for id := range int64(3) {
			m.slots = append(m.slots, &slot{broker: route.Broker{
				Cluster: fmt.Sprintf("C%d", n%2), Name: fmt.Sprintf("b%d", n),
				Addr: fmt.Sprintf("10.0.0.%d:%d", n, id), ID: id,
			}})
		}
	}
	return m
}

func (m *model) addrs(name string) map[int64]string {
	out := map[int64]string{}
	for _, s := range m.slots {
		if s.up && s.broker.Name == name {
			out[s.broker.ID] = s.broker.Addr
		}
	}
	return out
}

func (m *model) down(s *slot) {
	s.up = false
	if len(m.addrs(s.broker.Name)) > 0 {
		return
	}
	for topic, names := range m.topics {
		delete(names, s.broker.Name)
		if len(names) == 0 {
			delete(m.topics, topic)
		}
	}
}

func (m *model) register(s *slot, r *route.Registration) {
	s.up, s.session, s.seenMS, s.timeout = true, r.Session, r.NowMS, r.TimeoutMS
	lowest := s.broker.ID
	for id := range m.addrs(s.broker.Name) {
		lowest = min(lowest, id)
	}
	if s.broker.ID != lowest {
		return
	}
	for topic := range r.Topics {
		if m.topics[topic] == nil {
			m.topics[topic] = map[string]bool{}
		}
		m.topics[topic][s.broker.Name] = true
	}
}

func (m *model) check(t *testing.T, table *route.Table) {
	t.Helper()
	var topics []string
	for topic := range m.topics {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	if got := table.Topics(); !slices.Equal(topics, got) {
		t.Fatalf("topics %v, want %v", got, topics)
	}
	for topic, names := range m.topics {
		data, ok := table.Lookup(topic)
		if !ok || len(data.BrokerDatas) != len(names) || len(data.QueueDatas) != len(names) {
			t.Fatalf("route of %s: %+v, want brokers %v", topic, data, names)
		}
		for _, b := range data.BrokerDatas {
			if diff := cmp.Diff(m.addrs(b.BrokerName), b.BrokerAddrs); diff != "" {
				t.Fatalf("addresses of %s (-want +got):\n%s", b.BrokerName, diff)
			}
		}
	}
	live, clusters := 0, map[string]map[string]bool{}
	for _, s := range m.slots {
		if s.up {
			live++
			if clusters[s.broker.Cluster] == nil {
				clusters[s.broker.Cluster] = map[string]bool{}
			}
			clusters[s.broker.Cluster][s.broker.Name] = true
		}
	}
	if got := table.Brokers(); got != live {
		t.Fatalf("%d live brokers, want %d", got, live)
	}
	info := table.Clusters()
	if len(info.ClusterAddrTable) != len(clusters) {
		t.Fatalf("clusters %v, want %v", info.ClusterAddrTable, clusters)
	}
	for cluster, names := range info.ClusterAddrTable {
		if len(names) != len(clusters[cluster]) {
			t.Fatalf("cluster %s has %v, want %v", cluster, names, clusters[cluster])
		}
	}
}

// TestModelRoute compares random registrations, farewells, closed connections, heartbeats and
// expiry with a model.
func TestModelRoute(t *testing.T) {
	t.Parallel()
	start := *seed
	if start == 0 {
		start = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", start)
	for round := range uint64(20) {
		random := rand.New(rand.NewPCG(start, round))
		m, table, now := newModel(), route.New(route.Rules{}), int64(t0)
		for range 400 {
			now += random.Int64N(3000)
			m.step(random, table, now)
			m.check(t, table)
		}
	}
}

func (m *model) step(random *rand.Rand, table *route.Table, now int64) {
	s := m.slots[random.IntN(len(m.slots))]
	switch random.IntN(8) {
	case 0:
		table.Unregister(s.broker)
		if s.up {
			m.down(s)
		}
	case 1:
		session := route.Session(1 + random.IntN(6))
		table.CloseSession(session)
		for _, s := range m.slots {
			if s.up && s.session == session {
				m.down(s)
			}
		}
	case 2:
		table.Expire(now)
		for _, s := range m.slots {
			if s.up && s.seenMS+s.timeout < now {
				m.down(s)
			}
		}
	case 3:
		table.Heartbeat(s.broker.Cluster, s.broker.Addr, now)
		s.seenMS = now
	default:
		var served []string
		for _, topic := range []string{"A", "B", "C", "D", "E"} {
			if random.IntN(2) == 0 {
				served = append(served, topic)
			}
		}
		if len(served) < 2 {
			served = []string{"A", "B"}
		}
		r := broker(s.broker.Name, s.broker.ID, s.broker.Addr, served...)
		r.Broker, r.NowMS, r.TimeoutMS = s.broker, now, 10_000+random.Int64N(60_000)
		r.Session = route.Session(1 + random.IntN(6))
		r.Version = version(random.Int64N(3))
		_, _, _ = table.Register(r)
		m.register(s, r)
	}
}
