// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"testing"
	"time"
)

// TestPace: a writer that takes slowStep for a step is slow, and so is the first append after a pause.
func TestPace(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Now()
	for _, c := range []struct {
		since time.Duration // the writer's last step
		slow  bool
	}{{time.Hour, true}, {slowStep - 1, false}, {slowStep, true}, {0, false}} {
		now = now.Add(c.since)
		p.wake(now)
		if p.slow != c.slow {
			t.Errorf("a step in %v: slow is %v", c.since, p.slow)
		}
	}
}
