// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"fmt"
	"maps"
	"slices"

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
			old := e.get(c.TopicName)
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
			e.set(c.TopicName, repaired(&made))
		}
		return nil
	})
}

// Delete removes a topic. A topic that is not there is no error, as in RocketMQ.
func (t *Table) Delete(name string) error {
	return t.update(func(e *edit) error {
		if e.get(name) != nil {
			e.set(name, nil)
		}
		return nil
	})
}

// SetOrdered marks the named topics as ordered and all others as not (RocketMQ
// TopicConfigManager.updateOrderTopicConfig, after a registration returned the order table).
func (t *Table) SetOrdered(ordered func(name string) bool) error {
	return t.update(func(e *edit) error {
		for name, c := range e.topics {
			if want := ordered(name); c.Order != want {
				made := *c
				made.Order = want
				e.set(name, &made)
			}
		}
		return nil
	})
}

// Bump raises the version without changing a topic, for a change that alters what is registered,
// such as the broker's own permission.
func (t *Table) Bump() error {
	return t.update(func(e *edit) error {
		e.newVersion = true
		return nil
	})
}

// Persist writes the table as it is. The broker calls it when it stops, so that a table that was
// never changed has a file too.
func (t *Table) Persist() error {
	return t.update(func(e *edit) error {
		e.write = true
		return nil
	})
}

// edit is what one change makes of the table.
type edit struct {
	topics  map[string]*protocol.TopicConfig // before it; not to be changed
	changed map[string]*protocol.TopicConfig // nil: removed

	newVersion bool // even if no topic has changed
	write      bool // even if nothing has changed
}

func (e *edit) get(name string) *protocol.TopicConfig {
	if c, ok := e.changed[name]; ok {
		return c
	}
	return e.topics[name]
}

func (e *edit) set(name string, c *protocol.TopicConfig) {
	if e.changed == nil {
		e.changed = map[string]*protocol.TopicConfig{}
	}
	e.changed[name] = c
}

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
	now, owned, write := t.cfg.Now().UnixMilli(), false, false
	for _, c := range cs {
		e := &edit{topics: next.topics}
		if c.err = c.apply(e); c.err != nil {
			continue
		}
		write = write || e.write
		if len(e.changed) == 0 && !e.newVersion {
			continue
		}
		write = true
		next.version.Next(now)
		if len(e.changed) > 0 && !owned {
			next.topics, owned = maps.Clone(next.topics), true
		}
		for name, config := range e.changed {
			if next.topics[name] = config; config == nil {
				delete(next.topics, name)
			}
		}
		c.changed = slices.Sorted(maps.Keys(e.changed))
	}
	if !write {
		return nil
	}
	if err := t.write(next, cs); err != nil {
		return err
	}
	t.current.Store(next)
	return nil
}

// write writes the file of a state that follows from the one before by changes, of which only these are
// encoded.
func (t *Table) write(s *state, cs []*change) error {
	var changes []tablefile.Change
	add := func(name string) {
		c := tablefile.Change{Name: name}
		if config := s.topics[name]; config != nil {
			c.Text = append(protocol.MarshalFastJSON(name), ':')
			c.Text = append(c.Text, protocol.MarshalFastJSON(config)...)
		}
		changes = append(changes, c)
	}
	if s.entries == nil {
		for name := range s.topics {
			add(name)
		}
	} else {
		for _, c := range cs {
			for _, name := range c.changed {
				add(name)
			}
		}
	}
	head := append([]byte(`{"dataVersion":`), protocol.MarshalFastJSON(s.version)...)
	head = append(head, `,"topicConfigTable":{`...)
	data, entries := s.entries.With(head, []byte("}}"), changes)
	if err := vfs.WriteFileAtomic(t.path, data); err != nil {
		return fmt.Errorf("topic: write %s: %w", t.path, err)
	}
	s.entries = entries
	return nil
}
