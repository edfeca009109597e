// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"

	"github.com/skylarkmq/skylark/storage/mappedfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// walk is one Recover.
type walk struct {
	log   *Log
	from  int64 // records below are checked, not visited
	check bool
	visit func(v record.View) error
	segs  []*segment // from the one that holds from on
	read  reader
	start int64 // where it begins
	end   int64 // of the last segment
	told  int64 // how far Config.Progress knows
}

// progressStep is how many bytes lie between two calls of Config.Progress.
const progressStep = 4 << 20

// Recover reads the records of the log from from on, or, where no valid one begins there, from the start
// of its segment on, calls visit for those at and behind from, and returns the end of the log, where Truncate cuts it. The view is valid
// during the call. With check it compares check sums, too.
//
// A record is valid when its lengths agree, its body matches its check sum, and it says that it
// lies where it lies; the last is what keeps old bytes of a reused or copied file out. The log ends
// in front of the first place without one, if no valid record follows: a torn tail nobody was
// promised. If one follows, a power loss may have kept later pages and lost earlier ones: see
// lost. Else it is damage, about which Config.Damage decides. A last record whose text ends
// in zeros is torn as well, though its check sum, which covers the body alone, matches.
//
// An error of visit ends the walk and is returned as it is.
func (l *Log) Recover(
	from record.PhysicalOffset, check bool, visit func(v record.View) error,
) (end record.PhysicalOffset, err error) {
	all := l.segments.Load()
	if len(all.segs) == 0 {
		return 0, nil
	}
	at := min(max(int64(from), all.first), all.end(l.size)-1)
	if l.gap >= 0 { // the log ends there, whatever lies behind
		at = min(at, l.gap)
	}
	w := &walk{log: l, from: max(int64(from), all.first), check: check, visit: visit}
	w.segs = all.from(at, l.size)
	base := all.first + (at-all.first)/l.size*l.size
	l.recovered = min(l.recovered, base)
	w.read.size = int(l.size)
	if at > base && at == int64(from) && w.segs[0] != nil {
		_, reason, err := w.valid(w.segs[0], at)
		if err != nil {
			return from, err
		}
		if reason == "" {
			base = at
		}
	}
	w.start, w.told, w.end = base, base, all.end(l.size)
	defer l.cfg.Progress(w.end-w.start, w.end-w.start)
	for i := 0; i < len(w.segs); {
		pos, i2, done, err := w.segment(i, base)
		if err != nil || done {
			return record.PhysicalOffset(pos), err
		}
		base, i = pos, i2
	}
	return record.PhysicalOffset(all.end(l.size)), nil
}

// segment walks one segment from offset at on. done: the log ends at next. Else the walk goes on at
// next, in segment number i.
func (w *walk) segment(index int, at int64) (next int64, i int, done bool, err error) {
	seg := w.segs[index]
	for {
		if seg == nil { // missing, and at is its start
			return at, index, true, w.setAside(aside{
				from: at, to: w.dataEnd(index, at), done: doneCut, why: reasonGap,
			})
		}
		v, reason, err := w.valid(seg, at)
		switch {
		case err != nil:
			return at, index, true, err
		case reason == reasonBlank:
			return seg.base + w.log.size, index + 1, false, nil
		}
		size := int64(v.TotalSize())
		if reason == "" {
			if v, reason, err = w.torn(index, at, v); err != nil {
				return at, index, true, err
			}
		}
		if reason != "" {
			next, i, done, err := w.damaged(index, at, reason)
			if err != nil || done || i != index {
				return next, i, done, err
			}
			at = next
			continue
		}
		if at-w.told >= progressStep {
			w.told = at
			w.log.cfg.Progress(at-w.start, w.end-w.start)
		}
		if at >= w.from {
			if err := w.visit(v); err != nil {
				return at, index, true, err
			}
		}
		at += size
	}
}

// Reasons why a place holds no valid record.
const (
	reasonBlank  = "end of the segment"
	reasonMagic  = "no record begins here"
	reasonLength = "its lengths disagree"
	reasonCRC    = "the check sum of the body differs"
	reasonAll    = "the check sum of the whole record differs"
	reasonTorn   = "its properties are torn"
	reasonGap    = "the segment is missing"
)

