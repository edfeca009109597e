// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/skylarkmq/skylark/storage/consumequeue"
)

// A store has two sets of queues, for topics of the two values of the attribute queue.type: plain
// ones (SimpleCQ), with a unit for each queue offset, and batch queues (BatchCQ), with a unit for
// each record. A topic has queues in one of them. What is here hides that from the rest.

// openQueues makes the sets, without reading them.
func (s *Store) openQueues() (err error) {
	s.queues, err = consumequeue.Open(consumequeue.Config{
		FS: s.cfg.FS, Dir: s.path("consumequeue" + s.suffix), FileSize: s.cfg.QueueFileSize,
		MaxOpen: s.cfg.QueueFilesOpen, OnOpen: s.maintainer.wake,
	})
	if err != nil {
		return err
	}
	s.batches, err = consumequeue.Open(consumequeue.Config{
		FS: s.cfg.FS, Dir: s.path("batchconsumequeue" + s.suffix), FileSize: s.cfg.BatchFileSize, Batch: true,
		MaxOpen: s.cfg.QueueFilesOpen, OnOpen: s.maintainer.wake,
	})
	return err
}

// loadQueues reads both sets. Queues of the kind that the topic no longer has are set aside first;
// again says that there were some, so that the others must be made from the whole log.
func (s *Store) loadQueues(
	b consumequeue.Bounds,
) (states []consumequeue.State, again bool, err error) {
	for _, kind := range []struct {
		dir   string
		batch bool
		set   *consumequeue.Set
	}{
		{"consumequeue", false, s.queues},
		{"batchconsumequeue", true, s.batches},
	} {
		moved, err := s.setOtherKindAside(kind.dir, kind.batch)
		if err != nil {
			return nil, false, err
		}
		again = again || moved
		b.Keep = keepUnits
		found, foreign, err := kind.set.Load(b)
		if err != nil {
			return nil, false, err
		}
		for _, path := range foreign {
			s.cfg.Notice("file is no queue file and ignored", "path", path)
		}
		states = append(states, found...)
	}
	return states, again, nil
}

// keepUnits is how many bytes of the ends of queues stay in memory while a start compares them with the
// log: those of 100 000 small queues, or the last 64 KiB of a thousand.
const keepUnits = 64 << 20

// setOtherKindAside renames the folders of topics whose configuration says the other kind. A crash
// can leave one when a topic was deleted and made again with the other queue.type; RocketMQ does not
// start then.
func (s *Store) setOtherKindAside(dir string, batch bool) (moved bool, err error) {
	topics, err := os.ReadDir(s.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, topic := range topics {
		is, known := s.cfg.BatchTopic(topic.Name())
		if !topic.IsDir() || !known || is == batch {
			continue
		}
		aside := s.path(dir + ".other-kind." + strconv.FormatInt(s.cfg.Now().UnixMilli(), 10))
		if err := s.cfg.fs().MkdirAll(aside); err != nil {
			return moved, err
		}
		from, to := s.path(dir, topic.Name()), aside+"/"+topic.Name()
		if err := s.cfg.fs().Rename(from, to); err != nil {
			return moved, err
		}
		moved = true
		s.cfg.Notice("queues are not of the kind that the topic's queue.type says, they are set aside "+
			"and made anew", "topic", topic.Name(), "path", to)
	}
	return moved, nil
}

// lookup returns a queue of either kind, or nil. Cost: no allocation; one look-up more for a queue
// that is not plain.
func (s *Store) lookup(topic []byte, queue int32) *consumequeue.Queue {
	if q := s.queues.Lookup(topic, queue); q != nil {
		return q
	}
	return s.batches.Lookup(topic, queue)
}

// create returns a queue of the kind that its topic has, and makes it when it is not there.
func (s *Store) create(topic string, queue int32) (*consumequeue.Queue, error) {
	if q := s.lookup([]byte(topic), queue); q != nil {
		return q, nil
	}
	if batch, _ := s.cfg.BatchTopic(topic); batch {
		return s.batches.Create(topic, queue)
	}
	return s.queues.Create(topic, queue)
}

// allQueues returns the queues of both kinds, in no order.
func (s *Store) allQueues() []*consumequeue.Queue {
	return append(s.queues.All(), s.batches.All()...)
}

// flushUnits flushes both sets, see consumequeue.Set.Flush.
func (s *Store) flushUnits(leastPages int64) (more bool, err error) {
	more, err = s.queues.Flush(leastPages)
	moreBatches, errBatches := s.batches.Flush(leastPages)
	if err == nil {
		err = errBatches
	}
	return more || moreBatches, err
}

// deleteQueues removes the queues of a topic, and whatever a crash left of them.
func (s *Store) deleteQueues(topic string) error {
	return errors.Join(s.queues.Delete(topic), s.batches.Delete(topic))
}

func (s *Store) queueFilesOpen() int { return s.queues.OpenFiles() + s.batches.OpenFiles() }
