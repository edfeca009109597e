// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// putBatch compares the unit of a record with a batch queue and repairs the queue. The units from the
// scan's beginning on must be those of the records that the scan comes by, in their order, so the next
// of them is compared, and where they part the queue is cut and goes on with the record. Queue.Mark is
// one more than the position of the last unit that was found right.
func (r *recovery) putBatch(q *consumequeue.Queue, u consumequeue.BatchUnit) error {
	next := record.QueueOffset(q.Mark)
	if next == 0 {
		var err error
		next, err = q.SearchWritten(func(old consumequeue.BatchUnit) bool { return old.At >= r.from })
		if err != nil {
			return err
		}
	}
	if next < q.Written() {
		old, ok := q.BatchUnit(next)
		switch {
		case ok && old == u:
			if !r.clean {
				q.Doubt(next)
			}
			q.Mark = uint64(next) + 1
			return nil
		case ok && old.At > u.At && old.Base < u.Behind() && r.owns(q.ID(), old.Base, old.Unit):
			return nil // the record is of an earlier topic of that name
		}
		if err := q.Truncate(next); err != nil {
			return err
		}
	}
	return r.extend(q, u)
}

// extend appends the unit of a record that the queue does not have.
func (r *recovery) extend(q *consumequeue.Queue, u consumequeue.BatchUnit) error {
	switch end := q.Next(); {
	case u.Base > end && !r.whole:
		r.again = true // what lies between was dispatched before the scan's beginning, and is lost
		return nil
	case u.Base < end: // the topic was deleted and made again: its offsets began anew
		at, err := q.SearchWritten(func(old consumequeue.BatchUnit) bool {
			return old.Behind() > u.Base
		})
		if err != nil {
			return err
		}
		if err := q.Truncate(at); err != nil {
			return err
		}
	}
	if err := q.PutBatch(u); err != nil {
		return err
	}
	r.units++
	r.lowest = min(r.lowest, u.At)
	q.Mark = uint64(q.Written())
	return nil
}
