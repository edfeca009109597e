// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCrashPositionsBehindTheLog: a position that was saved for messages which the crash took comes
// back to the end of the queue; others, and all after a clean stop, stay.
func TestCrashPositionsBehindTheLog(t *testing.T) {
	t.Parallel()
	const group, topic = "consumers", "positions"
	cfg := quietConfig(t)
	b := startBroker(t, cfg)
	p := newPeer(t, b.Addr().String())
	for range 3 {
		p.send(topic, 0, "x")
		p.send(topic, 1, "x")
	}
	p.pull(pullRequest(topic, 0, 0, "*", 0))
	p.commit(group, topic, 0, 100)
	p.commit(group, topic, 1, 2)
	p.commit(group, topic, 2, 5) // a queue of which nothing is left
	for _, crashed := range []bool{false, true} {
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []int64{100, 2, 5}
		if crashed {
			want = []int64{3, 2, 0}
			if err := os.WriteFile(filepath.Join(cfg.StoreRoot, "abort"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b = startBroker(t, cfg)
		p = newPeer(t, b.Addr().String())
		for queue, at := range want {
			if got := p.committed(group, topic, int32(queue)); got != at {
				t.Errorf("crashed %v: position in queue %d is %d, want %d", crashed, queue, got, at)
			}
		}
	}
}
