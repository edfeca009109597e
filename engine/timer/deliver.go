// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"container/heap"
	"errors"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Properties that each pass through the wheel sets.
const (
	propRolled   = "TIMER_ROLL_TIMES"
	propEnqueued = "TIMER_ENQUEUE_MS"
	propDequeued = "TIMER_DEQUEUE_MS"
)

// item is a message of the tick that is being delivered.
type item struct {
	dueMS   int64
	at      record.PhysicalOffset
	writeMS int64
	size    int32
	roll    bool
	drop    bool // recalls a message, and is rolled only to keep pace with it
}

func itemOf(u unit, dueMS int64) item {
	return item{dueMS: dueMS, at: u.at, writeMS: u.writeMS, size: u.size, roll: u.bits&bitRoll != 0}
}

// dueOf is when a unit's message is to be handled: its exact time, or the start of the tick when it
// is only rolled. All times of a tick are behind its start, so that no tick has one of another.
func (s *Service) dueOf(u unit, a *asked) int64 {
	if u.bits&bitRoll != 0 {
		return u.dueMS() + 1
	}
	return a.exactMS
}

// before is the order in which messages of a tick are delivered.
func (i *item) before(dueMS int64, at record.PhysicalOffset) bool {
	return i.dueMS < dueMS || i.dueMS == dueMS && i.at < at
}

// items is a heap with the next message on top.
type items []item

func (h items) Len() int           { return len(h) }
func (h items) Less(i, j int) bool { return h[i].before(h[j].dueMS, h[j].at) }
func (h items) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *items) Push(x any)        { *h = append(*h, x.(item)) }

func (h *items) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// current is the tick that is being delivered. Its messages come in the order of their exact time;
// what comes while it lasts joins them.
type current struct {
	tick   int64
	loaded bool                  // its units are in items
	began  record.PhysicalOffset // records before this place were filed when it began
	items  items
	kills  map[string]*kill // by unique key: messages that are recalled

	// What is delivered: of the records before sealed.at those due by sealed.dueMS, and of the
	// records before open.at those up to and with the message at reached.
	sealed, open bound
	reached      record.PhysicalOffset
	proof        progress.Proof
}

// kill is one recall.
type kill struct {
	topic string
	used  bool // it has met its message
}

type bound struct {
	at    record.PhysicalOffset
	dueMS int64
}

func (c *current) push(it item) { heap.Push(&c.items, it) }

func (c *current) kill(k killed) {
	if c.kills == nil {
		c.kills = map[string]*kill{}
	}
	c.kills[k.key] = &kill{topic: k.topic}
}

// recalled reports whether a message is to be dropped. RocketMQ 5.5 names it by its unique key,
// earlier releases by topic, "+" and unique key.
func (c *current) recalled(a *asked) bool {
	if len(c.kills) == 0 {
		return false
	}
	var both strings.Builder
	both.Write(a.topic)
	both.WriteByte('+')
	both.Write(a.uniq)
	k := c.kills[string(a.uniq)]
	if k == nil {
		k = c.kills[both.String()]
	}
	if k == nil {
		return false
	}
	k.used = true
	return true
}

// delivered reports whether a message was, as far as the progress says.
func (c *current) delivered(it *item) bool {
	if it.at < c.sealed.at && it.dueMS <= c.sealed.dueMS {
		return true
	}
	return it.at < c.open.at && (it.before(c.open.dueMS, c.reached) ||
		it.dueMS == c.open.dueMS && it.at == c.reached)
}

// values is the progress as it is noted.
func (s *Service) values() progress.Values {
	c := &s.now
	return progress.Values{
		s.startMS(c.tick), int64(c.sealed.at), c.sealed.dueMS, int64(c.open.at), c.open.dueMS,
		int64(c.reached),
	}
}

func (c *current) set(v progress.Values) {
	c.sealed = bound{record.PhysicalOffset(v[1]), v[2]}
	c.open, c.reached = bound{record.PhysicalOffset(v[3]), v[4]}, record.PhysicalOffset(v[5])
}

// load reads the units of the current tick, newest first as they are linked.
func (s *Service) load() error {
	c := &s.now
	c.items, c.kills = c.items[:0], nil
	if s.wheel.marked(c.tick) {
		sl, err := s.wheel.slot(c.tick)
		if err != nil {
			return err
		}
		for at := sl.last; at >= 0; {
			u, ok, err := s.log.unit(at)
			if err != nil {
				return err
			}
			if !ok || s.tick(u.dueMS()) != c.tick || u.prev >= at {
				s.cfg.Notice("the chain of a second is broken in the timer log", "at", at,
					"time", s.startMS(c.tick))
				break
			}
			s.take(u)
			at = u.prev
		}
	}
	heap.Init(&c.items)
	c.loaded = true
	return nil
}

