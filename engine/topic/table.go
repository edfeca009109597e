// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FileName is the name of the table's file in the configuration folder.
const FileName = "topics.json"

// ErrNotCreatable says that a topic does not exist and that no rule creates it.
var ErrNotCreatable = errors.New("topic: not there and not created automatically")

// Config says which topics exist from the start and what may be created. The zero value of a
// number means RocketMQ's default.
type Config struct {
	BrokerName  string
	ClusterName string

	AutoCreate      bool   // autoCreateTopicEnable: TBW102 exists and sends create topics from it
	DefaultQueues   int32  // defaultTopicQueueNums, 8
	ClusterTopicOff bool   // clusterTopicEnable=false: the cluster's topic cannot be inherited from
	BrokerTopicOff  bool   // brokerTopicEnable=false: likewise the broker's
	TraceTopic      bool   // traceTopicEnable
	TraceTopicName  string // msgTraceTopicName, RMQ_SYS_TRACE_TOPIC
	ReviveQueues    int32  // reviveQueueNum, 8
	TimerWheel      bool   // timerWheelEnable

	// AllowEmpty starts with the topics of a new broker when every copy of the file is damaged.
	AllowEmpty bool

	Now      func() time.Time            // nil: time.Now
	Notice   func(msg string, kv ...any) // nil: silent. For the log; not on the path of a request
	OnChange func(changed []string)      // after a change is in force; no lock is held
}

// Table is the topic table. All methods may be called from any goroutine.
type Table struct {
	path   string
	cfg    Config
	system map[string]bool // the names that count as system topics here, constant
	static map[string]bool // static topics, constant

	current atomic.Pointer[state]

	// change serializes changes and the file that each of them writes; it is therefore held across
	// I/O, but never by Lookup or by any other reader.
	change sync.Mutex
}

// state is immutable once it is published.
type state struct {
	version protocol.DataVersion
	topics  map[string]*protocol.TopicConfig
}

// file is the layout of topics.json (RocketMQ TopicConfigSerializeWrapper).
type file struct {
	DataVersion      protocol.DataVersion             `json:"dataVersion"`
	TopicConfigTable map[string]*protocol.TopicConfig `json:"topicConfigTable"`
}

// Open loads the table from dir and adds the topics that each broker has. A missing file is an
// empty table. When copies of the file exist and none can be read it fails and names them, unless
// Config.AllowEmpty is set. Nothing is written.
func Open(dir string, cfg Config) (*Table, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string, ...any) {}
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func([]string) {}
	}
	t := &Table{path: filepath.Join(dir, FileName), cfg: cfg, system: map[string]bool{}}
	for _, name := range protocol.SystemTopics() {
		t.system[name] = true
	}
	s := &state{
		version: protocol.DataVersion{Timestamp: cfg.Now().UnixMilli()},
		topics:  map[string]*protocol.TopicConfig{},
	}
	for _, c := range startTopics(cfg) {
		t.system[c.TopicName] = true
		s.topics[c.TopicName] = c
	}
	if err := t.load(s); err != nil {
		return nil, err
	}
	var err error
	if t.static, err = loadStatic(dir); err != nil {
		return nil, err
	}
	t.current.Store(s)
	t.sayUnserved()
	return t, nil
}

// load puts what the file says over the topics of a new broker: the file wins, as in RocketMQ.
func (t *Table) load(s *state) error {
	var f file
	source, err := vfs.LoadJSONFile(t.path, func(data []byte) error {
		f = file{}
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		if f.TopicConfigTable == nil {
			return errors.New("member topicConfigTable is missing")
		}
		return nil
	})
	var damaged *vfs.DamagedError
	switch {
	case t.cfg.AllowEmpty && errors.As(err, &damaged):
		t.cfg.Notice("starting without stored topics", "path", t.path, "err", err)
		return vfs.SetAside(t.path)
	case err != nil:
		return fmt.Errorf("topic: load %s: %w", t.path, err)
	case source == "":
		return nil
	case source != t.path:
		t.cfg.Notice("topics were read from another copy", "path", source)
	}
	s.version = f.DataVersion
	for name, c := range f.TopicConfigTable {
		if c == nil || name == "" {
			continue
		}
		c.TopicName = name
		s.topics[name] = repaired(c)
	}
	return nil
}

// repaired gives a stored configuration the values that a reader may rely on.
func repaired(c *protocol.TopicConfig) *protocol.TopicConfig {
	c.ReadQueueNums = max(c.ReadQueueNums, 0)
	c.WriteQueueNums = max(c.WriteQueueNums, 0)
	if c.TopicFilterType == "" {
		c.TopicFilterType = protocol.SingleTag
	}
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return c
}

// Lookup returns the configuration of a topic, which is immutable. It takes no lock and allocates
// nothing.
func (t *Table) Lookup(name []byte) (*protocol.TopicConfig, bool) {
	c, ok := t.current.Load().topics[string(name)]
	return c, ok
}

