// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/inspect"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestVerifyBatchQueues: a store with batch queues, which RocketMQ wrote, is right; a changed unit, a
// lost one and one that leads nowhere are found.
func TestVerifyBatchQueues(t *testing.T) {
	t.Parallel()
	const unit = consumequeue.BatchUnitSize
	cases := []struct {
		name   string
		change func(f *os.File) error // of the queue's last file, from unit 20 on
		kind   string
		faults int64
	}{
		{"as it is", func(*os.File) error { return nil }, "", 0},
		{"count of a unit", func(f *os.File) error {
			_, err := f.WriteAt([]byte{0, 100}, 3*unit+36)
			return err
		}, inspect.WrongUnit, 1},
		{"last unit lost", func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, unit), 19*unit)
			return err
		}, inspect.NoUnit, 1},
		{"unit behind the log", func(f *os.File) error {
			var b [unit]byte
			consumequeue.BatchUnit{
				Unit: consumequeue.Unit{At: 1 << 30, Size: 100}, Base: 360, Count: 1,
			}.Encode(b[:])
			_, err := f.WriteAt(b[:], 20*unit)
			return err
		}, inspect.StrayUnit, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := unpack(t, "batchcq")
			path := filepath.Join(root, "batchconsumequeue", "BatchTopic", "0", "00000000000000004600")
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(f); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			report, err := open(t, root).Verify(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Records != 240 || report.Faults != c.faults {
				t.Fatalf("%+v", report)
			}
			if c.faults > 0 && report.Findings[0].Kind != c.kind {
				t.Errorf("found %+v, want %s", report.Findings, c.kind)
			}
		})
	}
}

// TestBatchQueuesListed: their bounds are queue offsets, and a look from one begins with its record.
func TestBatchQueuesListed(t *testing.T) {
	t.Parallel()
	queues, err := open(t, unpack(t, "batchcq")).Queues("BatchTopic")
	if err != nil || len(queues) != 2 {
		t.Fatal(queues, err)
	}
	q := queues[1]
	if !q.Batch || q.ID != 1 || q.First != 0 || q.End != 360 || q.Files != 2 {
		t.Errorf("%+v", q)
	}
	first := record.QueueOffset(-1)
	err = q.Units(100, func(at record.QueueOffset, u consumequeue.Unit) error {
		first = at
		return inspect.ErrStop
	})
	if err != nil || first > 100 || first < 95 {
		t.Errorf("units from 100 begin at %d: %v", first, err)
	}
}
