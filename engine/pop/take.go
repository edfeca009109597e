// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"errors"
	"fmt"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Wish is what one request wants of one queue.
type Wish struct {
	Topic, Group string // the topic that is read: a retry topic for messages that come again
	Queue        int32
	Max          int // messages
	PopMS        int64
	InvisibleMS  int64
	ReviveQueue  int32
	FromEnd      bool // a group without an offset begins at the end, not at the start
	Order        bool
	AttemptID    string
	TagCodes     []int32
	Filter       storage.Filter
}

// Taken is what a queue gave. The caller releases Regions after it has read Records.
type Taken struct {
	Start   int64 // of the checkpoint
	Offsets []int64
	Records []record.View // alias Regions
	Regions []zerocopy.Region
	Counts  map[int64]int32 // ordered pops: how often a message was popped before
	Rest    int64           // messages that are left in the queue
}

// Take pops messages of one queue: they are out until they are acknowledged or their invisible time
// is over. It blocks for the store and for others who take from the queue.
func (s *Service) Take(w *Wish) (t Taken, err error) {
	q, ok := s.queue(w)
	if !ok {
		return t, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.settle(q)
	at := s.position(q, w)
	if w.Order && s.cfg.Orders.Blocked(w.Topic, w.Group, w.Queue, w.AttemptID, w.InvisibleMS, s.nowMS()) {
		return t, nil
	}
	topicName, groupName := []byte(w.Topic), []byte(w.Group)
	if w.Max <= 0 {
		_, end, _ := s.cfg.Store.QueueBounds(topicName, w.Queue)
		t.Rest = max(int64(end)-at, 0)
		return t, nil
	}
	req := storage.ReadRequest{
		Topic: topicName, Queue: w.Queue, From: record.QueueOffset(at), MaxMessages: min(w.Max, numMax),
		TagCodes: w.TagCodes, Filter: w.Filter, Touch: true,
	}
	var res storage.ReadResult
	s.cfg.Store.Read(&req, &res)
	if res.Err != nil {
		return t, res.Err // nothing is skipped
	}
	switch res.Status {
	case storage.OffsetTooSmall, storage.OffsetOverflowBadly, storage.OffsetFoundNull:
		at = int64(res.Next)
		s.cfg.Offsets.Commit(groupName, topicName, w.Queue, at)
		q.commits = q.commits[:0]
		req.From = res.Next
		if s.cfg.Store.Read(&req, &res); res.Err != nil {
			return t, res.Err
		}
	default:
	}
	t.Start, t.Regions, t.Rest = at, res.Regions, max(int64(res.Max-res.Next), 0)
	if err := t.parse(); err != nil || len(t.Records) == 0 {
		release(t.Regions)
		t.Records, t.Regions = nil, nil
		if err == nil && int64(res.Next) > at {
			s.skip(q, w, int64(res.Next))
		}
		return t, err
	}
	t.Start = min(t.Start, t.Offsets[0]) // an inner batch can begin before the position
	if w.Order {
		t.Counts = s.cfg.Orders.Update(w, t.Offsets, s.nowMS())
		s.cfg.Offsets.Commit(groupName, topicName, w.Queue, at)
		return t, nil
	}
	if err := s.checkIn(q, w, &t, int64(res.Next)); err != nil {
		release(t.Regions)
		return Taken{Rest: t.Rest + int64(len(t.Offsets))}, err
	}
	return t, nil
}

// parse reads the records of the regions.
func (t *Taken) parse() error {
	for i := range t.Regions {
		for b := t.Regions[i].Mem; len(b) > 0; {
			v, err := record.Parse(b)
			if err != nil {
				return fmt.Errorf("pop: record %d behind offset %d: %w", len(t.Records), t.Start, err)
			}
			t.Records = append(t.Records, v)
			t.Offsets = append(t.Offsets, int64(v.QueueOffset()))
			b = b[v.TotalSize():]
		}
	}
	return nil
}

// errBusy says that a queue gives nothing for now.
var errBusy = errors.New("pop: this queue was popped from this offset in the same millisecond")

// checkIn stores the checkpoint of what was read, and only then lets it go.
func (s *Service) checkIn(q *queue, w *Wish, t *Taken, next int64) error {
	f := &flight{
		ck: Checkpoint{
			Broker: s.cfg.Broker, Group: w.Group, InvisibleMS: w.InvisibleMS, Num: int32(len(t.Offsets)),
			PopMS: w.PopMS, Queue: w.Queue, Start: t.Start, Topic: w.Topic,
		},
		key: ckKey{w.Topic, w.Group, w.Queue, t.Start, w.PopMS}, reviveQueue: w.ReviveQueue,
		place: -1, atMS: w.PopMS + w.InvisibleMS, slot: -1,
	}
	for _, off := range t.Offsets {
		f.ck.Diffs = append(f.ck.Diffs, int32(off-t.Start))
	}
	e, err := s.author.checkpoint(&f.ck, w.ReviveQueue, s.nowMS())
	if err != nil {
		return err
	}
	// It is known before it can be read back: else it could be over, and forgotten, before it came here.
	s.mu.Lock()
	added := s.addLocked(f)
	s.mu.Unlock()
	if !added {
		return errBusy
	}
	end, err := s.put([]storage.Entry{e})
	if err != nil {
		s.mu.Lock()
		s.finishLocked(f, 0)
		s.mu.Unlock()
		return err
	}
	q.next = next
	q.commits = append(q.commits, commit{end, next})
	s.settle(q)
	s.mu.Lock()
	s.armLocked(f)
	first := len(s.waiting) == 0
	if len(q.commits) > 0 {
		s.waiting[q] = true
	}
	s.mu.Unlock()
	if first && len(q.commits) > 0 {
		s.wake()
	}
	return nil
}

// put stores entries, all or none visible at once, and returns the end of the last.
func (s *Service) put(es []storage.Entry) (record.PhysicalOffset, error) {
	if n := s.cfg.Store.AppendAll(es); n < len(es) {
		return 0, fmt.Errorf("pop: store: %w", es[n].Err)
	}
	if s.cfg.SyncFlush {
		if err := s.cfg.Store.Flush(); err != nil {
			return 0, err
		}
	}
	return es[len(es)-1].End, nil
}

// queue returns the state of a queue; not ok: too much is out already.
func (s *Service) queue(w *Wish) (*queue, bool) {
	key := queueKey{w.Topic, w.Group, w.Queue}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flights) >= flightsMax || s.closed {
		return nil, false
	}
	q := s.queues[key]
	if q == nil {
		q = &queue{key: key}
		s.queues[key] = q
	}
	return q, true
}

