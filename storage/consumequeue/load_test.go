// SPDX-License-Identifier: Apache-2.0

package consumequeue_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestLoadLostUnits has a power loss take the units from 10 to 15 and leave those behind: the queue
// ends at 10, whichever of its files begins with a lost one. A lost unit is all zeros, and so looks as
// if its record lay at the beginning of the log, far in front of what is known to be on disk.
func TestLoadLostUnits(t *testing.T) {
	t.Parallel()
	const perFile, files, lost, behind = 4, 6, 10, 16
	for name, batch := range map[string]bool{"units": false, "batch units": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unit := consumequeue.UnitSize
			if batch {
				unit = consumequeue.BatchUnitSize
			}
			cfg := consumequeue.Config{
				Dir: t.TempDir(), FileSize: int64(perFile * unit), MaxOpen: 4, Batch: batch,
			}
			set, err := consumequeue.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			q := create(t, set, "T", 0)
			for i := range int64(perFile * files) {
				if batch {
					err = q.PutBatch(consumequeue.BatchUnit{
						Unit: unitAt(i), StoreMS: 1, Base: record.QueueOffset(i), Count: 1,
					})
				} else {
					_, _, err = q.Put(record.QueueOffset(i), unitAt(i))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			set.Close()
			names, err := filepath.Glob(filepath.Join(cfg.Dir, "T", "0", "*"))
			if err != nil || len(names) != files {
				t.Fatal(names, err)
			}
			for i := lost; i < behind; i++ {
				b, err := os.ReadFile(names[i/perFile])
				if err != nil {
					t.Fatal(err)
				}
				copy(b[i%perFile*unit:], bytes.Repeat([]byte{0}, unit))
				if err := os.WriteFile(names[i/perFile], b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if set, err = consumequeue.Open(cfg); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(set.Close)
			end := unitAt(lost - 1).End()
			states, _, err := set.Load(consumequeue.Bounds{LogEnd: 1 << 40, Trusted: end})
			if err != nil {
				t.Fatal(err)
			}
			if len(states) != 1 || states[0].End != end || states[0].Damage == "" || states[0].From != end {
				t.Errorf("loaded %+v", states)
			}
			if got := states[0].Queue.Written(); got != lost {
				t.Errorf("the queue ends at %d", got)
			}
		})
	}
}
