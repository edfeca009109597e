// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// pendingMax is how many units of 40 bytes wait at the most to be compared with their queues.
const pendingMax = 1 << 20

// pending are units that wait, so that each queue gets its own together: with more queues than
// Config.QueueFilesOpen every single one would map a file and unmap another.
type pending struct {
	units  []pendingUnit
	chains []chain // Queue.Slot is one more than the number of the queue's
}

type pendingUnit struct {
	at   record.QueueOffset
	unit consumequeue.Unit
	next int32 // of the same queue, 0: none
}

// chain is where the units of a queue begin and end in pending.units.
type chain struct {
	queue      *consumequeue.Queue
	head, tail int32
}

// putLater notes a unit for put. Units of one queue keep their order.
func (r *recovery) putLater(
	q *consumequeue.Queue, at record.QueueOffset, u consumequeue.Unit,
) error {
	p := &r.pending
	n := int32(len(p.units))
	p.units = append(p.units, pendingUnit{at: at, unit: u})
	if q.Slot > 0 {
		c := &p.chains[q.Slot-1]
		p.units[c.tail].next = n
		c.tail = n
	} else {
		p.chains = append(p.chains, chain{q, n, n})
		q.Slot = int32(len(p.chains))
	}
	if len(p.units) < pendingMax {
		return nil
	}
	return r.putPending()
}

// putPending puts what waits.
func (r *recovery) putPending() error {
	p := &r.pending
	for _, c := range p.chains {
		q := c.queue
		for n := c.head; ; {
			u := &p.units[n]
			if u.at >= q.Written() {
				if err := r.noteAdding(u.unit.At); err != nil {
					return err
				}
			}
			if err := r.put(q, u.at, u.unit); err != nil {
				return err
			}
			if n = u.next; n == 0 {
				break
			}
		}
	}
	for _, c := range p.chains {
		c.queue.Slot = 0
	}
	p.units, p.chains = p.units[:0], p.chains[:0]
	return nil
}

// noteAdding notes that queues are being completed, in no order that a next start could tell from
// their ends. After an unclean stop it reads again what lies behind the checkpoint.
func (r *recovery) noteAdding(at record.PhysicalOffset) error {
	if r.noted || r.s.suffix != "" {
		return nil
	}
	if vouched := r.s.checkpoint.LogicsAt; !r.clean && (vouched <= 0 || at > vouched) {
		return nil
	}
	r.noted = true
	return r.s.noteDispatchAll()
}
