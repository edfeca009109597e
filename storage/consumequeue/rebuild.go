// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Outcome tells what Put did.
type Outcome uint8

const (
	// Present says that the unit was there already.
	Present Outcome = iota
	// Added says that it was appended, or took the place of a filler.
	Added
	// Ahead says that the queue ends before the unit's place; nothing was done. Earlier records of
	// the queue are missing: dispatch them first, or call FillTo when the log does not have them.
	Ahead
	// Conflict says that another record has the place; nothing was done. Truncate when that one is
	// wrong.
	Conflict
)

// Put writes the unit of queue offset at during recovery, when it is not there yet. It publishes at
// once and may block for I/O. For Conflict it also returns the unit that has the place. A queue
// without files begins at the unit, behind fillers up to the start of its file.
func (q *Queue) Put(at record.QueueOffset, u Unit) (Outcome, Unit, error) {
	if at < 0 || u.Size <= 0 {
		return Conflict, Unit{}, nil
	}
	q.mu.Lock()
	first, files := q.first, q.files
	q.mu.Unlock()
	switch written := q.Written(); {
	case files > 0 && int64(at)*UnitSize < first:
		if err := q.prepend(int64(at) * UnitSize); err != nil {
			return Ahead, Unit{}, err
		}
		return q.replace(at, u)
	case at < written:
		return q.replace(at, u)
	case at > written && files > 0:
		return Ahead, Unit{}, nil
	case at > written:
		if err := q.begin(at); err != nil {
			return Ahead, Unit{}, err
		}
	}
	if err := q.Prepare(1); err != nil {
		return Ahead, Unit{}, err
	}
	q.Append(at, u)
	q.Publish()
	return Added, Unit{}, nil
}

// replace looks at the unit that is there and writes u over it when it is a filler or empty.
func (q *Queue) replace(at record.QueueOffset, u Unit) (Outcome, Unit, error) {
	if units, ok := q.keptUnits(at, at+1); ok {
		old := units.At(0)
		switch {
		case old.At == u.At && old.Size == u.Size && !old.Filler():
			return Present, old, nil
		case !old.Filler() && !old.Zero():
			return Conflict, old, nil
		}
	}
	size := q.set.cfg.FileSize
	pos := int64(at) * UnitSize
	s, err := q.acquire(pos-pos%size, false)
	if err != nil {
		return Conflict, Unit{}, fmt.Errorf("consumequeue: rebuild queue %s: %w", q.id, err)
	}
	defer s.release()
	old := DecodeUnit(s.mem[pos%size:])
	switch {
	case old.At == u.At && old.Size == u.Size && !old.Filler():
		return Present, old, nil
	case !old.Filler() && !old.Zero():
		return Conflict, old, nil
	}
	if err := s.reserve(pos%size + UnitSize); err != nil {
		return Conflict, Unit{}, fmt.Errorf("consumequeue: rebuild queue %s: %w", q.id, err)
	}
	u.Encode(s.mem[pos%size:])
	q.kept = nil
	q.flushed.Store(min(q.flushed.Load(), int64(at)))
	q.min.Store(min(q.min.Load(), int64(at)))
	if !q.dirty.Load() {
		q.set.addDirty(q)
	}
	return Added, Unit{}, nil
}

// Doubt has the next Flush bring the units from at on, and the names of the files, to disk: the
// process before this one may have died before it did, and only the page cache has them.
func (q *Queue) Doubt(at record.QueueOffset) {
	if int64(at) >= q.flushed.Load() {
		return
	}
	q.flushed.Store(int64(at))
	q.named.Store(false)
	if !q.dirty.Load() {
		q.set.addDirty(q)
	}
}

// begin makes the first file of q so that the next unit is at, with fillers before it.
func (q *Queue) begin(at record.QueueOffset) error {
	size := q.set.cfg.FileSize
	start := int64(at) * UnitSize / size * size / UnitSize
	q.written.Store(start)
	q.flushed.Store(start)
	q.end.Store(start)
	if err := q.FillTo(at); err != nil {
		return err
	}
	q.min.Store(int64(at))
	return nil
}

// EndAt makes at the end of a queue that ends before it: with fillers, or, where the queue has no
// file, with one that holds them from its start on.
func (q *Queue) EndAt(at record.QueueOffset) error {
	q.mu.Lock()
	files := q.files
	q.mu.Unlock()
	if files > 0 {
		return q.FillTo(at)
	}
	if err := q.begin(at - 1); err != nil {
		return err
	}
	return q.FillTo(at)
}

// FillTo appends fillers until the next unit is at: the log does not have the records before it.
func (q *Queue) FillTo(at record.QueueOffset) error {
	perFile := record.QueueOffset(q.UnitsPerFile())
	for q.Written() < at {
		next := min(at, (q.Written()/perFile+1)*perFile)
		n := int(next - q.Written())
		if err := q.Prepare(n); err != nil {
			return err
		}
		for range n {
			q.Append(q.Written(), Unit{Size: fillerSize})
		}
		q.Publish()
	}
	return nil
}

// prepend makes the files before the first one, full of fillers, down to the one that holds pos.
func (q *Queue) prepend(pos int64) error {
	size := q.set.cfg.FileSize
	fillers := make([]byte, size)
	fill(fillers)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.first > pos {
		if err := q.writeFile(q.first-size, fillers); err != nil {
			return fmt.Errorf("consumequeue: rebuild queue %s: %w", q.id, err)
		}
		q.first -= size
		q.files++
		q.named.Store(false)
		q.flushed.Store(min(q.flushed.Load(), q.first/UnitSize))
	}
	return nil
}

