// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"testing"
	"time"
)

// TestResidence: units that were found in memory are taken to be there for a moment, and no others.
func TestResidence(t *testing.T) {
	t.Parallel()
	now, late := time.Now(), time.Now().Add(-residentFor)
	for _, c := range []struct {
		r        residence
		from, to int64
		want     bool
	}{
		{residence{20, 100, now.Add(time.Hour)}, 20, 100, true},
		{residence{20, 100, now.Add(time.Hour)}, 40, 60, true},
		{residence{20, 100, now.Add(time.Hour)}, 0, 60, false},
		{residence{20, 100, now.Add(time.Hour)}, 40, 101, false},
		{residence{20, 100, late}, 40, 60, false},
		{residence{}, 0, 20, false},
	} {
		if got := c.r.holds(c.from, c.to); got != c.want {
			t.Errorf("%v holds [%d, %d): %v", c.r, c.from, c.to, got)
		}
	}
}
