// SPDX-License-Identifier: Apache-2.0

package transaction

import "container/heap"

// opTrail remembers which op records must be read again by the next start: those that settle half
// messages at or behind the position. It is a list of spans of the op queue in order, each with the
// highest half offset that it settles. Neighbours are joined when there are many, which only makes
// the position of the op queue coarser.
type opTrail struct {
	spans []opSpan
	next  int64 // every op record before it was taken in
	done  int64 // every op record before it is needed no more
}

type opSpan struct{ end, highest int64 }

// spansMax bounds the list.
const spansMax = 4096

// add takes in the op record at an offset of the op queue.
func (t *opTrail) add(at, highest int64) {
	t.next = max(t.next, at+1)
	if len(t.spans) >= spansMax {
		kept := t.spans[:0]
		for i := 0; i+1 < len(t.spans); i += 2 {
			a, b := t.spans[i], t.spans[i+1]
			kept = append(kept, opSpan{b.end, max(a.highest, b.highest)})
		}
		t.spans = kept
	}
	t.spans = append(t.spans, opSpan{at + 1, highest})
}

// settle drops the spans that matter no more when the position is base.
func (t *opTrail) settle(base int64) {
	n := 0
	for n < len(t.spans) && t.spans[n].highest < base {
		t.done = max(t.done, t.spans[n].end)
		n++
	}
	t.spans = t.spans[:copy(t.spans, t.spans[n:])]
}

// waiting is a heap of undecided half messages by the moment they are due.
type waiting []waiter

type waiter struct {
	dueMS, offset int64
	lonely        bool // there was nobody to be asked
}

// Len implements heap.Interface.
func (w waiting) Len() int { return len(w) }

// Less implements heap.Interface.
func (w waiting) Less(i, j int) bool {
	if w[i].dueMS != w[j].dueMS {
		return w[i].dueMS < w[j].dueMS
	}
	return w[i].offset < w[j].offset
}

// Swap implements heap.Interface.
func (w waiting) Swap(i, j int) { w[i], w[j] = w[j], w[i] }

// Push implements heap.Interface.
func (w *waiting) Push(x any) { *w = append(*w, x.(waiter)) }

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// takeDue takes up to limit waiters that are due out of the heap; settled ones are dropped.
func (s *Service) takeDueLocked(nowMS int64, limit int) []waiter {
	var due []waiter
	for len(s.waiting) > 0 && s.waiting[0].dueMS <= nowMS && len(due) < limit {
		w := heap.Pop(&s.waiting).(waiter)
		if w.offset >= s.base && s.marks.of(w.offset) == pending {
			due = append(due, w)
		}
	}
	if len(s.waiting) == 0 {
		s.waiting = nil // memory of a crowd that has gone
	}
	return due
}

func (s *Service) waitLocked(dueMS, offset int64) {
	heap.Push(&s.waiting, waiter{dueMS: dueMS, offset: offset})
}

// lonelyMax bounds the groups that are known to have had no producer.
const lonelyMax = 4096

// ProducerJoined tells that a group has a producer again: what waits for one is checked now. It costs
// a look at what waits if the group was missed, and a lock else.
func (s *Service) ProducerJoined(group string) {
	s.mu.Lock()
	missed := s.lonely[group]
	nowMS := s.cfg.Now().UnixMilli()
	if missed {
		delete(s.lonely, group)
		for i := range s.waiting {
			if s.waiting[i].lonely {
				s.waiting[i].dueMS = nowMS
			}
		}
		heap.Init(&s.waiting)
	}
	s.mu.Unlock()
	if missed {
		s.arm(nowMS)
	}
}