// valid reads the record at an offset; reason tells why it is not valid. err is that of the disk.
func (w *walk) valid(seg *segment, at int64) (v record.View, reason string, err error) {
	pos := int(at - seg.base)
	rest := w.read.size - pos
	if rest < record.BlankSize {
		return v, reasonBlank, nil // no writer leaves so few bytes behind a record
	}
	head, err := w.read.at(seg.file, pos, min(rest, record.HeadSize))
	if err != nil {
		return v, "", err
	}
	size, blank, ok := record.PeekSize(head)
	switch {
	case !ok:
		return v, reasonMagic, nil
	case blank && int(size) == rest:
		return v, reasonBlank, nil
	case blank || int64(size) > int64(rest) || !record.Plausible(head):
		return v, reasonLength, nil
	}
	b, err := w.read.at(seg.file, pos, int(size))
	if err != nil {
		return v, "", err
	}
	v, err = record.Parse(b)
	if err != nil {
		return v, reasonLength, nil //nolint:nilerr // what is wrong with a record is a reason
	}
	if got := v.PhysicalOffset(); int64(got) != at {
		return v, fmt.Sprintf("record says it is at %d", got), nil
	}
	if !w.check {
		return v, "", nil
	}
	if !v.CheckCRC() {
		return v, reasonCRC, nil
	}
	if present, ok := v.CheckPropertyCRC(); present && !ok {
		return v, reasonAll, nil
	}
	return v, "", nil
}

// Truncate sets the end of the log, as Recover found it, and opens it for writing. Segments behind
// end are deleted, the bytes behind it in its own are zeroed so that they can never be taken for
// records again, and what is left is made durable: wrote and flushed are end. It is called once.
func (l *Log) Truncate(end record.PhysicalOffset) error {
	if l.writable.Load() || l.closed.Load() {
		return fmt.Errorf("commitlog: truncate to %d: %w", end, ErrClosed)
	}
	tail, err := l.cut(int64(end))
	if err != nil {
		return fmt.Errorf("commitlog: truncate to %d: %w", end, err)
	}
	l.setMarks(int64(end))
	l.setTail(tail, int64(end))
	l.app.signal = int64(end) + l.cfg.FlushBytes
	l.running.Add(3)
	go l.runFlusher()
	go l.runPopulator()
	go l.runCreator()
	l.writable.Store(true)
	l.wakePreparer()
	return nil
}

// cut makes end the end of the files and returns the segment that it lies in.
func (l *Log) cut(end int64) (*segment, error) {
	segs := l.segments.Load()
	if len(segs.segs) == 0 {
		if end < 0 || end%l.size != 0 {
			return nil, fmt.Errorf("there is no segment, and %d is no start of one", end)
		}
	} else if end < segs.first || end > segs.end(l.size) {
		return nil, fmt.Errorf("the segments hold [%d, %d)", segs.first, segs.end(l.size))
	}
	keep := len(segs.segs)
	for keep > 0 && (segs.segs[keep-1] == nil || segs.segs[keep-1].base > end) {
		keep--
	}
	for _, seg := range backwards(segs.segs[keep:]) { // the newest first: a crash leaves no gap
		if err := seg.file.Delete(); err != nil {
			return nil, err
		}
	}
	if keep < len(segs.segs) {
		if err := l.syncDirs(segs.segs[keep:]); err != nil {
			return nil, err
		}
	}
	kept := &list{first: segs.first, segs: segs.segs[:keep:keep]}
	l.segments.Store(kept)
	if keep == 0 || kept.segs[keep-1].base+l.size <= end {
		return l.firstSegment(end)
	}
	tail := kept.segs[keep-1]
	if tail.file.ReadOnly() {
		return nil, readOnlyTail(tail.file.Path())
	}
	return tail, l.openTail(kept, tail.file, int(end-tail.base))
}

// backwards returns the segments that exist, newest first.
func backwards(segs []*segment) []*segment {
	var out []*segment
	for i := len(segs) - 1; i >= 0; i-- {
		if segs[i] != nil {
			out = append(out, segs[i])
		}
	}
	return out
}

// firstSegment creates the segment at end, behind those that are kept, if any.
func (l *Log) firstSegment(end int64) (*segment, error) {
	if err := l.openKept(l.segments.Load()); err != nil {
		return nil, err
	}
	seg, err := l.create(end)
	if err != nil {
		return nil, err
	}
	l.appendSegment(seg)
	return seg, nil
}

// openTail zeroes the bytes of the tail from pos on and prepares it for appending.
func (l *Log) openTail(kept *list, tail *mappedfile.File, pos int) error {
	err := tail.Zero(pos)
	if err == nil {
		err = tail.Allocate()
	}
	if err == nil {
		err = tail.ForgetTail(pos)
	}
	if err == nil {
		err = l.openKept(kept)
	}
	return err
}

// openKept maps the segments, and makes those durable that a crash may have left in memory only.
func (l *Log) openKept(kept *list) error {
	for _, seg := range kept.segs {
		if seg == nil {
			continue
		}
		var err error
		if seg.base >= l.recovered {
			err = seg.file.SyncAll()
		}
		if err = errors.Join(err, seg.file.Map()); err != nil {
			return err
		}
	}
	return nil
}
