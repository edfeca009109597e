// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"path/filepath"

	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/storage/record"
)

// recover brings wheel, log and position together. The timer topic is the truth: what units are lost
// is filed again from it.
func (s *Service) recover() error {
	nowMS := s.cfg.Now().UnixMilli()
	check, known, err := loadCheck(s.cfg.FS, filepath.Join(s.cfg.Dir, CheckName))
	if err != nil {
		return err
	}
	s.saved, s.version = check, check.version
	wheelThere, wheelFits, err := s.wheel.open()
	if err != nil {
		return err
	}
	logFits, err := s.log.open()
	if err != nil {
		return err
	}
	resumed, err := s.resume(known, check)
	if err != nil {
		return err
	}
	switch used := wheelThere || len(s.log.files) > 0; {
	case resumed:
	case known:
		s.now.tick, s.now.began = s.tick(check.readMS), check.began
	case used: // nobody says what was delivered: as far back as RocketMQ goes, all of it again
		s.now.tick = s.tick(nowMS) - rollTicksMax
	default:
		s.now.tick = s.tick(nowMS)
	}
	anew := false
	switch {
	case !logFits || wheelThere && !wheelFits:
		s.cfg.Notice("wheel or log of the timers does not fit and is made anew from the timer topic",
			"path", s.log.dir, "advice", "mappedFileSizeTimerLog must stay as it was")
		anew, err = true, s.startAnew(nowMS)
	case len(s.log.files) == 0 && (known && check.logEnd > 0 || s.anySlot()):
		s.cfg.Notice("the log of the timers is gone and is made anew from the timer topic",
			"path", s.log.dir)
		anew, err = true, s.startAnew(nowMS)
	case known && s.headless():
		s.cfg.Notice("the first files of the log of the timers are gone, it is made anew from the "+
			"timer topic", "path", s.log.dir)
		anew, err = true, s.startAnew(nowMS)
	case len(s.log.files) > 0:
		err = s.join(known, check, wheelThere, nowMS)
	}
	if err != nil {
		return err
	}
	s.placeQueue(known, check, anew)
	s.tickMS.Store(s.startMS(s.now.tick))
	return s.readSlots()
}

// resume takes what is delivered from the progress file if the log proves it, and the tick too when
// the checkpoint is not ahead of it.
func (s *Service) resume(known bool, check checkpoint) (ahead bool, err error) {
	values, proof, ok, err := s.cfg.Progress.Read(progressSlot)
	if err != nil {
		return false, err
	}
	if !ok || !s.holds(proof) {
		// It must not be believed later, when something else may lie in the proof's place.
		return false, s.cfg.Progress.Write(progressSlot, progress.Values{}, progress.Proof{})
	}
	s.now.set(values)
	s.now.proof = proof
	ahead = !known || values[0] >= check.readMS
	// Behind a checkpoint of RocketMQ's it does not know what RocketMQ has delivered.
	s.resumed = ahead || check.ours
	if ahead {
		s.now.tick = s.tick(values[0])
	}
	return ahead, nil
}