// position is where to read on: an operator's reset, or the committed offset, or what was taken since.
func (s *Service) position(q *queue, w *Wish) int64 {
	topicName, groupName := []byte(w.Topic), []byte(w.Group)
	if at, ok := s.cfg.Offsets.TakeReset(groupName, topicName, w.Queue); ok {
		s.cfg.Orders.Clear(w.Topic, w.Group, w.Queue)
		q.commits = q.commits[:0]
		s.cfg.Offsets.Commit(groupName, topicName, w.Queue, at)
		return at
	}
	at, ok := s.cfg.Offsets.Committed(groupName, topicName, w.Queue)
	if !ok {
		at = s.first(w)
		s.cfg.Offsets.Commit(groupName, topicName, w.Queue, at)
	}
	if len(q.commits) > 0 {
		at = max(at, q.next)
	}
	return at
}

// first is where a group without an offset begins (RocketMQ PopMessageProcessor.getInitOffset).
func (s *Service) first(w *Wish) int64 {
	low, end, ok := s.cfg.Store.QueueBounds([]byte(w.Topic), w.Queue)
	switch {
	case !ok:
		return 0
	case !w.FromEnd || protocol.IsRetryTopic(w.Topic):
		return max(int64(low), 0)
	case s.cfg.FromMemory && low <= 0 && s.cfg.Store.InMemory([]byte(w.Topic), w.Queue, 0):
		return 0
	default:
		return max(int64(end)-1, 0)
	}
}

// skip moves over messages that the group does not want.
func (s *Service) skip(q *queue, w *Wish, next int64) {
	if w.Order || len(q.commits) == 0 {
		s.cfg.Offsets.Commit([]byte(w.Group), []byte(w.Topic), w.Queue, next)
		return
	}
	q.next = next
	q.commits = append(q.commits, commit{q.commits[len(q.commits)-1].at, next})
}

// settle commits the offsets whose checkpoints are durable. q.mu is held.
func (s *Service) settle(q *queue) {
	durable, n := s.cfg.Store.Flushed(), 0
	for n < len(q.commits) && q.commits[n].at <= durable {
		n++
	}
	if n == 0 {
		return
	}
	s.cfg.Offsets.Commit([]byte(q.key.group), []byte(q.key.topic), q.key.queue, q.commits[n-1].next)
	q.commits = append(q.commits[:0], q.commits[n:]...)
}

// settleAll settles the queues whose commits wait and that nobody takes from, and reports whether
// some have to wait on.
func (s *Service) settleAll() (waiting bool) {
	s.mu.Lock()
	list := make([]*queue, 0, len(s.waiting))
	for q := range s.waiting {
		list = append(list, q)
	}
	s.mu.Unlock()
	for _, q := range list {
		if !q.mu.TryLock() {
			continue
		}
		s.settle(q)
		s.mu.Lock()
		if len(q.commits) == 0 {
			delete(s.waiting, q)
		}
		s.mu.Unlock()
		q.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// Waiting reports whether a queue has messages behind what the group has taken; blocked ordered
// queues have none.
func (s *Service) Waiting(w *Wish) bool {
	topicName, groupName := []byte(w.Topic), []byte(w.Group)
	_, end, ok := s.cfg.Store.QueueBounds(topicName, w.Queue)
	if !ok {
		return false
	}
	if w.Order && s.cfg.Orders.Blocked(w.Topic, w.Group, w.Queue, w.AttemptID, w.InvisibleMS, s.nowMS()) {
		return false
	}
	at, known := s.cfg.Offsets.Query(groupName, topicName, w.Queue)
	if !known {
		low, _, _ := s.cfg.Store.QueueBounds(topicName, w.Queue)
		at = int64(low)
	}
	q, room := s.queue(w)
	if !room {
		return false
	}
	if q.mu.TryLock() {
		if len(q.commits) > 0 {
			at = max(at, q.next)
		}
		q.mu.Unlock()
	}
	return int64(end) > at
}
