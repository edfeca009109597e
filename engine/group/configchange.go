// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/engine/tablefile"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Put creates or replaces one group; see PutAll.
func (t *Configs) Put(c *protocol.SubscriptionGroupConfig) error {
	return t.PutAll([]*protocol.SubscriptionGroupConfig{c})
}

// PutAll creates or replaces groups together. Attributes whose names begin with "+" are set, with "-"
// removed, others taken as they are. The arguments are copied.
func (t *Configs) PutAll(cs []*protocol.SubscriptionGroupConfig) error {
	return t.update(func(e *configEdit) {
		for _, c := range cs {
			made := *c
			made.Attributes = mergeAttributes(e.get(c.GroupName), c.Attributes)
			e.set(c.GroupName, &made)
		}
		e.newVersion = true
	})
}

func mergeAttributes(
	old *protocol.SubscriptionGroupConfig, changes map[string]string,
) map[string]string {
	merged := map[string]string{}
	if old != nil {
		maps.Copy(merged, old.Attributes)
	}
	for key, value := range changes {
		switch {
		case strings.HasPrefix(key, "-"):
			delete(merged, key[1:])
		default:
			merged[strings.TrimPrefix(key, "+")] = value
		}
	}
	return merged
}

// DisableConsume turns a group's consume switch off, as the broker does to protect itself from a
// group that reads too far behind.
func (t *Configs) DisableConsume(name string) error {
	return t.update(func(e *configEdit) {
		old := e.get(name)
		if old == nil || !old.ConsumeEnable {
			return
		}
		made := *old
		made.ConsumeEnable = false
		e.set(name, &made)
	})
}

// Delete removes a group and what is forbidden to it. A group that is not there is no error.
func (t *Configs) Delete(name string) error {
	return t.update(func(e *configEdit) {
		if e.get(name) == nil && e.forbidden[name] == nil {
			return
		}
		e.set(name, nil)
		if e.forbidden[name] != nil {
			e.forbidden = maps.Clone(e.forbidden)
			delete(e.forbidden, name)
		}
	})
}

// SetForbidden sets or clears bits of a mask. It differs from RocketMQ in that a mask that becomes
// zero removes only its own topic and is written to the file.
func (t *Configs) SetForbidden(group, topic string, bits int32, on bool) error {
	return t.update(func(e *configEdit) {
		old := e.forbidden[group][topic]
		mask := old &^ bits
		if on {
			mask = old | bits
		}
		if mask == old {
			return
		}
		e.forbidden = maps.Clone(e.forbidden)
		forbid(e.forbidden, group, topic, mask)
		e.touched = append(e.touched, group)
	})
}

// configEdit is what one change makes of the table.
type configEdit struct {
	groups  map[string]*protocol.SubscriptionGroupConfig // before it; not to be changed
	changed map[string]*protocol.SubscriptionGroupConfig // nil: removed

	forbidden  map[string]map[string]int32 // cloned before it is changed
	touched    []string                    // groups for which that was
	newVersion bool                        // even if no group has changed
	write      bool                        // even if nothing has changed
}

func (e *configEdit) get(name string) *protocol.SubscriptionGroupConfig {
	if c, ok := e.changed[name]; ok {
		return c
	}
	return e.groups[name]
}

func (e *configEdit) set(name string, c *protocol.SubscriptionGroupConfig) {
	if e.changed == nil {
		e.changed = map[string]*protocol.SubscriptionGroupConfig{}
	}
	e.changed[name] = c
}

// configChange is an edit on its way, and what came of it.
type configChange struct {
	apply   func(e *configEdit)
	changed []string // sorted
}

// Persist writes the table as it is. The broker calls it when it stops.
func (t *Configs) Persist() error {
	return t.update(func(e *configEdit) { e.write = true })
}

// update has one change made, written to the file and then published, with others that come at the
// same time: it returns when the change is on disk. The same is true for a caller who finds what
// another has just changed.
func (t *Configs) update(apply func(e *configEdit)) error {
	c := &configChange{apply: apply}
	err := t.changes.Do(c, t.changeAll)
	if err == nil && len(c.changed) > 0 {
		t.cfg.OnChange(c.changed)
	}
	return err
}

// changeAll makes changes one after the other and writes the file once, for all of them or, when that
// fails, for none.
func (t *Configs) changeAll(cs []*configChange) error {
	old := t.current.Load()
	next := *old
	now, owned, write := t.cfg.Now().UnixMilli(), false, false
	for _, c := range cs {
		e := &configEdit{groups: next.groups, forbidden: next.forbidden}
		c.apply(e)
		write = write || e.write
		if len(e.changed) == 0 && len(e.touched) == 0 && !e.newVersion {
			continue
		}
		write = true
		next.version.Next(now)
		next.forbidden = e.forbidden
		if len(e.changed) > 0 && !owned {
			next.groups, owned = maps.Clone(next.groups), true
		}
		for name, config := range e.changed {
			if next.groups[name] = config; config == nil {
				delete(next.groups, name)
			}
		}
		c.changed = slices.AppendSeq(e.touched, maps.Keys(e.changed))
		slices.Sort(c.changed)
	}
	if !write {
		return nil
	}
	if err := t.write(&next, cs); err != nil {
		return err
	}
	t.current.Store(&next)
	return nil
}

// write writes the file of a state that follows from the one before by changes, of which only these are
// encoded.
func (t *Configs) write(s *configState, cs []*configChange) error {
	var changes []tablefile.Change
	add := func(name string) {
		c := tablefile.Change{Name: name}
		if config := s.groups[name]; config != nil {
			c.Text = append(protocol.MarshalFastJSON(name), ':')
			c.Text = append(c.Text, protocol.MarshalFastJSON(config)...)
		}
		changes = append(changes, c)
	}
	if s.entries == nil {
		for name := range s.groups {
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
	head = append(append(head, `,"forbiddenTable":`...), protocol.MarshalFastJSON(s.forbidden)...)
	head = append(head, `,"subscriptionGroupTable":{`...)
	data, entries := s.entries.With(head, []byte("}}"), changes)
	if err := vfs.WriteFileAtomic(t.path, data); err != nil {
		return fmt.Errorf("group: write %s: %w", t.path, err)
	}
	s.entries = entries
	return nil
}
