// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"slices"

	"github.com/skylarkmq/skylark/storage/record"
)

// kept are the last units of a queue as Load read them. Recovery compares them with their records and
// would otherwise map the file of each queue once more, which with many queues takes most of a start.
//
// They are confined to the goroutine that recovers, and are nothing from Set.Forget on.
type kept struct {
	at  int64 // position of the first in units
	mem []byte
	// head is the record of the queue's first unit; 0 when that is not known or a filler.
	head record.PhysicalOffset
}

// keep remembers units that end at position end, as long as all queues together may.
func (q *Queue) keep(mem []byte, end int64, head record.PhysicalOffset) {
	if q.set.keepLeft.Add(-int64(len(mem))) < 0 {
		return
	}
	q.kept = &kept{at: end - int64(len(mem))/q.set.unit, mem: slices.Clone(mem), head: max(head, 0)}
}

// keptUnits returns the units of [at, end) as far as they are kept; ok is false when at is not.
func (q *Queue) keptUnits(at, end record.QueueOffset) (u Units, ok bool) {
	k := q.kept
	if k == nil || int64(at) < k.at {
		return u, false
	}
	from := (int64(at) - k.at) * q.set.unit
	to := min((int64(end)-k.at)*q.set.unit, int64(len(k.mem)))
	if from >= to {
		return u, false
	}
	return Units{mem: k.mem[from:to:to], unit: int(q.set.unit)}, true
}

// keepBelow forgets the units from position at on, which are being cut off.
func (q *Queue) keepBelow(at int64) {
	k := q.kept
	if k == nil || at <= k.at {
		q.kept = nil
		return
	}
	k.mem = k.mem[:min((at-k.at)*q.set.unit, int64(len(k.mem)))]
}

// Forget ends what Bounds.Keep began. It comes before any other goroutine uses the set.
func (s *Set) Forget() {
	for _, q := range s.queues {
		q.kept = nil
	}
}