func (s *Service) holds(p progress.Proof) bool {
	region, err := s.cfg.Store.RecordAt(p.At)
	if err != nil {
		return p.Holds(record.View{}, false)
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	return p.Holds(v, err == nil)
}

// anySlot reports whether the wheel names a unit that is not past.
func (s *Service) anySlot() bool {
	found := false
	err := s.wheel.each(func(index int64, sl slot) {
		found = found || sl.tick%slotsTotal == index && sl.tick >= s.now.tick && sl.last >= 0
	})
	return found || err != nil
}

// headless reports whether a tick that is not past has units in front of the log.
func (s *Service) headless() bool {
	found := false
	err := s.wheel.each(func(index int64, sl slot) {
		found = found || sl.tick%slotsTotal == index && sl.tick >= s.now.tick && sl.last >= 0 &&
			sl.first < s.log.min()
	})
	return found || err != nil
}

// startAnew sets wheel and log aside, so that the whole timer topic is filed again, without what was
// delivered before.
func (s *Service) startAnew(nowMS int64) error {
	s.log.close()
	s.log.end = 0
	_ = s.wheel.close()
	if err := setAside(s.cfg.FS, s.wheel.path, nowMS); err != nil {
		return err
	}
	return setAside(s.cfg.FS, s.log.dir, nowMS)
}

// join finds the end of the log and brings the wheel up to it.
func (s *Service) join(known bool, check checkpoint, wheelThere bool, nowMS int64) error {
	from := s.log.min()
	whole := !wheelThere || !known || s.strange(nowMS)
	if known && !whole {
		from = max(from, check.logEnd-s.cfg.FileSize)
	}
	if whole && wheelThere {
		_ = s.wheel.close()
		if err := setAside(s.cfg.FS, s.wheel.path, nowMS); err != nil {
			return err
		}
	}
	if s.wheel.file == nil {
		s.cfg.Notice("the wheel of the timers is made anew from their log", "path", s.wheel.path)
		if err := s.wheel.create(); err != nil {
			return err
		}
	}
	end, err := s.findEnd(from)
	if err != nil {
		return err
	}
	slots := map[int64]*found{}
	if err := s.rescan(from, slots, nil); err != nil {
		return err
	}
	if err := s.log.truncate(end); err != nil {
		return err
	}
	if err := s.repairAhead(slots); err != nil {
		return err
	}
	for _, sl := range slots {
		if !sl.changed {
			continue
		}
		if err := s.wheel.put(sl.slot); err != nil {
			return err
		}
	}
	return nil
}

// found is a slot as the units of the log say it must be.
type found struct {
	slot
	changed bool
}

// strange reports that the wheel was written with another precision: its ticks are far from now.
func (s *Service) strange(nowMS int64) bool {
	here, far := 0, 0
	now := s.tick(nowMS)
	err := s.wheel.each(func(index int64, sl slot) {
		if sl.tick%slotsTotal != index {
			return
		}
		if here++; sl.tick > 4*now || sl.tick < now/4 {
			far++
		}
	})
	return err != nil || here > 0 && far == here
}

// findEnd finds the end of the log: behind the last unit whose record is in the CommitLog. A loss of
// power may have taken records whose units are on disk.
func (s *Service) findEnd(from int64) (end int64, err error) {
	if err := s.log.scan(from, func(int64, unit) bool { return true }); err != nil {
		return 0, err
	}
	end = s.log.end
	for at := s.lastUnit(end); at >= s.log.min(); at = s.lastUnit(at) {
		u, ok, err := s.log.unit(at)
		if err != nil {
			return 0, err
		}
		if ok {
			if region, v, there := s.recordOf(u.at, u.size); there {
				s.queueAt = v.QueueOffset() + 1
				s.filedTo = u.at + record.PhysicalOffset(u.size)
				region.Release()
				break
			}
			if u.at < s.cfg.Store.Info().Min {
				break // its log file was deleted; there is no older one that is there
			}
		}
		end = at
	}
	s.log.end = end
	return end, nil
}

// lastUnit is the position of the unit before a position, -1 when there is none.
func (s *Service) lastUnit(end int64) int64 {
	if end <= s.log.min() {
		return -1
	}
	base := (end - 1) / s.cfg.FileSize * s.cfg.FileSize
	perFile := (s.cfg.FileSize - blankRoom) / unitSize
	return base + (min((end-base)/unitSize, perFile)-1)*unitSize
}

// rescan reads the units from a position to the end and collects what their slots must hold. With
// only, other slots are left alone.
func (s *Service) rescan(from int64, slots map[int64]*found, only map[int64]bool) error {
	end := s.log.end
	var failed error
	err := s.log.scan(from, func(at int64, u unit) bool {
		if at >= end {
			return false
		}
		tick := s.tick(u.dueMS())
		if tick < s.now.tick || only != nil && !only[tick] {
			return true // past: its place in the wheel may be that of a later tick by now
		}
		sl := slots[tick]
		if sl == nil {
			read, err := s.wheel.slot(tick)
			if err != nil {
				failed = err
				return false
			}
			sl = &found{slot: read}
			slots[tick] = sl
		}
		if at <= sl.last {
			return true
		}
		if sl.first < 0 {
			sl.first = at
		}
		sl.last, sl.changed = at, true
		sl.count += weight(u)
		return true
	})
	s.log.end = end
	if failed != nil {
		return failed
	}
	return err
}

func weight(u unit) int32 {
	if u.bits&bitDelete != 0 {
		return -1
	}
	return 1
}

// repairAhead finds slots that name units behind the end of the log, which a loss of power took, and
// makes them anew from what is left.
func (s *Service) repairAhead(slots map[int64]*found) error {
	only := map[int64]bool{}
	oldest := s.log.end
	err := s.wheel.each(func(index int64, sl slot) {
		if sl.tick%slotsTotal == index && sl.tick >= s.now.tick && sl.last >= s.log.end {
			only[sl.tick] = true
			oldest = min(oldest, max(sl.first, s.log.min()))
		}
	})
	if err != nil || len(only) == 0 {
		return err
	}
	s.cfg.Notice("the wheel of the timers was ahead of its log and is put right", "slots", len(only))
	for tick := range only {
		slots[tick] = &found{slot{tick: tick, first: -1, last: -1}, true}
	}
	return s.rescan(oldest, slots, only)
}

// placeQueue finds the first message of the timer topic that is not filed.
func (s *Service) placeQueue(known bool, check checkpoint, anew bool) {
	lowest, end, ok := s.cfg.Store.QueueBounds(s.topic, 0)
	filed := record.QueueOffset(check.queueAt)
	switch {
	case known && (anew || s.log.end < check.logEnd): // units are lost that were there
		s.rebuild = min(filed, end)
	case known:
		s.queueAt = max(s.queueAt, filed)
	}
	if ok {
		s.queueAt = min(max(s.queueAt, lowest), end)
	}
}

// readSlots notes which ticks have messages.
func (s *Service) readSlots() error {
	return s.wheel.each(func(index int64, sl slot) {
		ahead := sl.tick - s.now.tick
		if sl.tick%slotsTotal != index || sl.last < s.log.min() || ahead < 0 || ahead >= slotsTotal {
			return
		}
		s.wheel.mark(sl.tick)
		s.pending.Add(int64(max(sl.count, 0)))
	})
}
