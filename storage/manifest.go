// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// manifestFile is ours alone; RocketMQ does not look at it. It says how far each queue reached at
// the last clean stop, or the last checkpoint behind that, which is the least that a later start must find: without it a queue whose
// files are gone is noticed only if the scanned end of the log has a message of it, and one whose
// messages are gone from the log would begin at 0 again. The first line is the end of the log; then
// one line for each queue: its end, its id, its topic.
const manifestFile = "queueEnds"

// saveManifest writes the file. Nobody appends.
func (s *Store) saveManifest() error {
	text := s.manifest((*consumequeue.Queue).Written, func() record.PhysicalOffset { return s.next })
	s.endsMu.Lock()
	defer s.endsMu.Unlock()
	return vfs.ReplaceFileIn(s.cfg.fs(), s.path("config", manifestFile), text)
}

// noteEnds writes the file beside the appenders, of the units that are on disk. Their records are made
// so first: what the file says must hold for a log that a power loss cuts. It comes before the
// checkpoint, behind which a start looks no more for queues that are missing.
func (s *Store) noteEnds() {
	s.mu.Lock() // no deletion is under way
	deletions := s.deletions.Load()
	s.mu.Unlock()
	text := s.manifest((*consumequeue.Queue).Flushed, func() record.PhysicalOffset {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.next
	})
	if s.log.Flush() != nil {
		return // logFailed has told
	}
	s.endsMu.Lock()
	defer s.endsMu.Unlock()
	if s.deletions.Load() != deletions {
		return // it may name a deleted topic; the next one does not
	}
	err := vfs.ReplaceFileIn(s.cfg.fs(), s.path("config", manifestFile), text)
	if err != nil {
		s.cfg.Notice("list of queue ends not written", "err", err)
	}
}

// manifest makes the content. logEnd is asked after the ends, so that it lies behind their records.
func (s *Store) manifest(
	endOf func(*consumequeue.Queue) record.QueueOffset, logEnd func() record.PhysicalOffset,
) []byte {
	queues := s.allQueues()
	slices.SortFunc(queues, func(a, b *consumequeue.Queue) int {
		return cmp.Or(strings.Compare(a.ID().Topic, b.ID().Topic), cmp.Compare(a.ID().Queue, b.ID().Queue))
	})
	var lines []byte
	for _, q := range queues {
		if end := endOf(q); end > 0 {
			lines = strconv.AppendInt(lines, int64(end), 10)
			lines = strconv.AppendInt(append(lines, ' '), int64(q.ID().Queue), 10)
			lines = append(append(append(lines, ' '), q.ID().Topic...), '\n')
		}
	}
	return append(fmt.Appendf(nil, "%d\n", logEnd()), lines...)
}

// knownEnds returns where queues ended at the last clean stop, as far as that is known and holds for
// a log that ends at logEnd. The file is only a hint: when it cannot be read, or names a log that
// was longer than this one, it says nothing.
func (s *Store) knownEnds(logEnd record.PhysicalOffset) map[QueueID]record.QueueOffset {
	ends := map[QueueID]record.QueueOffset{}
	path := s.path("config", manifestFile)
	text, err := os.ReadFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Notice("list of queue ends not read", "path", path, "err", err)
		}
		return ends
	}
	head, rest, _ := strings.Cut(string(text), "\n")
	then, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		s.cfg.Notice("list of queue ends not read", "path", path, "err", err)
		return ends
	}
	if then > int64(logEnd) {
		return ends
	}
	for line := range strings.Lines(rest) {
		first, line, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		second, topic, ok := strings.Cut(line, " ")
		end, err := strconv.ParseInt(first, 10, 64)
		if err != nil || !ok {
			continue
		}
		queue, err := strconv.ParseInt(second, 10, 32)
		if err != nil {
			continue
		}
		if below, deleted := s.deleted[topic]; deleted && int64(below) >= then {
			continue
		}
		if end <= 0 || end > then/record.MinSize {
			continue // so many records never were in the log
		}
		ends[QueueID{Topic: topic, Queue: int32(queue)}] = record.QueueOffset(end)
	}
	return ends
}

// lostQueue returns a queue that ends before where it once ended, if there is one.
func (s *Store) lostQueue() (id QueueID, lost bool) {
	for id, end := range s.knownEnds(s.log.Wrote()) {
		if q := s.lookup([]byte(id.Topic), id.Queue); q == nil || q.Written() < end {
			return id, true
		}
	}
	return id, false
}

// forgetEnds takes a topic out of the file: its queues begin at 0 again.
func (s *Store) forgetEnds(topic string) error {
	s.endsMu.Lock()
	defer s.endsMu.Unlock()
	path := s.path("config", manifestFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(text) {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 3)
		if len(fields) == 3 && string(fields[2]) == topic {
			continue
		}
		kept = append(kept, line...)
	}
	if len(kept) == len(text) {
		return nil
	}
	return vfs.ReplaceFileIn(s.cfg.fs(), path, kept)
}

// restoreEnds gives the queues back the ends that the log no longer tells, since their last messages
// have been deleted with its oldest files: a queue offset is given once. The whole log has been
// dispatched. Queues of batch topics, which have no unit without a message, are left out.
func (s *Store) restoreEnds(ends map[QueueID]record.QueueOffset) (units int64, err error) {
	if s.log.Min() == 0 {
		return 0, nil // no message was ever deleted
	}
	for id, end := range ends {
		q, err := s.create(id.Topic, id.Queue)
		if err != nil || q.Batch() || q.Written() >= end {
			continue
		}
		was := q.Written()
		if err := q.EndAt(end); err != nil {
			return units, err
		}
		units += int64(end - was)
		s.cfg.Notice("queue goes on where it ended, its last messages are gone from the log",
			"topic", id.Topic, "queue", id.Queue, "end", end)
	}
	return units, nil
}
