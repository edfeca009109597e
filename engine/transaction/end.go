// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"strconv"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// End says what becomes of a half message.
type End struct {
	Commit    bool // false: roll back
	FromCheck bool // it answers a check
	Group     string
	Offset    int64 // in the queue of half messages
	At        record.PhysicalOffset
}

// ending is an End on its way.
type ending struct {
	half    half
	commit  bool
	offset  int64        // of the half message that it settles: this one or a later copy
	draft   record.Draft // of the commit
	settled bool
	err     error
}

var errNoHalf = remoting.Errorf(remoting.SystemError, "Find prepared transaction message failed")

// End commits or rolls back a half message, by the rules of RocketMQ's EndTransactionProcessor. A
// committed message and the op record that says so are stored in one step, together with those of
// other callers that wait. An end of a message that was ended before changes nothing and succeeds.
//
// It waits for the store, not for the disk. Errors are *remoting.Error or those of the store.
func (s *Service) End(r *End) error {
	region, err := s.cfg.Store.RecordAt(r.At)
	if err != nil {
		return errNoHalf
	}
	defer region.Release()
	h, ok := parseHalf(region.Mem, s.cfg.TimeOut)
	if !ok {
		return errNoHalf
	}
	if err := s.checkEnd(&h, r); err != nil {
		return err
	}
	e := &ending{half: h, commit: r.Commit, offset: h.offset}
	if r.Commit {
		e.draft = h.committed()
	}
	s.queueMu.Lock()
	s.queue = append(s.queue, e)
	s.queueMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.settled {
		s.endAllLocked()
	}
	return e.err
}

func (s *Service) checkEnd(h *half, r *End) error {
	switch {
	case !r.FromCheck && h.overImmunity(s.cfg.Now().UnixMilli(), s.cfg.TimeOut):
		return remoting.Errorf(remoting.IllegalOperation, "the immunity time of the transaction is "+
			"over, the broker checks it")
	case string(h.group) != r.Group:
		return remoting.Errorf(remoting.SystemError, "The producer group wrong")
	case h.offset != r.Offset:
		return remoting.Errorf(remoting.SystemError, "The transaction state table offset wrong")
	case r.Commit && (len(h.topic) == 0 || h.queue < 0):
		return remoting.Errorf(remoting.SystemError, "the half message does not say where it shall go")
	case r.Commit && s.cfg.Place != nil:
		queue, ok := s.cfg.Place(h.topic, h.queue)
		if !ok {
			return remoting.Errorf(remoting.TopicNotExist, "topic[%s] not exist, it was deleted before "+
				"the transaction was committed", h.topic)
		}
		h.queue = queue
	}
	return nil
}

// endAllLocked settles all ends that wait.
func (s *Service) endAllLocked() {
	s.queueMu.Lock()
	queue := s.queue
	s.queue = nil
	s.queueMu.Unlock()
	var commits []*ending
	done := s.owed // op records are owed for these offsets
	s.owed = nil
	for _, e := range queue {
		e.settled = true
		if !s.claimLocked(e) {
			continue
		}
		if e.commit {
			commits = append(commits, e)
		} else {
			done = append(done, e.offset)
			s.unlinkLocked(e.offset)
			s.cfg.Counts.Add(e.half.topic, -1)
		}
	}
	for len(commits) > 0 || len(done) > 0 {
		commits, done = s.storeEndsLocked(commits, done)
	}
	s.advanceLocked()
}

// claimLocked finds which copy of a half message an end settles and marks that as ended; false when
// it was ended before.
func (s *Service) claimLocked(e *ending) bool {
	if e.offset < s.base && !s.marks.known(e.offset, s.base) {
		return true // too long ago to know; RocketMQ never knows
	}
	for s.marks.of(e.offset) == moved {
		next, ok := s.later[e.offset]
		if !ok {
			break // given up, or copied before a restart
		}
		e.offset = next
	}
	if s.marks.of(e.offset) == ended {
		return false
	}
	s.marks.set(e.offset, ended)
	return true
}

// unlinkLocked forgets how the copies of an ended half message hang together, and notes all of them
// as ended, so that a late answer to an earlier check finds that out.
func (s *Service) unlinkLocked(offset int64) {
	for {
		before, ok := s.earlier[offset]
		delete(s.earlier, offset)
		delete(s.later, offset)
		if !ok {
			return
		}
		offset = before
		if s.marks.known(offset, s.base) {
			s.marks.set(offset, ended)
		}
	}
}

