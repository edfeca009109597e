// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"
	"time"
)

// TestClockJump: a clock set forward by years takes the belief in ages for a day, one set right again
// gives it back at once, and clocks that drift, or are set back, take nothing.
func TestClockJump(t *testing.T) {
	t.Parallel()
	wall, steady := time.UnixMilli(1_700_000_000_000), time.Duration(0)
	j := clockJump{steady: func() time.Duration { return steady }}
	look := func(passed, set time.Duration, wantJump time.Duration, want bool) {
		t.Helper()
		wall, steady = wall.Add(passed+set), steady+passed
		if jumped, believe := j.look(wall); believe != want || jumped != wantJump {
			t.Fatalf("%v passed, clock set by %v: jumped %v, believed %v", passed, set, jumped, believe)
		}
	}
	const years = 24 * 365 * 24 * time.Hour
	look(0, 0, 0, true)
	look(80*time.Hour, 0, 0, true)
	look(time.Hour, 20*time.Minute, 0, true)
	look(10*time.Second, years, years, false)
	look(23*time.Hour, 0, 0, false)
	look(2*time.Hour, 0, 0, true)
	look(10*time.Second, years, years, false)
	look(10*time.Second, -years, 0, true)
	look(10*time.Second, -time.Hour, 0, true)
}
