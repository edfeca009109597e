// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// openBatch finds the bounds of a batch queue.
func (q *Queue) openBatch() error {
	first := true
	return q.BatchUnits(func(u consumequeue.BatchUnit) error {
		if first {
			q.First, first = u.Base, false
		}
		q.End = u.Behind()
		return nil
	})
}

// BatchUnits calls do for each unit of a batch queue, up to the first that was never written. ErrStop
// ends it.
func (q *Queue) BatchUnits(do func(consumequeue.BatchUnit) error) error {
	c := batchCursor{queue: *q}
	for {
		u, ok, err := c.peek()
		if err != nil || !ok {
			return err
		}
		if err := do(u); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
		c.skip()
	}
}

// batchUnitsFrom is Units for a batch queue.
func (q *Queue) batchUnitsFrom(
	from record.QueueOffset, do func(record.QueueOffset, consumequeue.Unit) error,
) error {
	return q.BatchUnits(func(u consumequeue.BatchUnit) error {
		if u.Behind() <= from {
			return nil
		}
		return do(u.Base, u.Unit)
	})
}

// batchCursor walks the units of a batch queue, which lie in the order of their records in the log.
type batchCursor struct {
	queue Queue
	file  int   // in queue.files
	at    int64 // byte in that file
	units []consumequeue.BatchUnit
}

// peek returns the next unit; ok is false at the end of the queue.
func (c *batchCursor) peek() (u consumequeue.BatchUnit, ok bool, err error) {
	if len(c.units) == 0 {
		if err := c.read(); err != nil {
			return u, false, err
		}
	}
	if len(c.units) == 0 || c.units[0].Size <= 0 || c.units[0].Count <= 0 {
		return u, false, nil
	}
	return c.units[0], true, nil
}

func (c *batchCursor) skip() { c.units = c.units[1:] }

// read fills units with a block of one file.
func (c *batchCursor) read() error {
	const unit = consumequeue.BatchUnitSize
	for ; c.file < len(c.queue.files); c.file, c.at = c.file+1, 0 {
		n := c.queue.files[c.file]
		if c.at >= n.size {
			continue
		}
		f, err := os.Open(n.path)
		if err != nil {
			return fmt.Errorf("inspect: %w", err)
		}
		b := make([]byte, min(unitBlock*unit, n.size-c.at))
		got, err := f.ReadAt(b, c.at)
		_ = f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("inspect: %w", err)
		}
		got -= got % unit
		if got == 0 {
			continue
		}
		c.at += int64(got)
		for i := 0; i < got; i += unit {
			c.units = append(c.units, consumequeue.DecodeBatchUnit(b[i:]))
		}
		return nil
	}
	return nil
}

// batchRecord holds a record against the next unit of its batch queue.
func (v *verification) batchRecord(c *batchCursor, f Finding, e Entry) error {
	tag, _ := record.Property(e.View.Properties(), "TAGS")
	want := consumequeue.BatchUnit{
		Unit: consumequeue.Unit{
			At: e.At, Size: e.View.TotalSize(), TagsCode: record.TagsCode(tag),
		},
		StoreMS: e.View.StoreMS(),
	}
	want.Base, want.Count = e.View.Messages()
	for {
		u, ok, err := c.peek()
		if err != nil {
			return err
		}
		if !ok || u.At > e.At {
			f.Kind = NoUnit
			v.report.add(f)
			return nil
		}
		c.skip()
		v.report.Units++
		switch {
		case u == want:
			return nil
		case u.At == e.At:
			f.Kind = WrongUnit
			f.Detail = fmt.Sprintf("the unit says %+v, the record %+v", u, want)
			v.report.add(f)
			return nil
		case u.At >= v.dir.Min():
			v.report.add(Finding{
				Kind: StrayUnit, At: u.At, Topic: f.Topic, Queue: f.Queue, Offset: u.Base,
				Detail: "there is no record of the queue at its offset",
			})
		}
	}
}

// batchStrays finds the units that no record came for.
func (v *verification) batchStrays(key queueKey, c *batchCursor) error {
	for {
		u, ok, err := c.peek()
		if err != nil || !ok {
			return err
		}
		c.skip()
		v.report.Units++
		if u.At >= v.dir.Min() {
			v.report.add(Finding{
				Kind: StrayUnit, At: u.At, Topic: key.topic, Queue: key.id, Offset: u.Base,
				Detail: "it leads behind the end of the log, or to no record of the queue",
			})
		}
	}
}