// take puts one unit of the current tick among its items, unless it was delivered.
func (s *Service) take(u unit) {
	c := &s.now
	region, v, ok := s.recordOf(u.at, u.size)
	if !ok {
		s.cfg.Notice("a timer message is not in the log any more", "offset", u.at)
		return
	}
	defer region.Release()
	a, ok := s.ask(v)
	if !ok {
		return
	}
	if u.bits&bitDelete != 0 && u.bits&bitRoll == 0 {
		c.kill(killed{string(a.kill), string(a.topic)})
		return
	}
	it := itemOf(u, s.dueOf(u, &a))
	it.drop = u.bits&bitDelete != 0
	if !c.delivered(&it) {
		c.items = append(c.items, it)
	}
}

// recordOf reads the waiting record of a unit. ok is false when there is another in its place.
func (s *Service) recordOf(at record.PhysicalOffset, size int32) (
	region zerocopy.Region, v record.View, ok bool,
) {
	region, err := s.cfg.Store.RecordAt(at)
	if err != nil {
		return region, v, false
	}
	v, err = record.Parse(region.Mem)
	if err != nil || v.TotalSize() != size || string(v.Topic()) != protocol.TimerTopic {
		region.Release()
		return region, v, false
	}
	return region, v, true
}

// outcome is what deliver found.
type outcome uint8

const (
	idle      outcome = iota // nothing is due
	delivered                // a batch was delivered, there may be more
	ticked                   // another tick has begun
)

// deliver appends one batch of due messages, or moves on to the next tick when one is done. It
// returns when the next message is due.
func (s *Service) deliver(nowMS int64) (nextMS int64, did outcome, err error) {
	if !s.used() {
		return never, idle, nil
	}
	c := &s.now
	if !c.loaded {
		if err := s.load(); err != nil {
			return never, idle, err
		}
	}
	if len(c.items) == 0 || c.items[0].dueMS > nowMS {
		c.sealed = bound{s.filedTo, min(max(c.sealed.dueMS, nowMS), s.startMS(c.tick+1))}
		return s.advance(nowMS)
	}
	err = s.append(nowMS)
	return nowMS, delivered, err
}

// advance ends the current tick when its time is over and it has no message left.
func (s *Service) advance(nowMS int64) (nextMS int64, did outcome, err error) {
	c := &s.now
	if len(c.items) > 0 {
		return c.items[0].dueMS, idle, nil
	}
	next, waiting := s.wheel.next(c.tick + 1)
	if nowMS < s.startMS(c.tick+1) {
		if !waiting {
			return never, idle, nil
		}
		return s.startMS(next), idle, nil
	}
	s.closeTick(nowMS)
	if s.wheel.marked(c.tick) {
		return nowMS, ticked, nil
	}
	if !waiting {
		return never, idle, nil
	}
	return s.startMS(next), idle, nil
}

// closeTick makes the next tick with messages the current one, but none that lies ahead of now.
func (s *Service) closeTick(nowMS int64) {
	c := &s.now
	if len(c.items) > 0 || !c.loaded || nowMS < s.startMS(c.tick+1) {
		return
	}
	to := s.tick(nowMS)
	if next, ok := s.wheel.next(c.tick + 1); ok {
		to = min(to, next)
	}
	if to == c.tick {
		return
	}
	for _, k := range c.kills {
		if !k.used {
			s.count([]byte(k.topic), 1, nowMS) // it was taken out of the numbers for nothing
		}
	}
	s.wheel.clear(c.tick)
	c.kills = nil
	c.tick, c.loaded, c.began = to, false, s.filedTo
	s.tickMS.Store(s.startMS(to))
	s.changed(nowMS)
}

// endTick is closeTick at a graceful end: a tick whose messages were all delivered is over even when
// its time is not, so that a Java broker does not deliver them again. What comes for it later comes
// late, under the next one.
func (s *Service) endTick(nowMS int64) {
	s.closeTick(nowMS)
	c := &s.now
	if !c.loaded || len(c.items) > 0 {
		return
	}
	s.wheel.clear(c.tick)
	c.tick, c.loaded, c.began = c.tick+1, false, s.filedTo
}

// batch is the messages that are appended in one critical section of the store. Its memory is
// reused.
type batch struct {
	entries []storage.Entry
	items   []item
	topics  [][]byte // real topics, views of the regions
	regions []zerocopy.Region
	scratch []byte
}

func (b *batch) reset() {
	for i := range b.regions {
		b.regions[i].Release()
	}
	clear(b.entries)
	b.entries, b.items, b.topics = b.entries[:0], b.items[:0], b.topics[:0]
	b.regions, b.scratch = b.regions[:0], b.scratch[:0]
}

