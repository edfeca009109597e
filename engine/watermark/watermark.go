// SPDX-License-Identifier: Apache-2.0

// Package watermark holds what waits for a number that only grows: sends that wait for the
// flushed position of the CommitLog today, for the replicated one later.
//
// Waiters are plain values in one slice ordered by position. An advance releases all of them up
// to the new value in one pass; a deadline releases them as late. Nothing runs while nobody waits:
// the one timer is armed by the first waiter and dies with the last.
package watermark

import (
	"slices"
	"sync"
	"time"
)

// Released is a waiter that waits no longer. Reached is false when its time ran out, or when the
// list was closed, before the mark came.
type Released[W any] struct {
	Waiter  W
	Reached bool
}

type entry[W any] struct {
	at       int64
	deadline time.Time
	waiter   W
}

// List is a watermark's waiters. All methods may be called from any goroutine.
type List[W any] struct {
	release func([]Released[W])
	timeout time.Duration
	max     int

	mu      sync.Mutex
	mark    int64
	entries []entry[W] // by position; deadlines grow with it, since all wait equally long
	head    int        // entries before it are released
	timer   *time.Timer
	armed   bool
	closed  bool

	// out is handed to release; only one release runs at a time.
	releasing sync.Mutex
	out       []Released[W]
}

// New makes a list whose waiters give up after timeout. release gets what an advance or the clock
// released; it must not block, and the slice is only its own until it returns. At most waitersMax
// wait; Add refuses more.
func New[W any](timeout time.Duration, waitersMax int, release func([]Released[W])) *List[W] {
	return &List[W]{release: release, timeout: timeout, max: waitersMax}
}

// Add parks w until the mark reaches at. It returns reached when the mark is there already and
// full when waitersMax wait or the list is closed; in both cases w is not parked.
func (l *List[W]) Add(at int64, w W) (parked, reached bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at <= l.mark {
		return false, true
	}
	if l.closed || len(l.entries)-l.head >= l.max {
		return false, false
	}
	l.compact()
	l.insert(entry[W]{at: at, deadline: time.Now().Add(l.timeout), waiter: w})
	if !l.armed {
		l.arm(l.timeout)
	}
	return true, false
}

// insert keeps the order by position. Appends of several loops may arrive slightly out of order,
// never far: the search starts at the end.
func (l *List[W]) insert(e entry[W]) {
	i := len(l.entries)
	for i > l.head && l.entries[i-1].at > e.at {
		i--
	}
	l.entries = slices.Insert(l.entries, i, e)
}

// compact moves the waiting entries to the front once the released ones outweigh them.
func (l *List[W]) compact() {
	if l.head == 0 || l.head < len(l.entries)-l.head {
		return
	}
	n := copy(l.entries, l.entries[l.head:])
	clear(l.entries[n:])
	l.entries, l.head = l.entries[:n], 0
}

// Advance raises the mark and releases what waited for it.
func (l *List[W]) Advance(mark int64) {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	l.mu.Lock()
	if mark <= l.mark {
		l.mu.Unlock()
		return
	}
	l.mark = mark
	for l.head < len(l.entries) && l.entries[l.head].at <= mark {
		l.take(true)
	}
	l.mu.Unlock()
	l.hand()
}

// expire is the timer's function.
func (l *List[W]) expire() {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	l.mu.Lock()
	l.armed = false
	now := time.Now()
	for l.head < len(l.entries) && !l.entries[l.head].deadline.After(now) {
		l.take(false)
	}
	if l.head < len(l.entries) && !l.closed {
		l.arm(l.entries[l.head].deadline.Sub(now))
	}
	l.mu.Unlock()
	l.hand()
}

// Len is the number of waiters.
func (l *List[W]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries) - l.head
}

// Close releases everything as not reached and refuses what comes later.
func (l *List[W]) Close() {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	for l.head < len(l.entries) {
		l.take(false)
	}
	l.mu.Unlock()
	l.hand()
}

func (l *List[W]) take(reached bool) {
	l.out = append(l.out, Released[W]{l.entries[l.head].waiter, reached})
	l.entries[l.head] = entry[W]{}
	l.head++
}

func (l *List[W]) hand() {
	if len(l.out) == 0 {
		return
	}
	l.release(l.out)
	clear(l.out)
	l.out = l.out[:0]
}

func (l *List[W]) arm(after time.Duration) {
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(after, l.expire)
		return
	}
	l.timer.Reset(after)
}
