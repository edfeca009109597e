// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// rangesMax bounds the memory of one stream: a stream with more holes than this gives the oldest
// ones up as lost.
const rangesMax = 1 << 16

// Place says where a consumer found a message.
type Place struct {
	Topic  string
	Broker string
	Queue  int32
}

// Faults is the verdict over numbered messages.
type Faults struct {
	Messages   int64 `json:"messages"`    // numbered messages seen, duplicates included
	Streams    int64 `json:"streams"`     // connection and queue pairs they came from
	Foreign    int64 `json:"foreign"`     // bodies without a number: counted, not judged
	Lost       int64 `json:"lost"`        // acknowledged and never seen
	Duplicates int64 `json:"duplicates"`  // seen more than once
	Disordered int64 `json:"disordered"`  // behind a message that was sent after their answer came
	Swapped    int64 `json:"swapped"`     // behind a message of the same connection sent later
	Misplaced  int64 `json:"misplaced"`   // in another queue than the rest of their stream
	Changed    int64 `json:"changed"`     // bytes differ from what was sent
	OffsetGaps int64 `json:"offset_gaps"` // queue offsets that are not the previous plus one
	Late       int64 `json:"late"`        // older than the bound, see Checker.Age; 0 without a bound
	Unended    int64 `json:"unended"`     // streams whose closing message was not seen
	Unacked    int64 `json:"unacked"`     // sent without an answer; absent or not, no fault
	Resent     int64 `json:"resent"`      // stored twice, since an answer was lost: no fault
	// Examples holds the first few faults in words.
	Examples []string `json:"examples,omitempty"`
}

const examplesMax = 8

// Checker judges a flow of numbered messages. It is not safe for concurrent use: give each
// consuming goroutine one of its own (a queue must always go to the same one) and join them with
// Merge.
type Checker struct {
	faults  Faults
	streams map[streamKey]*stream
	queues  map[Place]*queueState
	stamp   Stamp // scratch
	// fromFirst: numbers before the first one seen count as lost.
	fromFirst bool
	late      time.Duration // 0: nothing is late
}

type streamKey struct {
	run    uint64
	stream uint32
}

type queueState struct{ next int64 }

// stream is what is known of one (connection, queue) pair. Numbers below next were seen, unless
// they lie in holes.
type stream struct {
	place     Place
	next      uint64
	holes     []Range // ascending, no two adjacent
	floor     uint64  // highest floor seen: what is below and comes later is disordered
	ended     bool
	forgotten int64 // holes given up beyond rangesMax
	unacked   []Range
	again     map[uint64]struct{} // numbers seen that were sent again; nil without any
}

// NewChecker returns a checker. With fromFirst the consumer reads from the start of each queue, so
// a stream must begin with number 0; without, it begins where it is first seen.
func NewChecker(fromFirst bool) *Checker {
	return &Checker{
		streams: map[streamKey]*stream{}, queues: map[Place]*queueState{}, fromFirst: fromFirst,
	}
}

// LateAfter sets the age beyond which a message is late; 0: none is.
func (c *Checker) LateAfter(bound time.Duration) { c.late = bound }

// Age judges how long a message took from its producer to where its way ended: to here when it was
// waited for, or into the store when it was read from a backlog.
func (c *Checker) Age(at Place, offset int64, age time.Duration) {
	if c.late > 0 && age > c.late {
		c.faults.Late++
		c.example("queue %s: the message at offset %d took %v, over %v", at, offset, age, c.late)
	}
}

// Offset judges the queue offset of the next record of a queue, numbered or not.
func (c *Checker) Offset(at Place, offset int64) {
	q := c.queues[at]
	if q == nil {
		c.queues[at] = &queueState{next: offset + 1}
		return
	}
	if offset != q.next {
		c.faults.OffsetGaps++
		c.example("queue %s: offset %d where %d was due", at, offset, q.next)
	}
	q.next = offset + 1
}

// Body judges a message body in the order of its queue. intact is false when the record's own
// checksum does not match. It returns when the message was due, see Stamp.Due; 0 when that is not
// known.
func (c *Checker) Body(at Place, body []byte, intact bool) (due int64) {
	err := parseStamp(body, &c.stamp)
	switch {
	case errors.Is(err, errForeign) && intact:
		c.faults.Foreign++
		return 0
	case err != nil || !intact:
		c.faults.Changed++
		c.example("queue %s: body of %d bytes differs from what was sent", at, len(body))
		return 0
	}
	s := &c.stamp
	st := c.streamOf(at, s)
	if s.End {
		st.end(s)
		return 0
	}
	c.faults.Messages++
	if st.place != at {
		c.faults.Misplaced++
		c.example("queue %s: stream %d of %s", at, s.Stream, st.place)
	}
	c.number(st, s)
	st.floor = max(st.floor, s.Floor)
	return s.Due
}

// DueOf returns when a numbered message was due, see Stamp.Due, without judging it; 0 when body
// carries no number.
func DueOf(body []byte) int64 {
	if len(body) < StampSize || binary.BigEndian.Uint32(body[offMagic:]) != stampMagic ||
		binary.BigEndian.Uint32(body[offFlags:])&flagEnd != 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(body[offDue:]))
}

// Merge adds what other saw. Both must have seen different queues; other must not be used again.
func (c *Checker) Merge(other *Checker) {
	for k, st := range other.streams {
		if mine := c.streams[k]; mine != nil {
			c.faults.Misplaced++
			c.example("stream %d in queues %s and %s", k.stream, mine.place, st.place)
			continue
		}
		c.streams[k] = st
	}
	o := other.faults
	c.faults.Messages += o.Messages
	c.faults.Foreign += o.Foreign
	c.faults.Duplicates += o.Duplicates
	c.faults.Disordered += o.Disordered
	c.faults.Swapped += o.Swapped
	c.faults.Misplaced += o.Misplaced
	c.faults.Changed += o.Changed
	c.faults.OffsetGaps += o.OffsetGaps
	c.faults.Late += o.Late
	c.faults.Resent += o.Resent
	for _, e := range o.Examples {
		c.example("%s", e)
	}
}

