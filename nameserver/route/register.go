// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"maps"

	"github.com/skylarkmq/skylark/net/protocol"
)

// ErrIncrementalFirst means that a registration with one topic came from a broker that has not
// registered all its topics before.
var ErrIncrementalFirst = errors.New("route: incremental registration before a full one")

// Registration is what a broker tells about itself. It is read until Register returns, and its
// mapping infos are kept.
type Registration struct {
	Broker       Broker
	HAAddr       string
	Zone         string
	TimeoutMS    int64 // 0: DefaultTimeoutMS
	ActingMaster *bool // nil: a broker of before 5.0
	Session      Session
	NowMS        int64

	Version  protocol.DataVersion
	Topics   map[string]*protocol.TopicConfig
	Mappings map[string]*protocol.TopicQueueMappingInfo // by topic
	Filters  []string                                   // nil: not told; empty: none any more
}

// Registered answers a registration. Both are empty for a master, and while none is known.
type Registered struct {
	MasterAddr string
	HAAddr     string
	// First says that the address was not known before, for the log.
	First bool
}

// Register enters a broker. The numbers are the steps of RouteInfoManager.registerBroker.
func (t *Table) Register(r *Registration) (Registered, []Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := r.Broker

	names := t.clusters[b.Cluster] // 1
	if names == nil {
		names = map[string]struct{}{}
		t.clusters[b.Cluster] = names
	}
	names[b.Name] = struct{}{}

	first := false // 2
	data := t.brokers[b.Name]
	if data == nil {
		first = true
		data = &protocol.BrokerData{
			Cluster: b.Cluster, BrokerName: b.Name, BrokerAddrs: map[int64]string{},
		}
		t.brokers[b.Name] = data
	}
	oldBroker := r.ActingMaster == nil // 3
	data.EnableActingMaster = !oldBroker && *r.ActingMaster
	data.ZoneName = r.Zone

	before, _ := minID(data.BrokerAddrs) // 4
	minChanged := b.ID < before

	previous, bound := data.BrokerAddrs[b.ID]
	if !bound && len(r.Topics) == 1 { // 7, before anything is taken away
		t.dropEmptyLocked(data)
		return Registered{}, nil, ErrIncrementalFirst
	}
	key := liveKey{b.Cluster, b.Addr}
	if !t.takeIDLocked(data, r) {
		delete(t.live, key)
		return Registered{}, nil, nil
	}
	first = first || previous == ""

	t.registerTopicsLocked(r, data, first, oldBroker) // 9
	timeout := r.TimeoutMS
	if timeout <= 0 {
		timeout = DefaultTimeoutMS
	}
	t.live[key] = &live{ // 10
		name: b.Name, id: b.ID, session: r.Session, updatedMS: r.NowMS, timeoutMS: timeout,
		version: r.Version, haAddr: r.HAAddr,
	}
	t.setFiltersLocked(key, r.Filters) // 11

	result := Registered{First: first}
	if b.ID != masterID { // 12
		if master := data.BrokerAddrs[masterID]; master != "" {
			if l := t.live[liveKey{b.Cluster, master}]; l != nil {
				result.MasterAddr, result.HAAddr = master, l.haAddr
			}
		}
	}
	var events []Event // 13
	if minChanged && t.rules.NotifyMinID {
		if change := t.minIDChangeLocked(data, ""); change != nil {
			events = append(events, Event{MinID: change})
		}
	}
	return result, events, nil
}

// takeIDLocked binds the id to the address, and returns false when the id belongs to a newer master
// at another address.
func (t *Table) takeIDLocked(data *protocol.BrokerData, r *Registration) bool {
	b := r.Broker
	for id, addr := range data.BrokerAddrs { // 5: one process changed its role
		if addr == b.Addr && id != b.ID {
			delete(data.BrokerAddrs, id)
		}
	}
	previous, bound := data.BrokerAddrs[b.ID]
	if bound && previous != b.Addr { // 6: a fenced old master
		other := t.live[liveKey{b.Cluster, previous}]
		if other != nil && other.version.StateVersion > r.Version.StateVersion {
			return false
		}
	}
	data.BrokerAddrs[b.ID] = b.Addr // 8
	return true
}

// dropEmptyLocked forgets a name that has no address, which RouteInfoManager leaves behind.
func (t *Table) dropEmptyLocked(data *protocol.BrokerData) {
	if len(data.BrokerAddrs) > 0 {
		return
	}
	delete(t.brokers, data.BrokerName)
	t.leaveClustersLocked(data.BrokerName)
}

func (t *Table) setFiltersLocked(key liveKey, filters []string) {
	switch {
	case filters == nil:
	case len(filters) == 0:
		delete(t.filters, key)
	default:
		t.filters[key] = append([]string(nil), filters...)
	}
}

func (t *Table) registerTopicsLocked(
	r *Registration, data *protocol.BrokerData, first, oldBroker bool,
) {
	b := r.Broker
	lowest, _ := minID(data.BrokerAddrs)
	prime := !oldBroker && b.ID != masterID && b.ID == lowest
	if len(r.Topics) == 0 || (b.ID != masterID && !prime) {
		return
	}
	if t.rules.DeleteTopics && len(r.Mappings) == 0 {
		for topic, queues := range t.topics {
			if _, kept := r.Topics[topic]; !kept {
				t.dropBrokerLocked(topic, queues, b.Name)
			}
		}
	}
	l := t.live[liveKey{b.Cluster, b.Addr}]
	changed := l == nil || !l.version.Equal(r.Version)
	for name, config := range r.Topics {
		if config == nil {
			continue
		}
		queues := t.topics[name]
		if _, known := queues[b.Name]; known && !first && !changed {
			continue
		}
		perm := config.Perm
		if prime && data.EnableActingMaster {
			perm &^= protocol.PermWrite // an acting master takes no messages
		}
		if queues == nil {
			queues = map[string]protocol.QueueData{}
			t.topics[name] = queues
		}
		queues[b.Name] = protocol.QueueData{
			BrokerName:     b.Name,
			ReadQueueNums:  config.ReadQueueNums,
			WriteQueueNums: config.WriteQueueNums,
			Perm:           perm,
			TopicSysFlag:   config.TopicSysFlag,
		}
	}
	if changed || first {
		for topic, info := range r.Mappings {
			t.setMappingLocked(topic, info)
		}
	}
}

// setMappingLocked replaces the map of a topic instead of changing it: lookups hand it out.
func (t *Table) setMappingLocked(topic string, info *protocol.TopicQueueMappingInfo) {
	if info == nil {
		return
	}
	next := maps.Clone(t.mapped[topic])
	if next == nil {
		next = mappings{}
	}
	next[info.BName] = info
	t.mapped[topic] = next
}

// dropBrokerLocked takes a broker name out of a topic, and the topic when it was the last.
func (t *Table) dropBrokerLocked(topic string, queues map[string]protocol.QueueData, name string) {
	delete(queues, name)
	if len(queues) == 0 {
		delete(t.topics, topic)
	}
}
