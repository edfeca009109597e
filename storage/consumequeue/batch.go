// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"fmt"
	"sort"

	"github.com/skylarkmq/skylark/storage/record"
)

// A batch queue has a unit for each record, and a record may hold several messages. So a message's
// queue offset does not tell where its unit is: positions, which all other methods of Queue take and
// return, count units here. The methods below translate. In a queue of the plain kind the two are the
// same.

// messages are the queue offsets of a batch queue. Not used by plain queues.
type messages struct {
	next  record.QueueOffset // writer: behind the last message that was written
	shown record.QueueOffset // writer: behind the last one that readers may see
	low   record.QueueOffset // first message of the unit at Queue.min, when there is one
}

// Batch reports whether q is a batch queue.
func (q *Queue) Batch() bool { return q.set.cfg.Batch }

// Next returns the queue offset that the next message gets.
func (q *Queue) Next() record.QueueOffset {
	if !q.set.cfg.Batch {
		return q.Written()
	}
	q.messagesMu.Lock()
	defer q.messagesMu.Unlock()
	return q.messages.next
}

// Max returns the first queue offset that readers do not see yet (RocketMQ's max offset).
func (q *Queue) Max() record.QueueOffset {
	if !q.set.cfg.Batch {
		return q.End()
	}
	q.messagesMu.Lock()
	defer q.messagesMu.Unlock()
	return q.messages.shown
}

// Low returns the first queue offset whose record the log has; it equals Max when there is none.
func (q *Queue) Low() record.QueueOffset {
	if !q.set.cfg.Batch {
		return q.Min()
	}
	q.messagesMu.Lock()
	defer q.messagesMu.Unlock()
	if q.min.Load() >= q.end.Load() {
		return q.messages.shown
	}
	return min(q.messages.low, q.messages.shown)
}

// AppendBatch writes the unit of the next record of a batch queue, whose Base must not be below
// Next; Prepare made room for it. Readers see it after Publish.
func (q *Queue) AppendBatch(u BatchUnit) {
	if next := q.Next(); u.Base < next || !u.valid() {
		panic(fmt.Sprintf("consumequeue: append %+v to batch queue %s, which ends at %d", u, q.id, next))
	}
	at := q.written.Load()
	u.Encode(q.slot(at))
	q.messagesMu.Lock()
	q.messages.next = u.Behind()
	if q.min.Load() == at {
		q.messages.low = u.Base
	}
	q.written.Store(at + 1)
	q.messagesMu.Unlock()
	if !q.dirty.Load() {
		q.set.addDirty(q)
	}
}

// PutBatch appends a unit during recovery. It publishes at once and may block for I/O.
func (q *Queue) PutBatch(u BatchUnit) error {
	if err := q.Prepare(1); err != nil {
		return err
	}
	q.AppendBatch(u)
	q.Publish()
	return nil
}

// show moves what readers see of a batch queue to the end of the unit before position end.
func (q *Queue) show(end int64, behind record.QueueOffset) {
	q.messagesMu.Lock()
	q.end.Store(end)
	q.messages.shown = behind
	q.messagesMu.Unlock()
}

// moveMin raises the minimum to a position, and finds out which message that is.
func (q *Queue) moveMin(at record.QueueOffset) {
	if !q.set.cfg.Batch {
		for {
			was := q.min.Load()
			if was >= int64(at) || q.min.CompareAndSwap(was, int64(at)) {
				return
			}
		}
	}
	u, ok := q.batchUnit(at, q.Written()) // outside of the lock: it may have to open a file
	q.messagesMu.Lock()
	defer q.messagesMu.Unlock()
	switch was := q.min.Load(); {
	case was >= int64(at):
	case ok:
		q.min.Store(int64(at))
		q.messages.low = u.Base
	case q.written.Load() == int64(at): // AppendBatch will know
		q.min.Store(int64(at))
	}
}

