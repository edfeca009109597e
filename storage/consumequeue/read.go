// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"sort"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
)

// Units is a run of units of one file, kept in place until Release. It is a plain value.
type Units struct {
	mem  []byte
	unit int // bytes of each
	seg  *segment
}

// Len returns the number of units.
func (u *Units) Len() int { return len(u.mem) / max(u.unit, 1) }

// At returns unit i of the run.
func (u *Units) At(i int) Unit { return DecodeUnit(u.mem[i*u.unit:]) }

// Batch returns unit i of a run of a batch queue.
func (u *Units) Batch(i int) BatchUnit { return DecodeBatchUnit(u.mem[i*BatchUnitSize:]) }

// Bytes returns the units as stored; they are valid until Release.
func (u *Units) Bytes() []byte { return u.mem }

// Release gives the run back, exactly once.
func (u *Units) Release() {
	if u.seg != nil {
		u.seg.release()
		*u = Units{}
	}
}

// Units returns the units from at up to the visible end or the end of at's file. ok is false when
// at is outside [first file, End) or the file cannot be opened. Cost: no allocation while the file
// is mapped; the units of old files may have to be read from disk when they are touched.
func (q *Queue) Units(at record.QueueOffset) (u Units, ok bool) {
	return q.unitsBelow(at, q.End())
}

// freshUnits is how many units at the end of a queue are taken to be in memory as far as this process
// wrote them.
const freshUnits = 2048

// residentFor is how long units that were found in memory are taken to be there still. The kernel may
// take them at any moment, also right after it was asked; what was touched last it takes last.
const residentFor = 10 * time.Millisecond

// residentAhead is how many bytes of units are asked about at once, so that one question serves the
// pulls that follow each other.
const residentAhead = 64 << 10

// residence is a range of a file that was found in memory.
type residence struct {
	from, to int64
	at       time.Time
}

func (r *residence) holds(from, to int64) bool {
	return r.from <= from && to <= r.to && time.Since(r.at) < residentFor
}

