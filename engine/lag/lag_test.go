// SPDX-License-Identifier: Apache-2.0

package lag_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/lag"
)

// Only a position that stands still while messages come in is stuck; it is told once.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := lag.New(time.Minute)
	now := time.UnixMilli(1)
	look := func(want []lag.Finding, samples ...lag.Sample) {
		t.Helper()
		if diff := cmp.Diff(want, w.Look(now, samples)); diff != "" {
			t.Fatalf("at %v (-want +got):\n%s", now.Sub(time.UnixMilli(1)), diff)
		}
		now = now.Add(30 * time.Second)
	}
	sample := func(group string, queue int32, committed, end int64) lag.Sample {
		return lag.Sample{Group: group, Topic: "T", Queue: queue, Committed: committed, End: end}
	}
	look(nil, sample("stuck", 0, 5, 10), sample("stuck", 1, 0, 3), sample("slow", 0, 1, 10), sample("idle", 0, 1, 9), sample("done", 0, 9, 9))
	look(nil, sample("stuck", 0, 5, 20), sample("stuck", 1, 0, 4), sample("slow", 0, 2, 20), sample("idle", 0, 1, 9), sample("done", 0, 9, 9))
	found := lag.Finding{Group: "stuck", Topic: "T", Queues: 2, Backlog: 29, For: time.Minute}
	look([]lag.Finding{found}, sample("stuck", 0, 5, 30), sample("stuck", 1, 0, 4), sample("slow", 0, 3, 30), sample("idle", 0, 1, 9), sample("done", 0, 30, 30))
	if diff := cmp.Diff([]lag.Finding{found}, w.Stuck()); diff != "" {
		t.Fatal(diff)
	}
	look(nil, sample("stuck", 0, 5, 40), sample("stuck", 1, 3, 4))
	look(nil, sample("stuck", 0, 6, 50))
	if got := w.Stuck(); len(got) != 0 {
		t.Fatalf("still stuck: %v", got)
	}
	look(nil)
	look(nil, sample("stuck", 0, 6, 60)) // it was away: its time begins anew
	look(nil, sample("stuck", 0, 6, 70))
	look([]lag.Finding{{Group: "stuck", Topic: "T", Queues: 1, Backlog: 74, For: time.Minute}}, sample("stuck", 0, 6, 80))
}
