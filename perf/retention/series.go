// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// span is the time of one deletion.
type span struct{ from, to time.Time }

// deletions lets files go, one for each that is allowed, and notes when. All methods are safe for use
// by the cleaner's goroutine and another.
type deletions struct {
	mu      sync.Mutex // guards what follows
	left    int
	started time.Time
	recent  []span
	all     []time.Duration
}

func (d *deletions) allow(files int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = files
}

// begin is asked before each file.
func (d *deletions) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	d.started = time.Now()
	return d.left >= 0
}

func (d *deletions) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recent = append(d.recent, span{d.started, time.Now()})
	d.all = append(d.all, time.Since(d.started))
}

// take returns the deletions since it was called last, in order.
func (d *deletions) take() []span {
	d.mu.Lock()
	defer d.mu.Unlock()
	recent := d.recent
	d.recent = nil
	return recent
}

// shortest and longest are asked when there are no deletions any more.
func (d *deletions) shortest() time.Duration {
	if len(d.all) == 0 {
		return 0
	}
	return slices.Min(d.all).Round(time.Millisecond)
}

func (d *deletions) longest() time.Duration { return highest(d.all, 1).Round(time.Millisecond) }

// series is the appends of one time, or of several.
type series struct {
	began               []time.Time
	took                []time.Duration // each is the sum of the three below
	ran, queued, waited []time.Duration
}

func (s *series) add(more series) {
	s.began, s.took = append(s.began, more.began...), append(s.took, more.took...)
	s.ran, s.queued = append(s.ran, more.ran...), append(s.queued, more.queued...)
	s.waited = append(s.waited, more.waited...)
}

// split tells the appends apart that have a moment in common with one of the spans.
func (s *series) split(spans []span) (apart, beside series) {
	for i, began := range s.began {
		to := &apart
		for _, p := range spans {
			if began.Before(p.to) && began.Add(s.took[i]).After(p.from) {
				to = &beside
				break
			}
		}
		to.add(series{
			s.began[i : i+1], s.took[i : i+1], s.ran[i : i+1], s.queued[i : i+1], s.waited[i : i+1],
		})
	}
	return apart, beside
}

func (s *series) print(name string) {
	fmt.Fprintf(os.Stdout, "%-18s %6d appends", name+":", len(s.took))
	for _, part := range []struct {
		name string
		list []time.Duration
	}{{"all of it", s.took}, {"running", s.ran}, {"without a processor", s.queued}, {"waiting", s.waited}} {
		over := 0
		for _, d := range part.list {
			if d > promised {
				over++
			}
		}
		fmt.Fprintf(os.Stdout, "; %s: longest %v, p99.9 %v, over %v: %d", part.name, highest(part.list, 1),
			highest(part.list, 0.999), promised, over)
	}
	fmt.Fprintln(os.Stdout)
}

// highest returns a quantile, 1 for the longest.
func highest(list []time.Duration, quantile float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	i := min(int(quantile*float64(len(sorted))), len(sorted)-1)
	return sorted[i].Round(time.Microsecond)
}
