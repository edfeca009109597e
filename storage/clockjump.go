// SPDX-License-Identifier: Apache-2.0

package storage

import "time"

const (
	// jumpLeast is how far the wall clock must run away from the steady one to count as set.
	jumpLeast = time.Hour
	// jumpHold is how long nobody believes the age of files after that: time enough to notice.
	jumpHold = 24 * time.Hour
)

// clockJump watches for a wall clock that was set forward while the store ran. Every file looks old
// then, and what is deleted does not come back when the clock is set right. A machine that slept looks
// the same; its files wait a day longer.
type clockJump struct {
	steady func() time.Duration // time since some fixed moment; nil: nothing is watched
	known  bool
	wall   time.Time     // when the two were last compared
	at     time.Duration // then
	until  time.Duration // ages are not believed before; by steady
}

// look compares the clocks. jumped is how far the wall clock was set forward since the last time, 0
// if it was not; believe says whether ages may be believed.
func (j *clockJump) look(now time.Time) (jumped time.Duration, believe bool) {
	if j.steady == nil {
		return 0, true
	}
	at := j.steady()
	if j.known {
		jumped = now.Round(0).Sub(j.wall) - (at - j.at)
	}
	j.known, j.wall, j.at = true, now.Round(0), at
	switch {
	case jumped >= jumpLeast:
		j.until = at + jumpHold
		return jumped, false
	case jumped <= -jumpLeast:
		j.until = 0 // set back: right again
	}
	return 0, at >= j.until
}
