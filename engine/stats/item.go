// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"sync"
	"sync/atomic"
)

// tickMS is the distance of the finest snapshots. Coarser ones are taken at multiples of it.
const tickMS = 10_000

// The windows of RocketMQ's StatsItem: how many ticks lie between two snapshots and how many
// snapshots are kept.
var windows = [...]struct{ ticks, keep int64 }{
	{1, 7},    // a minute: every 10 s
	{60, 7},   // an hour: every 10 min
	{360, 25}, // a day: every hour
}

const (
	minute = iota
	hour
	day
	windowCount
)

// Item is one counter with its history. Its zero value is not ready, see newItem.
type Item struct {
	sum   atomic.Int64
	calls atomic.Int64
	due   atomic.Int64 // first millisecond that is not covered by the snapshots taken

	mu    sync.Mutex // guards rings
	rings [windowCount]ring
}

// snapshot is a counter's value at one moment.
type snapshot struct{ atMS, sum, calls int64 }

// ring holds the latest snapshots of one window, oldest first.
type ring struct{ kept []snapshot }

func (r *ring) push(s snapshot, keep int64) {
	if int64(len(r.kept)) >= keep {
		copy(r.kept, r.kept[1:])
		r.kept = r.kept[:keep-1]
	}
	r.kept = append(r.kept, s)
}

func newItem(nowMS int64) *Item {
	i := &Item{}
	start := nowMS - nowMS%tickMS
	for w := range i.rings {
		i.rings[w].push(snapshot{atMS: start}, windows[w].keep)
	}
	i.due.Store(start + tickMS)
	return i
}

// Add counts one call that brings n. It allocates nothing but, once in ten seconds, what the first
// snapshots of a ring need.
func (i *Item) Add(nowMS, n int64) { i.AddCalls(nowMS, 1, n) }

// AddCalls counts several calls that bring n together.
func (i *Item) AddCalls(nowMS, calls, n int64) {
	if out(nowMS, i.due.Load()) {
		i.roll(nowMS)
	}
	i.sum.Add(n)
	i.calls.Add(calls)
}

// out tells that nowMS is outside the tick that ends at due: a snapshot is due, or the clock was set
// back by more than a tick.
func out(nowMS, due int64) bool { return nowMS >= due || nowMS < due-2*tickMS }

// Sum is the total since the item exists.
func (i *Item) Sum() int64 { return i.sum.Load() }

// roll takes the snapshots that fell due up to nowMS. Nothing was added since the first of them, as
// an addition would have rolled, so all have the present values.
func (i *Item) roll(nowMS int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	due := i.due.Load()
	if !out(nowMS, due) {
		return
	}
	sum, calls := i.sum.Load(), i.calls.Load()
	last := nowMS - nowMS%tickMS
	if nowMS < due { // the clock went back: the history has no meaning, begin anew
		for w := range i.rings {
			i.rings[w].kept = append(i.rings[w].kept[:0], snapshot{last, sum, calls})
		}
		i.due.Store(last + tickMS)
		return
	}
	for w := range i.rings {
		step := windows[w].ticks * tickMS
		first := (due + step - 1) / step * step
		// More than a ring's length in the past is pushed out again at once.
		first = max(first, last/step*step-(windows[w].keep-1)*step)
		for at := first; at <= last; at += step {
			i.rings[w].push(snapshot{at, sum, calls}, windows[w].keep)
		}
	}
	i.due.Store(last + tickMS)
}

// Window is what one window of an item shows.
type Window struct {
	Sum     int64
	TPS     float64 // per second
	Average float64 // per call
}

// window is the difference between the newest and the oldest snapshot kept.
func (i *Item) window(w int, nowMS int64) Window {
	if out(nowMS, i.due.Load()) {
		i.roll(nowMS)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.rings[w].kept
	first, last := kept[0], kept[len(kept)-1]
	out := Window{Sum: last.sum - first.sum}
	if ms := last.atMS - first.atMS; ms > 0 {
		out.TPS = float64(out.Sum) * 1000 / float64(ms)
	}
	if calls := last.calls - first.calls; calls > 0 {
		out.Average = float64(out.Sum) / float64(calls)
	}
	return out
}

// Minute is the window of the last minute at nowMS.
func (i *Item) Minute(nowMS int64) Window { return i.window(minute, nowMS) }

// Hour is the window of the last hour at nowMS.
func (i *Item) Hour(nowMS int64) Window { return i.window(hour, nowMS) }

// Day is the window of the last day at nowMS.
func (i *Item) Day(nowMS int64) Window { return i.window(day, nowMS) }
