// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	scheduleTopic = "SCHEDULE_TOPIC_XXXX"
	lmqPrefix     = "%LMQ%"

	propDelay       = "DELAY"
	propMultiQueue  = "INNER_MULTI_DISPATCH"
	propMultiOffset = "INNER_MULTI_QUEUE_OFFSET"
)

// defaultDelayLevels are RocketMQ's default messageDelayLevel.
func defaultDelayLevels() []time.Duration {
	return []time.Duration{
		time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
		2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute,
		7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute,
		30 * time.Minute, time.Hour, 2 * time.Hour,
	}
}

// RecoveryInfo tells what Open had to do.
type RecoveryInfo struct {
	Clean   bool                  // the last stop was clean
	From    record.PhysicalOffset // where the log was read from
	Records int64                 // read
	Units   int64                 // put into queues, because they were missing or wrong
	Cut     int64                 // units taken out of queues, because their record is not there
	Took    time.Duration
	Read    time.Duration // of Took: reading the log, and comparing it with the queues
}

// recovery is one run of the dispatcher over the log at start. There is one dispatcher for clean
// and unclean stops; they differ only in where it begins and in what may be torn.
type recovery struct {
	s     *Store
	clean bool

	from    record.PhysicalOffset // the scan begins here
	whole   bool                  // nothing lies before it, or it was looked at before
	limit   record.PhysicalOffset // records from here on are no part of the log; 0: not known yet
	again   bool                  // a queue misses records from before the scan
	records int64
	units   int64
	blanked int64
	lowest  record.PhysicalOffset // of the records whose units were put
	commits int                   // beyond commitsMax
	lastAt  record.PhysicalOffset
	lastMS  int64
	buf     []byte
	pending pending
	noted   bool // that queues are being completed
	// Light queues that have no unit and are to be filled, and where they ended.
	light map[QueueID]record.QueueOffset
	old   *consumequeue.Set // with Rebuild: queues whose units may point to extension records
}

// errEnough ends a second scan at the end that the first one found.
var errEnough = errors.New("storage: end of the log")

// recover finds the end of the log and makes queues agree with it: every record from the first
// doubtful one on is compared with its unit.
func (s *Store) recover(clean bool) error {
	began := time.Now()
	oldest := s.log.Min()
	trusted := s.checkpoint.LogicsAt
	if clean {
		trusted = s.log.Wrote()
	}
	states, moved, err := s.loadQueues(consumequeue.Bounds{
		LogEnd: s.log.Wrote(), Trusted: trusted, LogMin: oldest,
	})
	if err != nil {
		return err
	}
	states, again, err := s.dropDeleted(states)
	if err != nil {
		return err
	}
	if moved {
		again = oldest
	}
	r := &recovery{s: s, clean: clean, lastAt: -1, lowest: math.MaxInt64}
	r.from, err = s.scanFrom(states, clean, again)
	if err != nil {
		return err
	}
	r.whole = r.from <= oldest
	if r.whole {
		if err := r.lostLight(); err != nil {
			return err
		}
	}
	reading := time.Now()
	end, err := s.log.Recover(r.from, true, r.visit)
	if err == nil {
		err = r.putPending()
	}
	if err != nil {
		return err
	}
	if r.again {
		s.cfg.Notice("queues miss messages of the log, all of it is dispatched again", "path",
			s.path("consumequeue"), "from", oldest)
		r.again, r.whole, r.from, r.limit = false, true, oldest, end
		if err := r.lostLight(); err != nil {
			return err
		}
		for _, q := range s.allQueues() {
			q.Mark = 0
		}
		// A crash meanwhile must not leave queues that look complete.
		if err := s.noteDispatchAll(); err != nil {
			return err
		}
		// After a clean stop the older part was intact: only its structure is looked at again.
		lower, err := s.log.Recover(oldest, !clean, r.visit)
		switch {
		case err == nil:
			end = min(end, lower) // DamageTruncate has found damage further in front
		case !errors.Is(err, errEnough):
			return err
		}
		if err := r.putPending(); err != nil {
			return err
		}
	}
	if r.whole {
		n, err := s.restoreEnds(s.knownEnds(end))
		if err != nil {
			return err
		}
		r.units += n
		if n > 0 {
			r.lowest = 0
		}
	}
	read := time.Since(reading)
	if err := s.log.Truncate(end); err != nil {
		return err
	}
	if err := s.cutDeleted(end); err != nil {
		return err
	}
	cut, err := r.cutQueues(end)
	if err != nil {
		return err
	}
	s.next, s.lastAt, s.lastMS = end, r.lastAt, r.lastMS
	s.dispatched.Store(int64(end))
	s.recovered = RecoveryInfo{
		Clean: clean, From: r.from, Records: r.records, Units: r.units, Cut: cut + r.blanked,
		Took: time.Since(began), Read: read,
	}
	s.queues.Forget()
	s.batches.Forget()
	return s.settle(r.lowest)
}

