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
			made.Attributes = mergeAttributes(e.Get(c.GroupName), c.Attributes)
			e.Set(c.GroupName, &made)
		}
		e.NewVersion = true
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
		old := e.Get(name)
		if old == nil || !old.ConsumeEnable {
			return
		}
		made := *old
		made.ConsumeEnable = false
		e.Set(name, &made)
	})
}

// Delete removes a group and what is forbidden to it. A group that is not there is no error.
func (t *Configs) Delete(name string) error {
	return t.update(func(e *configEdit) {
		if e.Get(name) == nil && e.forbidden[name] == nil {
			return
		}
		e.Set(name, nil)
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
	tablefile.Edit[protocol.SubscriptionGroupConfig]

	forbidden map[string]map[string]int32 // cloned before it is changed
	touched   []string                    // groups for which that was
}

// configChange is an edit on its way, and what came of it.
type configChange struct {
	apply   func(e *configEdit)
	changed []string // sorted
}

// Persist writes the table as it is. The broker calls it when it stops.
func (t *Configs) Persist() error {
	return t.update(func(e *configEdit) { e.Write = true })
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
	now, write := t.cfg.Now().UnixMilli(), false
	var names []string
	for _, c := range cs {
		e := &configEdit{Edit: tablefile.NewEdit(next.groups), forbidden: next.forbidden}
		c.apply(e)
		write = write || e.Write
		changed := e.Changed()
		if len(changed) == 0 && len(e.touched) == 0 && !e.NewVersion {
			continue
		}
		write = true
		next.version.Next(now)
		next.forbidden = e.forbidden
		if len(names) == 0 && len(changed) > 0 {
			next.groups = maps.Clone(next.groups)
		}
		e.Apply(next.groups)
		names = append(names, changed...)
		c.changed = append(e.touched, changed...)
		slices.Sort(c.changed)
	}
	if !write {
		return nil
	}
	if err := t.write(&next, names); err != nil {
		return err
	}
	t.current.Store(&next)
	return nil
}

// write writes the file of a state that follows from the one before by changes of these entries, which
// alone are encoded.
func (t *Configs) write(s *configState, names []string) error {
	changes := tablefile.Texts(s.entries, s.groups, names, protocol.MarshalFastJSON)
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
