// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// deletedFile is ours alone; RocketMQ does not look at it. One line for each deleted topic: the end
// of the log at that time, a space, the topic.
const deletedFile = "deletedTopics"

// noteDeletedLocked remembers where the log was when a topic was deleted, so that a recovery does
// not bring its old messages back. The list is kept as long as the log has such records.
func (s *Store) noteDeletedLocked(topic string) error {
	if s.deleted == nil {
		s.deleted = map[string]record.PhysicalOffset{}
	}
	s.deleted[topic] = s.next
	oldest := s.log.Min()
	names := make([]string, 0, len(s.deleted))
	for name, below := range s.deleted {
		if below <= oldest {
			delete(s.deleted, name)
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	var text []byte
	for _, name := range names {
		text = fmt.Appendf(text, "%d %s\n", s.deleted[name], name)
	}
	return s.saveDeleted(text)
}

func (s *Store) saveDeleted(text []byte) error {
	return vfs.WriteFileAtomicIn(s.cfg.fs(), s.path("config", deletedFile), text)
}

// loadDeleted reads the list; a missing one is empty.
func (s *Store) loadDeleted() error {
	path := s.path("config", deletedFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.deleted = map[string]record.PhysicalOffset{}
	for line := range bytes.Lines(text) {
		at, topic, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		below, err := strconv.ParseInt(string(at), 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("%s: line %q is not an offset and a topic", path, line)
		}
		s.deleted[string(topic)] = record.PhysicalOffset(below)
	}
	return nil
}
