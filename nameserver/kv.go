// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync/atomic"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// kvTables is namespace, key, value. It is never changed once readers can see it.
type kvTables map[string]map[string]string

// kvFile is the form on disk: RocketMQ's KVConfigSerializeWrapper.
type kvFile struct {
	ConfigTable kvTables `json:"configTable"`
}

// kvStore is the key-value configuration. Reads come from any goroutine; changes from one, the
// files worker, and are on disk before they can be read.
type kvStore struct {
	path   string
	tables atomic.Pointer[kvTables]
}

func openKV(path string) (*kvStore, error) {
	k := &kvStore{path: path}
	var file kvFile
	_, err := vfs.LoadJSONFile(path, func(data []byte) error {
		file = kvFile{}
		return protocol.Unmarshal(data, &file)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("nameserver: load key-value configuration: %w", err)
	}
	if file.ConfigTable == nil {
		file.ConfigTable = kvTables{}
	}
	k.tables.Store(&file.ConfigTable)
	return k, nil
}

// get returns one value.
func (k *kvStore) get(namespace, key string) (value string, ok bool) {
	value, ok = (*k.tables.Load())[namespace][key]
	return value, ok
}

// list returns a namespace, which must not be changed. ok is false when there is none.
func (k *kvStore) list(namespace string) (table map[string]string, ok bool) {
	table, ok = (*k.tables.Load())[namespace]
	return table, ok
}

func (k *kvStore) put(namespace, key, value string) error {
	return k.change(namespace, func(table map[string]string) bool {
		old, ok := table[key]
		table[key] = value
		return !ok || old != value
	})
}

// remove leaves an empty namespace behind, as KVConfigManager does.
func (k *kvStore) remove(namespace, key string) error {
	if _, ok := k.get(namespace, key); !ok {
		return nil
	}
	return k.change(namespace, func(table map[string]string) bool {
		delete(table, key)
		return true
	})
}

func (k *kvStore) change(namespace string, edit func(map[string]string) bool) error {
	next := maps.Clone(*k.tables.Load())
	table := maps.Clone(next[namespace])
	if table == nil {
		table = map[string]string{}
	}
	if !edit(table) {
		return nil
	}
	next[namespace] = table
	data, err := json.MarshalIndent(kvFile{next}, "", "\t")
	if err != nil {
		return fmt.Errorf("nameserver: encode key-value configuration: %w", err)
	}
	if err := vfs.WriteFileAtomic(k.path, data); err != nil {
		return fmt.Errorf("nameserver: save key-value configuration: %w", err)
	}
	k.tables.Store(&next)
	return nil
}
