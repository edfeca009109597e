// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"container/heap"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/zerocopy"
)

const (
	// sliceMax is how many half messages are worked on while ends wait, and scanMax how many are
	// looked at.
	sliceMax = 64
	scanMax  = 16384
	// settleMS is how long a position of the half queue must be committed before the op records that
	// it makes needless are passed: the two are written to a file together, but not in one moment. It
	// is also the time after which a step looks whether the log is on disk.
	settleMS = 1000
)

// action is what a step does with a half message that is due.
type action uint8

const (
	actLater  action = iota // nobody can be asked
	actSettle               // it is gone, or another copy of it was ended
	actGiveUp
	actAsk
	actMove // store it again at the end, unchanged
)

type plan struct {
	waiter
	action action
	half   half
	region zerocopy.Region
	to     Producer
}

// Step checks what is due and commits the positions. It returns when it wants to be called again;
// zero when nothing waits. It blocks on the store; a second call waits for the first.
func (s *Service) Step(now time.Time) (next time.Time) {
	next, _ = s.step(now, math.MaxInt64)
	return next
}

// step is Step for about so long; more says that it did not come to the end.
func (s *Service) step(now time.Time, most time.Duration) (next time.Time, more bool) {
	s.stepping.Lock()
	defer s.stepping.Unlock()
	nowMS := now.UnixMilli()
	if !s.payOwed() {
		return now.Add(owedRetryMS * time.Millisecond), false
	}
	for {
		s.mu.Lock()
		more := s.scanLocked(nowMS)
		due := s.takeDueLocked(nowMS, sliceMax)
		laggard := s.laggardLocked()
		s.mu.Unlock()
		if len(due) == 0 && laggard < 0 {
			if more {
				continue
			}
			break
		}
		if !s.work(due, laggard, nowMS) {
			return now.Add(owedRetryMS * time.Millisecond), false // the store takes nothing
		}
		if s.cfg.Now().Sub(now) >= most {
			return now, true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.positionsLocked(nowMS), false
}

// payOwed stores op records that could not be stored before.
func (s *Service) payOwed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owed) > 0 {
		s.endAllLocked()
	}
	return len(s.owed) == 0
}

// scanLocked looks at half messages in order, until one is fresh. It returns whether there are more
// to look at now.
func (s *Service) scanLocked(nowMS int64) (more bool) {
	s.wakeMS = 0
	s.advanceLocked()
	lowest, end := s.bounds(protocol.HalfTopic)
	s.passLostLocked(lowest)
	for looked := 0; s.scanned < end; looked++ {
		if looked >= scanMax {
			return true
		}
		if s.marks.of(s.scanned) != pending {
			s.scanned++
			continue
		}
		if len(s.waiting) >= s.cfg.WaitingMax {
			s.wakeMS = nowMS + s.cfg.Interval.Milliseconds()
			return false
		}
		due, fresh, ok := s.lookLocked(s.scanned)
		switch {
		case !ok:
			if s.marks.of(s.scanned) == pending {
				s.marks.set(s.scanned, moved)
			}
		case fresh && due > nowMS:
			s.wakeMS = due
			return false
		default:
			s.waitLocked(due, s.scanned)
		}
		s.scanned++
	}
	s.keys = nil
	return false
}

// lookLocked reads when a half message is due, and whether those behind it are due later.
func (s *Service) lookLocked(offset int64) (due int64, fresh, ok bool) {
	region, ok := s.read(protocol.HalfTopic, offset)
	if !ok {
		return 0, false, false
	}
	defer region.Release()
	h, ok := parseHalf(region.Mem, s.cfg.TimeOut)
	if !ok {
		return 0, false, false
	}
	if offset < s.loaded && s.keys[string(h.unique)] {
		s.marks.set(offset, ended)
		s.owed = append(s.owed, offset)
		return 0, false, false
	}
	if h.movedAt >= 0 {
		s.linkLocked(h.movedAt, offset) // known already, unless the broker was started since
	}
	return h.dueMS(s.cfg.TimeOut, s.cfg.Interval), !h.counted && !h.hasImmunity, true
}

