// SPDX-License-Identifier: Apache-2.0

package delay_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestVectors carries stores on that RocketMQ 5.5.0 left: what delayOffset.json calls delivered does
// not come again, everything else comes once.
func TestVectors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at        int64           // when RocketMQ ended
		again     int             // delivered and not noted before it was killed
		positions map[int32]int64 // at the end
	}{
		"delay":       {1_795_977_110_000, 0, map[int32]int64{1: 3, 2: 3, 3: 3, 18: 6}},
		"delay-crash": {1_795_977_500_000, 3, map[int32]int64{1: 3, 2: 3, 3: 3, 18: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive := filepath.Join("../../storage/testdata/vectors", name+".tar.gz")
			b := &bench{
				t: t, dir: filepath.Join(enginetest.Unpack(t, archive), "store"),
				levels: delay.DefaultLevels, segment: 1 << 20, queueFile: 4000,
			}
			b.ms.Store(c.at)
			b.open()
			t.Cleanup(b.close)
			want := b.keys("SCHEDULE_TOPIC_XXXX", 18)
			b.step(0)
			b.step(3 * time.Hour)
			got, again := b.keys("DelayTopic", 2), 0
			for key, n := range got {
				if want[key] == 0 {
					delete(got, key) // sent without a delay
					continue
				}
				again += n - 1
				got[key] = 1
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("arrivals (-want +got):\n%s", diff)
			}
			if again != c.again {
				t.Errorf("%d came twice, want %d", again, c.again)
			}
			b.step(time.Minute)
			if err := b.service.Close(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.positions, b.service.Offsets().OffsetTable); diff != "" {
				t.Errorf("positions (-want +got):\n%s", diff)
			}
		})
	}
}

// keys counts the unique keys in the queues of a topic.
func (b *bench) keys(topic string, queues int32) map[string]int {
	b.t.Helper()
	all := map[string]int{}
	for queue := range queues {
		var res storage.ReadResult
		for at := record.QueueOffset(0); ; at = res.Next {
			b.store.Read(&storage.ReadRequest{
				Topic: []byte(topic), Queue: queue, From: at, MaxMessages: 1,
			}, &res)
			if res.Status != storage.Found {
				break
			}
			v, err := record.Parse(res.Regions[0].Mem)
			if err != nil {
				b.t.Fatal(err)
			}
			key, _ := record.Property(v.Properties(), "UNIQ_KEY")
			all[string(key)]++
			res.Regions[0].Release()
		}
	}
	return all
}

// TestOlderReleases carries on what RocketMQ 4.9.4 and 5.1.4 left: of each of the levels 1, 6 and 18
// four messages, those of the first delivered.
func TestOlderReleases(t *testing.T) {
	t.Parallel()
	for release, archive := range map[string]string{
		"4.9.4": "testdata/later-4.9.4.tar.gz", "5.1.4": "../timer/testdata/later-5.1.4.tar.gz",
	} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			b := &bench{
				t: t, dir: filepath.Join(enginetest.Unpack(t, archive), "store"),
				levels: delay.DefaultLevels, segment: 1 << 20, queueFile: 4000,
			}
			b.ms.Store(1_796_002_000_000) // when they ended
			b.open()
			t.Cleanup(b.close)
			want := b.keys("SCHEDULE_TOPIC_XXXX", 18)
			if got := b.waiting(want); got != 4 || len(want) != 12 {
				t.Errorf("%d of %d were delivered, want 4 of 12", got, len(want))
			}
			b.step(3 * time.Hour)
			if got := b.waiting(want); got != 12 {
				t.Errorf("%d were delivered in the end, want 12", got)
			}
		})
	}
}

// waiting counts how many of the messages are in LaterTopic, once each.
func (b *bench) waiting(want map[string]int) int {
	b.t.Helper()
	n := 0
	for key, times := range b.keys("LaterTopic", 1) {
		if want[key] == 0 {
			continue // no delayed message
		}
		if n++; times != 1 {
			b.t.Errorf("%s came %d times", key, times)
		}
	}
	return n
}
