// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/sqlfilter"
	"github.com/skylarkmq/skylark/net/protocol"
)

// FileName is the name of the manager's file in the configuration folder.
const FileName = "consumerFilter.json"

// dataMax bounds the filters that are kept, each up to sqlfilter.TextMax. Further ones are not
// registered, and their pulls are answered FILTER_DATA_NOT_EXIST.
const dataMax = 16384

// BloomData names the bits that stand for a group in the bitmap of a message.
type BloomData struct {
	BitNum int   `json:"bitNum"`
	BitPos []int `json:"bitPos"`
}

// Data is the filter of one group on one topic (RocketMQ ConsumerFilterData). It is immutable.
type Data struct {
	Topic, Group   string
	Expression     string
	ExpressionType string
	BornMS         int64 // since when it is so
	DeadMS         int64 // since when no consumer asks for it; 0: somebody does
	ClientVersion  int64 // the subscription's version, by the client's clock
	Bloom          *BloomData
	Compiled       *sqlfilter.Expression // never nil
}

// Dead reports whether no consumer asks for the filter.
func (d *Data) Dead() bool { return d.DeadMS >= d.BornMS }

// Config says how a Manager works. Zero values take RocketMQ's defaults.
type Config struct {
	BloomErrorPercent int           // maxErrorRateOfBloomFilter, 20
	BloomConsumers    int           // expectConsumerNumUseFilter, 32
	KeepDead          time.Duration // filterDataCleanTimeSpan, 24 h
	CacheBytes        int64         // of compiled expressions, 8 MiB
	Interval          time.Duration // from a change to its writing, 10 s
	AllowEmpty        bool          // go on without the file when every copy of it is damaged
	Now               func() time.Time
	Notice            func(msg string, kv ...any)
}

// table is topic to group to filter. Published ones are immutable.
type table map[string]map[string]*Data

// Manager is the filters of all groups. All methods may be called from any goroutine.
type Manager struct {
	path  string
	cfg   Config
	bloom bloom
	cache cache

	filters atomic.Pointer[table]

	// Guards changes of filters and what follows. Held across the write of the file.
	mu     sync.Mutex
	count  int
	dirty  bool
	timer  *time.Timer // set while dirty
	closed bool
}

// Open loads the filters from dir. A missing file is an empty table. Where every copy is damaged it
// fails and names them, unless Config.AllowEmpty: consumers that are there register theirs again within
// a heartbeat.
func Open(dir string, cfg Config) (*Manager, error) {
	if cfg.BloomErrorPercent <= 0 {
		cfg.BloomErrorPercent = 20
	}
	if cfg.BloomConsumers <= 0 {
		cfg.BloomConsumers = 32
	}
	if cfg.KeepDead <= 0 {
		cfg.KeepDead = 24 * time.Hour
	}
	if cfg.CacheBytes <= 0 {
		cfg.CacheBytes = 8 << 20
	}
	if cfg.Interval <= 0 {
		cfg.Interval = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string, ...any) {}
	}
	m := &Manager{
		path: filepath.Join(dir, FileName), cfg: cfg,
		bloom: newBloom(cfg.BloomErrorPercent, cfg.BloomConsumers),
		cache: cache{bytes: cfg.CacheBytes},
	}
	m.filters.Store(&table{})
	return m, m.load()
}

// Compile returns the expression of a text, from the cache if it was asked for lately. The error is
// a *sqlfilter.SyntaxError.
func (m *Manager) Compile(text string) (*sqlfilter.Expression, error) { return m.cache.compile(text) }

// Get returns the filter of a group on a topic, nil when there is none. It takes no lock and
// allocates nothing.
func (m *Manager) Get(topic, group []byte) *Data {
	return (*m.filters.Load())[string(topic)][string(group)]
}

