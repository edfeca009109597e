// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"runtime/debug"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// StoreTimeAt returns the store time of a message in milliseconds, or -1 when the queue does not
// have it. It reads from the log and may wait for the disk.
func (s *Store) StoreTimeAt(topic []byte, queue int32, at record.QueueOffset) int64 {
	u, ok := s.Unit(topic, queue, at)
	if !ok {
		return -1
	}
	return s.storeTime(u)
}

// EarliestStoreTime returns the store time of the first message of a queue, or -1.
func (s *Store) EarliestStoreTime(topic []byte, queue int32) (ms int64) {
	q := s.lookup(topic, queue)
	if q == nil {
		return -1
	}
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if vfs.Fault(recover()) != nil {
			ms = -1
		}
	}(debug.SetPanicOnFault(true))
	_, u, ok := q.NextReal(q.Min())
	if !ok {
		return -1
	}
	return s.storeTime(u)
}

// EarliestTime returns the store time of the first record of the log, or -1.
func (s *Store) EarliestTime() int64 {
	region, err := s.RecordAt(s.log.Min())
	if err != nil {
		return -1
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	if err != nil {
		return -1
	}
	return v.StoreMS()
}

// storeTime reads the store time of the record of u, or -1.
func (s *Store) storeTime(u consumequeue.Unit) (ms int64) {
	region, err := s.log.Region(u.At, u.Size)
	if err != nil {
		return -1
	}
	defer region.Release()
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if vfs.Fault(recover()) != nil {
			ms = -1
		}
	}(debug.SetPanicOnFault(true))
	v, err := record.Parse(region.Mem)
	if err != nil {
		return -1
	}
	return v.StoreMS()
}

// OffsetByTime returns, within the bounds of the queue, the first message stored at or after ms, or
// with upper the last one stored at or before ms (RocketMQ BoundaryType LOWER and UPPER). Without
// such a message the lower answer is the end of the queue, the upper one its beginning. It reads
// from the log and may wait for the disk.
//
// Store times rise with the offset unless the clock of the broker was set back; the answer is then
// one of the places where the time passes ms.
func (s *Store) OffsetByTime(
	topic []byte, queue int32, ms int64, upper bool,
) (at record.QueueOffset) {
	q := s.lookup(topic, queue)
	if q == nil {
		return 0
	}
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if vfs.Fault(recover()) != nil {
			at = q.Min()
		}
	}(debug.SetPanicOnFault(true))
	q.CorrectMin(s.log.Min())
	if q.Batch() {
		return batchByTime(q, ms, upper)
	}
	if !upper {
		return q.Search(func(u consumequeue.Unit) bool { return s.storeTime(u) >= ms })
	}
	first := q.Search(func(u consumequeue.Unit) bool { return s.storeTime(u) > ms })
	return max(first-1, q.Min())
}

// OffsetBehind returns the first queue offset, within the bounds of the queue, whose record lies at or
// behind a place in the log; the end of the queue when none does. Of a batch queue it returns the
// beginning. It may wait for the disk.
func (s *Store) OffsetBehind(
	topic []byte, queue int32, at record.PhysicalOffset,
) (found record.QueueOffset) {
	q := s.lookup(topic, queue)
	if q == nil {
		return 0
	}
	if q.Batch() {
		return q.Low()
	}
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if vfs.Fault(recover()) != nil {
			found = q.Min()
		}
	}(debug.SetPanicOnFault(true))
	return q.Search(func(u consumequeue.Unit) bool { return u.At >= at })
}
