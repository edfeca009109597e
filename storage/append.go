// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

const (
	maxTopic      = 255 // bytes, of any topic
	maxPlainTopic = 127 // bytes, of topics without the retry prefix
	retryPrefix   = "%RETRY%"
	propTags      = "TAGS"

	propertyCRCSize = 20 // bytes that Draft.PropertyCRC adds to the properties

	// clockStepMS is how far the clock may go back before store times follow it: until then they
	// stand still, so that searches by time stay exact.
	clockStepMS = 10_000
)

// Entry is one send: a message, or a client batch whose elements become consecutive messages of one
// queue in one log file. A draft with the bit SysInnerBatch is an inner batch: one record that takes as
// many offsets of a batch queue as its property INNER_NUM says. The caller owns an entry; its slices
// are only read until Append returns.
type Entry struct {
	Draft record.Draft
	// Batch says that Draft.Body is the body of a client batch; flag, body and properties of the
	// messages come from its elements.
	Batch bool
	// DelayMS makes the unit of a single message tell when it is due, which is its store time plus
	// so many milliseconds, instead of its tags code: the rule of SCHEDULE_TOPIC_XXXX. 0: it does not.
	DelayMS int64
	// Again says that the message lay in the log before, so that it is not measured against the
	// limit for bodies, which may have been lowered since.
	Again bool
	// Keys are those of Draft.Properties, as indexfile.FindKeys finds them, when KeysKnown says so: who has
	// read the properties anyway spares the store that. Of a single message only.
	Keys      indexfile.Keys
	KeysKnown bool
	// AwaitsFlush says that nobody is told of the message, and nothing built on it, before the log is
	// flushed up to End. With Config.SyncFlush the end of the process may take it until then; without
	// AwaitsFlush it survives that as soon as Append returns, at the price of a write.
	AwaitsFlush bool

	// Results.

	// Err is nil, *IllegalError, or one of ErrClosed, ErrReadOnly, ErrDiskFull and ErrUnsure, maybe
	// wrapped. With any error but the last nothing of the entry was stored.
	Err         error
	QueueOffset record.QueueOffset    // of the first message
	At          record.PhysicalOffset // of the first record
	End         record.PhysicalOffset // behind the last: durable when the log is flushed up to here
	Count       int32                 // messages
	Places      []record.PhysicalOffset
}

// Append stores the entries in order, as one critical section, and fills in their results. Places
// is reused and set for batches only.
//
// Messages of a successful entry survive the end of the process at once, except with
// Entry.AwaitsFlush, and a power loss when the log is flushed up to End (Flushed, Config.OnFlushed).
// Without SyncFlush they are visible to readers on return. It blocks for other callers of Append, for
// the first message of a new queue file, and when a new log file is not ready yet.
//
// Cost in steady state: no allocation, one copy of each body, no system call; with SyncFlush one
// write, unless all entries await the flush.
func (s *Store) Append(es []Entry) {
	stored, d := s.appendRound(es, false)
	if stored > 0 {
		through := false
		for i := range es {
			through = through || !es[i].AwaitsFlush
		}
		if through {
			s.writeOut(es, false)
		}
		s.wakeWorkers()
	}
	s.tell(d)
}

// appendRound is one critical section. chained: from the first entry that cannot be stored on, none
// is. It returns how many were stored, and what to tell.
func (s *Store) appendRound(es []Entry, chained bool) (stored int, d *dispatch) {
	s.mu.Lock()
	next, lastAt, notes := s.next, s.lastAt, len(s.noted.list)
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if fault := vfs.Fault(recover()); fault != nil {
			s.next, s.lastAt = next, lastAt
			s.unnoteLocked(notes, next)
			stored, d = 0, nil
			s.appendFaultedLocked(fault, es)
		}
		s.mu.Unlock()
	}()
	if err := s.writable(); err != nil {
		for i := range es {
			es[i].Err = err
		}
		return 0, nil
	}
	now := s.nowLocked()
	for i := range es {
		e := &es[i]
		e.Places = e.Places[:0]
		if chained && stored < i {
			e.Err = ErrNotReached
			continue
		}
		e.Err = s.appendEntry(e, now)
		if e.Err == nil {
			stored++
		}
	}
	if err := s.log.Commit(); err != nil { // also when that alone kept all of them out
		s.next, s.lastAt = next, lastAt
		s.unnoteLocked(notes, next)
		s.appendFaultedLocked(err, es)
		return 0, nil
	}
	if s.next == next {
		s.letGoLocked()
		return stored, nil
	}
	return stored, s.publishLocked(now)
}

