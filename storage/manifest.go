// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// manifestFile is ours alone; RocketMQ does not look at it. It says how far each queue reached at
// the last clean stop, which is the least that a later start must find: without it a queue whose
// files are gone is noticed only if the scanned end of the log has a message of it. The first line
// is the end of the log; then one line for each queue: its end, its id, its topic.
const manifestFile = "queueEnds"

// saveManifest writes the file. Nobody appends.
func (s *Store) saveManifest() error {
	queues := s.allQueues()
	slices.SortFunc(queues, func(a, b *consumequeue.Queue) int {
		if c := strings.Compare(a.ID().Topic, b.ID().Topic); c != 0 {
			return c
		}
		return int(a.ID().Queue) - int(b.ID().Queue)
	})
	text := fmt.Appendf(nil, "%d\n", s.next)
	for _, q := range queues {
		if end := q.Next(); end > 0 {
			text = fmt.Appendf(text, "%d %d %s\n", end, q.ID().Queue, q.ID().Topic)
		}
	}
	return vfs.WriteFileAtomicIn(s.cfg.fs(), s.path("config", manifestFile), text)
}

// lostQueue returns a queue that ends before where it once ended, if there is one. The file is only
// a hint: when it cannot be read, or names a log that was longer than this one, it says nothing.
func (s *Store) lostQueue() (id QueueID, lost bool) {
	path := s.path("config", manifestFile)
	text, err := os.ReadFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Notice("list of queue ends not read", "path", path, "err", err)
		}
		return id, false
	}
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	var logEnd record.PhysicalOffset
	if _, err := fmt.Sscan(string(head), &logEnd); err != nil || logEnd > s.log.Wrote() {
		return id, false
	}
	for line := range bytes.Lines(rest) {
		var end record.QueueOffset
		var queue int32
		first, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		second, topic, ok := strings.Cut(rest, " ")
		if _, err := fmt.Sscan(first, &end); err != nil || !ok {
			continue
		}
		if _, err := fmt.Sscan(second, &queue); err != nil {
			continue
		}
		if below, deleted := s.deleted[topic]; deleted && below >= logEnd {
			continue
		}
		q := s.lookup([]byte(topic), queue)
		if q == nil || q.Next() < end {
			return QueueID{Topic: topic, Queue: queue}, true
		}
	}
	return id, false
}
