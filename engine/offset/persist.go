// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// separator stands between topic and group in the keys of the file. Neither may contain it.
const separator = "@"

// file is the part of consumerOffset.json that carries state (RocketMQ ConsumerOffsetManager).
// groupTopicMap and pullOffsetTable of newer versions are derived or harmless to lose.
type file struct {
	DataVersion protocol.DataVersion       `json:"dataVersion"`
	OffsetTable map[string]map[int32]int64 `json:"offsetTable"`
	// PendingResets is Skylark's own, and left out while there are none: what operators set and no
	// consumer has taken. RocketMQ keeps that in memory (ConsumerOffsetManager.resetOffsetTable), passes
	// the member over when it reads the file, and drops it when it writes it. Queue ids are text here,
	// as in any JSON, so that every parser can pass it over.
	PendingResets map[string]map[string]int64 `json:"pendingResets"`
}

// Open loads the table from dir. A missing file is an empty table. When copies of the file exist
// and none can be read it fails and names them, unless Config.AllowEmpty is set: offsets are never
// taken as zero without a word. Nothing is written.
func Open(dir string, cfg Config) (*Table, error) {
	if cfg.Interval <= 0 {
		cfg.Interval = 5 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string, ...any) {}
	}
	t := &Table{
		path: filepath.Join(dir, FileName), cfg: cfg, seed: maphash.MakeSeed(),
		version: protocol.DataVersion{Timestamp: cfg.Now().UnixMilli()},
	}
	for i := range t.shards {
		t.shards[i].entries = map[key]map[int32]*slot{}
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	t.timer = time.AfterFunc(time.Hour, t.persistLater)
	t.timer.Stop()
	return t, nil
}

func (t *Table) load() error {
	var f file
	source, err := vfs.LoadJSONFile(t.path, func(data []byte) error {
		f = file{}
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		if f.OffsetTable == nil {
			return errors.New("member offsetTable is missing")
		}
		return nil
	})
	var damaged *vfs.DamagedError
	switch {
	case t.cfg.AllowEmpty && errors.As(err, &damaged):
		t.cfg.Notice("starting without consumer offsets", "path", t.path, "err", err)
		return vfs.SetAside(t.path)
	case err != nil:
		return fmt.Errorf("offset: load %s: %w", t.path, err)
	case source == "":
		return nil
	case source != t.path:
		t.cfg.Notice("consumer offsets were read from another copy", "path", source)
	}
	t.version = f.DataVersion
	for name, queues := range f.OffsetTable {
		topic, group, ok := t.split(source, name)
		if !ok {
			continue
		}
		for queue, off := range queues {
			if s := t.ensure(group, topic, queue); s != nil {
				s.committed.Store(max(off, none))
			}
		}
	}
	for name, queues := range f.PendingResets {
		if topic, group, ok := t.split(source, name); ok {
			t.loadResets(source, topic, group, queues)
		}
	}
	return nil
}

// split takes the name of an entry of the file apart; ok is false when it makes no sense.
func (t *Table) split(source, name string) (topic, group []byte, ok bool) {
	before, behind, ok := strings.Cut(name, separator)
	if !ok || before == "" || behind == "" {
		t.cfg.Notice("offsets of no topic and group are left out", "path", source, "name", name)
		return nil, nil, false
	}
	return []byte(before), []byte(behind), true
}

// loadResets makes the resets of an entry of the file pending again.
func (t *Table) loadResets(source string, topic, group []byte, queues map[string]int64) {
	for text, off := range queues {
		queue, err := strconv.ParseInt(text, 10, 32)
		if err != nil || off < 0 {
			t.cfg.Notice("a pending reset makes no sense and is left out", "path", source,
				"topic", string(topic), "group", string(group), "queue", text, "offset", off)
			continue
		}
		if s := t.ensure(group, topic, int32(queue)); s != nil && s.reset.Swap(off) == none {
			t.resets.Add(1)
		}
	}
}

// Version returns the version of the table, which grows with every 500th commit.
func (t *Table) Version() protocol.DataVersion {
	t.file.Lock()
	defer t.file.Unlock()
	return t.version
}

// Persist writes the table if something changed since the last write. It blocks on the disk. After
// an error the change is still due and tried again after the interval.
func (t *Table) Persist() error {
	t.file.Lock()
	defer t.file.Unlock()
	return t.persistLocked()
}

func (t *Table) persistLocked() error {
	if !t.dirty.Swap(false) {
		return nil
	}
	offsets, _ := t.Snapshot()
	data := protocol.MarshalFastJSON(file{
		DataVersion: t.version, OffsetTable: offsets, PendingResets: t.pending(),
	})
	if err := vfs.WriteFileAtomic(t.path, data); err != nil {
		t.touch()
		return fmt.Errorf("offset: write %s: %w", t.path, err)
	}
	return nil
}

// persistLater runs on the timer.
func (t *Table) persistLater() {
	t.file.Lock()
	defer t.file.Unlock()
	if t.closed {
		return
	}
	if err := t.persistLocked(); err != nil {
		t.cfg.Notice("consumer offsets could not be written", "path", t.path, "err", err)
	}
}

// Close writes what is not in the file yet and stops the timer. Later commits stay in memory.
func (t *Table) Close() error {
	t.file.Lock()
	defer t.file.Unlock()
	t.closed = true
	err := t.persistLocked()
	t.timer.Stop()
	return err
}