// Faults returns the verdict: what is missing now counts as lost.
func (c *Checker) Faults() Faults {
	f := c.faults
	f.Examples = slices.Clone(f.Examples)
	f.Streams = int64(len(c.streams))
	for k, st := range c.streams {
		lost, unacked := st.missing()
		f.Lost += lost
		f.Unacked += unacked
		if lost > 0 && len(f.Examples) < examplesMax {
			f.Examples = append(f.Examples, fmt.Sprintf("queue %s: stream %d lacks %d, first %v",
				st.place, k.stream, lost, st.firstHole()))
		}
		if !st.ended {
			f.Unended++
		}
	}
	return f
}

// Any reports whether something is wrong. A swap on one connection counts unless allowSwaps; a
// stream without its end counts when the consumer read everything (drained).
func (f Faults) Any(allowSwaps, drained bool) bool {
	if f.Lost+f.Duplicates+f.Disordered+f.Misplaced+f.Changed+f.OffsetGaps+f.Late > 0 {
		return true
	}
	return !allowSwaps && f.Swapped > 0 || drained && f.Unended > 0
}

func (c *Checker) streamOf(at Place, s *Stamp) *stream {
	k := streamKey{s.Run, s.Stream}
	st := c.streams[k]
	if st == nil {
		st = &stream{place: at}
		if !c.fromFirst {
			st.next = s.Number
		}
		c.streams[k] = st
	}
	return st
}

// number places one number in its stream.
func (c *Checker) number(st *stream, s *Stamp) {
	n := s.Number
	switch {
	case n == st.next:
		st.next++
		st.sentAgain(s)
		return
	case n > st.next:
		st.addHole(Range{First: st.next, Count: n - st.next})
		st.next = n + 1
		st.sentAgain(s)
		return
	}
	if !st.fill(n) {
		if _, known := st.again[n]; known || s.Again {
			c.faults.Resent++
			return
		}
		c.faults.Duplicates++
		c.example("queue %s: number %d of stream %d again", st.place, n, s.Stream)
		return
	}
	if s.Again {
		st.sentAgain(s)
		return
	}
	if n < st.floor {
		c.faults.Disordered++
		c.example("queue %s: number %d of stream %d after one sent when it was acknowledged",
			st.place, n, s.Stream)
		return
	}
	c.faults.Swapped++
}

// sentAgain remembers a number that was sent more than once, since the first copy may still come: a
// broker may be reading what a dead connection has left.
func (st *stream) sentAgain(s *Stamp) {
	if !s.Again || len(st.again) >= rangesMax {
		return
	}
	if st.again == nil {
		st.again = map[uint64]struct{}{}
	}
	st.again[s.Number] = struct{}{}
}

func (c *Checker) example(format string, args ...any) {
	if len(c.faults.Examples) < examplesMax {
		c.faults.Examples = append(c.faults.Examples, fmt.Sprintf(format, args...))
	}
}

func (st *stream) addHole(r Range) {
	st.holes = append(st.holes, r)
	if len(st.holes) > rangesMax {
		st.forgotten += int64(st.holes[0].Count)
		st.holes = st.holes[1:]
	}
}

// fill takes n out of the holes; false when it lies in none: it was seen before.
func (st *stream) fill(n uint64) bool {
	i, ok := slices.BinarySearchFunc(st.holes, n, func(r Range, n uint64) int {
		switch {
		case r.First+r.Count <= n:
			return -1
		case r.First > n:
			return 1
		}
		return 0
	})
	if !ok {
		return false
	}
	r := st.holes[i]
	var parts []Range
	if n > r.First {
		parts = append(parts, Range{First: r.First, Count: n - r.First})
	}
	if n+1 < r.First+r.Count {
		parts = append(parts, Range{First: n + 1, Count: r.First + r.Count - n - 1})
	}
	st.holes = slices.Replace(st.holes, i, i+1, parts...)
	return true
}

// end closes the stream at its count; what is missing before it is a hole.
func (st *stream) end(s *Stamp) {
	st.ended = true
	st.unacked = append(st.unacked, s.Missing...)
	if s.Number > st.next {
		st.addHole(Range{First: st.next, Count: s.Number - st.next})
		st.next = s.Number
	}
}

// missing splits the holes into lost numbers and those that were never acknowledged.
func (st *stream) missing() (lost, unacked int64) {
	slices.SortFunc(st.unacked, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for _, r := range st.unacked {
		unacked += int64(r.Count)
	}
	lost = st.forgotten
	i := 0
	for _, h := range st.holes {
		lost += int64(h.Count)
		end := h.First + h.Count
		for i < len(st.unacked) && st.unacked[i].First < end {
			u := st.unacked[i]
			if from, to := max(u.First, h.First), min(u.First+u.Count, end); from < to {
				lost -= int64(to - from)
			}
			if u.First+u.Count > end {
				break // reaches into the next hole
			}
			i++
		}
	}
	return lost, unacked
}

func (st *stream) firstHole() Range {
	if len(st.holes) == 0 {
		return Range{}
	}
	return st.holes[0]
}

// String names the queue as topic/broker/id.
func (p Place) String() string { return fmt.Sprintf("%s/%s/%d", p.Topic, p.Broker, p.Queue) }