// Find is Lookup for a name that is a string already.
func (t *Table) Find(name string) (*protocol.TopicConfig, bool) {
	c, ok := t.current.Load().topics[name]
	return c, ok
}

// All returns the table of this moment and the version it has. Both are immutable.
func (t *Table) All() (map[string]*protocol.TopicConfig, protocol.DataVersion) {
	s := t.current.Load()
	return s.topics, s.version
}

// Names returns the names of all topics, sorted.
func (t *Table) Names() []string {
	return slices.Sorted(maps.Keys(t.current.Load().topics))
}

// Version returns the version of the table, which grows with each change.
func (t *Table) Version() protocol.DataVersion { return t.current.Load().version }

// IsSystem tells whether name is a system topic of this broker (RocketMQ TopicValidator): one of
// the fixed names, one that was made at start, or any name that begins with rmq_sys_.
func (t *Table) IsSystem(name string) bool {
	return t.system[name] || protocol.IsSystemTopic(name)
}

// SystemNames lists the system topics that are known by name, sorted.
func (t *Table) SystemNames() []string {
	names := slices.Collect(maps.Keys(t.system))
	sort.Strings(names)
	return names
}

// Put creates or changes one topic; see PutAll.
func (t *Table) Put(c *protocol.TopicConfig) error {
	return t.PutAll([]*protocol.TopicConfig{c})
}

// PutAll creates or changes topics with one write of the file. The attributes of each are changes:
// "+name" sets, "-name" removes (RocketMQ AttributeUtil); attributes not named stay. A topic that
// comes out as it was is left alone, and if all are, nothing is written. The arguments are copied.
// An attribute that is not allowed refuses the whole call.
func (t *Table) PutAll(cs []*protocol.TopicConfig) error {
	return t.update(func(next *state) ([]string, error) {
		var changed []string
		for _, c := range cs {
			old := next.topics[c.TopicName]
			var have map[string]string
			if old != nil {
				have = old.Attributes
			}
			attributes, err := alter(have, c.Attributes, old == nil)
			if err != nil {
				return nil, err
			}
			made := *c
			made.Attributes = attributes
			if old != nil && equal(old, repaired(&made)) {
				continue
			}
			next.topics[c.TopicName] = repaired(&made)
			changed = append(changed, c.TopicName)
		}
		return changed, nil
	})
}

// Delete removes a topic. A topic that is not there is no error, as in RocketMQ.
func (t *Table) Delete(name string) error {
	return t.update(func(next *state) ([]string, error) {
		if next.topics[name] == nil {
			return nil, nil
		}
		delete(next.topics, name)
		return []string{name}, nil
	})
}

// SetOrdered marks the named topics as ordered and all others as not (RocketMQ
// TopicConfigManager.updateOrderTopicConfig, after a registration returned the order table).
func (t *Table) SetOrdered(ordered func(name string) bool) error {
	return t.update(func(next *state) ([]string, error) {
		var changed []string
		for name, c := range next.topics {
			if want := ordered(name); c.Order != want {
				made := *c
				made.Order = want
				next.topics[name] = &made
				changed = append(changed, name)
			}
		}
		return changed, nil
	})
}

// Bump raises the version without changing a topic, for a change that alters what is registered,
// such as the broker's own permission.
func (t *Table) Bump() error {
	return t.update(func(*state) ([]string, error) { return []string{}, nil })
}

// update applies one change to a copy, writes the file and only then publishes the copy. A nil
// list from apply means that nothing changed.
func (t *Table) update(apply func(next *state) ([]string, error)) error {
	t.change.Lock()
	old := t.current.Load()
	next := &state{version: old.version, topics: maps.Clone(old.topics)}
	changed, err := apply(next)
	if err == nil && changed != nil {
		next.version.Next(t.cfg.Now().UnixMilli())
		if err = t.write(next); err == nil {
			t.current.Store(next)
		}
	}
	t.change.Unlock()
	if err == nil && len(changed) > 0 {
		t.cfg.OnChange(changed)
	}
	return err
}

// Persist writes the table as it is. The broker calls it when it stops, so that a table that was
// never changed has a file too.
func (t *Table) Persist() error {
	t.change.Lock()
	defer t.change.Unlock()
	return t.write(t.current.Load())
}

func (t *Table) write(s *state) error {
	data := protocol.MarshalFastJSON(file{DataVersion: s.version, TopicConfigTable: s.topics})
	if err := vfs.WriteFileAtomic(t.path, data); err != nil {
		return fmt.Errorf("topic: write %s: %w", t.path, err)
	}
	return nil
}

func equal(a, b *protocol.TopicConfig) bool {
	return a.TopicName == b.TopicName && a.ReadQueueNums == b.ReadQueueNums &&
		a.WriteQueueNums == b.WriteQueueNums && a.Perm == b.Perm &&
		a.TopicFilterType == b.TopicFilterType && a.TopicSysFlag == b.TopicSysFlag &&
		a.Order == b.Order && maps.Equal(a.Attributes, b.Attributes)
}