// resetMessages works out the queue offsets after units were cut off. Nobody reads.
func (q *Queue) resetMessages() error {
	if !q.set.cfg.Batch {
		return nil
	}
	end, m := q.Written(), messages{}
	q.mu.Lock()
	first := record.QueueOffset(q.first / q.set.unit)
	q.mu.Unlock()
	if end > first {
		last, err := q.readBatch(end-1, end)
		if err != nil {
			return fmt.Errorf("consumequeue: read the end of batch queue %s: %w", q.id, err)
		}
		m.next, m.shown = last.Behind(), last.Behind()
	}
	if low := record.QueueOffset(q.min.Load()); low < end {
		u, err := q.readBatch(low, end)
		if err != nil {
			return fmt.Errorf("consumequeue: read the beginning of batch queue %s: %w", q.id, err)
		}
		m.low = u.Base
	}
	q.messagesMu.Lock()
	q.messages = m
	q.messagesMu.Unlock()
	return nil
}

// batchUnit reads the unit at a position below end; ok is false when it is not there.
func (q *Queue) batchUnit(at, end record.QueueOffset) (u BatchUnit, ok bool) {
	units, ok := q.unitsBelow(at, end)
	if !ok {
		return u, false
	}
	defer units.Release() // also when the unit cannot be read
	u = units.Batch(0)
	return u, u.valid()
}

// readBatch is batchUnit with the reason why there is none.
func (q *Queue) readBatch(at, end record.QueueOffset) (u BatchUnit, err error) {
	units, err := q.openUnits(at, end)
	if err != nil {
		return u, fmt.Errorf("unit %d of %d: %w", at, end, err)
	}
	defer units.Release() // also when the unit cannot be read
	if u = units.Batch(0); !u.valid() {
		return u, fmt.Errorf("unit %d of %d is not valid: %+v", at, end, u)
	}
	return u, nil
}

// BatchUnit reads the unit at a position below Written, visible or not.
func (q *Queue) BatchUnit(at record.QueueOffset) (BatchUnit, bool) {
	return q.batchUnit(at, q.Written())
}

// Find returns the position of the first visible unit with a message at or behind a queue offset. ok is
// false when there is none or a file cannot be opened. Cost: a binary search.
func (q *Queue) Find(at record.QueueOffset) (position record.QueueOffset, ok bool) {
	if !q.set.cfg.Batch {
		return at, at >= 0 && at < q.End()
	}
	return q.search(q.Min(), q.End(), func(u BatchUnit) bool { return u.Behind() > at })
}

// SearchBatch returns the position of the first visible unit from Min on for which found is true, and
// End when there is none; found must be false up to some unit and true from there on. ok is false when
// a file cannot be opened.
func (q *Queue) SearchBatch(found func(u BatchUnit) bool) (position record.QueueOffset, ok bool) {
	position, _ = q.search(q.Min(), q.End(), found)
	return position, position >= 0
}

// SearchWritten returns the position of the first unit of all that were written for which found is
// true, Written when there is none. An error means that a file cannot be opened.
func (q *Queue) SearchWritten(found func(u BatchUnit) bool) (record.QueueOffset, error) {
	q.mu.Lock()
	first := record.QueueOffset(q.first / q.set.unit)
	q.mu.Unlock()
	end := q.Written()
	if first >= end {
		return end, nil
	}
	at, ok := q.search(first, end, found)
	if !ok && at != end {
		return 0, fmt.Errorf("consumequeue: search batch queue %s: a file cannot be opened", q.id)
	}
	return at, nil
}

// search looks for the first unit of [low, end) for which found is true. ok is false, and at is end,
// when there is none; at is -1 when a unit cannot be read.
func (q *Queue) search(
	low, end record.QueueOffset, found func(u BatchUnit) bool,
) (at record.QueueOffset, ok bool) {
	broken := false
	n := sort.Search(int(max(end-low, 0)), func(i int) bool {
		u, ok := q.batchUnit(low+record.QueueOffset(i), end)
		broken = broken || !ok
		return broken || found(u)
	})
	if broken {
		return -1, false
	}
	at = low + record.QueueOffset(n)
	return at, at < end
}
