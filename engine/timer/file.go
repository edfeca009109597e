// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"fmt"
	"strconv"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// staged is what one go of filing will change once its units are written.
type staged struct {
	units []byte          // to be appended to the log
	slots map[int64]*slot // by tick
	spare []*slot
	items []item // of the tick that is being delivered
	kills []killed
	count []counted
}

// killed is a message that is recalled: its unique key, and the topic that says so.
type killed struct{ key, topic string }

// counted is a message for the numbers of waiting ones.
type counted struct {
	topic string
	n     int64
}

// asked is what the service must know of a waiting record.
type asked struct {
	outMS   int64 // time of its slot
	exactMS int64 // when it is due, within the tick behind that time
	topic   []byte
	uniq    []byte
	kill    []byte // the unique key that it recalls; nil: it is a message
}

// ask reads a waiting record. ok is false when it names no time.
func (s *Service) ask(v record.View) (a asked, ok bool) {
	var out, sec, ms, deliver []byte
	rolled := false
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		switch string(name) {
		case delay.PropTimerOut:
			out = value
		case delay.PropTimerSec:
			sec = value
		case delay.PropTimerMS:
			ms = value
		case delay.PropTimerDeliver:
			deliver = value
		case delay.PropRealTopic:
			a.topic = value
		case delay.PropTimerDel:
			a.kill = value
		case "UNIQ_KEY":
			a.uniq = value
		case propRolled:
			rolled = true
		}
		return true
	})
	var err error
	if a.outMS, err = strconv.ParseInt(string(out), 10, 64); err != nil || a.outMS < 0 {
		return a, false
	}
	end := a.outMS + s.cfg.PrecisionMS
	a.exactMS = end
	text, unit, from := sec, int64(1000), v.StoreMS()
	switch {
	case sec != nil && !rolled:
	case ms != nil && !rolled:
		text, unit = ms, 1
	case deliver != nil && sec == nil && ms == nil:
		text, unit, from = deliver, 1, 0
	default:
		return a, true // its own time is not known any more: by the end of the tick
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		a.exactMS = min(max(from+n*unit, a.outMS+1), end)
	}
	return a, true
}

// file reads what came into the timer topic and files it. more says that there may be more.
func (s *Service) file(nowMS int64) (more bool, err error) {
	if s.failed != nil {
		return false, s.failed
	}
	lowest, end, _ := s.cfg.Store.QueueBounds(s.topic, 0)
	if s.queueAt < lowest {
		s.cfg.Notice("timer messages were deleted with their log files before they were filed",
			"from", s.queueAt, "to", lowest)
		s.queueAt = lowest
	}
	s.behind.Store(max(int64(end-s.queueAt), 0))
	n, err := s.cfg.Store.ReadUnits(s.topic, 0, s.queueAt, s.units[:])
	if err != nil || n == 0 {
		return false, err
	}
	if s.wheel.file == nil {
		if err := s.wheel.create(); err != nil {
			return false, err
		}
	}
	at, room, err := s.log.room()
	if err != nil {
		return false, err
	}
	st := &s.staged
	st.reset()
	taken, filedTo := 0, s.filedTo
	for _, u := range s.units[:n] {
		ok, err := s.stage(st, u, s.queueAt+record.QueueOffset(taken), at, nowMS)
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		taken++
		if u.Size > 0 && !u.Filler() {
			filedTo = u.End()
		}
		if len(st.units)/unitSize > room {
			break
		}
	}
	if taken == 0 {
		return false, nil
	}
	if err := s.commit(st, at, nowMS); err != nil {
		return false, err
	}
	s.filings++
	s.queueAt += record.QueueOffset(taken)
	s.filedTo = filedTo
	s.behind.Store(max(int64(end-s.queueAt), 0))
	s.changed(nowMS)
	return true, nil
}

// place finds the tick of a message, the tick in which its unit is written, and the unit's bits. One
// that lies too far ahead goes to a tick in which it is rolled. old is a message that was filed
// before, about when it was stored.
func (s *Service) place(a *asked, storeMS, nowMS int64, old bool) (tick, write int64, bits uint32) {
	tick, write, bits = s.tick(a.outMS), s.tick(nowMS), bitUnit
	if old {
		write = min(write, s.tick(storeMS))
	}
	if ahead := tick - write; ahead >= s.cfg.RollTicks {
		bits |= bitRoll
		tick = write + s.cfg.RollTicks
		if ahead-s.cfg.RollTicks < s.cfg.RollTicks/3 {
			tick = write + s.cfg.RollTicks/2
		}
	}
	if a.kill != nil {
		bits |= bitDelete
	}
	return tick, write, bits
}

