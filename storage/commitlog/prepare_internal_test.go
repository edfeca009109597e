// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"testing"
	"time"
)

// TestPace is gentle with a slow writer, and for a while after memory was slow to come.
func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var p pace
	for i, c := range []struct {
		since  time.Duration
		took   time.Duration // of a step that is made at once
		gentle bool
	}{
		{since: time.Hour, gentle: true}, // the first append, and whatever comes after a pause
		{since: slowStep, gentle: true},
		{since: slowStep - 1, took: time.Millisecond},
		{since: time.Millisecond, took: stall},
		{since: time.Millisecond, gentle: true},
		{since: time.Millisecond, gentle: true}, // stallBytes are used up with this one
		{since: time.Millisecond, took: stall - 1},
		{since: time.Millisecond},
	} {
		now = now.Add(c.since)
		p.wake(now)
		if got := p.gentle(stallBytes / 2); got != c.gentle {
			t.Errorf("step %d: gentle %v", i, got)
		}
		if !c.gentle {
			p.took(c.took)
		}
	}
}
