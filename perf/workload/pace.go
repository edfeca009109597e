// SPDX-License-Identifier: Apache-2.0

package workload

import "time"

// schedule gives the due moments of one connection: connection i of n has every n-th request.
type schedule struct {
	start    float64 // nanoseconds
	interval float64 // between two requests of this connection
	next     int64   // how many are due before
}

func newSchedule(start int64, requestsPerSecond float64, index, connections int) schedule {
	all := float64(time.Second) / requestsPerSecond
	return schedule{
		start: float64(start) + all*float64(index), interval: all * float64(connections),
	}
}

// due returns the moment of the next request.
func (s *schedule) due() int64 { return int64(s.start + s.interval*float64(s.next)) }
