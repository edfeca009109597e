// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const rateMax = 100_000_000 // messages a second

// Step is a part of a run at one rate.
type Step struct {
	Rate float64  `json:"rate"`          // messages a second over all connections; 0: a pause
	For  Duration `json:"for,omitempty"` // 0: until the run ends
}

// schedule gives the due moments of one connection. Connection i of n has every n-th request. With
// a burst interval, requests come due together at its multiples, each connection at a phase of its
// own; they are never due before the moment that the rate alone gives.
type schedule struct {
	start float64 // nanoseconds
	parts []stretch
	at    int     // the part of parts that next lies in
	phase float64 // in requests
	burst float64 // nanoseconds; 0: each request by itself
	next  int64   // how many are due before
}

// stretch is a step from the view of one connection.
type stretch struct {
	from     float64 // nanoseconds since the start
	interval float64 // between two requests of this connection
	before   float64 // requests due before it
}

// newSchedule: steps give requests a second over all connections. One without an end is the last.
func newSchedule(start int64, steps []Step, index, connections int, burst time.Duration) schedule {
	s := schedule{start: float64(start), burst: float64(burst)}
	var from, before float64
	slowest := 0.0
	for _, step := range steps {
		interval := math.Inf(1)
		if step.Rate > 0 {
			interval = float64(time.Second) / step.Rate * float64(connections)
			slowest = max(slowest, interval)
		}
		s.parts = append(s.parts, stretch{from: from, interval: interval, before: before})
		from += float64(step.For)
		before += float64(step.For) / interval
	}
	if last := steps[len(steps)-1]; last.For > 0 {
		s.parts = append(s.parts, stretch{from: from, interval: math.Inf(1), before: before})
	}
	phase := float64(index) / float64(connections)
	if s.burst > slowest {
		s.start += s.burst * phase
	} else {
		s.burst = 0 // requests are further apart than bursts
		s.phase = phase
	}
	return s
}

// due returns the moment of the next request; math.MaxInt64 when there is none.
func (s *schedule) due() int64 {
	n := float64(s.next) + s.phase
	for s.at+1 < len(s.parts) && n >= s.parts[s.at+1].before {
		s.at++
	}
	p := &s.parts[s.at]
	if math.IsInf(p.interval, 1) {
		return math.MaxInt64 // the last part: a pause ends where it begins for want of requests
	}
	at := p.from + (n-p.before)*p.interval
	if s.burst > 0 {
		at = math.Ceil(at/s.burst) * s.burst
	}
	return int64(s.start + at)
}

// late returns how many requests came due before now and were not sent, not counting bursts.
func (s *schedule) late(now int64) int64 {
	at := float64(now) - s.start
	n := 0.0
	for i := s.at; i < len(s.parts) && s.parts[i].from <= at; i++ {
		p := &s.parts[i]
		n = p.before + (at-p.from)/p.interval
	}
	return max(int64(n-s.phase)-s.next, 0)
}

// length returns how long steps last together; 0: without end.
func length(steps []Step) time.Duration {
	var sum time.Duration
	for _, s := range steps {
		if s.For == 0 {
			return 0
		}
		sum += time.Duration(s.For)
	}
	return sum
}

// ParseRate reads a rate in messages a second, "5000", or steps of rate and time joined by commas,
// "1000:10s,5000:1m". The last step may lack its time: it lasts until the run ends. A rate of 0 in
// a step is a pause.
func ParseRate(text string) (rate float64, steps []Step, err error) {
	if !strings.ContainsAny(text, ":,") {
		rate, err = parseRate(text)
		return rate, nil, err
	}
	list := strings.Split(text, ",")
	for i, one := range list {
		number, last, timed := strings.Cut(one, ":")
		var step Step
		if step.Rate, err = parseRate(number); err != nil {
			return 0, nil, err
		}
		if !timed && i < len(list)-1 {
			return 0, nil, fmt.Errorf("step %q has no time, as in 1000:10s; only the last may lack it", one)
		}
		if timed {
			d, err := time.ParseDuration(last)
			if err != nil || d <= 0 {
				return 0, nil, fmt.Errorf("step %q: %q is no time above 0, as 10s is", one, last)
			}
			step.For = Duration(d)
		}
		steps = append(steps, step)
	}
	if !slices.ContainsFunc(steps, func(s Step) bool { return s.Rate > 0 }) {
		return 0, nil, fmt.Errorf("%q sends nothing: no step has a rate", text)
	}
	return 0, steps, nil
}

func parseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || rate < 0 || rate > rateMax {
		return 0, fmt.Errorf("%q is no rate, want 0 to %d messages a second", text, rateMax)
	}
	return rate, nil
}