// storeEndsLocked stores commits and one op record, or some, for them and for done. It returns what
// is left to do after an error: the commits behind the one that could not be stored, and the offsets
// whose op records are still to be stored.
func (s *Service) storeEndsLocked(commits []*ending, done []int64) ([]*ending, []int64) {
	entries := s.entries[:0]
	for _, e := range commits {
		entries = append(entries, storage.Entry{Draft: e.draft, Again: true})
		done = append(done, e.offset)
	}
	ops := s.opEntries(done, false)
	entries = append(entries, ops...)
	stored := s.cfg.Store.AppendAll(entries)
	s.entries = entries[:0]
	for i := range commits[:min(stored, len(commits))] {
		s.unlinkLocked(commits[i].offset)
		s.cfg.Counts.Add(commits[i].draft.Topic, -1)
		s.cfg.Stored(commits[i].draft.Topic, 1, len(commits[i].draft.Body))
	}
	defer clear(entries)
	if stored < len(commits) {
		refused := commits[stored]
		refused.err = entries[stored].Err
		s.marks.set(refused.offset, s.beforeEnd(refused.offset))
		others := len(done) - len(commits)
		return commits[stored+1:], done[:others+stored]
	}
	s.noteOpsLocked(entries[len(commits):stored])
	s.noteEndLocked(entries[:stored])
	if stored < len(entries) {
		// The messages are stored. That they are ended is known until the process ends; the next end
		// or step stores it.
		s.owed = done
		s.arm(s.cfg.Now().UnixMilli() + owedRetryMS)
	}
	return nil, nil
}

// owedRetryMS is how long after a failure op records are tried again.
const owedRetryMS = 1000

// beforeEnd is the state that a half message goes back to when its commit could not be stored.
func (s *Service) beforeEnd(offset int64) state {
	if offset < s.base {
		return moved // as behind the position everything is
	}
	return pending
}

// opEntries makes op records for half offsets, in bodies of at most OpMaxSize bytes.
func (s *Service) opEntries(offsets []int64, copied bool) []storage.Entry {
	var entries []storage.Entry
	var body []byte
	flush := func() {
		if len(body) > 0 {
			entries = append(entries, storage.Entry{Draft: s.opDraft(body, copied)})
			body = nil
		}
	}
	for _, offset := range offsets {
		body = strconv.AppendInt(body, offset, 10)
		body = append(body, ',')
		if len(body)+offsetDigits > s.cfg.OpMaxSize {
			flush()
		}
	}
	flush()
	return entries
}

// offsetDigits is the room that an offset and its comma may take.
const offsetDigits = 20

func (s *Service) opDraft(body []byte, copied bool) record.Draft {
	props := record.AppendProperty(nil, propTags, opTag)
	props = record.AppendProperty(props, "WAIT", "true")
	if copied {
		props = record.AppendProperty(props, propMoved, "true")
	}
	return record.Draft{
		Topic: []byte(protocol.OpHalfTopic), BornMS: s.cfg.Now().UnixMilli(),
		BornHost: s.cfg.StoreHost, StoreHost: s.cfg.StoreHost, Body: body, Properties: props,
		TagsCode: record.TagsCode([]byte(opTag)),
	}
}

// noteEndLocked remembers up to where the log must be on disk for what is settled to stay so.
func (s *Service) noteEndLocked(stored []storage.Entry) {
	if len(stored) > 0 {
		s.lastEnd = max(s.lastEnd, stored[len(stored)-1].End)
	}
}

// noteOpsLocked remembers op records that were stored.
func (s *Service) noteOpsLocked(entries []storage.Entry) {
	for i := range entries {
		highest := int64(0)
		eachOffset(entries[i].Draft.Body, func(offset int64) { highest = max(highest, offset) })
		s.ops.add(int64(entries[i].QueueOffset), highest)
	}
}

// Resume stores a half message, or one that was given up, again as if it had never been checked.
func (s *Service) Resume(at record.PhysicalOffset) error {
	region, err := s.cfg.Store.RecordAt(at)
	if err != nil {
		return err
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	if err != nil {
		return err
	}
	if _, ok := record.Property(v.Properties(), propRealTopic); !ok {
		return errNoHalf
	}
	d := v.Draft()
	d.Topic, d.QueueID = []byte(protocol.HalfTopic), 0
	d.Properties = record.AppendProperty(
		record.DeleteProperty(nil, d.Properties, record.PropertyCRC32, propCheckTimes), propCheckTimes, "0")
	d.TagsCode = tagsCode(d.Properties)
	entries := []storage.Entry{{Draft: d, Again: true}}
	if s.cfg.Store.AppendAll(entries) == 0 {
		return entries[0].Err
	}
	s.Stored()
	return nil
}