// settle brings repaired queues to disk, if the checkpoint already promises them; units were put for no
// record below lowest. Else the checkpoint stays where it is: a next start does the same again, until
// the first thorough flush has brought to disk what the process before this one may not have.
func (s *Store) settle(lowest record.PhysicalOffset) error {
	r, at := &s.recovered, s.checkpoint.LogicsAt
	changed := r.Units > 0 || r.Cut > 0
	promised := r.Cut > 0 || lowest <= at || r.Clean && changed || s.dispatchAllNoted()
	if promised || !r.Clean && (!s.checkpoint.Own || at > s.lastAt) { // or it is of a longer log
		if _, err := s.flushUnits(0); err != nil {
			return err
		}
		if s.lastAt >= 0 {
			s.checkpoint.LogicsAt, s.checkpoint.LogicsMS = s.lastAt, s.lastMS
			s.checkpoint.Own = true
		} else {
			s.checkpoint.LogicsAt, s.checkpoint.LogicsMS = 0, 0
		}
		if err := saveCheckpoint(s.cfg.fs(), s.path("checkpoint"), s.checkpoint); err != nil {
			return err
		}
	}
	if changed || !r.Clean {
		s.cfg.Notice("store recovered", "path", s.cfg.RootDir, "clean", r.Clean, "from", r.From,
			"end", s.next, "records", r.Records, "units", r.Units, "cut", r.Cut, "took", r.Took)
	}
	return s.forgetDispatchAll()
}

// scanFrom returns where the dispatcher must begin: at the lowest of what the checkpoint, the
// queues and the damage in queues ask for, moved back to the start of a log file that begins with a
// valid record, unless only the process died and it is the record that a checkpoint of our own names. It
// is not behind limit.
func (s *Store) scanFrom(
	states []consumequeue.State, clean bool, limit record.PhysicalOffset,
) (record.PhysicalOffset, error) {
	oldest := s.log.Min()
	from := record.PhysicalOffset(0)
	for _, st := range states {
		from = max(from, st.End) // the end of the newest record that is in a queue
	}
	from = min(from, limit)
	if !clean {
		from = min(from, s.checkpointFrom())
	}
	for _, st := range states {
		if st.Damage != "" {
			s.cfg.Notice("queue is damaged, its messages are dispatched again",
				"topic", st.Queue.ID().Topic, "queue", st.Queue.ID().Queue, "reason", st.Damage)
			from = min(from, st.From)
		}
		// A queue that does not begin at 0 although the log was never cut lost its first files.
		if oldest == 0 && st.Queue.Min() > 0 {
			from = 0
		}
	}
	if s.dispatchAllNoted() {
		from = oldest
	}
	if id, lost := s.lostQueue(); lost && from > oldest {
		s.cfg.Notice("queue ends before where it ended at the last clean stop, all messages are "+
			"dispatched again", "topic", id.Topic, "queue", id.Queue)
		from = oldest
	}
	if !clean && s.pagesKept && s.checkpoint.Own && from == s.checkpoint.LogicsAt {
		if _, ok := s.firstRecord(from); ok {
			return from, nil // only the process died: what lies before it is as it was
		}
	}
	segments := s.log.Segments()
	for i := len(segments) - 1; i > 0; i-- {
		if segments[i].Base > from {
			continue
		}
		if _, ok := s.firstRecord(segments[i].Base); ok {
			return segments[i].Base, nil
		}
	}
	return oldest, nil
}

// checkpointFrom returns up to where the checkpoint vouches for the queues.
func (s *Store) checkpointFrom() record.PhysicalOffset {
	if s.checkpoint.LogicsAt > 0 {
		return s.checkpoint.LogicsAt
	}
	if s.checkpoint.LogicsMS <= 0 {
		return 0
	}
	segments := s.log.Segments() // written by RocketMQ before 5.5: it has only the time
	for i := len(segments) - 1; i >= 0; i-- {
		v, ok := s.firstRecord(segments[i].Base)
		if ok && v.StoreMS() <= s.checkpoint.LogicsMS {
			return segments[i].Base
		}
	}
	return 0
}

// firstRecord reads the record at a place, as the start of a log file is, if there is a valid one.
func (s *Store) firstRecord(base record.PhysicalOffset) (record.View, bool) {
	v, err := s.readRecord(base, nil)
	return v, err == nil
}

