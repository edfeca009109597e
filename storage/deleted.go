// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// deletedFile is ours alone; RocketMQ does not look at it. An empty line, then one for each deleted
// topic: the end of the log at that time, a space, the topic.
const deletedFile = "deletedTopics"

// noteDeletedLocked remembers where the log was when a topic was deleted, so that a recovery does
// not bring its old messages back. The list is kept as long as the log has such records.
func (s *Store) noteDeletedLocked(topic string) error {
	if s.deleted == nil {
		s.deleted = map[string]record.PhysicalOffset{}
	}
	s.deleted[topic] = s.next
	oldest := s.log.Min()
	for name, below := range s.deleted {
		if below <= oldest {
			delete(s.deleted, name)
		}
	}
	return s.saveDeleted()
}

func (s *Store) saveDeleted() error {
	names := slices.Sorted(maps.Keys(s.deleted))
	text := []byte("\n") // a file without a byte is a damaged one
	for _, name := range names {
		text = fmt.Appendf(text, "%d %s\n", s.deleted[name], name)
	}
	return vfs.WriteFileAtomicIn(s.cfg.fs(), s.path("config", deletedFile), text)
}

// cutDeleted makes the list agree with a log that ends at end. What a power loss took from the log
// lay behind a deletion or before it; new messages come there, and a recovery must not take them for
// deleted ones.
func (s *Store) cutDeleted(end record.PhysicalOffset) error {
	changed := false
	for topic, below := range s.deleted {
		if below > end {
			s.deleted[topic] = end
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return s.saveDeleted()
}

// dropDeleted removes the queues of deleted topics whose files are still, or again, there, because
// the crash came while they were removed, and returns the others. from is where the records of the
// removed ones must be dispatched from.
func (s *Store) dropDeleted(
	states []consumequeue.State,
) (kept []consumequeue.State, from record.PhysicalOffset, err error) {
	from = math.MaxInt64
	gone := map[string]bool{}
	for _, st := range states {
		// A queue without a message goes too: only the end of an empty file may have come back, and
		// what the topic got since is dispatched again, as the log has all of it.
		topic := st.Queue.ID().Topic
		below, ok := s.deleted[topic]
		if ok && (st.First >= 0 && st.First < below || st.First < 0 && below > s.log.Min()) {
			gone[topic] = true
		}
	}
	for topic := range gone {
		s.cfg.Notice("topic was deleted, its queues are removed now", "topic", topic)
		if err := s.deleteQueues(topic); err != nil {
			return nil, 0, err
		}
		from = min(from, s.deleted[topic])
	}
	for _, st := range states {
		if !gone[st.Queue.ID().Topic] {
			kept = append(kept, st)
		}
	}
	return kept, from, nil
}

// loadDeleted reads the list; a missing one is empty.
func (s *Store) loadDeleted() error {
	path := s.path("config", deletedFile)
	loaded, err := vfs.LoadTable(vfs.Table{
		FS: s.cfg.fs(), Path: path, What: "list of deleted topics", AllowEmpty: s.cfg.AllowEmpty,
		Notice: s.cfg.Notice,
	}, func(text []byte) error {
		s.deleted = map[string]record.PhysicalOffset{}
		for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\n"))) {
			at, topic, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
			below, err := strconv.ParseInt(string(at), 10, 64)
			if !ok || err != nil {
				return fmt.Errorf("line %q is not an offset and a topic", line)
			}
			s.deleted[string(topic)] = record.PhysicalOffset(below)
		}
		return nil
	})
	if !loaded {
		s.deleted = nil
	}
	return err
}
