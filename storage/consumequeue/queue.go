// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/storage/record"
)

// ID names a queue.
type ID struct {
	Topic string
	Queue int32
}

func (id ID) String() string { return id.Topic + "/" + strconv.Itoa(int(id.Queue)) }

// Queue is the list of units of one topic and queue id. Prepare, Append, Put, Publish, PublishBelow
// and Truncate belong to the one writer; the other methods may be called from any goroutine.
type Queue struct {
	set *Set
	id  ID

	// Positions in units, which are queue offsets unless it is a batch queue. min <= end <= written and flushed <= written, except that min may pass
	// end while recovery cuts the queue.
	written atomic.Int64 // writer: bytes are in the file
	end     atomic.Int64 // writer: readers may see them
	min     atomic.Int64 // first unit whose record the log still has
	flushed atomic.Int64 // flusher: bytes are on disk

	// Units from here on were written by this process. Constant after Load.
	loaded int64

	dirty atomic.Bool // in the set's list of queues to flush
	named atomic.Bool // the names of all files are on disk

	// Guards messages, and written, end and min of a batch queue against being out of step with them.
	messagesMu sync.Mutex
	messages   messages

	// Mark and Slot are the writer's own, for its lists of queues; the package does not use them.
	Mark uint64
	Slot int32

	kept *kept // nil but during recovery

	// Confined to the writer: the files behind [written, written+n) of the last Prepare(n).
	held []*segment
	// Confined to the writer: where the queue ended when Begin was called.
	began   int64
	beganAt record.QueueOffset

	// Guards what follows. Held across opening a file, never across a callback.
	mu      sync.Mutex
	first   int64      // position of the first file in bytes
	files   int64      // how many files there are; they have no gaps
	mapped  []*segment // the files that are mapped now, in no order
	deleted bool
}

// ID returns the name of the queue.
func (q *Queue) ID() ID { return q.id }

// Written returns the queue offset of the next unit.
func (q *Queue) Written() record.QueueOffset { return record.QueueOffset(q.written.Load()) }

// Flushed returns the first unit that is not known to be on disk.
func (q *Queue) Flushed() record.QueueOffset { return record.QueueOffset(q.flushed.Load()) }

// End returns the first queue offset that readers do not see yet (RocketMQ's max offset).
func (q *Queue) End() record.QueueOffset { return record.QueueOffset(q.end.Load()) }

// Min returns the first queue offset whose record the log has; it equals End when there is none.
func (q *Queue) Min() record.QueueOffset {
	return record.QueueOffset(min(q.min.Load(), q.end.Load()))
}

// UnitsPerFile returns how many units a file of the queue has.
func (q *Queue) UnitsPerFile() int64 { return q.set.cfg.FileSize / q.set.unit }

func (q *Queue) dir() string {
	return filepath.Join(q.set.cfg.Dir, q.id.Topic, strconv.Itoa(int(q.id.Queue)))
}

// Prepare makes sure that the next n units can be appended without I/O and without failing: files
// exist, are mapped and have blocks. The files stay mapped until Publish or PublishBelow.
func (q *Queue) Prepare(n int) error {
	from := q.written.Load() * q.set.unit
	to := from + int64(n)*q.set.unit
	size := q.set.cfg.FileSize
	for base := from - from%size; base < to; base += size {
		s := q.holding(base)
		if s == nil {
			var err error
			if s, err = q.acquire(base, true); err != nil {
				return fmt.Errorf("consumequeue: open file %d of queue %s: %w", base, q.id, err)
			}
			q.held = append(q.held, s)
		}
		if end := min(to-base, size); end > s.allocated {
			if err := s.reserve(end); err != nil {
				return fmt.Errorf("consumequeue: extend queue %s: %w", q.id, err)
			}
		}
	}
	return nil
}

func (q *Queue) holding(base int64) *segment {
	for _, s := range q.held {
		if s.base == base {
			return s
		}
	}
	return nil
}

// Append writes the unit of queue offset at, which must be Written(); Prepare made room for it.
// Readers see it after Publish. Cost: no allocation, one store of 20 bytes.
func (q *Queue) Append(at record.QueueOffset, u Unit) {
	next := q.written.Load()
	if int64(at) != next {
		panic(fmt.Sprintf("consumequeue: append unit %d to queue %s, which ends at %d",
			at, q.id, next))
	}
	u.Encode(q.slot(next))
	q.written.Store(next + 1)
	if !q.dirty.Load() {
		q.set.addDirty(q)
	}
}

// slot returns the bytes of the next unit, which Prepare holds.
func (q *Queue) slot(next int64) []byte {
	pos := next * q.set.unit
	base := pos - pos%q.set.cfg.FileSize
	s := q.holding(base)
	if s == nil {
		panic(fmt.Sprintf("consumequeue: append unit %d to queue %s without Prepare", next, q.id))
	}
	return s.mem[pos-base:]
}

