// SPDX-License-Identifier: Apache-2.0

package client

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// alarms runs functions later, all on the one goroutine that calls run, so they must be short. What
// has not rung when run ends never does.
type alarms struct {
	wake chan struct{} // capacity 1: the earliest time changed

	mu    sync.Mutex
	queue alarmQueue
}

type alarmItem struct {
	at time.Time
	do func()
}

type alarmQueue []alarmItem

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q alarmQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *alarmQueue) Push(x any)        { *q = append(*q, x.(alarmItem)) }

func (q *alarmQueue) Pop() any {
	old := *q
	n := len(old) - 1
	item := old[n]
	old[n] = alarmItem{}
	*q = old[:n]
	return item
}

func newAlarms() *alarms { return &alarms{wake: make(chan struct{}, 1)} }

// after has do called when d has passed. It never blocks.
func (a *alarms) after(d time.Duration, do func()) {
	at := time.Now().Add(d)
	a.mu.Lock()
	heap.Push(&a.queue, alarmItem{at, do})
	first := a.queue[0].at.Equal(at)
	a.mu.Unlock()
	if first {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// run calls what is due until ctx ends.
func (a *alarms) run(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		a.mu.Lock()
		wait := time.Hour
		var due func()
		if len(a.queue) > 0 {
			if wait = time.Until(a.queue[0].at); wait <= 0 {
				due = heap.Pop(&a.queue).(alarmItem).do
			}
		}
		a.mu.Unlock()
		if due != nil {
			due()
			continue
		}
		t.Reset(wait)
		select {
		case <-t.C:
		case <-a.wake:
		case <-ctx.Done():
			return
		}
	}
}
