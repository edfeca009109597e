// SPDX-License-Identifier: Apache-2.0

// Package route is the name server's state: which brokers live, at which addresses, and which
// topics they serve. It is RocketMQ's RouteInfoManager without threads, sockets and a clock: times
// are passed in, connections are opaque Session numbers, and what must be told to others is
// returned as events.
//
// Where it differs from RouteInfoManager on purpose: a broker is removed only if what the decision
// was based on still holds. The end of a connection removes the brokers whose newest registration
// came over it; expiry looks and removes in one step; and a request to unregister names a broker
// id, which must be the one registered at that address.
//
//	t := route.New(route.Rules{})
//	t.Register(&route.Registration{Broker: b, NowMS: now, Session: 7, Version: v, Topics: topics})
//	data, ok := t.Lookup("demo")
//
// All methods may be called from any goroutine; none blocks but for the table's lock. Results are
// copies that the caller may change.
package route

import (
	"sync"

	"github.com/skylarkmq/skylark/net/protocol"
)

// masterID is the broker id of a master.
const masterID = 0

// DefaultTimeoutMS is how long a broker stays without a heartbeat when its registration names no
// time.
const DefaultTimeoutMS = 120_000

// Session names a connection; 0 is none. Numbers are not reused.
type Session uint64

// Broker says who registers or leaves.
type Broker struct {
	Cluster string
	Name    string
	Addr    string
	ID      int64
}

// Rules are the settings that can change while the name server runs (NamesrvConfig).
type Rules struct {
	DeleteTopics     bool // deleteTopicWithBrokerRegistration
	NotifyMinID      bool // notifyMinBrokerIdChanged
	ShowActingMaster bool // supportActingMaster
}

// Event is something that must be told to others after a change.
type Event struct {
	// MinID is set when the smallest broker id of a name changed.
	MinID *MinIDChange
	// Expired is the session of a broker that sent no heartbeat, to be closed; 0: none.
	Expired Session
	// Left is a broker that was removed, for the log.
	Left *Broker
}

// MinIDChange is what NOTIFY_MIN_BROKER_ID_CHANGE tells to Targets.
type MinIDChange struct {
	BrokerName  string
	MinID       int64
	MinAddr     string
	OfflineAddr string // of the broker that left; "" on a registration
	HAAddr      string // of the new minimum
	Targets     []string
}

// liveKey is how a registration is found again.
type liveKey struct{ cluster, addr string }

// live is one registration that is kept up by heartbeats.
type live struct {
	name      string
	id        int64
	session   Session
	updatedMS int64
	timeoutMS int64
	version   protocol.DataVersion
	haAddr    string
}

// mappings is the static-topic information of one topic by broker name.
type mappings map[string]*protocol.TopicQueueMappingInfo

// Table is the state. Invariants: a name in brokers has an address and is in the set of a cluster,
// each name of a cluster is in brokers, and no topic or cluster is without broker names.
type Table struct {
	// Guards what follows.
	mu       sync.RWMutex
	rules    Rules
	topics   map[string]map[string]protocol.QueueData // topic, broker name
	brokers  map[string]*protocol.BrokerData          // broker name
	clusters map[string]map[string]struct{}           // cluster, broker names
	live     map[liveKey]*live
	filters  map[liveKey][]string
	mapped   map[string]mappings // topic; never cleaned, as in RouteInfoManager
}

// New returns an empty table.
func New(rules Rules) *Table {
	return &Table{
		rules:    rules,
		topics:   map[string]map[string]protocol.QueueData{},
		brokers:  map[string]*protocol.BrokerData{},
		clusters: map[string]map[string]struct{}{},
		live:     map[liveKey]*live{},
		filters:  map[liveKey][]string{},
		mapped:   map[string]mappings{},
	}
}

// SetRules changes the settings for what comes after.
func (t *Table) SetRules(rules Rules) {
	t.mu.Lock()
	t.rules = rules
	t.mu.Unlock()
}

// Brokers returns the number of registrations kept up by heartbeats.
func (t *Table) Brokers() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.live)
}

// minID returns the smallest id of addrs; ok is false when there is none.
func minID(addrs map[int64]string) (id int64, ok bool) {
	for i := range addrs {
		if !ok || i < id {
			id, ok = i, true
		}
	}
	return id, ok
}

// minIDChangeLocked prepares the notification for a name. offline is the address that left, or "".
func (t *Table) minIDChangeLocked(data *protocol.BrokerData, offline string) *MinIDChange {
	id, ok := minID(data.BrokerAddrs)
	if !ok {
		return nil
	}
	change := &MinIDChange{
		BrokerName:  data.BrokerName,
		MinID:       id,
		MinAddr:     data.BrokerAddrs[id],
		OfflineAddr: offline,
	}
	if l := t.live[liveKey{data.Cluster, change.MinAddr}]; l != nil {
		change.HAAddr = l.haAddr
	}
	for _, i := range sortedKeys(data.BrokerAddrs) {
		if offline != "" || len(data.BrokerAddrs) == 1 || i != id {
			change.Targets = append(change.Targets, data.BrokerAddrs[i])
		}
	}
	return change
}