// InMemory reports whether the next units from at on, count of them as far as they exist, are in the page
// cache and their file is mapped, so that reading them does not wait. Where the system cannot tell they
// are taken to be. Cost: nothing near the end of the queue, else one system call for 64 KiB of units
// that are read one after the other within 10 ms.
func (q *Queue) InMemory(at record.QueueOffset, count int) bool {
	end := q.Max()
	if at < 0 || at >= end || int64(at) >= q.loaded && end-at <= freshUnits {
		return true
	}
	if q.set.cfg.Batch {
		return false // offsets are no places in the file
	}
	size := q.set.cfg.FileSize
	pos := int64(at) * q.set.unit
	base := pos - pos%size
	from := pos - base
	there := min(int64(end)*q.set.unit-base, size) // end of the units in this file
	to := min(from+int64(count)*q.set.unit, there)
	s, known := q.retainMapped(base, from, to)
	if known || s == nil {
		return known
	}
	defer s.release()
	ahead := min(max(to, from+residentAhead), there)
	resident, err := s.file.Resident(int(from), int(ahead-from))
	if err != nil {
		return true
	}
	if !resident {
		resident, err = s.file.Resident(int(from), int(to-from))
		return err != nil || resident
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.resident = residence{from: from, to: ahead, at: time.Now()}
	return true
}

// retainMapped returns the file that begins at base with a reference, nil when it is not mapped. Known
// without a reference: it is mapped, and the range was found in memory a moment ago.
func (q *Queue) retainMapped(base, from, to int64) (s *segment, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.mapped {
		if s.base != base {
			continue
		}
		if s.resident.holds(from, to) {
			return nil, true
		}
		if s.retain() {
			return s, false
		}
	}
	return nil, false
}

func (q *Queue) unitsBelow(at, end record.QueueOffset) (Units, bool) {
	u, err := q.openUnits(at, end)
	return u, err == nil
}

// openUnits is unitsBelow for those who say why there are none.
func (q *Queue) openUnits(at, end record.QueueOffset) (Units, error) {
	if at < 0 || at >= end {
		return Units{}, errNoUnit
	}
	if u, ok := q.keptUnits(at, end); ok {
		return u, nil
	}
	size := q.set.cfg.FileSize
	pos := int64(at) * q.set.unit
	base := pos - pos%size
	s, err := q.acquire(base, false)
	if err != nil {
		return Units{}, err
	}
	to := min(int64(end)*q.set.unit-base, size)
	return Units{mem: s.mem[pos-base : to : to], unit: int(q.set.unit), seg: s}, nil
}

// errNoUnit says that a position lies outside of the queue.
var errNoUnit = errors.New("no such unit")

// Unit returns the unit of one queue offset. ok is false when it is not visible or only a filler.
func (q *Queue) Unit(at record.QueueOffset) (Unit, bool) {
	return q.unitBelow(at, q.End())
}

func (q *Queue) unitBelow(at, end record.QueueOffset) (Unit, bool) {
	units, ok := q.unitsBelow(at, end)
	if !ok {
		return Unit{}, false
	}
	defer units.Release() // also when the unit cannot be read
	u := units.At(0)
	return u, u.Size > 0 && !u.Filler()
}

// nextReal returns the first queue offset of [at, end) whose unit is not a filler, and the unit.
func (q *Queue) nextReal(at, end record.QueueOffset) (record.QueueOffset, Unit) {
	for at < end {
		n, u, found := q.firstReal(at, end)
		at += record.QueueOffset(n)
		if found {
			return at, u
		}
		if n == 0 {
			break
		}
	}
	return end, Unit{}
}

// firstReal is nextReal within the file of at: n is how far behind at the unit lies, or how many
// were looked at.
func (q *Queue) firstReal(at, end record.QueueOffset) (n int, u Unit, found bool) {
	units, ok := q.unitsBelow(at, end)
	if !ok {
		return 0, u, false
	}
	defer units.Release() // also when a unit cannot be read
	for n = range units.Len() {
		if u = units.At(n); !u.Filler() && u.Size > 0 {
			return n, u, true
		}
	}
	return units.Len(), u, false
}

// CorrectMin moves the minimum to the first unit whose record lies at or behind logMin (RocketMQ
// ConsumeQueue.correctMinOffset; unlike there, fillers never count). It never goes back.
func (q *Queue) CorrectMin(logMin record.PhysicalOffset) {
	end := q.End()
	q.mu.Lock()
	low := record.QueueOffset(q.first / q.set.unit)
	if q.files == 0 {
		low = end
	}
	q.mu.Unlock()
	begins := low
	low = min(max(low, record.QueueOffset(q.min.Load())), end)
	if k := q.kept; k != nil && low == begins && low < end && k.head > 0 && k.head >= logMin {
		q.moveMin(low)
		return
	}
	n := sort.Search(int(end-low), func(i int) bool {
		at, u := q.nextReal(low+record.QueueOffset(i), end)
		return at == end || u.At >= logMin
	})
	at, _ := q.nextReal(low+record.QueueOffset(n), end)
	q.moveMin(at)
}

// Search returns the first queue offset of [Min, End) for which found is true; found must be false
// up to some unit and true from there on. Fillers are not shown to it. End when there is none.
func (q *Queue) Search(found func(u Unit) bool) record.QueueOffset {
	low, end := q.Min(), q.End()
	n := sort.Search(int(end-low), func(i int) bool {
		at, u := q.nextReal(low+record.QueueOffset(i), end)
		return at == end || found(u)
	})
	at, _ := q.nextReal(low+record.QueueOffset(n), end)
	return at
}

// NextReal returns the first visible queue offset at or behind at whose unit is not a filler, and
// that unit; ok is false when there is none.
func (q *Queue) NextReal(at record.QueueOffset) (record.QueueOffset, Unit, bool) {
	end := q.End()
	at, u := q.nextReal(max(at, 0), end)
	return at, u, at < end
}
