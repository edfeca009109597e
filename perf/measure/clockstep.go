// SPDX-License-Identifier: Apache-2.0

package measure

import "time"

// stepLeast is the smallest change between two looks, about a second apart, that counts as a step
// of the wall clock: time daemons that slew it stay below 0.5 ms a second.
const stepLeast = 5 * time.Millisecond

// wallStep returns by how much the wall clock has gone ahead of c since c was made.
func (c Clock) wallStep() time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(c.start.Round(0)) // Round(0) drops the monotonic reading
	return wall - now.Sub(c.start)
}

// clockSteps counts steps of the wall clock.
type clockSteps struct {
	last  time.Duration
	count int
	sum   time.Duration
}

func (s *clockSteps) start(offset time.Duration) { *s = clockSteps{last: offset} }

func (s *clockSteps) look(offset time.Duration) {
	step := offset - s.last
	s.last = offset
	if step.Abs() >= stepLeast {
		s.count++
		s.sum += step
	}
}
