// SPDX-License-Identifier: Apache-2.0

// Package longpoll holds pulls that found nothing until their queue grows or their time is up.
//
// A held pull is a Waiter: it knows its queue and its deadline, and Wake sends it back to the event
// loop that owns its connection. The table does not know what a pull is. Park may be called from
// any goroutine; Arrived is called by the store's dispatcher with the end of a queue, and costs one
// atomic load while nothing is held. One timer runs while something is held, none otherwise.
package longpoll

import (
	"sync"
	"sync/atomic"
	"time"
)

// Waiter is one held request. Wake is called exactly once, without any lock held, and must not
// block: due is true when the deadline passed, false when the queue may have grown.
type Waiter interface {
	Wake(due bool)
}

// Hold is a parked Waiter. The caller owns its memory and may use it again after Wake; it must not
// be touched in between.
type Hold struct {
	Waiter   Waiter
	From     int64     // the queue offset that is waited for: woken once the queue's end is beyond it
	Deadline time.Time // woken at this moment at the latest

	queue *queue
	slot  int // index in queue.holds
	place int // index in the deadline heap
}

// queue lists what waits for one (topic, queue id). It exists only while something waits.
type queue struct {
	key   Key
	holds []*Hold
}

// Key names one queue.
type Key struct {
	Topic string
	Queue int32
}

// Table is the set of held pulls of one broker.
type Table struct {
	max   int
	now   func() time.Time
	count atomic.Int64

	mu     sync.Mutex
	queues map[Key]*queue
	spare  []*queue // emptied queues, to be used again
	heap   []*Hold  // earliest deadline first
	timer  *time.Timer
	armed  time.Time // when the timer fires; zero: not armed
	closed bool
}

// tick is the grain of deadlines: those between two multiples of it share one timer shot, which is at the
// later one, when others that count in such steps wake up as well.
const tick = 100 * time.Millisecond

// New makes a table for at most holdsMax held pulls.
func New(holdsMax int, now func() time.Time) *Table {
	return &Table{max: holdsMax, now: now, queues: make(map[Key]*queue)}
}

// Len is the number of held pulls.
func (t *Table) Len() int { return int(t.count.Load()) }

// Park holds h until the queue's end passes h.From or its deadline. end reads the present end of
// the queue; it is asked after h is in the table, so that nothing dispatched meanwhile is missed.
// False means that h is not held: the queue has already grown, the table is full or closed. The
// caller then answers at once.
func (t *Table) Park(topic []byte, queueID int32, h *Hold, end func() int64) (parked, grown bool) {
	t.mu.Lock()
	if t.closed || len(t.heap) >= t.max {
		t.mu.Unlock()
		return false, false
	}
	t.add(topic, queueID, h)
	t.mu.Unlock()
	if end() <= h.From {
		return true, false
	}
	// The queue grew between the caller's read and the insertion. If Arrived saw h it has been
	// woken and is gone; otherwise take it back.
	t.mu.Lock()
	held := h.queue != nil
	if held {
		t.remove(h)
	}
	t.mu.Unlock()
	return !held, held
}

// Arrived wakes what waits for an offset below end in the queue.
func (t *Table) Arrived(topic string, queueID int32, end int64) {
	if t.count.Load() == 0 {
		return
	}
	var few [16]*Hold
	woken := few[:0]
	t.mu.Lock()
	if q := t.queues[Key{topic, queueID}]; q != nil {
		for i := len(q.holds) - 1; i >= 0; i-- {
			if h := q.holds[i]; h.From < end {
				t.remove(h)
				woken = append(woken, h)
			}
		}
	}
	t.mu.Unlock()
	for _, h := range woken {
		h.Waiter.Wake(false)
	}
}

// WakeTopic wakes everything held on a topic, whatever the offset: its queues are about to go.
func (t *Table) WakeTopic(topic string) {
	t.wakeAll(func(k Key) bool { return k.Topic == topic }, false)
}

// Close wakes everything as due and refuses further parking.
func (t *Table) Close() {
	t.mu.Lock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.wakeAll(func(Key) bool { return true }, true)
}

func (t *Table) wakeAll(match func(Key) bool, due bool) {
	var woken []*Hold
	t.mu.Lock()
	for key, q := range t.queues {
		if match(key) {
			woken = append(woken, q.holds...)
		}
	}
	for _, h := range woken {
		t.remove(h)
	}
	t.mu.Unlock()
	for _, h := range woken {
		h.Waiter.Wake(due)
	}
}

func (t *Table) add(topic []byte, queueID int32, h *Hold) {
	q := t.queues[Key{string(topic), queueID}]
	if q == nil {
		q = t.newQueue(Key{string(topic), queueID})
	}
	h.queue, h.slot = q, len(q.holds)
	q.holds = append(q.holds, h)
	t.push(h)
	t.count.Add(1)
	t.arm()
}

func (t *Table) newQueue(key Key) *queue {
	var q *queue
	if n := len(t.spare); n > 0 {
		q, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		q = &queue{}
	}
	q.key = key
	t.queues[key] = q
	return q
}

// remove takes h out of its queue and of the heap.
func (t *Table) remove(h *Hold) {
	q := h.queue
	last := len(q.holds) - 1
	q.holds[h.slot] = q.holds[last]
	q.holds[h.slot].slot = h.slot
	q.holds[last] = nil
	q.holds = q.holds[:last]
	if last == 0 {
		// An empty queue stays for the next pull of the same consumer unless there are many.
		if len(t.queues) > 1024 {
			delete(t.queues, q.key)
			if len(t.spare) < 1024 {
				t.spare = append(t.spare, q)
			}
		}
	}
	t.pop(h.place)
	h.queue = nil
	t.count.Add(-1)
}

// arm makes sure that the timer fires by the earliest deadline.
func (t *Table) arm() {
	if len(t.heap) == 0 || t.closed {
		return
	}
	first := t.heap[0].Deadline
	if !t.armed.IsZero() && !first.Before(t.armed) {
		return
	}
	now := t.now()
	wait := min(max(first.Truncate(tick).Add(tick).Sub(now), 0), max(first.Sub(now), 0)+tick)
	t.armed = first
	if t.timer == nil {
		t.timer = time.AfterFunc(wait, t.expire)
		return
	}
	t.timer.Reset(wait)
}

// expire is the timer's function: wakes what is due and arms the timer for the next.
func (t *Table) expire() {
	var due []*Hold
	t.mu.Lock()
	now := t.now()
	for len(t.heap) > 0 && !t.heap[0].Deadline.After(now) {
		h := t.heap[0]
		t.remove(h)
		due = append(due, h)
	}
	t.armed = time.Time{}
	t.arm()
	t.mu.Unlock()
	for _, h := range due {
		h.Waiter.Wake(true)
	}
}

// push and pop keep a binary heap that knows each member's place.

func (t *Table) push(h *Hold) {
	h.place = len(t.heap)
	t.heap = append(t.heap, h)
	t.up(h.place)
}

func (t *Table) pop(i int) {
	last := len(t.heap) - 1
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	if i < last {
		t.down(i)
		t.up(i)
	}
}

func (t *Table) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.heap[i].Deadline.Before(t.heap[parent].Deadline) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *Table) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return
		}
		right := child + 1
		if right < len(t.heap) && t.heap[right].Deadline.Before(t.heap[child].Deadline) {
			child = right
		}
		if !t.heap[child].Deadline.Before(t.heap[i].Deadline) {
			return
		}
		t.swap(i, child)
		i = child
	}
}

func (t *Table) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].place, t.heap[j].place = i, j
}