// passLostLocked goes on behind half messages whose files were deleted.
func (s *Service) passLostLocked(lowest int64) {
	if s.base < lowest {
		s.base = lowest
		s.scanned = max(s.scanned, lowest)
		s.marks.forget(lowest)
		s.advanceLocked()
	}
}

// laggardLocked returns the half message that keeps the position too far behind, -1 for none.
func (s *Service) laggardLocked() int64 {
	_, end := s.bounds(protocol.HalfTopic)
	s.advanceLocked()
	if s.base < s.scanned && end-s.base > s.cfg.Window {
		return s.base
	}
	return -1
}

// work does what is to be done with half messages; false when the store takes nothing.
func (s *Service) work(due []waiter, laggard, nowMS int64) bool {
	plans := make([]plan, 0, len(due)+1)
	for _, w := range due {
		plans = append(plans, s.plan(w, nowMS))
	}
	if laggard >= 0 && !slices.ContainsFunc(plans, func(p plan) bool { return p.offset == laggard }) {
		p := s.plan(waiter{dueMS: nowMS, offset: laggard}, nowMS)
		if p.action != actSettle {
			p.action = actMove
		}
		plans = append(plans, p)
	}
	for i := range plans {
		defer plans[i].region.Release()
		if p := &plans[i]; p.action == actLater && p.offset == laggard {
			p.action = actMove
		}
	}
	if slices.ContainsFunc(plans, func(p plan) bool { return p.action == actGiveUp }) {
		if err := s.cfg.GiveUpTopic(); err != nil {
			s.cfg.Notice("topic of given up transactions cannot be made", "topic",
				protocol.TransCheckMaxTimeTopic, "err", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			for i := range plans {
				s.waitLocked(plans[i].dueMS, plans[i].offset)
			}
			return false
		}
	}
	ok := s.apply(plans, nowMS)
	s.asks.send()
	return ok
}

// plan decides about one half message. It takes no lock.
func (s *Service) plan(w waiter, nowMS int64) plan {
	p := plan{waiter: w, action: actSettle}
	region, ok := s.read(protocol.HalfTopic, w.offset)
	if !ok {
		return p
	}
	p.region = region
	if p.half, ok = parseHalf(region.Mem, s.cfg.TimeOut); !ok {
		return p
	}
	switch {
	case p.half.preAt >= 0 && s.endedBefore(p.half.preAt):
		return p
	case p.half.times >= s.cfg.CheckMax,
		nowMS-p.half.view.BornMS() > s.cfg.KeepFor.Milliseconds(),
		len(p.half.topic) == 0 || p.half.queue < 0:
		p.action = actGiveUp
	default:
		p.action = actAsk
		if p.to, ok = s.cfg.Producer(string(p.half.group)); !ok {
			p.action = actLater
		}
	}
	return p
}

func (s *Service) endedBefore(offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks.of(offset) == ended
}

// apply carries plans out, for half messages that were not ended meanwhile, and leaves the questions to
// be asked in s.asks. It returns false when the store took nothing.
func (s *Service) apply(plans []plan, nowMS int64) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var copies, settled []*plan
	var done []int64
	entries := s.entries[:0]
	for i := range plans {
		p := &plans[i]
		if p.offset < s.base || s.marks.of(p.offset) != pending {
			continue // ended meanwhile, or there twice
		}
		switch p.action {
		case actLater:
			s.lonelyLocked(p, nowMS)
			continue
		case actSettle:
			settled = append(settled, p)
		default:
			copies = append(copies, p)
			entries = append(entries, storage.Entry{Draft: s.asks.draft(p), Again: true})
		}
		done = append(done, p.offset)
		s.marks.set(p.offset, moved)
	}
	entries = append(entries, s.opEntries(done, true)...)
	stored := s.cfg.Store.AppendAll(entries)
	defer func() {
		clear(entries)
		s.entries = entries[:0]
	}()
	if stored < len(entries) {
		// Copies that were stored without their op record would be checked beside the first: they are
		// noted in memory, and by the next record that can be stored.
		var illegal *storage.IllegalError
		passed := stored < len(copies) && errors.As(entries[stored].Err, &illegal)
		if passed {
			// One that can never be copied must not hold up the others.
			copies[stored].dueMS = nowMS + s.cfg.Interval.Milliseconds()
			s.cfg.Notice("half message cannot be stored again and is not checked", "topic",
				string(copies[stored].half.topic), "group", string(copies[stored].half.group),
				"offset", copies[stored].offset, "err", illegal)
		}
		stored = min(stored, len(copies))
		for i, p := range copies[:stored] {
			s.copiedLocked(p, &entries[i], nowMS, passed)
			s.owed = append(s.owed, p.offset)
		}
		for _, p := range append(settled, copies[stored:]...) {
			s.marks.set(p.offset, pending)
			s.waitLocked(p.dueMS, p.offset)
		}
		return false
	}
	s.noteOpsLocked(entries[len(copies):])
	s.noteEndLocked(entries)
	for i, p := range copies {
		s.copiedLocked(p, &entries[i], nowMS, true)
	}
	s.advanceLocked()
	return true
}

