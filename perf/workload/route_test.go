// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"testing"

	"github.com/skylarkmq/skylark/engine/enginetest"
)

// TestBoundsAreAskedForOnce asks again when nothing can be asked any more: what was asked
// for once is known for all groups, and a group's own offset is not taken for another's.
func TestBoundsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	ctl := newControl([]string{cluster.NameServer()}, nil)
	defer ctl.close()
	ctx := t.Context()
	targets, err := ctl.existing(ctx, "bounds", 2)
	if err != nil {
		t.Fatal(err)
	}
	b := &bounds{control: ctl, known: map[bound]int64{}}
	for i := range targets {
		for _, from := range []Start{First, Last} {
			if at, err := b.offset(ctx, &targets[i], "one", from); err != nil || at != 0 {
				t.Fatalf("%d, %v", at, err)
			}
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for i := range targets {
		for _, from := range []Start{First, Last} {
			if at, err := b.offset(gone, &targets[i], "another", from); err != nil || at != 0 {
				t.Errorf("%d, %v: it was asked for again", at, err)
			}
		}
		if _, err := b.offset(gone, &targets[i], "another", Stored); err == nil {
			t.Error("a group's own offset was not asked for")
		}
	}
}
