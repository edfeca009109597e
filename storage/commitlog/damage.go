// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"fmt"

	"github.com/skylarkmq/skylark/storage/record"
)

// Damage is what to do about damage in the middle of the log.
type Damage uint8

const (
	// DamageStop refuses with a *CorruptionError and changes nothing.
	DamageStop Damage = iota
	// DamageSkip sets the damaged bytes aside and puts a record in their place that no queue has, so
	// that what follows stays and no later start, RocketMQ's neither, stops there again.
	DamageSkip
	// DamageTruncate sets aside everything from the damage on and ends the log in front of it.
	DamageTruncate
)

// CorruptionError says that a record is damaged although valid ones follow, so that it is no torn
// tail: cutting there would lose what was stored. Nothing was changed. Config.Damage has choices.
type CorruptionError struct {
	Path   string                // of the segment
	Offset record.PhysicalOffset // in the log, where a record should begin
	Reason string
	Next   record.PhysicalOffset // of the next valid record
	End    record.PhysicalOffset // of the last bytes of the log
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("commitlog: recover %s: no valid record at %d: %s; valid records go on at %d; "+
		"restore the file, or start with --recover=skip to do without the %d bytes between, or with "+
		"--recover=truncate to end the log there without the %d bytes behind (both set the bytes "+
		"aside)", e.Path, e.Offset, e.Reason, e.Next, e.Next-e.Offset, e.End-e.Offset)
}

// torn decides about a valid record that may lack bytes, since its check sum covers the body alone.
// It returns the view again, as it may read on.
//
// Where a power loss may have taken sectors, a record is torn when its properties have a zero byte
// at the very end of one. Anywhere else only a record that looks torn and that nothing valid follows
// is: one that the process was writing when it died.
func (w *walk) torn(index int, at int64, v record.View) (record.View, string, error) {
	if present, ok := v.CheckPropertyCRC(); present && ok || at < int64(w.log.cfg.OnDisk) {
		return v, "", nil // whole for sure
	}
	seg := w.segs[index]
	b, pos := v.Bytes(), int(at-seg.base)
	if lossy := !w.log.cfg.PagesKept; lossy {
		props := pos + len(b) - len(v.Properties())
		for edge := (props/sectorSize + 1) * sectorSize; edge <= pos+len(b); edge += sectorSize {
			if b[edge-1-pos] == 0 {
				return v, reasonTorn, nil
			}
		}
	}
	if !v.LooksTorn() {
		return v, "", nil
	}
	behind := at + int64(len(b))
	_, reason, err := w.valid(seg, behind)
	if err != nil {
		return v, "", err
	}
	torn := reason != "" && reason != reasonBlank
	if torn && w.log.cfg.PagesKept {
		_, _, follows, err := w.search(index, behind)
		if err != nil {
			return v, "", err
		}
		torn = !follows // the next one is damaged, not this one
	}
	if torn {
		return v, reasonTorn, nil
	}
	v, _, err = w.valid(seg, at)
	return v, "", err
}

// damaged decides what an invalid place means. done: the log ends here. Else the walk goes on at
// next, in segment number i.
func (w *walk) damaged(index int, at int64, reason string) (
	next int64, i int, done bool, err error,
) {
	l, seg := w.log, w.segs[index]
	next, i, found, err := w.search(index, at+1)
	if err != nil {
		return at, index, true, err
	}
	a := aside{from: at, to: next, next: next, why: reason}
	if !found {
		if at < min(int64(l.cfg.OnDisk), l.segments.Load().end(l.size)) && at >= w.from {
			a.done, a.to, a.next = doneLast, w.dataEnd(index, at), 0
			err = w.setAside(a)
		}
		return at, index, true, err
	}
	lost, err := w.lost(index, at, next, reason)
	switch {
	case err != nil:
		return at, index, true, err
	case at < w.from:
		l.cfg.Notice("damaged CommitLog record in front of the recovered part left alone",
			"path", seg.file.Path(), "offset", at, "reason", reason, "next", next)
	case lost:
		a.done, a.to = doneLost, w.dataEnd(index, at)
		if err := w.setAside(a); err != nil { // nobody was promised these bytes
			l.cfg.Notice("what a power loss left behind the end of the log could not be set aside",
				"offset", at, "err", err)
		}
		return at, index, true, nil
	case l.cfg.Damage == DamageTruncate:
		a.done, a.to = doneCut, w.dataEnd(index, at)
		return at, index, true, w.setAside(a)
	case l.cfg.Damage == DamageSkip:
		a.done = doneSkipped
		if err = w.setAside(a); err == nil {
			err = w.mend(index, at, next)
		}
		return next, i, err != nil, err
	default:
		return at, index, true, &CorruptionError{
			Path: seg.file.Path(), Offset: record.PhysicalOffset(at), Reason: reason,
			Next: record.PhysicalOffset(next), End: record.PhysicalOffset(w.dataEnd(index, at)),
		}
	}
	return next, i, false, nil
}

const (
	// sectorSize is the least that a disk writes at once, in bytes.
	sectorSize = 512
	// lostMax is how many bytes a power loss may take: what can be dirty between two flushes.
	lostMax = 256 << 20
	// lostRun is how many zero bytes tell of a lost sector where nothing is known about how far the
	// log was flushed.
	lostRun = 64
)

// lost reports whether an invalid place in front of a valid record is what a power loss leaves that
// kept later sectors and lost earlier ones, and not damage.
//
// A flush ends between two records, and all in front of that place is on disk: so a place below
// Config.OnDisk is never lost. Behind it each sector is on disk as it was at some moment, which is
// right up to some byte and zeros from there to its end, since the space ahead of the log is zeros.
// So a record that is invalid for this reason has a sector that ends in zeros, and the zeros begin
// in the record. A record that was changed by anything else has one only by chance.
func (w *walk) lost(index int, at, next int64, reason string) (bool, error) {
	l := w.log
	if l.cfg.PagesKept || at < int64(l.cfg.OnDisk) || next-at > l.size+lostMax {
		return false, nil
	}
	if reason == reasonTorn {
		return true, nil
	}
	seg := w.segs[index]
	from := int(at - seg.base)
	limit := int(min(next-seg.base, l.size))
	size := record.HeadSize
	head, err := w.read.at(seg.file, from, min(record.BlankSize, w.read.size-from))
	if err != nil {
		return false, err
	}
	if claimed, blank, ok := record.PeekSize(head); ok && !blank {
		size = max(size, int(claimed))
	}
	limit = min(limit, from+size)
	for pos := from; pos < limit; {
		end := min((pos/sectorSize+1)*sectorSize, w.read.size)
		b, err := w.read.at(seg.file, pos, end-pos)
		if err != nil {
			return false, err
		}
		zeros := 0
		for zeros < len(b) && b[len(b)-1-zeros] == 0 {
			zeros++
		}
		least := 1
		if l.cfg.OnDisk < 0 {
			least = min(len(b), lostRun)
		}
		if zeros >= least && end-zeros < limit {
			return true, nil
		}
		pos = end
	}
	return false, nil
}