// copiedLocked links a half message with its copy and notes the question about it, if it shall be asked.
func (s *Service) copiedLocked(p *plan, e *storage.Entry, nowMS int64, ask bool) {
	at := int64(e.QueueOffset)
	if p.action == actGiveUp {
		s.cfg.Notice("transaction is given up", "topic", string(p.half.topic), "group",
			string(p.half.group), "checks", p.half.times, "offset", p.offset,
			"ageMS", nowMS-p.half.view.BornMS())
		s.cfg.Counts.Add(p.half.topic, -1)
		return
	}
	s.linkLocked(p.offset, at)
	if ask && p.action == actAsk {
		s.asks.add(p, e, nowMS)
	}
}

func (s *Service) linkLocked(first, later int64) {
	if len(s.later) < linksMax {
		s.later[first], s.earlier[later] = later, first
	}
}

// linksMax bounds the links between copies; a late answer to an earlier check is beyond it taken as
// RocketMQ takes it.
const linksMax = 1 << 20

// lonelyLocked lets a half message wait for a producer, and says so once a minute.
func (s *Service) lonelyLocked(p *plan, nowMS int64) {
	heap.Push(&s.waiting, waiter{
		dueMS: nowMS + s.cfg.Interval.Milliseconds(), offset: p.offset, lonely: true,
	})
	if len(s.lonely) < lonelyMax {
		s.lonely[string(p.half.group)] = true
	}
	if nowMS-s.lonelyNoticeMS < time.Minute.Milliseconds() {
		return
	}
	s.lonelyNoticeMS = nowMS
	s.cfg.Notice("no producer of a transaction's group is connected, it waits", "group",
		string(p.half.group), "topic", string(p.half.topic), "waiting", s.waiting.Len())
}

// positionsLocked commits the positions and returns when the next step is due.
func (s *Service) positionsLocked(nowMS int64) time.Time {
	if nowMS-s.committedMS >= settleMS {
		s.ops.settle(s.committed)
		s.commitOpsLocked()
	}
	if s.candidate > s.committed && s.cfg.Store.Flushed() >= s.needs {
		s.commitLocked(s.candidate)
		s.committedMS = nowMS
	}
	if s.candidate == s.committed && s.base > s.committed {
		s.candidate, s.needs = s.base, s.lastEnd
	}
	next := s.wakeMS
	soonest := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	if len(s.waiting) > 0 {
		soonest(s.waiting[0].dueMS)
	}
	if len(s.owed) > 0 {
		soonest(nowMS + owedRetryMS)
	}
	if s.committed != s.base || len(s.ops.spans) > 0 && s.ops.spans[0].highest < s.committed {
		soonest(nowMS + settleMS)
	}
	if next == 0 {
		return time.Time{}
	}
	return time.UnixMilli(next)
}

func (s *Service) commitLocked(base int64) {
	if base != s.committed {
		s.cfg.Offsets.Commit([]byte(Group), []byte(protocol.HalfTopic), 0, base)
		s.committed = base
	}
}

func (s *Service) commitOpsLocked() {
	if s.ops.done > s.opCommitted {
		s.opCommitted = s.ops.done
		s.cfg.Offsets.Commit([]byte(Group), []byte(protocol.OpHalfTopic), 0, s.opCommitted)
	}
}
