// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/tablefile"
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
	changes tablefile.Turns[*change] // one write of the file for all that come meanwhile
}

// state is immutable once it is published.
type state struct {
	version protocol.DataVersion
	topics  map[string]*protocol.TopicConfig
	entries *tablefile.Entries // as they are in the file; nil before this table has written it
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

func equal(a, b *protocol.TopicConfig) bool {
	return a.TopicName == b.TopicName && a.ReadQueueNums == b.ReadQueueNums &&
		a.WriteQueueNums == b.WriteQueueNums && a.Perm == b.Perm &&
		a.TopicFilterType == b.TopicFilterType && a.TopicSysFlag == b.TopicSysFlag &&
		a.Order == b.Order && maps.Equal(a.Attributes, b.Attributes)
}
