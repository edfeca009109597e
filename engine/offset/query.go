// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"slices"
	"strconv"
)

// each visits every entry under its shard's read lock.
func (t *Table) each(visit func(k key, queues map[int32]*slot)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for k, queues := range s.entries {
			visit(k, queues)
		}
		s.mu.RUnlock()
	}
}

// committed lists the queues of an entry that have a committed offset; nil when there are none.
func committed(queues map[int32]*slot) map[int32]int64 {
	var offsets map[int32]int64
	for id, q := range queues {
		if off := q.committed.Load(); off != none {
			if offsets == nil {
				offsets = make(map[int32]int64, len(queues))
			}
			offsets[id] = off
		}
	}
	return offsets
}

// Topics lists the topics of which a group has committed offsets, sorted.
func (t *Table) Topics(group string) []string {
	var topics []string
	t.each(func(k key, queues map[int32]*slot) {
		if k.group == group && committed(queues) != nil {
			topics = append(topics, k.topic)
		}
	})
	slices.Sort(topics)
	return topics
}

// Groups lists the groups that have committed offsets of a topic, sorted.
func (t *Table) Groups(topic string) []string {
	var groups []string
	t.each(func(k key, queues map[int32]*slot) {
		if k.topic == topic && committed(queues) != nil {
			groups = append(groups, k.group)
		}
	})
	slices.Sort(groups)
	return groups
}

// Queues returns a copy of a group's committed offsets of a topic by queue id.
func (t *Table) Queues(group, topic string) map[int32]int64 {
	s := t.shardOf([]byte(group), []byte(topic))
	s.mu.RLock()
	defer s.mu.RUnlock()
	return committed(s.entries[key{group, topic}])
}

// Clone gives a group the offsets that another has of a topic; offsets it already has of queues
// that the other knows are replaced.
func (t *Table) Clone(from, to, topic string) {
	for queue, off := range t.Queues(from, topic) {
		t.Commit([]byte(to), []byte(topic), queue, off)
	}
}

// Snapshot returns every committed offset and every pull offset in the form of the file:
// "topic@group" to queue id to offset.
func (t *Table) Snapshot() (offsets, pulled map[string]map[int32]int64) {
	offsets, pulled = map[string]map[int32]int64{}, map[string]map[int32]int64{}
	t.each(func(k key, queues map[int32]*slot) {
		name := k.topic + separator + k.group
		if own := committed(queues); own != nil {
			offsets[name] = own
		}
		for id, q := range queues {
			if off := q.pulled.Load(); off != none {
				if pulled[name] == nil {
					pulled[name] = map[int32]int64{}
				}
				pulled[name][id] = off
			}
		}
	})
	return offsets, pulled
}

// pending returns every reset that no consumer has taken, in the form of the file; nil when there are
// none.
func (t *Table) pending() map[string]map[string]int64 {
	if t.resets.Load() == 0 {
		return nil
	}
	var all map[string]map[string]int64
	t.each(func(k key, queues map[int32]*slot) {
		var own map[string]int64
		for id, q := range queues {
			off := q.reset.Load()
			if off == none {
				continue
			}
			if own == nil {
				own = map[string]int64{}
			}
			own[strconv.Itoa(int(id))] = off
		}
		if own == nil {
			return
		}
		if all == nil {
			all = map[string]map[string]int64{}
		}
		all[k.topic+separator+k.group] = own
	})
	return all
}
