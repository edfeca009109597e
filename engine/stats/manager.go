// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

const (
	shardCount = 64
	// keysMax bounds the topics, and the topic and group pairs, of one shard.
	keysMax = 8192
)

// Config names what the broker-wide items are kept for.
type Config struct {
	Cluster string
	Now     func() time.Time // nil: time.Now
	// Location decides when a day begins; nil: time.Local.
	Location *time.Location
}

// Manager holds all statistics of one broker. All methods may be called from any goroutine.
type Manager struct {
	cfg    Config
	seed   maphash.Seed
	shards [shardCount]shard
	broker *Broker
	spill  *Topic // where topics beyond the bound are counted, unseen
	spillG *Group
}

type shard struct {
	mu     sync.RWMutex
	topics map[string]*Topic
	groups map[pair]*Group
}

type pair struct{ topic, group string }

// Topic is the statistics of one topic.
type Topic struct {
	PutNums, PutSize *Item
}

// Put counts sends of messages with bytes in all.
func (t *Topic) Put(nowMS, calls, messages, bytes int64) {
	t.PutNums.AddCalls(nowMS, calls, messages)
	t.PutSize.AddCalls(nowMS, calls, bytes)
}

// Group is the statistics of what one group reads of one topic.
type Group struct {
	GetNums, GetSize, SendBackNums, DLQNums *Item
}

// Get counts one pull that brought messages with bytes in all.
func (g *Group) Get(nowMS, messages, bytes int64) {
	g.GetNums.Add(nowMS, messages)
	g.GetSize.Add(nowMS, bytes)
}

// New makes an empty set of statistics.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Location == nil {
		cfg.Location = time.Local
	}
	nowMS := cfg.Now().UnixMilli()
	m := &Manager{cfg: cfg, seed: maphash.MakeSeed(), broker: newBroker(nowMS, cfg.Location)}
	m.spill, m.spillG = newTopic(nowMS), newGroup(nowMS)
	for i := range m.shards {
		m.shards[i].topics = map[string]*Topic{}
		m.shards[i].groups = map[pair]*Group{}
	}
	return m
}

func newTopic(nowMS int64) *Topic {
	return &Topic{PutNums: newItem(nowMS), PutSize: newItem(nowMS)}
}

func newGroup(nowMS int64) *Group {
	return &Group{
		GetNums: newItem(nowMS), GetSize: newItem(nowMS),
		SendBackNums: newItem(nowMS), DLQNums: newItem(nowMS),
	}
}

// Broker returns the statistics of the whole broker.
func (m *Manager) Broker() *Broker { return m.broker }

// Topic returns a topic's statistics and begins them when it is new. It allocates nothing for a
// topic that is known; the result may be kept, and counts on unseen after RemoveTopic.
func (m *Manager) Topic(topic []byte) *Topic {
	s := &m.shards[maphash.Bytes(m.seed, topic)%shardCount]
	s.mu.RLock()
	t := s.topics[string(topic)]
	s.mu.RUnlock()
	if t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t = s.topics[string(topic)]; t == nil {
		if len(s.topics) >= keysMax {
			return m.spill
		}
		t = newTopic(m.cfg.Now().UnixMilli())
		s.topics[string(topic)] = t
	}
	return t
}

// Group returns the statistics of what a group reads of a topic and begins them when they are new.
// It allocates nothing for a pair that is known.
func (m *Manager) Group(group, topic []byte) *Group {
	s := &m.shards[maphash.Bytes(m.seed, topic)%shardCount]
	s.mu.RLock()
	g := s.groups[pair{string(topic), string(group)}]
	s.mu.RUnlock()
	if g != nil {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := pair{string(topic), string(group)}
	if g = s.groups[k]; g == nil {
		if len(s.groups) >= keysMax {
			return m.spillG
		}
		g = newGroup(m.cfg.Now().UnixMilli())
		s.groups[k] = g
	}
	return g
}

// TopicPutTPS is the messages per second sent to a topic in the last minute.
func (m *Manager) TopicPutTPS(topic string) float64 {
	return m.tps("TOPIC_PUT_NUMS", topic)
}

// GroupGetTPS is the messages per second a group read of a topic in the last minute.
func (m *Manager) GroupGetTPS(group, topic string) float64 {
	return m.tps("GROUP_GET_NUMS", topic+"@"+group)
}

func (m *Manager) tps(name, key string) float64 {
	i := m.find(name, key)
	if i == nil {
		return 0
	}
	return i.Minute(m.cfg.Now().UnixMilli()).TPS
}

// View returns an item by RocketMQ's name and key; ok is false when there is no such item or it has
// never counted.
func (m *Manager) View(name, key string) (data protocol.BrokerStatsData, ok bool) {
	i := m.find(name, key)
	if i == nil || i.calls.Load() == 0 {
		return data, false
	}
	nowMS := m.cfg.Now().UnixMilli()
	data.StatsMinute = wire(i.Minute(nowMS))
	data.StatsHour = wire(i.Hour(nowMS))
	data.StatsDay = wire(i.Day(nowMS))
	return data, true
}

func wire(w Window) protocol.BrokerStatsItem {
	return protocol.BrokerStatsItem{Sum: w.Sum, TPS: w.TPS, AvgPT: w.Average}
}

// find looks an item up without beginning it.
func (m *Manager) find(name, key string) *Item {
	if strings.HasPrefix(name, "BROKER_") {
		if key != m.cfg.Cluster {
			return nil
		}
		return m.broker.item(name)
	}
	topic, group, _ := strings.Cut(key, "@")
	s := &m.shards[maphash.String(m.seed, topic)%shardCount]
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, g := s.topics[key], s.groups[pair{topic, group}]
	switch {
	case name == "TOPIC_PUT_NUMS" && t != nil:
		return t.PutNums
	case name == "TOPIC_PUT_SIZE" && t != nil:
		return t.PutSize
	case name == "GROUP_GET_NUMS" && g != nil:
		return g.GetNums
	case name == "GROUP_GET_SIZE" && g != nil:
		return g.GetSize
	case name == "SNDBCK_PUT_NUMS" && g != nil:
		return g.SendBackNums
	case name == "DLQ_PUT_NUMS" && g != nil:
		return g.DLQNums
	}
	return nil
}

// RemoveTopic drops the items of a topic that was deleted.
func (m *Manager) RemoveTopic(topic string) {
	s := &m.shards[maphash.String(m.seed, topic)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.topics, topic)
	for k := range s.groups {
		if k.topic == topic {
			delete(s.groups, k)
		}
	}
}

// RemoveGroup drops the items of a group that was deleted.
func (m *Manager) RemoveGroup(group string) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for k := range s.groups {
			if k.group == group {
				delete(s.groups, k)
			}
		}
		s.mu.Unlock()
	}
}
