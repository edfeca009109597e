// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"io/fs"
	"math"
	"strings"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// oldQueues is what Rebuild takes from the queues that it replaces: what the log does not tell.
type oldQueues struct {
	s   *Store
	set *consumequeue.Set // nil when they cannot be read
	// ends is where those queues end whose last messages are gone from the log.
	ends map[QueueID]record.QueueOffset
	// light is where the light queues end. A record names them, but only of those that are there is it
	// known that they are wanted.
	light map[QueueID]record.QueueOffset
	// extended says that units may point to records of ConsumeQueueExt, which nothing makes again.
	extended bool
}

func isLight(id QueueID) bool { return id.Queue == 0 && strings.HasPrefix(id.Topic, lmqPrefix) }

// openOld reads the queues of a store. Reading them may cut what is damaged, so it is noted before that
// they are not to be trusted.
func (s *Store) openOld() (*oldQueues, error) {
	o := &oldQueues{
		s: s, ends: map[QueueID]record.QueueOffset{}, light: map[QueueID]record.QueueOffset{},
	}
	topics, err := s.cfg.fs().ReadDir(s.path("consumequeue"))
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		if id := (QueueID{Topic: topic.Name()}); topic.IsDir() && isLight(id) {
			o.light[id] = math.MaxInt64 - lightGap // until it is known better
		}
	}
	if err := s.noteDispatchAll(); err != nil {
		return nil, err
	}
	set, err := consumequeue.Open(consumequeue.Config{
		FS: s.cfg.FS, Dir: s.path("consumequeue"), FileSize: s.cfg.QueueFileSize,
		MaxOpen: s.cfg.QueueFilesOpen,
	})
	if err != nil {
		return nil, err
	}
	oldest := s.log.Min()
	states, _, err := set.Load(consumequeue.Bounds{
		LogEnd: s.log.Wrote(), Trusted: s.log.Wrote(), LogMin: oldest,
	})
	if err != nil {
		set.Close()
		s.cfg.Notice("old queues cannot be read, how far they went is taken from the last clean stop",
			"err", err)
		return o, nil
	}
	o.set, o.extended = set, s.hasExtensions()
	for _, st := range states {
		o.look(st, oldest)
	}
	return o, nil
}

// look notes what one queue tells.
func (o *oldQueues) look(st consumequeue.State, oldest record.PhysicalOffset) {
	id, end := st.Queue.ID(), st.Queue.Written()
	if isLight(id) {
		o.light[id] = end
	}
	below, deleted := o.s.deleted[id.Topic]
	if oldest == 0 || deleted && below > st.First {
		return
	}
	if end > 0 && st.End <= oldest {
		o.ends[id] = end
	}
}

// hasExtensions reports whether RocketMQ ran with enableConsumeQueueExt.
func (s *Store) hasExtensions() bool {
	topics, err := s.cfg.fs().ReadDir(s.path("consumequeue_ext"))
	return err == nil && len(topics) > 0
}

// kinds completes what the configuration says about topics: one that it does not know, whose table of
// topics may be lost, has the kind of queue that it had.
func (o *oldQueues) kinds(
	configured func(topic string) (batch, known bool),
) func(topic string) (batch, known bool) {
	return func(topic string) (batch, known bool) {
		if batch, known = configured(topic); known {
			return batch, true
		}
		_, err := o.s.cfg.fs().Stat(o.s.path("batchconsumequeue", topic))
		return err == nil, err == nil
	}
}

func (o *oldQueues) close() {
	if o.set != nil {
		o.set.Close()
	}
}

// createLight makes the light queues that are to be made anew, so that records that name them find
// them.
func (r *recovery) createLight() error {
	for id := range r.light {
		if _, err := r.s.queues.Create(id.Topic, id.Queue); err != nil {
			return err
		}
	}
	return nil
}

// lostLight finds the light queues of the last clean stop that have no unit any more: the whole log is
// dispatched, which fills them again.
func (r *recovery) lostLight() error {
	r.light = map[QueueID]record.QueueOffset{}
	for id, end := range r.s.knownEnds(r.s.log.Wrote()) {
		if q := r.s.queues.Lookup([]byte(id.Topic), id.Queue); isLight(id) && (q == nil || q.Written() == 0) {
			r.light[id] = end
		}
	}
	return r.createLight()
}

// tags returns the tags code of a unit: that of the unit of the same record before, where it was the
// address of a record of ConsumeQueueExt.
func (r *recovery) tags(q *consumequeue.Queue, at record.QueueOffset, u consumequeue.Unit) int64 {
	if r.old == nil {
		return u.TagsCode
	}
	id := q.ID()
	was := r.old.Lookup([]byte(id.Topic), id.Queue)
	if was == nil {
		return u.TagsCode
	}
	if old, ok := was.Unit(at); ok && old.At == u.At && old.Size == u.Size && old.Ext() {
		return old.TagsCode
	}
	return u.TagsCode
}