// Publish lets readers see all that was appended, and ends the hold of Prepare.
func (q *Queue) Publish() {
	if q.set.cfg.Batch {
		q.show(q.written.Load(), q.Next())
	} else {
		q.end.Store(q.written.Load())
	}
	q.letGo()
}

// PublishBelow lets readers see the units whose record ends at or before limit, ends the hold of
// Prepare, and reports whether that was all. Only the goroutine that publishes may call it; it may
// be another one than the writer's.
func (q *Queue) PublishBelow(limit record.PhysicalOffset) (all bool) {
	end, written := q.end.Load(), q.written.Load()
	for end < written {
		n, last := q.countBelow(record.QueueOffset(end), record.QueueOffset(written), limit)
		if n == 0 {
			break // not on disk; or deleted, or unreadable: readers do not see it either
		}
		end += int64(n)
		if q.set.cfg.Batch {
			q.show(end, last.Behind())
		} else {
			q.end.Store(end)
		}
	}
	return end == written
}

// countBelow counts the first units of [from, to), in one file, whose record ends at or before limit.
// last is the last of them in a batch queue.
func (q *Queue) countBelow(
	from, to record.QueueOffset, limit record.PhysicalOffset,
) (n int, last BatchUnit) {
	units, ok := q.unitsBelow(from, to)
	if !ok {
		return 0, last
	}
	defer units.Release() // also when a unit cannot be read
	for n < units.Len() && (units.At(n).End() <= limit || units.At(n).Filler()) {
		n++
	}
	if n > 0 && q.set.cfg.Batch {
		last = units.Batch(n - 1)
	}
	return n, last
}

// Release ends the hold of Prepare without publishing.
func (q *Queue) Release() { q.letGo() }

// Begin remembers where the queue ends, for Undo. The writer calls it before the first Prepare of a round.
func (q *Queue) Begin() { q.began, q.beganAt = q.written.Load(), q.Next() }

// Undo takes back what was appended since Begin, before it was published, and ends the hold of Prepare.
// The units are cleared: no start may take them for messages.
func (q *Queue) Undo() {
	defer q.letGo()
	written := q.written.Load()
	if written == q.began {
		return
	}
	q.written.Store(q.began)
	if q.set.cfg.Batch {
		q.messagesMu.Lock()
		q.messages.next = q.beganAt
		q.messagesMu.Unlock()
	}
	if q.flushed.Load() > q.began {
		q.flushed.Store(q.began) // or the cleared units would not be flushed
	}
	for at := q.began; at < written; at++ {
		clear(q.slot(at)[:q.set.unit])
	}
}

func (q *Queue) letGo() {
	for i, s := range q.held {
		s.release()
		q.held[i] = nil
	}
	q.held = q.held[:0]
}

// acquire returns the file that begins at base with a reference for the caller. create adds files
// behind the last one, or the first one of all.
func (q *Queue) acquire(base int64, create bool) (*segment, error) {
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return nil, ErrDeleted
	}
	for _, s := range q.mapped {
		if s.base == base && s.retain() {
			q.mu.Unlock()
			return s, nil
		}
	}
	s, err := q.openLocked(base, create)
	q.mu.Unlock()
	if err != nil {
		return nil, err
	}
	q.set.opened(s)
	return s, nil
}

// openLocked maps a file, with one reference for the table and one for the caller.
func (q *Queue) openLocked(base int64, create bool) (*segment, error) {
	size := q.set.cfg.FileSize
	behind := q.first + q.files*size
	isNew := q.files == 0 || base == behind
	if !isNew && (base < q.first || base > behind) || isNew && !create {
		return nil, fmt.Errorf("files begin at %d and end at %d", q.first, behind)
	}
	if q.files == 0 {
		if err := q.set.makeDir(q); err != nil {
			return nil, err
		}
	}
	s, err := openSegment(q, base, isNew, base+size >= behind)
	if err != nil {
		return nil, err
	}
	if isNew {
		if q.files == 0 {
			q.first = base
		}
		q.files++
		q.named.Store(false)
	}
	s.retain()
	q.mapped = append(q.mapped, s)
	return s, nil
}

// forget removes s from the table and drops the table's reference.
func (q *Queue) forget(s *segment) {
	q.mu.Lock()
	found := false
	for i, m := range q.mapped {
		if m == s {
			last := len(q.mapped) - 1
			q.mapped[i] = q.mapped[last]
			q.mapped[last] = nil
			q.mapped = q.mapped[:last]
			found = true
			break
		}
	}
	q.mu.Unlock()
	if found {
		s.release()
	}
}

// Deleted reports whether the topic of the queue was deleted.
func (q *Queue) Deleted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.deleted
}
