// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"fmt"
	"maps"

	"github.com/skylarkmq/skylark/engine/tablefile"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Put creates or changes one topic; see PutAll.
func (t *Table) Put(c *protocol.TopicConfig) error {
	return t.PutAll([]*protocol.TopicConfig{c})
}

// PutAll creates or changes topics together. The attributes of each are changes: "+name" sets, "-name"
// removes (RocketMQ AttributeUtil); attributes not named stay. A topic that comes out as it was is
// left alone, and if all are, nothing is written. The arguments are copied. An attribute that is not
// allowed refuses the whole call.
func (t *Table) PutAll(cs []*protocol.TopicConfig) error {
	return t.update(func(e *edit) error {
		for _, c := range cs {
			old := e.Get(c.TopicName)
			var have map[string]string
			if old != nil {
				have = old.Attributes
			}
			attributes, err := alter(have, c.Attributes, old == nil)
			if err != nil {
				return err
			}
			made := *c
			made.Attributes = attributes
			if old != nil && equal(old, repaired(&made)) {
				continue
			}
			e.Set(c.TopicName, repaired(&made))
		}
		return nil
	})
}

// Delete removes a topic. A topic that is not there is no error, as in RocketMQ.
func (t *Table) Delete(name string) error {
	return t.update(func(e *edit) error {
		if e.Get(name) != nil {
			e.Set(name, nil)
		}
		return nil
	})
}

// SetOrdered marks the named topics as ordered and all others as not (RocketMQ
// TopicConfigManager.updateOrderTopicConfig, after a registration returned the order table).
func (t *Table) SetOrdered(ordered func(name string) bool) error {
	return t.update(func(e *edit) error {
		for name, c := range e.Before() {
			if want := ordered(name); c.Order != want {
				made := *c
				made.Order = want
				e.Set(name, &made)
			}
		}
		return nil
	})
}

// Bump raises the version without changing a topic, for a change that alters what is registered,
// such as the broker's own permission.
func (t *Table) Bump() error {
	return t.update(func(e *edit) error {
		e.NewVersion = true
		return nil
	})
}

// Persist writes the table as it is. The broker calls it when it stops, so that a table that was
// never changed has a file too.
func (t *Table) Persist() error {
	return t.update(func(e *edit) error {
		e.Write = true
		return nil
	})
}

// edit is what one change makes of the table.
type edit = tablefile.Edit[protocol.TopicConfig]

// change is an edit on its way, and what came of it.
type change struct {
	apply   func(e *edit) error
	err     error
	changed []string // sorted
}

// update has one change made, written to the file and then published, with others that come at the
// same time: it returns when the change is on disk. The same is true for a caller who finds what
// another has just changed. An error of apply leaves the table as it was.
func (t *Table) update(apply func(e *edit) error) error {
	c := &change{apply: apply}
	err := t.changes.Do(c, t.changeAll)
	if c.err != nil {
		return c.err
	}
	if err == nil && len(c.changed) > 0 {
		t.cfg.OnChange(c.changed)
	}
	return err
}

// changeAll makes changes one after the other and writes the file once, for all of them or, when that
// fails, for none.
func (t *Table) changeAll(cs []*change) error {
	old := t.current.Load()
	next := &state{version: old.version, topics: old.topics, entries: old.entries}
	now, write := t.cfg.Now().UnixMilli(), false
	var names []string
	for _, c := range cs {
		e := tablefile.NewEdit(next.topics)
		if c.err = c.apply(&e); c.err != nil {
			continue
		}
		write = write || e.Write
		c.changed = e.Changed()
		if len(c.changed) == 0 && !e.NewVersion {
			continue
		}
		write = true
		next.version.Next(now)
		if len(names) == 0 && len(c.changed) > 0 {
			next.topics = maps.Clone(next.topics)
		}
		e.Apply(next.topics)
		names = append(names, c.changed...)
	}
	if !write {
		return nil
	}
	if err := t.write(next, names); err != nil {
		return err
	}
	t.current.Store(next)
	return nil
}

// write writes the file of a state that follows from the one before by changes of these entries, which
// alone are encoded.
func (t *Table) write(s *state, names []string) error {
	changes := tablefile.Texts(s.entries, s.topics, names, protocol.MarshalFastJSON)
	head := append([]byte(`{"dataVersion":`), protocol.MarshalFastJSON(s.version)...)
	head = append(head, `,"topicConfigTable":{`...)
	data, entries := s.entries.With(head, []byte("}}"), changes)
	if err := vfs.WriteFileAtomic(t.path, data); err != nil {
		return fmt.Errorf("topic: write %s: %w", t.path, err)
	}
	s.entries = entries
	return nil
}