// readRecord copies the record at a place, using buf when it is large enough. It works before the
// log is mapped.
func (s *Store) readRecord(at record.PhysicalOffset, buf []byte) (record.View, error) {
	var head [record.BlankSize]byte
	if err := s.log.ReadAt(head[:], at); err != nil {
		return record.View{}, err
	}
	size, blank, ok := record.PeekSize(head[:])
	if !ok || blank || size < record.MinSize {
		return record.View{}, ErrOutOfRange
	}
	if int64(at)%s.cfg.SegmentSize+int64(size) > s.cfg.SegmentSize {
		return record.View{}, ErrOutOfRange
	}
	if int(size) > cap(buf) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if err := s.log.ReadAt(buf, at); err != nil {
		return record.View{}, err
	}
	v, err := record.Parse(buf)
	if err == nil && v.PhysicalOffset() != at {
		err = ErrOutOfRange
	}
	return v, err
}

// visit is the dispatcher: it puts one record into its queues.
func (r *recovery) visit(v record.View) error {
	at := v.PhysicalOffset()
	if r.limit > 0 && at >= r.limit {
		return errEnough
	}
	r.records++
	r.lastAt, r.lastMS = at, v.StoreMS()
	switch v.SysFlag() & record.SysTransactionMask {
	case record.SysPrepared, record.SysRollback:
		return nil
	case record.SysCommit:
		r.noteCommit(record.PhysicalOffset(v.PreparedOffset()))
	}
	topic := v.Topic()
	if below, ok := r.s.deleted[string(topic)]; ok && at < below {
		return nil
	}
	u := consumequeue.Unit{At: at, Size: v.TotalSize(), TagsCode: r.s.tagsCode(v)}
	q := r.queue(topic, v.QueueID(), at)
	if q == nil {
		return nil
	}
	if q.Batch() {
		base, count := v.Messages()
		return r.putBatch(q, consumequeue.BatchUnit{Unit: u, StoreMS: v.StoreMS(), Base: base, Count: count})
	}
	u.TagsCode = r.tags(q, v.QueueOffset(), u)
	if err := r.putLater(q, v.QueueOffset(), u); err != nil {
		return err
	}
	return r.putMulti(v, u)
}

// commitsMax bounds the commits of transactions that are remembered, the latest ones.
const commitsMax = 1 << 16

func (r *recovery) noteCommit(half record.PhysicalOffset) {
	if len(r.s.commits) < commitsMax {
		r.s.commits = append(r.s.commits, half)
		return
	}
	r.s.commits[r.commits%commitsMax] = half
	r.commits++
}

// RecoveredCommits returns the places of the half messages whose commits recovery came across, the
// last 65 536 of them in no order, and forgets them. A kill may have come between a commit and the
// record that says so.
func (s *Store) RecoveredCommits() []record.PhysicalOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.commits
	s.commits = nil
	return found
}

// tagsCode computes what the unit of a record says about its tag.
func (s *Store) tagsCode(v record.View) int64 {
	props := v.Properties()
	if string(v.Topic()) == scheduleTopic {
		text, _ := record.Property(props, propDelay)
		if level, err := strconv.Atoi(string(text)); err == nil && level > 0 {
			levels := s.cfg.DelayLevels
			return v.StoreMS() + levels[min(level, len(levels))-1].Milliseconds()
		}
	}
	tags, _ := record.Property(props, propTags)
	return record.TagsCode(tags)
}

// queue returns the queue of a record, nil when it cannot have one.
func (r *recovery) queue(
	topic []byte, queue int32, at record.PhysicalOffset,
) *consumequeue.Queue {
	q := r.s.lookup(topic, queue)
	if q == nil {
		var err error
		if q, err = r.s.create(string(topic), queue); err != nil {
			r.s.cfg.Notice("record has no possible queue", "offset", at, "err", err)
			return nil
		}
	}
	return q
}

// put compares one unit with the queue and repairs the queue.
func (r *recovery) put(q *consumequeue.Queue, at record.QueueOffset, u consumequeue.Unit) error {
	if !r.whole && q.Written() == 0 && at > 0 {
		r.again = true
		return nil
	}
	outcome, old, err := q.Put(at, u)
	if err != nil {
		return err
	}
	switch outcome {
	case consumequeue.Present:
		if !r.clean {
			q.Doubt(at)
		}
	case consumequeue.Added:
	case consumequeue.Ahead:
		if !r.whole {
			r.again = true
			return nil
		}
		if err := q.FillTo(at); err != nil {
			return err
		}
		outcome, _, err = q.Put(at, u)
	case consumequeue.Conflict:
		if old.At > u.At && r.owns(q.ID(), at, old) {
			return nil // the queue was made anew later
		}
		if at < 0 {
			r.s.cfg.Notice("record has a negative queue offset", "offset", u.At)
			return nil
		}
		if err := q.Truncate(at); err != nil {
			return err
		}
		outcome, _, err = q.Put(at, u)
	}
	if err != nil {
		return err
	}
	if outcome == consumequeue.Added {
		r.units++
		r.lowest = min(r.lowest, u.At)
	}
	return r.saw(q, at)
}

