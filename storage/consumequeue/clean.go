// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/record"
)

// DeleteBelow moves the minimum to the first unit whose record lies at or behind logMin, and deletes
// the files in front of it, oldest first, but never the last one (RocketMQ ConsumeQueue
// deleteExpiredFile). Readers finish with what they hold. all is false when a file must wait until
// it was flushed. It blocks for the disk and may be called from any goroutine.
func (q *Queue) DeleteBelow(logMin record.PhysicalOffset) (all bool, err error) {
	q.CorrectMin(logMin)
	for {
		base, seg, state := q.takeFront()
		if state != frontTaken {
			return state == frontStays, nil
		}
		if seg != nil {
			q.set.closed(seg)
			seg.release()
		}
		path := filepath.Join(q.dir(), fileName(base))
		if err := q.set.cfg.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("consumequeue: delete old file of queue %s: %w", q.id, err)
		}
	}
}

type front uint8

const (
	frontTaken front = iota
	frontStays       // it has units that are needed, or is the last
	frontDirty       // the flush would miss it
)

// takeFront takes the first file out of the queue if all its units are below the minimum. seg is its
// mapping, nil when it is not mapped.
func (q *Queue) takeFront() (base int64, seg *segment, state front) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := q.set.cfg.FileSize
	switch behind := q.first + size; {
	case q.deleted || q.files < 2 || behind > q.min.Load()*q.set.unit:
		return 0, nil, frontStays
	case behind >= q.flushed.Load()*q.set.unit:
		// Only a later file that is on disk keeps telling where the queue ends.
		return 0, nil, frontDirty
	}
	base = q.first
	q.first += size
	q.files--
	for i, s := range q.mapped {
		if s.base == base {
			last := len(q.mapped) - 1
			q.mapped[i], q.mapped[last] = q.mapped[last], nil
			q.mapped = q.mapped[:last]
			return base, s, frontTaken
		}
	}
	return base, nil, frontTaken
}
