// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// ModesFileName is the name of the file of Modes in the configuration folder.
const ModesFileName = "messageRequestMode.json"

// Modes is the table of how groups read topics, by pull or by pop, where that was set by an
// administrator. All methods may be called from any goroutine.
type Modes struct {
	path string

	// Guards table, whose inner maps are immutable, and the file. Cold: it is held across I/O.
	mu    sync.Mutex
	table map[string]map[string]*protocol.MessageRequestModeBody // topic -> group
}

// OpenModes loads the table from dir. A missing file is an empty table. Where every copy is damaged it
// fails and names them, unless allowEmpty. notice may be nil.
func OpenModes(
	dir string, allowEmpty bool, notice func(msg string, kv ...any),
) (*Modes, error) {
	m := &Modes{
		path:  filepath.Join(dir, ModesFileName),
		table: map[string]map[string]*protocol.MessageRequestModeBody{},
	}
	var f protocol.MessageRequestModeWrapper
	loaded, err := vfs.LoadTable(vfs.Table{
		Path: m.path, What: "message request modes", AllowEmpty: allowEmpty, Notice: notice,
	}, func(data []byte) error {
		f = protocol.MessageRequestModeWrapper{}
		return protocol.Unmarshal(data, &f)
	})
	if err != nil {
		return nil, fmt.Errorf("group: load %s: %w", m.path, err)
	}
	if loaded {
		maps.Copy(m.table, f.MessageRequestModeMap)
	}
	return m, nil
}

// All returns a copy of the table: topic to group to mode.
func (m *Modes) All() map[string]map[string]*protocol.MessageRequestModeBody {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.table)
}

// Get returns what was set for a topic and a group.
func (m *Modes) Get(topic, group string) (protocol.MessageRequestModeBody, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.table[topic][group]; b != nil {
		return *b, true
	}
	return protocol.MessageRequestModeBody{}, false
}

// Set stores one entry and writes the file before it returns.
func (m *Modes) Set(b protocol.MessageRequestModeBody) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(m.table)
	groups := maps.Clone(next[b.Topic])
	if groups == nil {
		groups = map[string]*protocol.MessageRequestModeBody{}
	}
	groups[b.ConsumerGroup] = &b
	next[b.Topic] = groups
	data := protocol.MarshalFastJSON(protocol.MessageRequestModeWrapper{MessageRequestModeMap: next})
	if err := vfs.WriteFileAtomic(m.path, data); err != nil {
		return fmt.Errorf("group: write %s: %w", m.path, err)
	}
	m.table = next
	return nil
}