// saw notes that the scan has come by the record of a unit, which Queue.Mark keeps as the offset
// behind it. Units that it should have come by on the way, and did not, lose their record's place.
func (r *recovery) saw(q *consumequeue.Queue, at record.QueueOffset) error {
	seen := record.QueueOffset(q.Mark)
	if at > seen {
		n, err := q.Blank(seen, at, r.from)
		if err != nil {
			return err
		}
		r.blanked += n
	}
	q.Mark = max(q.Mark, uint64(at)+1)
	return nil
}

// owns reports whether the record that a unit points to belongs at that place of that queue.
func (r *recovery) owns(id QueueID, at record.QueueOffset, u consumequeue.Unit) bool {
	v, err := r.s.readRecord(u.At, r.buf)
	if err != nil || v.TotalSize() != u.Size {
		return false
	}
	r.buf = v.Bytes()
	if string(v.Topic()) == id.Topic {
		return v.QueueID() == id.Queue && v.QueueOffset() == at
	}
	own := false
	eachMulti(v, func(queue string, id2 int32, off record.QueueOffset) {
		own = own || queue == id.Topic && id2 == id.Queue && off == at
	})
	return own
}

// putMulti dispatches a record to the light queues that it names (RocketMQ MultiDispatchUtils).
func (r *recovery) putMulti(v record.View, u consumequeue.Unit) error {
	if !bytes.Contains(v.Properties(), []byte(propMultiOffset)) {
		return nil
	}
	tags, _ := record.Property(v.Properties(), propTags)
	u.TagsCode = record.TagsCode(tags)
	var first error
	eachMulti(v, func(queue string, id int32, at record.QueueOffset) {
		// Any client can write these properties, and only RocketMQ with enableLmq minds them. A queue
		// that is not there yet, or far from the offset, is no work of its.
		q := r.s.queues.Lookup([]byte(queue), id)
		if q == nil {
			return
		}
		if err := r.putPending(); err != nil && first == nil { // what is asked below is of this moment
			first = err
			return
		}
		end := q.Written()
		if end == 0 {
			end = r.light[q.ID()]
		}
		if at > end+lightGap {
			return
		}
		if old, ok := q.Unit(at); ok && old.At != u.At && r.owns(q.ID(), at, old) {
			return // another record has the place, and rightly
		}
		if err := r.put(q, at, u); err != nil && first == nil {
			first = err
		}
	})
	return first
}

// lightGap bounds how far behind the end of a light queue a record of it may be when the scan begins at
// it: units that a crash took.
const lightGap = 1 << 20

// eachMulti calls fn for each light queue of a record that has an offset. Names without one, which
// stop RocketMQ for good, names that are not those of light queues and names that cannot be folders are
// left out.
func eachMulti(v record.View, fn func(queue string, id int32, at record.QueueOffset)) {
	names, _ := record.Property(v.Properties(), propMultiQueue)
	offsets, _ := record.Property(v.Properties(), propMultiOffset)
	if len(names) == 0 || len(offsets) == 0 {
		return
	}
	all, ats := bytes.Split(names, []byte(",")), bytes.Split(offsets, []byte(","))
	for i, name := range all {
		if i >= len(ats) || bytes.ContainsAny(name, "/\\") || !bytes.HasPrefix(name, []byte(lmqPrefix)) {
			continue
		}
		at, err := strconv.ParseInt(string(ats[i]), 10, 64)
		if err != nil || at < 0 {
			continue
		}
		fn(string(name), 0, record.QueueOffset(at))
	}
}

// cutQueues takes units out whose record is not in the log: those behind its end, and those that
// the scan should have come by and did not.
func (r *recovery) cutQueues(end record.PhysicalOffset) (int64, error) {
	var cut int64
	for _, q := range r.s.allQueues() {
		n, err := q.TruncateLog(end)
		if err != nil {
			return cut, err
		}
		cut += n
		seen := record.QueueOffset(q.Mark)
		q.Mark = 0
		n, err = q.TruncateBehind(seen, r.from)
		if err != nil {
			return cut, err
		}
		cut += n
		q.CorrectMin(r.s.log.Min())
	}
	return cut, nil
}
