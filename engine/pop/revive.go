// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"math"
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// propFirstPop says when a message was popped for the first time, in milliseconds.
const propFirstPop = "1ST_POP_TIME"

// propertiesMax leaves room for the check sum that a record may get.
const propertiesMax = record.MaxProperties - 20

// copyMax bounds the bytes of the copies that are one append.
const copyMax = 1 << 20

// takeBack copies what is not acknowledged to the group's retry topic.
func (s *Service) takeBack(f *flight) {
	if f.learned && (s.unread || s.timerMS <= f.ck.dueMS()) {
		s.cfg.Timer.Wake() // acknowledgements may still be on their way
		s.later(f, againMS/10)
		return
	}
	s.mu.Lock()
	missing := f.full() &^ f.acked
	over := f.done
	s.mu.Unlock()
	if over {
		return
	}
	normal := NormalTopic(f.key.topic, f.key.group)
	_, haveTopic := s.cfg.Topics.Find(normal)
	_, haveGroup := s.cfg.Groups.Find(f.key.group)
	if missing == 0 && len(f.copied) == 0 || !haveTopic || !haveGroup {
		s.mu.Lock()
		s.finishLocked(f, 0)
		s.mu.Unlock()
		return
	}
	target := f.key.topic
	if !protocol.IsRetryTopic(target) {
		target = RetryTopic(normal, f.key.group, s.cfg.RetryV2)
	}
	err := s.retryConfig(target, f.key.group)
	if err == nil {
		err = s.copyAll(f, missing, target)
	}
	if err != nil {
		s.cfg.Notice("popped messages could not be copied to their retry topic yet", "topic", target,
			"group", f.key.group, "err", err)
		s.later(f, 2*againMS)
	}
	s.cfg.Wake(normal, f.key.group, -1)
}

// copyAll copies the messages whose bits are set, in appends of a bounded size, each with the
// acknowledgement of what it copied.
func (s *Service) copyAll(f *flight, missing uint32, target string) error {
	group := copies{gone: slices.Clone(f.copied)}
	defer group.release()
	for i := range int(f.ck.Num) {
		if missing&(1<<uint(i)) == 0 {
			continue
		}
		if group.bytes >= copyMax {
			if err := s.copyGroup(f, &group); err != nil {
				return err
			}
		}
		off := f.ck.offset(i)
		there, err := s.addCopy(f, &group, off, target)
		if err != nil {
			return err // it is there and cannot be read now
		}
		if !there {
			group.gone = append(group.gone, off) // nobody waits for it any more
		}
	}
	return s.copyGroup(f, &group)
}

// copies are some messages of a checkpoint on their way to the retry topic.
type copies struct {
	entries []storage.Entry
	offsets []int64 // of the entries
	gone    []int64
	regions []zerocopy.Region
	bytes   int
}

func (c *copies) release() {
	release(c.regions)
	*c = copies{}
}