// past reports whether a message of a tick before the current one was delivered when its unit was
// lost. It may have been filed late, under the current tick, and wait there; and one that was to be
// rolled may have been filed later than it seems now, so that it is rolled again.
func (s *Service) past(a *asked, at record.PhysicalOffset, bits uint32) bool {
	switch {
	case bits&bitRoll != 0:
		return false
	case s.resumed:
		return s.now.delivered(&item{dueMS: a.exactMS, at: at})
	}
	return s.now.began == 0 || at < s.now.began
}

func (st *staged) reset() {
	for tick, s := range st.slots {
		st.spare = append(st.spare, s)
		delete(st.slots, tick)
	}
	st.units, st.items, st.kills, st.count = st.units[:0], st.items[:0], st.kills[:0], st.count[:0]
}

// stage files one message in st. ok is false when it lies too far ahead of the tick that is being
// delivered to have a slot of its own yet.
func (s *Service) stage(
	st *staged, cu consumequeue.Unit, queueAt record.QueueOffset, base, nowMS int64,
) (ok bool, err error) {
	if cu.Filler() || cu.Size <= 0 {
		return true, nil
	}
	region, err := s.cfg.Store.RecordAt(cu.At)
	if err != nil {
		s.cfg.Notice("a timer message is not in the log any more", "offset", cu.At, "err", err)
		return true, nil
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	if err != nil {
		return true, nil // it is one: RecordAt has parsed it
	}
	a, ok := s.ask(v)
	if !ok {
		if !s.odd { // a client may send as many as it likes
			s.cfg.Notice("messages of the timer topic name no time and are left out", "offset", cu.At)
			s.odd = true
		}
		return true, nil
	}
	old := queueAt < s.rebuild
	tick, write, bits := s.place(&a, v.StoreMS(), nowMS, old)
	if tick < s.now.tick {
		if old && s.past(&a, cu.At, bits) {
			return true, nil // delivered before the files were lost
		}
		tick = s.now.tick
	}
	if tick-s.now.tick >= slotsTotal {
		return false, nil
	}
	target, err := s.slotFor(st, tick)
	if err != nil {
		return false, err
	}
	write = min(write, tick) // overdue: the unit's time must not be further off than it can say
	pos := base + int64(len(st.units))
	u := unit{
		prev: target.last, bits: bits, writeMS: s.startMS(write),
		waitMS: int32(s.startMS(tick) - s.startMS(write)), at: cu.At, size: cu.Size,
		hash: protocol.JavaHash(a.topic),
	}
	st.units = u.append(st.units)
	if target.first < 0 {
		target.first = pos
	}
	target.last = pos
	n := int64(1)
	if a.kill != nil {
		n = -1
	}
	target.count += int32(n)
	st.count = append(st.count, counted{string(a.topic), n})
	if tick == s.now.tick && s.now.loaded {
		if bits&bitDelete != 0 && bits&bitRoll == 0 {
			st.kills = append(st.kills, killed{string(a.kill), string(a.topic)})
		} else {
			st.items = append(st.items, itemOf(u, s.dueOf(u, &a)))
		}
	}
	return true, nil
}

// slotFor returns the staged slot of a tick.
func (s *Service) slotFor(st *staged, tick int64) (*slot, error) {
	if found := st.slots[tick]; found != nil {
		return found, nil
	}
	read, err := s.wheel.slot(tick)
	if err != nil {
		return nil, err
	}
	var made *slot
	if n := len(st.spare); n > 0 {
		made, st.spare = st.spare[n-1], st.spare[:n-1]
	} else {
		made = new(slot)
	}
	*made = read
	st.slots[tick] = made
	return made, nil
}

// commit writes what was staged: units first, so that a death in between leaves units without a
// slot, which the next start puts in, and never a slot without its units.
func (s *Service) commit(st *staged, at, nowMS int64) error {
	if len(st.units) == 0 {
		return nil
	}
	if err := s.log.write(st.units); err != nil {
		return err
	}
	for _, target := range st.slots {
		if err := s.wheel.put(*target); err != nil {
			s.failed = fmt.Errorf("%w; no timer is filed any more: see to the disk and restart", err)
			return s.failed
		}
	}
	s.log.end = at + int64(len(st.units))
	for tick := range st.slots {
		s.wheel.mark(tick)
	}
	for _, c := range st.count {
		s.count([]byte(c.topic), c.n, nowMS)
	}
	for _, k := range st.kills {
		s.now.kill(k)
	}
	for _, it := range st.items {
		s.now.push(it)
	}
	return nil
}