// writeFile makes a file with the given content.
func (q *Queue) writeFile(base int64, data []byte) error {
	path := filepath.Join(q.dir(), fileName(base))
	f, err := q.set.cfg.FS.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// Truncate makes at the end of the queue, which must be at or below Written. Nobody may read.
func (q *Queue) Truncate(at record.QueueOffset) error {
	if int64(at) >= q.written.Load() {
		return nil
	}
	q.letGo()
	q.keepBelow(int64(at))
	if err := q.cut(int64(at)); err != nil {
		return fmt.Errorf("consumequeue: truncate queue %s at %d: %w", q.id, at, err)
	}
	q.written.Store(int64(at))
	q.end.Store(int64(at))
	q.flushed.Store(min(q.flushed.Load(), int64(at)))
	q.min.Store(min(q.min.Load(), int64(at)))
	return q.resetMessages()
}

// TruncateLog cuts off the units whose record does not lie below end, and returns how many.
func (q *Queue) TruncateLog(end record.PhysicalOffset) (int64, error) {
	written := q.Written()
	at := written
	for at > 0 {
		u, ok := q.unitAt(at - 1)
		if !ok || u.Size > 0 && (u.Filler() || u.End() <= end) {
			break
		}
		at--
	}
	if at == written {
		return 0, nil
	}
	return int64(written - at), q.Truncate(at)
}

// unitAt reads one unit below Written, visible or not; ok is false before the first file.
func (q *Queue) unitAt(at record.QueueOffset) (Unit, bool) {
	units, ok := q.unitsBelow(at, q.Written())
	if !ok {
		return Unit{}, false
	}
	u := units.At(0)
	units.Release()
	return u, true
}

// cut zeroes everything behind unit end in its file and removes the files behind that one. It makes
// the file shorter and long again, which also gives the blocks back. All of it is on disk when it
// returns: what was cut must not come back with the next power loss, when the log may have been
// deleted up to a place where nothing contradicts it.
func (q *Queue) cut(end int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := q.set.cfg.FileSize
	pos := end * q.set.unit
	removed := false
	for q.files > 1 && q.first+(q.files-1)*size > pos {
		base := q.first + (q.files-1)*size
		if err := q.remove(base); err != nil {
			return err
		}
		q.files--
		q.unmapLocked(base)
		removed = true
	}
	if removed {
		if err := q.set.cfg.FS.SyncDir(q.dir()); err != nil {
			return err
		}
	}
	base := q.first + (q.files-1)*size
	if q.files == 0 || pos >= base+size {
		return nil
	}
	q.unmapLocked(base)
	return q.resize(base, max(pos-base, 0), size)
}

// openFile opens the file that begins at base.
func (q *Queue) openFile(base int64) (vfs.File, error) {
	return q.set.cfg.FS.OpenFile(filepath.Join(q.dir(), fileName(base)), os.O_RDWR, 0)
}

// remove deletes the file that begins at base.
func (q *Queue) remove(base int64) error {
	return q.set.cfg.FS.Remove(filepath.Join(q.dir(), fileName(base)))
}

// resize gives the file that begins at base one length after the other, and syncs it.
func (q *Queue) resize(base int64, lengths ...int64) error {
	f, err := q.openFile(base)
	if err != nil {
		return err
	}
	for _, length := range lengths {
		if err = f.Truncate(length); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// unmapLocked drops the table's reference to the file that begins at base.
func (q *Queue) unmapLocked(base int64) {
	for i, s := range q.mapped {
		if s.base == base {
			q.mapped = slices.Delete(q.mapped, i, i+1)
			q.set.closed(s)
			s.release()
			return
		}
	}
}

// TruncateBehind cuts off units at the end whose record should lie at or behind from, but was not
// seen: those at or behind seen. It returns how many. Fillers at the end go with them when anything
// was seen: they stand for records older than those seen, which have lower queue offsets.
func (q *Queue) TruncateBehind(seen record.QueueOffset, from record.PhysicalOffset) (int64, error) {
	written := q.Written()
	at := written
	for at > seen {
		u, ok := q.unitAt(at - 1)
		if !ok || u.Filler() && seen == 0 || !u.Filler() && u.At < from {
			break
		}
		at--
	}
	return int64(written - at), q.Truncate(at)
}

// Blank makes fillers of the units of [max(seen, first), at) whose record should lie at or behind
// from, but was not seen there: the log does not have it any more. It returns how many.
func (q *Queue) Blank(
	seen, at record.QueueOffset, from record.PhysicalOffset,
) (n int64, err error) {
	size := q.set.cfg.FileSize
	for at--; at >= seen; at-- {
		u, ok := q.unitAt(at)
		if !ok || !u.Filler() && u.At < from {
			break
		}
		if u.Filler() {
			continue
		}
		pos := int64(at) * UnitSize
		s, err := q.acquire(pos-pos%size, false)
		if err != nil {
			return n, fmt.Errorf("consumequeue: blank unit %d of queue %s: %w", at, q.id, err)
		}
		Unit{Size: fillerSize}.Encode(s.mem[pos%size:])
		q.kept = nil
		s.release()
		q.flushed.Store(min(q.flushed.Load(), int64(at)))
		q.set.addDirty(q)
		n++
	}
	return n, nil
}
