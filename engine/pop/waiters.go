// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// Waiter is one request that waits for messages. Wake is called exactly once, without any lock held,
// and must not block: due says that its time is up.
type Waiter interface {
	Wake(due bool)
}

// Wait is a Waiter in the table. The caller does not touch it until Wake.
type Wait struct {
	Waiter   Waiter
	Topic    string // the normal topic
	Group    string
	Queue    int32 // -1: any
	Deadline time.Time
	Size     int // bytes that the request keeps in memory

	slot int // in the heap; -1: not in it
}

const (
	// waitersMax bounds the requests that wait (RocketMQ maxPopPollingSize).
	waitersMax = 100_000
	// waitersOfKey bounds those of one topic, group and queue (popPollingSize).
	waitersOfKey = 1024
	// waitersBytesMax bounds what they keep, by Wait.Size.
	waitersBytesMax = 64 << 20
	// waitGrain is how much earlier than its deadline a request is answered.
	waitGrain = 50 * time.Millisecond
)

// Waiters holds requests that found nothing, by topic, group and queue. One timer runs while there
// are any. All methods may be called from any goroutine.
type Waiters struct {
	now   func() time.Time
	count atomic.Int64

	mu     sync.Mutex
	table  map[string]map[string]map[int32][]*Wait // topic, group, queue; earliest deadline first
	heap   waitHeap
	bytes  int
	timer  *time.Timer
	closed bool
}

// NewWaiters makes an empty table.
func NewWaiters(now func() time.Time) *Waiters {
	return &Waiters{now: now, table: map[string]map[string]map[int32][]*Wait{}}
}

// Len is the number of requests that wait.
func (t *Waiters) Len() int { return int(t.count.Load()) }

// Of is the number of requests that wait for one queue, or with -1 for any.
func (t *Waiters) Of(topic, group string, queue int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.table[topic][group][queue])
}

// Parked says what became of a request that wanted to wait.
type Parked uint8

// The outcomes of Park.
const (
	ParkedHeld    Parked = iota // it waits
	ParkedTooLate               // its time is up already
	ParkedFull                  // too many wait
)

// Park lets a request wait until it is woken or its deadline comes.
func (t *Waiters) Park(w *Wait) Parked {
	if !w.Deadline.After(t.now().Add(waitGrain)) {
		return ParkedTooLate
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ParkedTooLate
	}
	groups := t.table[w.Topic]
	list := groups[w.Group][w.Queue]
	if len(t.heap) >= waitersMax || len(list) >= waitersOfKey || t.bytes+w.Size > waitersBytesMax {
		return ParkedFull
	}
	if groups == nil {
		groups = map[string]map[int32][]*Wait{}
		t.table[w.Topic] = groups
	}
	if groups[w.Group] == nil {
		groups[w.Group] = map[int32][]*Wait{}
	}
	groups[w.Group][w.Queue] = append(list, w)
	heap.Push(&t.heap, w)
	t.bytes += w.Size
	t.count.Add(1)
	t.armLocked()
	return ParkedHeld
}

// Arrived wakes one request of each group that polls the topic: one for any queue and one for this.
func (t *Waiters) Arrived(topic string, queue int32) {
	if t.count.Load() == 0 {
		return
	}
	var woken []*Wait
	t.mu.Lock()
	for group := range t.table[topic] {
		woken = t.takeLocked(woken, topic, group, -1)
		woken = t.takeLocked(woken, topic, group, queue)
	}
	t.mu.Unlock()
	for _, w := range woken {
		w.Waiter.Wake(false)
	}
}

// Wake wakes one request of a group for any queue, and one for this queue; with -1 one for each
// queue that is waited for.
func (t *Waiters) Wake(topic, group string, queue int32) {
	if t.count.Load() == 0 {
		return
	}
	var woken []*Wait
	t.mu.Lock()
	woken = t.takeLocked(woken, topic, group, -1)
	if queue >= 0 {
		woken = t.takeLocked(woken, topic, group, queue)
	} else {
		for q := range t.table[topic][group] {
			woken = t.takeLocked(woken, topic, group, q)
		}
	}
	t.mu.Unlock()
	for _, w := range woken {
		w.Waiter.Wake(false)
	}
}

// WakeOne wakes one request of exactly this key.
func (t *Waiters) WakeOne(topic, group string, queue int32) {
	t.mu.Lock()
	woken := t.takeLocked(nil, topic, group, queue)
	t.mu.Unlock()
	for _, w := range woken {
		w.Waiter.Wake(false)
	}
}

// Close wakes everybody as due and lets nobody wait any more.
func (t *Waiters) Close() {
	t.mu.Lock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
	all := append([]*Wait(nil), t.heap...)
	for _, w := range all {
		t.removeLocked(w)
	}
	t.mu.Unlock()
	for _, w := range all {
		w.Waiter.Wake(true)
	}
}

func (t *Waiters) takeLocked(woken []*Wait, topic, group string, queue int32) []*Wait {
	list := t.table[topic][group][queue]
	if len(list) == 0 {
		return woken
	}
	w := list[0]
	t.removeLocked(w)
	return append(woken, w)
}

func (t *Waiters) removeLocked(w *Wait) {
	groups := t.table[w.Topic]
	queues := groups[w.Group]
	list := queues[w.Queue]
	for i, other := range list {
		if other == w {
			list = append(list[:i], list[i+1:]...)
			break
		}
	}
	if queues[w.Queue] = list; len(list) == 0 {
		delete(queues, w.Queue)
	}
	if len(queues) == 0 {
		delete(groups, w.Group)
	}
	if len(groups) == 0 {
		delete(t.table, w.Topic)
	}
	if w.slot >= 0 {
		heap.Remove(&t.heap, w.slot)
	}
	t.bytes -= w.Size
	t.count.Add(-1)
}

func (t *Waiters) armLocked() {
	if len(t.heap) == 0 || t.closed {
		return
	}
	wait := max(t.heap[0].Deadline.Add(-waitGrain).Sub(t.now()), time.Millisecond)
	if t.timer == nil {
		t.timer = time.AfterFunc(wait, t.expire)
		return
	}
	t.timer.Reset(wait)
}

// expire is the timer's function.
func (t *Waiters) expire() {
	var due []*Wait
	t.mu.Lock()
	limit := t.now().Add(waitGrain)
	for len(t.heap) > 0 && !t.heap[0].Deadline.After(limit) {
		due = append(due, t.heap[0])
		t.removeLocked(t.heap[0])
	}
	t.armLocked()
	t.mu.Unlock()
	for _, w := range due {
		w.Waiter.Wake(true)
	}
}

// waitHeap has the earliest deadline first.
type waitHeap []*Wait

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].Deadline.Before(h[j].Deadline) }
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

// Push implements heap.Interface.
func (h *waitHeap) Push(x any) {
	w := x.(*Wait)
	w.slot = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *waitHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.slot = -1
	return w
}