// append delivers the due messages on top of the heap. What could not be stored stays there.
func (s *Service) append(nowMS int64) error {
	c, b := &s.now, &s.batch
	defer b.reset()
	s.batches++
	bytes := 0
	for len(c.items) > 0 && c.items[0].dueMS <= nowMS && len(b.items) < batchMessages &&
		bytes < batchBytes {
		it := heap.Pop(&c.items).(item)
		if s.prepare(it, nowMS) {
			bytes += int(it.size)
		}
	}
	if len(b.entries) > 0 {
		s.cfg.Store.Append(b.entries)
	}
	var failed error
	reached := -1
	stored := -1
	for i := range b.entries {
		e := &b.entries[i]
		var illegal *storage.IllegalError
		switch {
		case e.Err == nil:
			stored = i
		case errors.As(e.Err, &illegal):
			s.cfg.Notice("a timer message cannot be stored in its topic and is passed over",
				"topic", string(e.Draft.Topic), "offset", b.items[i].at, "err", e.Err)
		default:
			failed = e.Err
			heap.Push(&c.items, b.items[i])
			continue
		}
		if failed == nil {
			reached = i
		}
		s.gone(e, b.topics[i], &b.items[i], nowMS)
	}
	s.note(reached, stored, nowMS)
	return failed
}

// gone counts a message that has left the wheel.
func (s *Service) gone(e *storage.Entry, topic []byte, it *item, nowMS int64) {
	n := int64(-1)
	if it.drop {
		n = 1 // it was counted the other way round
	}
	s.count(topic, n, nowMS)
	if e.Err == nil && !it.roll {
		s.cfg.Delivered(e.Draft.Topic, 1, len(e.Draft.Body))
	}
}

// note writes the progress: everything up to the message reached of the batch is delivered.
func (s *Service) note(reached, stored int, nowMS int64) {
	c, b := &s.now, &s.batch
	if stored >= 0 {
		if region, err := s.cfg.Store.RecordAt(b.entries[stored].At); err == nil {
			if v, err := record.Parse(region.Mem); err == nil {
				c.proof = progress.ProofOf(v)
			}
			region.Release()
		}
	}
	if reached < 0 {
		return
	}
	last := &b.items[reached]
	c.open, c.reached = bound{s.filedTo, last.dueMS}, last.at
	if err := s.cfg.Progress.Write(progressSlot, s.values(), c.proof); err != nil {
		s.cfg.Notice("progress of the timers not noted", "err", err)
	}
	s.changed(nowMS)
}

// prepare makes the entry of a message. ok is false when there is nothing to store: it was recalled,
// or it is gone.
func (s *Service) prepare(it item, nowMS int64) (ok bool) {
	region, v, ok := s.recordOf(it.at, it.size)
	if !ok {
		s.cfg.Notice("a timer message is not in the log any more", "offset", it.at)
		s.count(nil, -1, nowMS)
		return false
	}
	a, _ := s.ask(v)
	if !it.roll && s.now.recalled(&a) { // the recall has taken it out of the numbers
		region.Release()
		return false
	}
	if !v.CheckCRC() { // reads all of it, before the store is locked
		s.cfg.Notice("the body of a timer message does not match its check sum", "offset", it.at)
		s.count(a.topic, -1, nowMS)
		region.Release()
		return false
	}
	place := s.cfg.Place
	if it.roll { // it is not due: its topic may be there when it is
		place = nil
	}
	d, err := delay.Unpark(v, place)
	if err != nil {
		s.cfg.Notice("a timer message cannot be delivered", "offset", it.at, "err", err)
		s.count(a.topic, -1, nowMS)
		region.Release()
		return false
	}
	if it.roll {
		d.Topic, d.QueueID = s.topic, 0
	}
	b := &s.batch
	var noted []byte
	b.scratch, noted = passed(b.scratch, d.Properties, &it, nowMS)
	if len(noted) <= propertiesMax {
		d.Properties = noted // else there is no room for what only tells its way
	}
	b.regions = append(b.regions, region)
	b.items = append(b.items, it)
	b.topics = append(b.topics, a.topic)
	b.entries = append(b.entries, storage.Entry{Draft: d, Again: true})
	return true
}

// propertiesMax leaves room for the check sum that a record may get.
const propertiesMax = record.MaxProperties - 20

// passed appends the properties of a message that passed through the wheel to scratch.
func passed(scratch, props []byte, it *item, nowMS int64) (grown, made []byte) {
	start := len(scratch)
	rolls := int64(0)
	record.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case propEnqueued, propDequeued:
			return true
		case propRolled:
			rolls, _ = strconv.ParseInt(string(value), 10, 64)
			if it.roll {
				return true
			}
		}
		scratch = append(scratch, name...)
		scratch = append(scratch, 1)
		scratch = append(scratch, value...)
		scratch = append(scratch, 2)
		return true
	})
	number := func(name string, n int64) {
		scratch = append(scratch, name...)
		scratch = append(scratch, 1)
		scratch = strconv.AppendInt(scratch, n, 10)
		scratch = append(scratch, 2)
	}
	if it.roll {
		number(propRolled, rolls+1)
	}
	number(propEnqueued, it.writeMS)
	number(propDequeued, nowMS)
	return scratch, scratch[start:len(scratch):len(scratch)]
}
