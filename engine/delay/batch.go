// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"errors"
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// batch is the messages that are delivered in one critical section of the store. Its memory is
// reused.
type batch struct {
	entries []storage.Entry
	offsets []record.QueueOffset // of the entries, in the queue of their level
	regions []zerocopy.Region    // what the entries point into
	units   [batchMessages]consumequeue.Unit
	bytes   int
	next    record.QueueOffset // behind the last unit that was looked at and is due
	reached record.QueueOffset // behind what was delivered or passed over
}

// collect gathers the due messages of a level from its position on. It returns when the first
// message that it left is due, never when there is none; now when it left one that is due.
func (b *batch) collect(s *Service, l *level, nowMS int64) (nextMS int64, err error) {
	b.bytes, b.next, b.reached = 0, l.at, l.at
	for {
		n, err := s.cfg.Store.ReadUnits(s.topic, l.queue, b.next, b.units[:])
		if err != nil || n == 0 {
			return never, err
		}
		for _, u := range b.units[:n] {
			if u.Filler() || u.Size <= 0 {
				b.next++ // a place without a message
				continue
			}
			due := s.due(l, u, nowMS)
			if due > nowMS || len(b.entries) == batchMessages || b.bytes > batchBytes {
				return max(due, nowMS), nil
			}
			if !slices.Contains(l.done, b.next) {
				b.add(s, l, u)
			}
			b.next++
		}
	}
}

// due is the time that a unit tells, but never more than the level's delay from now on, as in
// RocketMQ: the clock may have been set back.
func (s *Service) due(l *level, u consumequeue.Unit, nowMS int64) int64 {
	due := u.TagsCode
	if u.Ext() || due < 0 {
		due = s.storeMS(u) + l.delayMS // RocketMQ kept the time in a file that is not read here
	}
	if l.delayMS > 0 && due > nowMS+l.delayMS {
		return nowMS
	}
	return due
}

func (s *Service) storeMS(u consumequeue.Unit) int64 {
	region, err := s.cfg.Store.RecordAt(u.At)
	if err != nil {
		return 0
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	if err != nil {
		return 0
	}
	return v.StoreMS()
}

// add turns a waiting record into an entry. A record that is gone or names no place is left out.
func (b *batch) add(s *Service, l *level, u consumequeue.Unit) {
	region, err := s.cfg.Store.RecordAt(u.At)
	if err != nil {
		s.cfg.Notice("a delayed message is not in the log any more", "level", l.queue+1,
			"offset", u.At, "err", err)
		return
	}
	v, err := record.Parse(region.Mem)
	var d record.Draft
	if err == nil && !v.CheckCRC() { // reads all of it, before the store is locked
		err = errDamaged
	}
	if err == nil {
		d, err = Unpark(v, s.cfg.Place)
	}
	if errors.Is(err, errForeign) && string(d.Topic) == protocol.HalfTopic {
		region.Release() // half of a transaction: its producer ends it, not the clock
		return
	}
	if err != nil {
		s.cfg.Notice("a delayed message cannot be delivered", "level", l.queue+1, "offset", u.At,
			"err", err)
		region.Release()
		return
	}
	b.regions = append(b.regions, region)
	b.offsets = append(b.offsets, b.next)
	b.bytes += region.Size
	n := len(b.entries)
	if n < cap(b.entries) {
		b.entries = b.entries[:n+1]
		b.entries[n] = storage.Entry{Places: b.entries[n].Places[:0]}
	} else {
		b.entries = append(b.entries, storage.Entry{})
	}
	b.entries[n].Draft, b.entries[n].Again = d, true
}

// Place returns the queue of a topic in which a message for one of its queues is stored, which is that
// queue while the topic has it; ok is false when there is no such topic.
type Place func(topic []byte, queue int32) (stored int32, ok bool)

var (
	errNoTarget = errors.New("its property REAL_TOPIC or REAL_QID is missing or wrong")
	errForeign  = errors.New("its property REAL_TOPIC names a topic to which no client may send")
	errNoTopic  = errors.New("its property REAL_TOPIC names a topic that is not there, or not any more")
	errDamaged  = errors.New("its body does not match its check sum")
)

// Unpark returns the draft with which a waiting message is delivered: everything as it was stored,
// the properties too, at its real place. A client may write the record of a timer itself, so the place
// must be one to which it may send, and one that is there; otherwise properties could make queues that
// no configuration knows. A nil place asks for no topic.
func Unpark(v record.View, place Place) (record.Draft, error) {
	d := v.Draft()
	topic, ok := record.Property(d.Properties, PropRealTopic)
	text, _ := record.Property(d.Properties, PropRealQueue)
	queue, err := strconv.ParseInt(string(text), 10, 32)
	if !ok || err != nil || queue < 0 {
		return d, errNoTarget
	}
	tags, _ := record.Property(d.Properties, "TAGS")
	d.Topic, d.QueueID, d.TagsCode = topic, int32(queue), record.TagsCode(tags)
	d.PreparedOffset = 0
	if protocol.RefusedOnSend(topic) {
		return d, errForeign
	}
	if place != nil {
		if d.QueueID, ok = place(topic, d.QueueID); !ok {
			return d, errNoTopic
		}
	}
	if present, _ := v.CheckPropertyCRC(); present {
		d.Properties = record.DeleteProperty(nil, d.Properties, record.PropertyCRC32)
		d.PropertyCRC = true
	}
	return d, nil
}

// append stores the batch and finds out how far it got. An error means that the rest is to be tried
// again; what was stored behind the failure is noted in the level.
func (b *batch) append(s *Service, l *level) (failed error) {
	b.reached = b.next
	if len(b.entries) == 0 {
		return nil
	}
	s.cfg.Store.Append(b.entries)
	stored := -1
	for i := range b.entries {
		e := &b.entries[i]
		var illegal *storage.IllegalError
		switch {
		case e.Err == nil:
			stored = i
			s.cfg.Delivered(e.Draft.Topic, 1, len(e.Draft.Body))
			if failed != nil {
				l.done = append(l.done, b.offsets[i])
			}
		case errors.As(e.Err, &illegal):
			s.cfg.Notice("a delayed message cannot be stored in its topic and is passed over",
				"level", l.queue+1, "topic", string(e.Draft.Topic), "offset", b.offsets[i],
				"err", e.Err)
		case failed == nil:
			failed, b.reached = e.Err, b.offsets[i]
		}
	}
	if stored >= 0 {
		l.proof = s.proof(&b.entries[stored])
	}
	return failed
}

// proof reads back the head of a record that was just stored.
func (s *Service) proof(e *storage.Entry) progress.Proof {
	region, err := s.cfg.Store.RecordAt(e.At)
	if err != nil {
		return progress.Proof{}
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	if err != nil {
		return progress.Proof{}
	}
	return progress.ProofOf(v)
}

func (b *batch) release() {
	for i := range b.regions {
		b.regions[i].Release()
	}
	b.regions, b.offsets = b.regions[:0], b.offsets[:0]
	for i := range b.entries {
		b.entries[i] = storage.Entry{Places: b.entries[i].Places[:0]}
	}
	b.entries = b.entries[:0]
}
