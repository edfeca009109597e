// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Acked names messages of one checkpoint that a consumer is done with.
type Acked struct {
	Topic, Group string // the topic they were read from
	Queue        int32
	Receipt      Receipt // Offset is not looked at
	Offsets      []int64
}

func (a *Acked) key() ckKey {
	return ckKey{a.Topic, a.Group, a.Queue, a.Receipt.StartOffset, a.Receipt.PopMS}
}

func (a *Acked) dueMS() int64 { return a.Receipt.PopMS + a.Receipt.InvisibleMS }

// Ack notes that messages are done with. What is acknowledged already, or came again meanwhile, is no
// error.
func (s *Service) Ack(a *Acked) error {
	key := a.key()
	e, err := s.author.ack(&key, a.Receipt.Broker, a.Offsets, a.Receipt.ReviveQueue, a.dueMS(), s.nowMS())
	if err != nil {
		return err
	}
	end, err := s.put([]storage.Entry{e})
	if err != nil {
		return err
	}
	s.noteAck(a, end)
	return nil
}

// noteAck marks messages in memory; those of a checkpoint that is not known wait for it.
func (s *Service) noteAck(a *Acked, end record.PhysicalOffset) {
	key := a.key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.markLocked(key, a.Offsets, end) || a.dueMS()+earlyKeepMS < s.nowMS() {
		return
	}
	s.keepLocked(key, a.Offsets, earlyAcks{dueMS: a.dueMS(), place: -1})
}

// keepLocked keeps acknowledgements for a checkpoint that was not read yet.
func (s *Service) keepLocked(key ckKey, offsets []int64, from earlyAcks) {
	e := s.early[key]
	if e == nil {
		if len(s.early) >= earlyMax {
			return // its record comes out of the revive topic, in time if the timer is
		}
		e = &from
		s.early[key] = e
	}
	if e.place < 0 {
		e.queue, e.place = from.queue, from.place
	}
	if len(e.offsets)+len(offsets) <= 2*numMax {
		e.offsets = append(e.offsets, offsets...)
	}
}

// Change gives one message a new invisible time from now on, and returns the time that stands for
// now in its new receipt. The new checkpoint and the acknowledgement of the old one are one append.
func (s *Service) Change(a *Acked, invisibleMS int64) (popMS int64, err error) {
	now := s.nowMS()
	f := &flight{
		ck: Checkpoint{
			Broker: a.Receipt.Broker, Diffs: []int32{0}, Group: a.Group, InvisibleMS: invisibleMS, Num: 1,
			PopMS: now, Queue: a.Queue, Start: a.Offsets[0], Topic: a.Topic,
		},
		reviveQueue: a.Receipt.ReviveQueue, place: -1, slot: -1,
	}
	s.mu.Lock()
	for {
		f.key = ckKey{a.Topic, a.Group, a.Queue, f.ck.Start, f.ck.PopMS}
		if s.addLocked(f) {
			break
		}
		f.ck.PopMS++
	}
	s.mu.Unlock()
	f.atMS = f.ck.dueMS()
	end, err := s.change(a, f, now)
	s.mu.Lock()
	if err == nil {
		s.armLocked(f)
	} else {
		s.finishLocked(f, 0)
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	s.noteAck(a, end)
	return f.ck.PopMS, nil
}

// change stores a new checkpoint of one message and the acknowledgement of the old one.
func (s *Service) change(a *Acked, f *flight, now int64) (end record.PhysicalOffset, err error) {
	old := a.key()
	e, err := s.author.checkpoint(&f.ck, f.reviveQueue, now)
	if err != nil {
		return 0, err
	}
	k, err := s.author.ack(&old, a.Receipt.Broker, a.Offsets, a.Receipt.ReviveQueue, a.dueMS(), now)
	if err != nil {
		return 0, err
	}
	return s.put([]storage.Entry{e, k})
}
