// SPDX-License-Identifier: Apache-2.0

// Package lag finds consumers that are stuck: groups that are online and whose position on a queue
// does not move while messages come in behind it. It is pure state; who asks passes samples and the
// time.
//
//	found := watch.Look(now, samples) // now and then, with what online groups read
package lag

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Sample is one queue as one online group reads it, at one moment.
type Sample struct {
	Group, Topic string
	Queue        int32
	Committed    int64 // the group's position
	End          int64 // of the queue
}

// Finding is a group that is stuck on a topic.
type Finding struct {
	Group, Topic string
	Queues       int           // on which it is stuck
	Backlog      int64         // messages of these
	For          time.Duration // since the first of them stands still
}

// String is what an operator reads.
func (f Finding) String() string {
	return fmt.Sprintf("%s on %s: %d queues, %d messages, for %v", f.Group, f.Topic, f.Queues, f.Backlog,
		f.For.Round(time.Second))
}

// trackedMax bounds the queues with a backlog that are watched; more are not looked at.
const trackedMax = 1 << 18

// Watch remembers since when positions stand still. All methods may be called from any goroutine.
type Watch struct {
	after time.Duration

	mu    sync.Mutex
	still map[place]standstill
	stuck map[pair]Finding
}

type place struct {
	pair
	queue int32
}

type pair struct{ group, topic string }

type standstill struct {
	committed, end int64 // when it began
	since          time.Time
}

// New makes a watch that calls a group stuck after it stood still for so long.
func New(after time.Duration) *Watch {
	return &Watch{after: after, still: map[place]standstill{}, stuck: map[pair]Finding{}}
}

// Look takes samples of all groups that are online and returns the groups that have become stuck
// since the last look, ordered by name. Groups that are not among the samples are forgotten.
func (w *Watch) Look(now time.Time, samples []Sample) []Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	still := make(map[place]standstill, len(w.still))
	stuck := map[pair]Finding{}
	for i := range samples {
		s := &samples[i]
		if s.Committed >= s.End || len(still) >= trackedMax {
			continue
		}
		at := place{pair{s.Group, s.Topic}, s.Queue}
		was, known := w.still[at]
		if !known || was.committed != s.Committed {
			was = standstill{s.Committed, s.End, now}
		}
		still[at] = was
		if now.Sub(was.since) < w.after || s.End <= was.end {
			continue
		}
		f := stuck[at.pair]
		f.Group, f.Topic = s.Group, s.Topic
		f.Queues++
		f.Backlog += s.End - s.Committed
		f.For = max(f.For, now.Sub(was.since))
		stuck[at.pair] = f
	}
	var fresh []Finding
	for at, f := range stuck {
		if _, told := w.stuck[at]; !told {
			fresh = append(fresh, f)
		}
	}
	w.still, w.stuck = still, stuck
	sortFindings(fresh)
	return fresh
}

// Stuck lists the groups that were stuck at the last look, ordered by name.
func (w *Watch) Stuck() []Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Collect(maps.Values(w.stuck))
	sortFindings(list)
	return list
}

func sortFindings(list []Finding) {
	slices.SortFunc(list, func(a, b Finding) int {
		if a.Group != b.Group {
			if a.Group < b.Group {
				return -1
			}
			return 1
		}
		switch {
		case a.Topic < b.Topic:
			return -1
		case a.Topic > b.Topic:
			return 1
		}
		return 0
	})
}
