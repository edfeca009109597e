// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"runtime/debug"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// ReadUnits copies the units of a queue from one offset on, places without a message too, and
// returns how many; 0 at the end of the queue and in front of its first message. An error means that
// units are there and cannot be read now, so that who must not miss a message does not take them for
// missing. It may be called from any goroutine and may wait for the disk.
func (s *Store) ReadUnits(
	topic []byte, queue int32, from record.QueueOffset, dst []consumequeue.Unit,
) (n int, err error) {
	if s.closed.Load() {
		return 0, ErrClosed
	}
	q := s.queues.Lookup(topic, queue) // system topics have plain queues
	if q == nil || from < q.Min() || from >= q.End() || len(dst) == 0 {
		return 0, nil
	}
	units, ok := q.Units(from)
	if !ok {
		if from < q.Min() {
			return 0, nil
		}
		return 0, fmt.Errorf("storage: read queue %s/%d at %d: its file cannot be opened", topic,
			queue, from)
	}
	defer units.Release()
	defer faulted(debug.SetPanicOnFault(true), &err)
	most := min(units.Len(), len(dst))
	for i := range most {
		dst[i] = units.At(i)
	}
	return most, nil
}
