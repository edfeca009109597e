// SPDX-License-Identifier: Apache-2.0

package group

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/tablefile"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// FileName is the name of the table's file in the configuration folder.
const FileName = "subscriptionGroup.json"

// ForbidRead is the bit of a forbidden mask that blocks pulling (RocketMQ PermName index 2).
const ForbidRead int32 = 1 << 2

// startGroups exist on every broker (RocketMQ SubscriptionGroupManager.init).
var startGroups = [...]string{
	"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
	"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
}

// ConfigsConfig says which groups may be created without an administrator.
type ConfigsConfig struct {
	AutoCreate   bool // autoSubscriptionGroup (autoCreateSubscriptionGroup)
	CreateSystem bool // enableCreateSysGroup: system groups, whatever AutoCreate says

	// AllowEmpty starts with the groups of a new broker when every copy of the file is damaged.
	AllowEmpty bool

	Now      func() time.Time            // nil: time.Now
	Notice   func(msg string, kv ...any) // nil: silent
	OnChange func(changed []string)      // after a change is in force; no lock is held
}

// Configs is the table of subscription groups. All methods may be called from any goroutine.
type Configs struct {
	path    string
	cfg     ConfigsConfig
	current atomic.Pointer[configState]
	changes tablefile.Turns[*configChange] // one write of the file for all that come meanwhile
}

// configState is immutable once it is published.
type configState struct {
	version   protocol.DataVersion
	groups    map[string]*protocol.SubscriptionGroupConfig
	forbidden map[string]map[string]int32 // group -> topic -> mask, no empty inner map, no zero mask
	entries   *tablefile.Entries          // groups as they are in the file; nil before it was written
}

// configFile is the layout of subscriptionGroup.json.
type configFile struct {
	DataVersion            protocol.DataVersion                         `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32                  `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]*protocol.SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// OpenConfigs loads the table from dir and adds the groups that each broker has. A missing file is
// an empty table. When copies of the file exist and none can be read it fails and names them,
// unless AllowEmpty is set. Nothing is written.
func OpenConfigs(dir string, cfg ConfigsConfig) (*Configs, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string, ...any) {}
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func([]string) {}
	}
	t := &Configs{path: filepath.Join(dir, FileName), cfg: cfg}
	s := &configState{
		version:   protocol.DataVersion{Timestamp: cfg.Now().UnixMilli()},
		groups:    map[string]*protocol.SubscriptionGroupConfig{},
		forbidden: map[string]map[string]int32{},
	}
	for _, name := range startGroups {
		c := protocol.DefaultSubscriptionGroup(name)
		s.groups[name] = &c
	}
	if err := t.load(s); err != nil {
		return nil, err
	}
	t.current.Store(s)
	return t, nil
}

func (t *Configs) load(s *configState) error {
	var f configFile
	source, err := vfs.LoadJSONFile(t.path, func(data []byte) error {
		f = configFile{}
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		if f.SubscriptionGroupTable == nil {
			return errors.New("member subscriptionGroupTable is missing")
		}
		return nil
	})
	var damaged *vfs.DamagedError
	switch {
	case t.cfg.AllowEmpty && errors.As(err, &damaged):
		t.cfg.Notice("starting without stored groups", "path", t.path, "err", err)
		return vfs.SetAside(t.path)
	case err != nil:
		return fmt.Errorf("group: load %s: %w", t.path, err)
	case source == "":
		return nil
	case source != t.path:
		t.cfg.Notice("groups were read from another copy", "path", source)
	}
	s.version = f.DataVersion
	for name, c := range f.SubscriptionGroupTable {
		if name != "" && c != nil {
			c.GroupName = name
			s.groups[name] = c
		}
	}
	for name, topics := range f.ForbiddenTable {
		for topic, mask := range topics {
			forbid(s.forbidden, name, topic, mask)
		}
	}
	return nil
}

// Lookup returns the configuration of a group, which is immutable. It takes no lock and allocates
// nothing.
func (t *Configs) Lookup(name []byte) (*protocol.SubscriptionGroupConfig, bool) {
	c, ok := t.current.Load().groups[string(name)]
	return c, ok
}

// Find is Lookup for a name that is a string already.
func (t *Configs) Find(name string) (*protocol.SubscriptionGroupConfig, bool) {
	c, ok := t.current.Load().groups[name]
	return c, ok
}

// Creatable tells whether LookupOrCreate would create the group, so that a caller that must not
// block on a file knows when to hand over.
func (t *Configs) Creatable(name []byte) bool {
	automatic := t.cfg.AutoCreate ||
		t.cfg.CreateSystem && protocol.IsSystemGroup(name)
	return automatic && protocol.ValidGroup(name) == nil
}

// LookupOrCreate returns the configuration of a group and creates it with default values when it is
// missing and may be created. ok is false when there is no such group and no rule creates it. It
// blocks on the file only when it creates.
func (t *Configs) LookupOrCreate(
	name string,
) (c *protocol.SubscriptionGroupConfig, ok bool, err error) {
	if c, ok = t.Find(name); ok {
		return c, true, nil
	}
	if !t.Creatable([]byte(name)) {
		return nil, false, nil
	}
	err = t.update(func(e *configEdit) {
		if c = e.Get(name); c != nil {
			return
		}
		made := protocol.DefaultSubscriptionGroup(name)
		c = &made
		e.Set(name, c)
	})
	return c, err == nil, err
}

// All returns the groups, the forbidden masks and the version of this moment. All are immutable.
func (t *Configs) All() (
	map[string]*protocol.SubscriptionGroupConfig, map[string]map[string]int32, protocol.DataVersion,
) {
	s := t.current.Load()
	return s.groups, s.forbidden, s.version
}

// Names returns the names of all groups, sorted.
func (t *Configs) Names() []string { return slices.Sorted(maps.Keys(t.current.Load().groups)) }

// Version returns the version of the table, which grows with each change.
func (t *Configs) Version() protocol.DataVersion { return t.current.Load().version }

// Forbidden returns the mask of what is forbidden to a group on a topic, see ForbidRead. It takes
// no lock and allocates nothing.
func (t *Configs) Forbidden(group, topic []byte) int32 {
	return t.current.Load().forbidden[string(group)][string(topic)]
}

// forbid sets a mask in a table that nobody else reads yet; the masks of each group are copied.
func forbid(table map[string]map[string]int32, group, topic string, mask int32) {
	topics := maps.Clone(table[group])
	if topics == nil {
		topics = map[string]int32{}
	}
	topics[topic] = mask
	if mask == 0 {
		delete(topics, topic)
	}
	table[group] = topics
	if len(topics) == 0 {
		delete(table, group)
	}
}
