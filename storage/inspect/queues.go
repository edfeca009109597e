// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// Queue is one ConsumeQueue on disk.
type Queue struct {
	Topic string `json:"topic"`
	ID    int32  `json:"queue"`
	Batch bool   `json:"batch,omitempty"` // its units have 46 bytes and a record several messages
	Files int    `json:"files"`
	// First and End are the offsets of the first unit that is there and behind the last.
	First record.QueueOffset `json:"first"`
	End   record.QueueOffset `json:"end"`

	files []numberedFile
}

// Queues lists the queues of all topics, or of one, in order of topic and id. A store without
// queues has none, which is no error: they are made from the log at the next start.
func (d *Dir) Queues(topic string) ([]Queue, error) {
	list, err := d.queuesIn("consumequeue", topic, false)
	if err != nil {
		return nil, err
	}
	batches, err := d.queuesIn("batchconsumequeue", topic, true)
	if err != nil {
		return nil, err
	}
	list = append(list, batches...)
	slices.SortFunc(list, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// queuesIn lists the queues of one kind.
func (d *Dir) queuesIn(folder, topic string, batch bool) (list []Queue, err error) {
	root := filepath.Join(d.root, folder)
	topics, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	for _, t := range topics {
		if !t.IsDir() || topic != "" && t.Name() != topic {
			continue
		}
		ids, err := os.ReadDir(filepath.Join(root, t.Name()))
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		for _, id := range ids {
			n, err := strconv.ParseInt(id.Name(), 10, 32)
			if err != nil || !id.IsDir() {
				continue
			}
			q := Queue{Topic: t.Name(), ID: int32(n), Batch: batch}
			err = q.open(filepath.Join(root, t.Name(), id.Name()))
			if err != nil {
				return nil, err
			}
			list = append(list, q)
		}
	}
	return list, nil
}

// open finds the files and the bounds of q.
func (q *Queue) open(dir string) error {
	files, err := numbered(dir)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	q.files, q.Files = files, len(files)
	if len(files) == 0 {
		return nil
	}
	if q.Batch {
		return q.openBatch()
	}
	q.First = record.QueueOffset(files[0].number / consumequeue.UnitSize)
	q.End = q.First
	first := true
	err = q.Units(q.First, func(at record.QueueOffset, u consumequeue.Unit) error {
		if u.Filler() {
			return nil
		}
		if first {
			q.First, first = at, false
		}
		q.End = at + 1
		return nil
	})
	return err
}

// Units calls do for each unit from an offset on, up to the first that was never written. ErrStop
// ends it. For a batch queue it is the offset of the first message of each record.
func (q *Queue) Units(
	from record.QueueOffset, do func(record.QueueOffset, consumequeue.Unit) error,
) error {
	if q.Batch {
		return q.batchUnitsFrom(from, do)
	}
	b := make([]byte, readStep/consumequeue.UnitSize*consumequeue.UnitSize)
	for _, n := range q.files {
		skip := max(int64(from)*consumequeue.UnitSize-n.number, 0)
		if skip >= n.size {
			continue
		}
		more, err := eachUnit(n, skip, b, do)
		if errors.Is(err, ErrStop) {
			return nil
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func eachUnit(
	n numberedFile, skip int64, b []byte, do func(record.QueueOffset, consumequeue.Unit) error,
) (more bool, err error) {
	f, err := os.Open(n.path)
	if err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	defer f.Close()
	for at := skip; at < n.size; {
		got, err := f.ReadAt(b, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("inspect: %w", err)
		}
		got -= got % consumequeue.UnitSize
		if got == 0 {
			return true, nil
		}
		for i := 0; i < got; i += consumequeue.UnitSize {
			u := consumequeue.DecodeUnit(b[i:])
			if u.Size <= 0 {
				return false, nil
			}
			place := record.QueueOffset((n.number + at + int64(i)) / consumequeue.UnitSize)
			if err := do(place, u); err != nil {
				return false, err
			}
		}
		at += int64(got)
	}
	return true, nil
}

// unitCache answers for single units of many queues by reading them in blocks.
type unitCache struct {
	queues map[queueKey]*cachedQueue
}

type queueKey struct {
	topic string
	id    int32
}

type cachedQueue struct {
	queue Queue
	units []consumequeue.Unit
	from  record.QueueOffset
	right int64 // units that the log confirms
}

const unitBlock = 4096

// unit returns one unit; ok is false when the queue has none at the offset.
func (c *cachedQueue) unit(at record.QueueOffset) (u consumequeue.Unit, ok bool, err error) {
	if at < c.from || at >= c.from+record.QueueOffset(len(c.units)) {
		c.units, c.from = c.units[:0], at
		err = c.queue.Units(at, func(place record.QueueOffset, u consumequeue.Unit) error {
			if place != at+record.QueueOffset(len(c.units)) || len(c.units) == unitBlock {
				return ErrStop
			}
			c.units = append(c.units, u)
			return nil
		})
		if err != nil || len(c.units) == 0 {
			return u, false, err
		}
	}
	return c.units[at-c.from], true, nil
}
