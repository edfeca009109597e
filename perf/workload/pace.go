// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"math"
	"time"
)

// schedule gives the due moments of one connection: connection i of n has every n-th request. With
// a burst interval, requests come due together at its multiples, each connection at a phase of its
// own; they are never due before the moment that the rate alone gives.
type schedule struct {
	start    float64 // nanoseconds
	interval float64 // between two requests of this connection
	burst    float64 // 0: each request by itself
	next     int64   // how many are due before
}

func newSchedule(
	start int64, requestsPerSecond float64, index, connections int, burst time.Duration,
) schedule {
	s := schedule{
		start:    float64(start),
		interval: float64(time.Second) / requestsPerSecond * float64(connections),
		burst:    float64(burst),
	}
	phase := float64(index) / float64(connections)
	if s.burst > s.interval {
		s.start += s.burst * phase
	} else {
		s.burst = 0 // requests are further apart than bursts
		s.start += s.interval * phase
	}
	return s
}

// due returns the moment of the next request.
func (s *schedule) due() int64 {
	at := s.interval * float64(s.next)
	if s.burst > 0 {
		at = math.Ceil(at/s.burst) * s.burst
	}
	return int64(s.start + at)
}
