// SPDX-License-Identifier: Apache-2.0

package route

import "github.com/skylarkmq/skylark/net/protocol"

// Heartbeat renews a registration, and does nothing when there is none.
func (t *Table) Heartbeat(cluster, addr string, nowMS int64) {
	t.mu.Lock()
	if l := t.live[liveKey{cluster, addr}]; l != nil {
		l.updatedMS = nowMS
	}
	t.mu.Unlock()
}

// QueryVersion compares a broker's data version with the one of its registration, and renews it.
// stored is the version of the registration, known false when there is none.
func (t *Table) QueryVersion(cluster, addr string, version protocol.DataVersion, nowMS int64) (
	stored protocol.DataVersion, known, changed bool,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.live[liveKey{cluster, addr}]
	if l == nil {
		return protocol.DataVersion{}, false, true
	}
	l.updatedMS = nowMS
	return l.version, true, !l.version.Equal(version)
}

// Unregister removes brokers that say that they leave. One whose address is registered under
// another name or id by now stays: its process has changed its role since.
func (t *Table) Unregister(brokers ...Broker) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeLocked(brokers)
}

// CloseSession removes the brokers whose newest registration came over session.
func (t *Table) CloseSession(session Session) []Event {
	if session == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var gone []Broker
	for key, l := range t.live {
		if l.session == session {
			gone = append(gone, Broker{key.cluster, l.name, key.addr, l.id})
		}
	}
	return t.removeLocked(gone)
}

// Expire removes the brokers whose last sign of life is older than their timeout.
func (t *Table) Expire(nowMS int64) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gone []Broker
	var events []Event
	for key, l := range t.live {
		if l.updatedMS+l.timeoutMS < nowMS {
			gone = append(gone, Broker{key.cluster, l.name, key.addr, l.id})
			events = append(events, Event{Expired: l.session})
		}
	}
	return append(events, t.removeLocked(gone)...)
}

// removeLocked is RouteInfoManager.unRegisterBroker for a batch.
func (t *Table) removeLocked(gone []Broker) []Event {
	if len(gone) == 0 {
		return nil
	}
	removed := map[string]bool{}
	reduced := map[string]bool{}
	offline := map[string]string{} // broker name whose smallest id left, its address
	var events []Event
	for _, b := range gone {
		key := liveKey{b.Cluster, b.Addr}
		if l := t.live[key]; l != nil && (l.name != b.Name || l.id != b.ID) {
			continue
		}
		delete(t.live, key)
		delete(t.filters, key)
		data := t.brokers[b.Name]
		if data == nil || data.BrokerAddrs[b.ID] != b.Addr {
			continue
		}
		if lowest, _ := minID(data.BrokerAddrs); lowest == b.ID {
			offline[b.Name] = b.Addr
		}
		delete(data.BrokerAddrs, b.ID)
		left := b
		events = append(events, Event{Left: &left})
		if len(data.BrokerAddrs) > 0 {
			reduced[b.Name] = true
			continue
		}
		delete(reduced, b.Name)
		removed[b.Name] = true
		delete(t.brokers, b.Name)
		t.leaveClustersLocked(b.Name)
	}
	t.reduceTopicsLocked(removed, reduced)
	if !t.rules.NotifyMinID {
		return events
	}
	for name, addr := range offline {
		data := t.brokers[name]
		if data == nil || !data.EnableActingMaster {
			continue
		}
		if change := t.minIDChangeLocked(data, addr); change != nil {
			events = append(events, Event{MinID: change})
		}
	}
	return events
}

// leaveClustersLocked takes a name that has no address any more out of all clusters: two clusters
// that use one broker name share its entry, as in RouteInfoManager.
func (t *Table) leaveClustersLocked(name string) {
	for cluster, names := range t.clusters {
		delete(names, name)
		if len(names) == 0 {
			delete(t.clusters, cluster)
		}
	}
}

// reduceTopicsLocked takes brokers that are gone out of all topics, and the permission to write
// from those that have lost their master but go on with an acting one.
func (t *Table) reduceTopicsLocked(removed, reduced map[string]bool) {
	var readOnly []string
	for name := range reduced {
		data := t.brokers[name]
		if data == nil || !data.EnableActingMaster {
			continue
		}
		if _, hasMaster := data.BrokerAddrs[masterID]; !hasMaster {
			readOnly = append(readOnly, name)
		}
	}
	if len(removed) == 0 && len(readOnly) == 0 {
		return
	}
	for topic, queues := range t.topics {
		for name := range removed {
			delete(queues, name)
		}
		if len(queues) == 0 {
			delete(t.topics, topic)
			continue
		}
		for _, name := range readOnly {
			if q, ok := queues[name]; ok {
				q.Perm &^= protocol.PermWrite
				queues[name] = q
			}
		}
	}
}
