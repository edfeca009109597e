// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"runtime/debug"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// dispatch is the list of one batch for Config.OnDispatched. They are reused.
type dispatch struct{ list []Dispatched }

// publishLocked makes the batch readable: first the records, then, without SyncFlush, the units. It
// returns what to tell when the lock is free again.
func (s *Store) publishLocked(now int64) *dispatch {
	s.lastMS = now
	s.notedLocked()
	if s.cfg.SyncFlush {
		s.parkLocked() // first: a flush that is quicker than this must find them
		s.log.Publish(s.next, now)
		return nil
	}
	s.log.Publish(s.next, now)
	var d *dispatch
	select {
	case d = <-s.dispatches:
	default:
		d = &dispatch{}
	}
	for _, q := range s.touched {
		id, from := q.ID(), q.Max()
		q.Publish()
		if end := q.Max(); end > from {
			d.list = append(d.list, Dispatched{Topic: id.Topic, Queue: id.Queue, From: from, End: end})
		}
	}
	s.endRoundLocked()
	s.dispatched.Store(int64(s.next))
	return d
}

// letGoLocked ends a batch of which nothing was stored.
func (s *Store) letGoLocked() {
	for _, q := range s.touched {
		q.Release()
	}
	s.endRoundLocked()
}

// endRoundLocked forgets the touched queues.
func (s *Store) endRoundLocked() {
	clear(s.touched)
	s.touched = s.touched[:0]
	s.round++
}

// parkLocked leaves the touched queues to the flusher.
func (s *Store) parkLocked() {
	s.parkedMu.Lock()
	for _, q := range s.touched {
		q.Release()
		if !s.parkedSet[q] {
			s.parkedSet[q] = true
			s.parked = append(s.parked, q)
		}
	}
	s.parkedMu.Unlock()
	s.endRoundLocked()
}

// tell calls OnDispatched and takes d back.
func (s *Store) tell(d *dispatch) {
	if d == nil {
		return
	}
	if s.cfg.OnDispatched != nil && len(d.list) > 0 {
		s.cfg.OnDispatched(d.list)
	}
	clear(d.list)
	d.list = d.list[:0]
	select {
	case s.dispatches <- d:
	default:
	}
}

// flushed is called by the flusher of the log. With SyncFlush it lets readers see what lies below.
func (s *Store) flushed(upTo record.PhysicalOffset) {
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if fault := vfs.Fault(recover()); fault != nil {
			s.stopWriting("units of a queue cannot be read back", fault)
		}
	}(debug.SetPanicOnFault(true))
	if s.cfg.SyncFlush {
		s.publishBelow(upTo)
	}
	if s.cfg.OnFlushed != nil {
		s.cfg.OnFlushed(upTo)
	}
}

// publishBelow shows the units of parked queues whose records are on disk. Only the flusher calls
// it, so ready and told are its own.
func (s *Store) publishBelow(upTo record.PhysicalOffset) {
	s.parkedMu.Lock()
	s.ready = append(s.ready, s.parked...)
	clear(s.parked)
	s.parked = s.parked[:0]
	s.parkedMu.Unlock()

	for _, q := range s.ready {
		id, from := q.ID(), q.Max()
		q.PublishBelow(upTo)
		if end := q.Max(); end > from {
			s.told = append(s.told, Dispatched{Topic: id.Topic, Queue: id.Queue, From: from, End: end})
		}
	}
	s.dispatched.Store(int64(upTo))

	// A queue leaves the set only when it has nothing left, seen under the lock that the appender
	// takes after it wrote: what it adds later puts the queue into the set again.
	kept := 0
	s.parkedMu.Lock()
	for _, q := range s.ready {
		if q.End() == q.Written() {
			delete(s.parkedSet, q)
			continue
		}
		s.ready[kept] = q
		kept++
	}
	s.parkedMu.Unlock()
	clear(s.ready[kept:])
	s.ready = s.ready[:kept]

	s.wakeWorkers()
	if s.cfg.OnDispatched != nil && len(s.told) > 0 {
		s.cfg.OnDispatched(s.told)
	}
	clear(s.told)
	s.told = s.told[:0]
}

// Matches reports whether a message of [from, end) of a queue can carry one of the tags; codes are
// hashes as in ReadRequest. It lets a parked pull sleep on. Cost: no allocation.
func (s *Store) Matches(
	topic []byte, queue int32, from, end record.QueueOffset, codes []int32,
) bool {
	q := s.lookup(topic, queue)
	if q == nil {
		return false
	}
	if codes == nil {
		return true
	}
	if q.Batch() { // from the unit of the first message to that of the last
		var ok bool
		if from, ok = q.Find(from); !ok {
			return false
		}
		if end, ok = q.Find(end - 1); !ok {
			end = q.End() - 1
		}
		end++
	}
	for from < end {
		n, found := matchesIn(q, from, end, codes)
		if found || n == 0 {
			return found
		}
		from += record.QueueOffset(n)
	}
	return false
}

// matchesIn looks at the units of one file and returns how many. One that cannot be read may match:
// the pull then meets the error.
func matchesIn(
	q *consumequeue.Queue, from, end record.QueueOffset, codes []int32,
) (n int, found bool) {
	units, ok := q.Units(from)
	if !ok {
		return 0, false
	}
	defer units.Release()
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		found = found || vfs.Fault(recover()) != nil
	}(debug.SetPanicOnFault(true))
	n = min(units.Len(), int(end-from))
	for i := range n {
		if tagMatches(units.At(i), codes) {
			return n, true
		}
	}
	return n, false
}

// tagMatches is RocketMQ's first filter stage (ExpressionMessageFilter): a tag that is not known
// matches, the rest is left to the client.
func tagMatches(u consumequeue.Unit, codes []int32) bool {
	if codes == nil || u.Ext() {
		return true
	}
	code := int32(u.TagsCode)
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return false
}