// addCopy reads one message; false: it is not there any more.
func (s *Service) addCopy(f *flight, c *copies, offset int64, target string) (
	there bool, err error,
) {
	req := storage.ReadRequest{
		Topic: []byte(f.key.topic), Queue: f.key.queue, From: record.QueueOffset(offset), MaxMessages: 1,
		Touch: true,
	}
	var res storage.ReadResult
	if s.cfg.Store.Read(&req, &res); res.Err != nil {
		return false, res.Err
	}
	c.regions = append(c.regions, res.Regions...)
	if len(res.Regions) != 1 {
		return false, nil
	}
	v, err := record.Parse(res.Regions[0].Mem)
	if err != nil || int64(v.QueueOffset()) != offset {
		return false, nil //nolint:nilerr // what is there is no such message
	}
	d := v.Draft()
	d.Topic, d.QueueID, d.PreparedOffset = []byte(target), 0, 0
	d.ReconsumeTimes++
	d.BornHost, d.StoreHost = s.cfg.StoreHost, s.cfg.StoreHost
	first, known := record.Property(d.Properties, propFirstPop)
	if v.ReconsumeTimes() == 0 || !known {
		first = strconv.AppendInt(nil, f.ck.PopMS, 10)
	}
	_, d.PropertyCRC = record.Property(d.Properties, record.PropertyCRC32)
	props := record.DeleteProperty(make([]byte, 0, len(d.Properties)+64), d.Properties, propFirstPop,
		record.PropertyCRC32)
	d.Properties = record.AppendProperty(props, propFirstPop, first)
	if len(d.Properties) > propertiesMax {
		d.Properties = props // there is no room for what only tells its past
	}
	tags, _ := record.Property(d.Properties, "TAGS")
	d.TagsCode = record.TagsCode(tags)
	inner := d.SysFlag&record.SysInnerBatch != 0
	if inner { // the queues of the retry topic are plain: its messages come again one by one
		d.SysFlag &^= record.SysInnerBatch | record.SysNeedUnwrap
		if d.SysFlag&record.SysCompressed != 0 {
			s.cfg.Notice("a compressed inner batch cannot be taken apart and does not come again",
				"topic", f.key.topic, "queue", f.key.queue, "offset", offset)
			return false, nil
		}
	}
	c.entries = append(c.entries, storage.Entry{Draft: d, Batch: inner, Again: true})
	c.offsets = append(c.offsets, offset)
	c.bytes += d.Size()
	return true, nil
}

// copyGroup stores copies and the acknowledgement of their messages.
func (s *Service) copyGroup(f *flight, c *copies) error {
	all := append(c.gone, c.offsets...)
	if len(all) == 0 {
		return nil
	}
	now := s.nowMS()
	e, err := s.author.ack(&f.key, f.ck.Broker, all, f.reviveQueue, f.ck.dueMS(), now)
	if err != nil {
		return err
	}
	es := append(c.entries, e)
	end, err := s.put(es)
	if err != nil {
		// Copies that were stored in front of what could not be must not be made once more. Their
		// acknowledgement is still to be stored.
		s.mu.Lock()
		for i := range c.entries {
			if es[i].Err == nil && es[i].End > 0 {
				f.mark(c.offsets[i])
				f.copied = append(f.copied, c.offsets[i])
			}
		}
		s.mu.Unlock()
		return err
	}
	s.mu.Lock()
	f.copied = nil
	s.markLocked(f.key, all, end)
	s.mu.Unlock()
	c.release()
	return nil
}

// reviveQueue is how far one queue of the revive topic was read.
type reviveQueue struct {
	next      int64 // to be read
	open      []*flight
	committed int64
}

// placeReaders begins behind the committed offsets.
func (s *Service) placeReaders() {
	for i := range s.revive {
		r := &s.revive[i]
		low, end, _ := s.cfg.Store.QueueBounds([]byte(s.cfg.ReviveTopic), int32(i))
		at, ok := s.cfg.Offsets.Committed([]byte(ReviveGroup), []byte(s.cfg.ReviveTopic), int32(i))
		r.committed = -1
		if ok {
			r.committed = at
		}
		r.next = min(max(r.committed+1, int64(low), 0), int64(end))
		if !ok {
			r.next = max(int64(low), 0)
		}
	}
}

// readRevive reads what came into the revive topic; more: there is still something.
func (s *Service) readRevive() (more bool) {
	for i := range s.revive {
		more = s.readQueue(int32(i)) || more
	}
	return more
}

// readQueue reads one queue of the revive topic, a bounded number of messages at a time.
func (s *Service) readQueue(queue int32) (more bool) {
	r := &s.revive[queue]
	const reads = 32
	for range reads {
		if s.InFlight() >= flightsMax {
			return false // some must be done with first
		}
		req := storage.ReadRequest{
			Topic: []byte(s.cfg.ReviveTopic), Queue: queue, From: record.QueueOffset(r.next), MaxMessages: 32,
			Touch: true,
		}
		var res storage.ReadResult
		s.cfg.Store.Read(&req, &res)
		for j := range res.Regions {
			s.learnAll(res.Regions[j].Mem, r, queue)
		}
		release(res.Regions)
		switch {
		case int64(res.Next) > r.next || res.Status == storage.OffsetTooSmall:
			r.next = int64(res.Next)
		default:
			return false
		}
	}
	return true
}

