// SPDX-License-Identifier: Apache-2.0

package route

import "github.com/skylarkmq/skylark/net/protocol"

// WipeWritePerm takes the permission to write from all topics of a broker name, until it registers
// with a new data version. It returns how many topics that were.
func (t *Table) WipeWritePerm(name string) int {
	return t.setPerm(name, func(perm int32) int32 { return perm &^ protocol.PermWrite })
}

// AddWritePerm makes all topics of a broker name readable and writable.
func (t *Table) AddWritePerm(name string) int {
	return t.setPerm(name, func(int32) int32 { return protocol.PermRead | protocol.PermWrite })
}

func (t *Table) setPerm(name string, change func(int32) int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, queues := range t.topics {
		if q, ok := queues[name]; ok {
			q.Perm = change(q.Perm)
			queues[name] = q
			n++
		}
	}
	return n
}

// DeleteTopic removes a topic; with a cluster, only from that cluster's brokers.
func (t *Table) DeleteTopic(topic, cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cluster == "" {
		delete(t.topics, topic)
		return
	}
	queues := t.topics[topic]
	if queues == nil {
		return
	}
	for name := range t.clusters[cluster] {
		delete(queues, name)
	}
	if len(queues) == 0 {
		delete(t.topics, topic)
	}
}

// RegisterTopic enters queues of a topic. It does nothing and returns false when one of them names
// an unknown broker.
func (t *Table) RegisterTopic(topic string, queues []protocol.QueueData) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(queues) == 0 {
		return false
	}
	for _, q := range queues {
		if t.brokers[q.BrokerName] == nil {
			return false
		}
	}
	table := t.topics[topic]
	if table == nil {
		table = map[string]protocol.QueueData{}
		t.topics[topic] = table
	}
	for _, q := range queues {
		table[q.BrokerName] = q
	}
	return true
}
