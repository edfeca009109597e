// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// file is consumerFilter.json.
type file struct {
	FilterDataByTopic map[string]*fileTopic `json:"filterDataByTopic"`
}

type fileTopic struct {
	GroupFilterData map[string]*fileData `json:"groupFilterData"`
	Topic           string               `json:"topic"`
}

type fileData struct {
	BloomFilterData *BloomData `json:"bloomFilterData"`
	BornTime        int64      `json:"bornTime"`
	ClientVersion   int64      `json:"clientVersion"`
	ConsumerGroup   string     `json:"consumerGroup"`
	Dead            bool       `json:"dead"` // derived; RocketMQ writes it and ignores it
	DeadTime        int64      `json:"deadTime"`
	Expression      string     `json:"expression"`
	ExpressionType  string     `json:"expressionType"`
	Topic           string     `json:"topic"`
}

// deadGrace is how long before the start the consumers of the last run are taken to have left.
const deadGrace = 30 * time.Second

// load reads the file. Nobody is connected yet, so every filter is dead until it is asked for again.
// When the bits of one do not fit, nothing is taken, as in RocketMQ.
func (m *Manager) load() error {
	var f file
	ok, err := vfs.LoadTable(vfs.Table{
		Path: m.path, What: "filters of consumers", AllowEmpty: m.cfg.AllowEmpty, Notice: m.cfg.Notice,
	}, func(data []byte) error {
		f = file{}
		return protocol.Unmarshal(data, &f)
	})
	if err != nil {
		return fmt.Errorf("filter: load %s: %w", m.path, err)
	}
	if !ok {
		return nil
	}
	loaded, count := table{}, 0
	dead := m.cfg.Now().Add(-deadGrace).UnixMilli()
	for topic, t := range f.FilterDataByTopic {
		if t == nil {
			continue
		}
		groups := map[string]*Data{}
		for group, d := range t.GroupFilterData {
			if d == nil || count == dataMax {
				continue
			}
			if !m.bloom.valid(d.BloomFilterData) {
				m.cfg.Notice("filters of consumers were made for another bit map, starting without",
					"path", m.path, "group", group, "topic", topic)
				return nil
			}
			if next := m.restore(topic, group, d, dead); next != nil {
				groups[group] = next
				count++
			}
		}
		if len(groups) > 0 {
			loaded[topic] = groups
		}
	}
	m.count = count
	m.filters.Store(&loaded)
	return nil
}

func (m *Manager) restore(topic, group string, d *fileData, dead int64) *Data {
	compiled, err := m.cache.compile(d.Expression)
	if err != nil || d.ExpressionType != protocol.ExpressionSQL92 {
		m.cfg.Notice("a filter of the file cannot be used", "path", m.path, "group", group,
			"topic", topic, "err", err)
		return nil
	}
	next := &Data{
		Topic: topic, Group: group, Expression: d.Expression, ExpressionType: d.ExpressionType,
		BornMS: d.BornTime, DeadMS: d.DeadTime, ClientVersion: d.ClientVersion,
		Bloom: d.BloomFilterData, Compiled: compiled,
	}
	if next.DeadMS == 0 {
		next.DeadMS = max(dead, next.BornMS)
	}
	return next
}

// touchLocked has the file written after the interval.
func (m *Manager) touchLocked() {
	if m.dirty || m.closed {
		return
	}
	m.dirty = true
	m.timer = time.AfterFunc(m.cfg.Interval, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.closed {
			return
		}
		if err := m.persistLocked(); err != nil {
			m.cfg.Notice("filters of consumers could not be written", "path", m.path, "err", err)
			m.touchLocked()
		}
	})
}

// persistLocked writes the file if something changed, without those that died long ago.
func (m *Manager) persistLocked() error {
	if !m.dirty {
		return nil
	}
	m.dirty = false
	limit := m.cfg.Now().Add(-m.cfg.KeepDead).UnixMilli()
	f := file{FilterDataByTopic: map[string]*fileTopic{}}
	for topic, groups := range *m.filters.Load() {
		t := &fileTopic{GroupFilterData: map[string]*fileData{}, Topic: topic}
		for group, d := range groups {
			if d.Dead() && d.DeadMS <= limit {
				m.dirty = true // deleting must not arm the timer
				m.deleteLocked(d)
				m.dirty = false
				continue
			}
			t.GroupFilterData[group] = &fileData{
				BloomFilterData: d.Bloom, BornTime: d.BornMS, ClientVersion: d.ClientVersion,
				ConsumerGroup: group, Dead: d.Dead(), DeadTime: d.DeadMS, Expression: d.Expression,
				ExpressionType: d.ExpressionType, Topic: topic,
			}
		}
		if len(t.GroupFilterData) > 0 {
			f.FilterDataByTopic[topic] = t
		}
	}
	if err := vfs.WriteFileAtomic(m.path, protocol.MarshalFastJSON(f)); err != nil {
		return fmt.Errorf("filter: write %s: %w", m.path, err)
	}
	return nil
}

// Close writes what is not in the file yet and ends the cache's goroutines. Idempotent; the filters
// stay readable.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	err := m.persistLocked()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
	m.cache.close()
	return err
}