// appendEntry stores one entry. One that finds the disk full is tried again when that gave up ballast.
func (s *Store) appendEntry(e *Entry, now int64) error {
	err := s.appendKind(e, now)
	if err != nil && errors.Is(err, ErrDiskFull) && s.ballast.giveUp(err) {
		e.Places = e.Places[:0]
		err = s.appendKind(e, now)
	}
	return err
}

func (s *Store) appendKind(e *Entry, now int64) error {
	if e.Batch {
		return s.appendBatch(e, now)
	}
	return s.appendOne(e, now)
}

// writeOut brings the log into its file, where a death of the process leaves it. Entries that need it,
// or all, get ErrUnsure when that fails.
func (s *Store) writeOut(es []Entry, all bool) {
	err := s.log.WriteOut()
	if err == nil {
		return
	}
	for i := range es {
		if e := &es[i]; e.Err == nil && (all || !e.AwaitsFlush) {
			e.Err = fmt.Errorf("%w: %w", ErrUnsure, err)
		}
	}
}

// nowLocked returns the store time of a batch in milliseconds.
func (s *Store) nowLocked() int64 {
	now := s.cfg.Now().UnixMilli()
	if back := s.lastMS - now; back > 0 && back < clockStepMS {
		return s.lastMS
	}
	return now
}

// writable returns why nothing can be appended now, or nil.
func (s *Store) writable() error {
	switch {
	case s.closed.Load():
		return ErrClosed
	case s.readOnly.Load():
		return ErrReadOnly
	case s.diskFull.Load():
		s.maintainer.wake()
		return s.fullError()
	}
	return nil
}

// appendOne stores a single message.
func (s *Store) appendOne(e *Entry, now int64) error {
	d := &e.Draft
	if err := s.check(d, -1); err != nil {
		return err
	}
	if d.SysFlag&record.SysInnerBatch != 0 {
		return s.appendInner(e, now)
	}
	if err := s.measure(e); err != nil {
		return err
	}
	q, err := s.queueFor(d, 1)
	if err != nil {
		return err
	}
	return s.write(e, q, 1, now)
}

// measure refuses what is too large.
func (s *Store) measure(e *Entry) error {
	body, size := len(e.Draft.Body), e.Draft.Size()
	if !e.Again && (body > s.cfg.MaxMessageSize || size > s.cfg.recordMax()) {
		return illegal(-1, "body of %d and record of %d bytes, the limit is %d for the body",
			body, size, s.cfg.MaxMessageSize)
	}
	return s.fits(size)
}

// write stores one record, which holds count messages, in a queue that queueFor returned.
func (s *Store) write(e *Entry, q *consumequeue.Queue, count int16, now int64) error {
	d := &e.Draft
	size := d.Size()
	dst, at, err := s.log.Reserve(size)
	if err != nil {
		return s.failed(err)
	}
	place := record.Place{Queue: q.Next(), Physical: at, StoreMS: now}
	d.Encode(dst, place)
	if e.DelayMS > 0 {
		d.TagsCode = now + e.DelayMS
	}
	if !e.KeysKnown {
		e.Keys = indexfile.FindKeys(d.Properties)
	}
	s.noteLocked(d, e.Keys, at, now)
	enqueue(q, consumequeue.Unit{At: at, Size: int32(size), TagsCode: d.TagsCode}, place, count)
	s.lastAt, s.next = at, at+record.PhysicalOffset(size)
	e.QueueOffset, e.At, e.End, e.Count = place.Queue, at, s.next, int32(count)
	s.puts.messages.Add(int64(count))
	s.puts.bytes.Add(int64(size))
	return nil
}

// enqueue appends the unit of a record at a place; it holds count messages.
func enqueue(q *consumequeue.Queue, u consumequeue.Unit, at record.Place, count int16) {
	if q.Batch() {
		q.AppendBatch(consumequeue.BatchUnit{Unit: u, StoreMS: at.StoreMS, Base: at.Queue, Count: count})
		return
	}
	q.Append(at.Queue, u)
}

// fits refuses what no log file can hold; only stores with very small files come here.
func (s *Store) fits(size int) error {
	if int64(size)+record.BlankSize > s.cfg.SegmentSize {
		return illegal(-1, "%d bytes do not fit into a log file of %d", size, s.cfg.SegmentSize)
	}
	return nil
}