// learnAll reads the records of a region.
func (s *Service) learnAll(b []byte, r *reviveQueue, queue int32) {
	for len(b) > 0 {
		v, err := record.Parse(b)
		if err != nil {
			return
		}
		b = b[v.TotalSize():]
		tag, _ := record.Property(v.Properties(), "TAGS")
		switch string(tag) {
		case tagCheckpoint:
			err = s.learnCheckpoint(v, r, queue)
		case tagAck, tagBatchAck:
			err = s.learnAck(v, queue)
		}
		if err != nil {
			s.cfg.Notice("a record of the revive topic is left out", "topic", s.cfg.ReviveTopic,
				"queue", queue, "offset", int64(v.QueueOffset()), "err", err)
		}
	}
}

// learnCheckpoint notes where a known checkpoint lies, or takes an unknown one into memory.
func (s *Service) learnCheckpoint(v record.View, r *reviveQueue, queue int32) error {
	var c Checkpoint
	err := protocol.Unmarshal(v.Body(), &c)
	if err == nil {
		err = c.check()
	}
	if err != nil || c.Num == 0 {
		return err
	}
	key := ckKey{c.Topic, c.Group, c.Queue, c.Start, c.PopMS}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[key]
	if f == nil {
		f = &flight{
			ck: c, key: key, reviveQueue: queue, place: -1, learned: true,
			atMS: c.dueMS() + learnedGraceMS, slot: -1,
		}
		s.addLocked(f)
		s.armLocked(f)
	}
	if f.place < 0 {
		delete(s.early, key)
		f.place = int64(v.QueueOffset())
		r.open = append(r.open, f)
	}
	return nil
}

// learnAck notes an acknowledgement that was read, and keeps it until its checkpoint was read too.
func (s *Service) learnAck(v record.View, queue int32) error {
	var a ack
	if err := protocol.Unmarshal(v.Body(), &a); err != nil {
		return err
	}
	offsets := a.Offsets
	if len(offsets) == 0 {
		offsets = []int64{a.Offset}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := v.PhysicalOffset() + record.PhysicalOffset(v.TotalSize())
	key := ckKey{a.Topic, a.Group, a.Queue, a.Start, a.PopMS}
	f := s.flights[key]
	s.markLocked(key, offsets, end)
	if f == nil || f.place < 0 {
		s.keepLocked(key, offsets, earlyAcks{
			dueMS: v.StoreMS(), queue: queue, place: int64(v.QueueOffset()),
		})
	}
	return nil
}

// commitRevived commits how far the revive topic is done with; waiting: more will be, once the disk
// has it.
func (s *Service) commitRevived() (waiting bool) {
	durable := s.cfg.Store.Flushed()
	for i := range s.revive {
		r := &s.revive[i]
		s.mu.Lock()
		held := int64(math.MaxInt64)
		for _, e := range s.early {
			if e.queue == int32(i) && e.place >= 0 {
				held = min(held, e.place)
			}
		}
		n := 0
		for n < len(r.open) && r.open[n].done && r.open[n].doneAt <= durable {
			n++
		}
		r.open = append(r.open[:0], r.open[n:]...)
		at := r.next - 1
		if len(r.open) > 0 {
			at = r.open[0].place - 1
			waiting = waiting || r.open[0].done
		}
		at = min(at, held-1)
		s.mu.Unlock()
		if at > r.committed {
			s.cfg.Offsets.Commit([]byte(ReviveGroup), []byte(s.cfg.ReviveTopic), int32(i), at)
			r.committed = at
		}
	}
	return waiting
}