// Register takes what a full heartbeat of a group asked for: filters that are newer than the known
// ones, and the death of those on topics that are not listed (RocketMQ
// ConsumerFilterManager.register). It compiles new expressions.
func (m *Manager) Register(group string, subs []protocol.SubscriptionData) {
	sql := false
	for i := range subs {
		sql = sql || !subs[i].IsTag() && subs[i].SubString != ""
	}
	if !sql && !m.has(group) {
		return // the usual heartbeat
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	listed := make(map[string]bool, len(subs))
	for i := range subs {
		listed[subs[i].Topic] = true
		if !subs[i].IsTag() && subs[i].SubString != "" {
			m.registerLocked(group, &subs[i])
		}
	}
	m.dieLocked(group, func(topic string) bool { return !listed[topic] })
}

// Unregister takes all filters of a group for dead: its last consumer has left.
func (m *Manager) Unregister(group string) {
	if !m.has(group) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dieLocked(group, func(string) bool { return true })
}

// RemoveTopic forgets the filters on a topic, which was deleted.
func (m *Manager) RemoveTopic(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range (*m.filters.Load())[topic] {
		m.deleteLocked(d)
	}
}

func (m *Manager) has(group string) bool {
	for _, groups := range *m.filters.Load() {
		if groups[group] != nil {
			return true
		}
	}
	return false
}

// registerLocked follows RocketMQ's FilterDataMapByTopic.register.
func (m *Manager) registerLocked(group string, s *protocol.SubscriptionData) {
	old := (*m.filters.Load())[s.Topic][group]
	positions := m.bloom.positions(group, s.Topic)
	switch {
	case old == nil:
	case s.SubVersion < old.ClientVersion,
		s.SubVersion == old.ClientVersion && !old.Dead():
		return
	case s.SubVersion == old.ClientVersion,
		old.Expression == s.SubString && old.ExpressionType == s.ExpressionType:
		next := *old
		next.ClientVersion, next.DeadMS = s.SubVersion, 0
		m.putLocked(&next)
		return
	}
	if s.ExpressionType != protocol.ExpressionSQL92 {
		m.cfg.Notice("a filter of unknown type is not kept", "group", group, "topic", s.Topic,
			"type", s.ExpressionType)
		m.deleteLocked(old)
		return
	}
	compiled, err := m.cache.compile(s.SubString)
	if err != nil {
		m.cfg.Notice("a filter cannot be compiled", "group", group, "topic", s.Topic, "err", err)
		m.deleteLocked(old)
		return
	}
	if old == nil && m.count >= dataMax {
		m.cfg.Notice("there are too many filters, this one is not kept", "group", group,
			"topic", s.Topic, "limit", dataMax)
		return
	}
	// A heartbeat's strings may belong to a large body.
	m.putLocked(&Data{
		Topic: strings.Clone(s.Topic), Group: strings.Clone(group), Expression: compiled.Text(),
		ExpressionType: protocol.ExpressionSQL92, BornMS: m.cfg.Now().UnixMilli(),
		ClientVersion: s.SubVersion, Bloom: positions, Compiled: compiled,
	})
}

// dieLocked marks the live filters of a group on the topics that gone says.
func (m *Manager) dieLocked(group string, gone func(topic string) bool) {
	now := m.cfg.Now().UnixMilli()
	for topic, groups := range *m.filters.Load() {
		if d := groups[group]; d != nil && !d.Dead() && gone(topic) {
			next := *d
			next.DeadMS = max(now, d.BornMS)
			m.putLocked(&next)
		}
	}
}

// putLocked publishes one filter.
func (m *Manager) putLocked(d *Data) {
	next := maps.Clone(*m.filters.Load())
	groups := maps.Clone(next[d.Topic])
	if groups == nil {
		groups = map[string]*Data{}
	}
	if groups[d.Group] == nil {
		m.count++
	}
	groups[d.Group] = d
	next[d.Topic] = groups
	m.filters.Store(&next)
	m.touchLocked()
}

// deleteLocked takes one filter away, if there is one.
func (m *Manager) deleteLocked(d *Data) {
	if d == nil {
		return
	}
	next := maps.Clone(*m.filters.Load())
	groups := maps.Clone(next[d.Topic])
	delete(groups, d.Group)
	if next[d.Topic] = groups; len(groups) == 0 {
		delete(next, d.Topic)
	}
	m.count--
	m.filters.Store(&next)
	m.touchLocked()
}
