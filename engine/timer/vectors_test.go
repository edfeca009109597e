// SPDX-License-Identifier: Apache-2.0

package timer_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// vectors are stores that RocketMQ 5.5.0 left.
const vectors = "../../storage/testdata/vectors"

// openVector opens it at a moment after its checkpoint.
func openVector(t *testing.T, dir string, after time.Duration) *bench {
	t.Helper()
	check, err := os.ReadFile(filepath.Join(dir, "config", "timercheck"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: dir}
	b.config.PrecisionMS, b.config.FileSize, b.config.RollTicks = 1000, 4096, 172800
	b.config.Interval = time.Second
	b.ms.Store(int64(binary.BigEndian.Uint64(check)) + after.Milliseconds())
	cfg := storage.DefaultConfig(dir)
	cfg.SegmentSize, cfg.QueueFileSize, cfg.MaxMessageSize = 1<<20, 4000, 1<<18
	cfg.IndexEnable, cfg.Now = false, b.now
	if b.store, err = storage.Open(cfg); err != nil {
		t.Fatal(err)
	}
	b.openService()
	t.Cleanup(func() { b.close() })
	return b
}

// arrivals counts by unique key what is in a topic.
func (b *bench) arrivals(topic string) map[string]int {
	all := map[string]int{}
	for queue := range int32(2) {
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

// due counts what the timer topic says must come: once each, but never what is recalled.
func (b *bench) due() map[string]int {
	all, recalled := map[string]int{}, map[string]bool{}
	b.records(timerName, func(v record.View) {
		key, _ := record.Property(v.Properties(), "UNIQ_KEY")
		if victim, ok := record.Property(v.Properties(), "TIMER_DEL_UNIQKEY"); ok {
			recalled[string(victim)] = true
			return
		}
		all[string(key)] = 1
	})
	for key := range recalled {
		delete(all, key)
	}
	return all
}

// TestVectors carries stores on that RocketMQ 5.5.0 left, after a graceful end and after a death, as
// they are and with files missing: what was pending comes once, what was delivered does not come
// again, what was recalled stays away.
func TestVectors(t *testing.T) {
	t.Parallel()
	for name, repeats := range map[string]int{
		"timer": 0,
		// It was killed behind its last checkpoint: one delivery was not noted.
		"timer-crash": 1,
	} {
		for _, missing := range []string{"nothing", "timerwheel", "timerlog", "both"} {
			t.Run(fmt.Sprintf("%s without %s", name, missing), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(enginetest.Unpack(t, filepath.Join(vectors, name+".tar.gz")), "store")
				for _, file := range []string{"timerwheel", "timerlog"} {
					if missing == file || missing == "both" {
						if err := os.RemoveAll(filepath.Join(dir, file)); err != nil {
							t.Fatal(err)
						}
					}
				}
				b := openVector(t, dir, 0)
				if missing == "nothing" && name == "timer" && b.service.Pending() != 81 {
					t.Errorf("%d are said to wait, want 81", b.service.Pending())
				}
				want := b.due()
				for range 100 {
					b.step(time.Hour)
				}
				got, twice := b.arrivals("TimerTopic"), 0
				for key, n := range got {
					if n > 1 {
						twice += n - 1
						got[key] = 1
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("arrivals (-want +got):\n%s", diff)
				}
				if twice > repeats {
					t.Errorf("%d came twice, want at most %d", twice, repeats)
				}
				if n := b.service.Pending(); n != 0 {
					t.Errorf("%d are said to wait at the end", n)
				}
			})
		}
	}
}

// TestOlderRelease carries on what RocketMQ 5.1.4 left: four timers delivered, four due in ten
// minutes, and four beyond its window.
func TestOlderRelease(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(enginetest.Unpack(t, "testdata/later-5.1.4.tar.gz"), "store")
	b := openVector(t, dir, 0)
	if n := b.service.Pending(); n != 8 {
		t.Errorf("%d are said to wait, want 8", n)
	}
	want := b.due()
	for range 60 {
		b.step(time.Hour)
	}
	got := b.arrivals("LaterTopic")
	for key := range got {
		if want[key] == 0 {
			delete(got, key) // no timer
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 12 {
		t.Errorf("arrivals (-want +got):\n%s", diff)
	}
}
