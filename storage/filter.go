// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// windowMax bounds the stretch of the log that a filtered read holds at once, in bytes. Records of
// one queue lie close together, so that a hold serves many of them.
const windowMax = 1 << 20

// window is the stretch of the log that a filtered read looks at.
type window struct {
	region zerocopy.Region
	at     record.PhysicalOffset
	held   bool
	seen   byte // keeps the reads of ahead from being left out
}

// lookAhead is how many records are touched at once before their turn.
const lookAhead = 8

// ahead touches the records of the next units: a filtered scan spends most of its time waiting for
// memory, and so it waits for several records at once.
func (w *window) ahead(units *consumequeue.Units, from int) {
	for i := from; i < min(from+lookAhead, units.Len()); i++ {
		w.touch(units.At(i))
	}
}

// touch reads from the head and the properties of a record, which are taken to fill the last 256
// bytes.
func (w *window) touch(u consumequeue.Unit) {
	from, size := int64(u.At-w.at), int64(u.Size)
	if !w.held || from < 0 || size < record.MinSize || from+size > int64(len(w.region.Mem)) {
		return
	}
	b := w.region.Mem[from : from+size]
	w.seen ^= b[0] ^ b[len(b)-1]
	if len(b) > 320 {
		w.seen ^= b[88] ^ b[len(b)-64] ^ b[len(b)-128] ^ b[len(b)-192] ^ b[len(b)-256]
	}
}

// match asks the filter about the record of a unit. A record that cannot be read matches no filter.
func (w *window) match(l *commitlog.Log, u consumequeue.Unit, f Filter) bool {
	from := int64(u.At - w.at)
	if !w.held || from < 0 || from+int64(u.Size) > int64(w.region.Size) {
		if !w.move(l, u) {
			return false
		}
		from = 0
	}
	v, err := record.Parse(w.region.Mem[from : from+int64(u.Size)])
	return err == nil && f.Match(v.Properties())
}

// move holds the stretch that starts with the record of u.
func (w *window) move(l *commitlog.Log, u consumequeue.Unit) bool {
	w.release()
	left := l.SegmentSize() - int64(u.At)%l.SegmentSize()
	size := min(max(windowMax, int64(u.Size)), left, int64(l.Wrote()-u.At))
	if size < int64(u.Size) {
		return false
	}
	region, err := l.Region(u.At, int32(size))
	if err != nil {
		return false
	}
	w.region, w.at, w.held = region, u.At, true
	return true
}

func (w *window) release() {
	if w.held {
		w.region.Release()
		w.held = false
	}
}

// Recent reports whether the record at a queue offset, and with it all that follow, are known to be
// in memory, so that a read with a Filter does not wait for the disk. An offset that is not in the
// queue is recent: there is nothing to read. Cost: no system call near the end of the queue.
func (s *Store) Recent(topic []byte, queue int32, at record.QueueOffset) bool {
	if q := s.lookup(topic, queue); q != nil && !q.InMemory(at, 1) {
		return false
	}
	u, ok := s.Unit(topic, queue, at)
	if !ok {
		low, end, known := s.QueueBounds(topic, queue)
		return !known || at < low || at >= end // else a filler, and who knows what follows it
	}
	return s.Hot(u.At)
}