// check refuses what RocketMQ refuses (HookUtils, MessageExtEncoder). index names the element of a
// batch.
func (s *Store) check(d *record.Draft, index int) error {
	switch n := len(d.Topic); {
	case n == 0:
		return illegal(index, "topic is empty")
	case n > maxTopic:
		return illegal(index, "topic of %d bytes, the limit is %d", n, maxTopic)
	case n > maxPlainTopic && !hasPrefix(d.Topic, retryPrefix):
		return illegal(index, "topic of %d bytes, the limit is %d", n, maxPlainTopic)
	}
	n := len(d.Properties)
	if d.PropertyCRC {
		n += propertyCRCSize
	}
	if n > record.MaxProperties {
		return illegal(index, "properties of %d bytes, the limit is %d", n, record.MaxProperties)
	}
	if d.Body == nil {
		return illegal(index, "there is no body")
	}
	if d.QueueID < 0 {
		return illegal(index, "queue id %d is negative", d.QueueID)
	}
	return nil
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// queueFor returns the queue of a draft with room for n units, and notes it as touched.
func (s *Store) queueFor(d *record.Draft, n int) (*consumequeue.Queue, error) {
	q := s.queues.Lookup(d.Topic, d.QueueID)
	if q == nil {
		var err error
		if q, err = s.create(string(d.Topic), d.QueueID); err != nil {
			return nil, illegal(-1, "topic cannot name a folder")
		}
	}
	if q.Mark != s.round {
		q.Mark = s.round
		q.Begin()
		s.touched = append(s.touched, q)
	}
	if err := q.Prepare(n); err != nil {
		return nil, s.failed(err)
	}
	return q, nil
}

// appendBatch stores the elements of a client batch, all or none.
func (s *Store) appendBatch(e *Entry, now int64) error {
	d := &e.Draft
	if err := s.check(d, -1); err != nil {
		return err
	}
	if len(d.Body) > s.cfg.MaxMessageSize {
		return illegal(-1, "batch of %d bytes, the limit is %d", len(d.Body), s.cfg.MaxMessageSize)
	}
	if d.SysFlag&record.SysTransactionMask != 0 {
		return illegal(-1, "a batch cannot be part of a transaction")
	}
	s.element = *d
	n, size, err := s.measureBatch(d.Body)
	if err != nil {
		return err
	}
	if err := s.fits(size); err != nil {
		return err
	}
	q, err := s.queueFor(d, n)
	if err != nil {
		return err
	}
	dst, at, err := s.log.Reserve(size)
	if err != nil {
		return s.failed(err)
	}
	e.QueueOffset, e.At, e.Count = q.Next(), at, int32(n)
	for r := record.NewBatchReader(d.Body); ; {
		flag, body, props, ok := r.Next()
		if !ok {
			break
		}
		s.setElement(flag, body, props)
		size := s.element.Size()
		place := record.Place{Queue: q.Next(), Physical: at, StoreMS: now}
		s.element.Encode(dst[:size], place)
		keys := indexfile.FindKeys(props)
		s.noteLocked(&s.element, keys, at, now)
		u := consumequeue.Unit{At: at, Size: int32(size), TagsCode: record.TagsCode(keys.Tags)}
		enqueue(q, u, place, 1)
		e.Places = append(e.Places, at)
		s.lastAt = at
		dst, at = dst[size:], at+record.PhysicalOffset(size)
	}
	e.End, s.next = at, at
	s.puts.messages.Add(int64(n))
	s.puts.bytes.Add(int64(size))
	return nil
}

// measureBatch checks every element and returns how many there are and the bytes of their records.
func (s *Store) measureBatch(batch []byte) (n, size int, err error) {
	r := record.NewBatchReader(batch)
	for {
		flag, body, props, ok := r.Next()
		if !ok {
			break
		}
		s.setElement(flag, body, props)
		if err := s.check(&s.element, n); err != nil {
			return 0, 0, err
		}
		n++
		size += s.element.Size()
	}
	if err := r.Err(); err != nil {
		bad := &IllegalError{Index: n, Reason: err.Error()}
		var detail *record.BatchError
		if errors.As(err, &detail) {
			bad.Reason = detail.Reason
		}
		return 0, 0, bad
	}
	if n == 0 {
		return 0, 0, illegal(-1, "the batch is empty")
	}
	return n, size, nil
}

// setElement puts what an element decides into the scratch draft.
func (s *Store) setElement(flag int32, body, props []byte) {
	s.element.Flag, s.element.Body, s.element.Properties = flag, body, props
	s.element.PreparedOffset = 0
}

// failed turns an error of the disk into that of an entry. Nothing of the entry was stored.
func (s *Store) failed(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return fmt.Errorf("storage: append: %w", err)
}
