// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Lookup returns the route of a topic. ok is false when no broker with an address serves it.
// Brokers come in the order of their names.
func (t *Table) Lookup(topic string) (data *protocol.TopicRouteData, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	queues := t.topics[topic]
	if len(queues) == 0 {
		return nil, false
	}
	data = &protocol.TopicRouteData{FilterServerTable: map[string][]string{}}
	for _, name := range sortedKeys(queues) {
		data.QueueDatas = append(data.QueueDatas, queues[name])
		broker := t.brokers[name]
		if broker == nil {
			continue
		}
		data.BrokerDatas = append(data.BrokerDatas, copyOf(broker))
		for _, addr := range broker.BrokerAddrs {
			if filters := t.filters[liveKey{broker.Cluster, addr}]; len(filters) > 0 {
				data.FilterServerTable[addr] = slices.Clone(filters)
			}
		}
	}
	if len(data.BrokerDatas) == 0 {
		return nil, false
	}
	data.MappingByBroker = t.mapped[topic]
	if t.rules.ShowActingMaster && !strings.HasPrefix(topic, protocol.SyncMemberTopicPrefix) {
		showActingMasters(data, queues)
	}
	return data, true
}

func copyOf(b *protocol.BrokerData) protocol.BrokerData {
	c := *b
	c.BrokerAddrs = maps.Clone(b.BrokerAddrs)
	return c
}

// showActingMasters gives the smallest id's address the id of a master where there is none and the
// topic cannot be written: consumers of clients that know no acting master go on there.
func showActingMasters(data *protocol.TopicRouteData, queues map[string]protocol.QueueData) {
	for i := range data.BrokerDatas {
		b := &data.BrokerDatas[i]
		id, some := minID(b.BrokerAddrs)
		if !some || id == masterID || !b.EnableActingMaster {
			continue
		}
		if queues[b.BrokerName].Perm&protocol.PermWrite != 0 {
			continue
		}
		b.BrokerAddrs[masterID] = b.BrokerAddrs[id]
		delete(b.BrokerAddrs, id)
	}
}

// FilterZone keeps what a client of a zone should see: brokers of that zone, in any case of
// letters, and brokers without a master (ZoneRouteRPCHook).
func FilterZone(data *protocol.TopicRouteData, zone string) {
	dropped := map[string]bool{}
	data.BrokerDatas = slices.DeleteFunc(data.BrokerDatas, func(b protocol.BrokerData) bool {
		if _, hasMaster := b.BrokerAddrs[masterID]; !hasMaster || strings.EqualFold(b.ZoneName, zone) {
			return false
		}
		dropped[b.BrokerName] = true
		for _, addr := range b.BrokerAddrs {
			delete(data.FilterServerTable, addr)
		}
		return true
	})
	data.QueueDatas = slices.DeleteFunc(data.QueueDatas, func(q protocol.QueueData) bool {
		return dropped[q.BrokerName]
	})
}

// Clusters returns all brokers and clusters.
func (t *Table) Clusters() *protocol.ClusterInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	info := &protocol.ClusterInfo{
		BrokerAddrTable:  map[string]protocol.BrokerData{},
		ClusterAddrTable: map[string][]string{},
	}
	for name, b := range t.brokers {
		info.BrokerAddrTable[name] = copyOf(b)
	}
	for cluster, names := range t.clusters {
		info.ClusterAddrTable[cluster] = sortedKeys(names)
	}
	return info
}

// Members returns the addresses of a broker name, none when it is unknown in that cluster.
func (t *Table) Members(cluster, name string) *protocol.BrokerMemberGroup {
	t.mu.RLock()
	defer t.mu.RUnlock()
	group := &protocol.BrokerMemberGroup{
		Cluster: cluster, BrokerName: name, BrokerAddrs: map[int64]string{},
	}
	if b := t.brokers[name]; b != nil && b.Cluster == cluster {
		maps.Copy(group.BrokerAddrs, b.BrokerAddrs)
	}
	return group
}

// Topics returns the names of all topics, sorted.
func (t *Table) Topics() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return sortedKeys(t.topics)
}

// TopicsOfCluster returns the topics that at least one broker of the cluster serves, sorted.
func (t *Table) TopicsOfCluster(cluster string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := t.clusters[cluster]
	return t.topicsLocked(func(queues map[string]protocol.QueueData) bool {
		for name := range queues {
			if _, ok := names[name]; ok {
				return true
			}
		}
		return false
	})
}

// UnitTopics returns the topics whose system flag has all bits of with and none of without. Of
// several brokers the first by name counts.
func (t *Table) UnitTopics(with, without int32) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.topicsLocked(func(queues map[string]protocol.QueueData) bool {
		flag := queues[slices.Min(slices.Collect(maps.Keys(queues)))].TopicSysFlag
		return flag&with == with && flag&without == 0
	})
}

func (t *Table) topicsLocked(keep func(map[string]protocol.QueueData) bool) []string {
	out := []string{}
	for topic, queues := range t.topics {
		if keep(queues) {
			out = append(out, topic)
		}
	}
	slices.Sort(out)
	return out
}

// SystemTopics returns the names of all clusters and brokers, which brokers create as topics, and
// the address of one broker, "" when there is none.
func (t *Table) SystemTopics() (names []string, addr string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, cluster := range sortedKeys(t.clusters) {
		names = append(names, cluster)
		names = append(names, sortedKeys(t.clusters[cluster])...)
	}
	for _, name := range sortedKeys(t.brokers) {
		addrs := t.brokers[name].BrokerAddrs
		if id, ok := minID(addrs); ok {
			return names, addrs[id]
		}
	}
	return names, ""
}
