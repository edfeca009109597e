// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// What was done to the log after bytes of it were set aside.
const (
	doneLost    = "cut, since a power loss had kept later sectors and lost earlier ones"
	doneCut     = "cut, as --recover=truncate asked for"
	doneSkipped = "skipped, as --recover=skip asked for"
	doneLast    = "cut: the last record was on disk and is damaged"
)

// aside is a stretch of the log that is taken out of it.
type aside struct {
	from, to int64
	next     int64 // of the next valid record, 0: there is none, or not looked for
	done     string
	why      string
}

// note is the file beside the copy of a stretch; storage/docs/format/damaged.md describes both.
type note struct {
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	Next   int64  `json:"nextRecord,omitempty"`
	Reason string `json:"reason"`
	Done   string `json:"done"`
	At     string `json:"time"`
}

// dataEnd returns the end of what is written in the log at or behind offset at, which lies in segment
// number index: nothing but zeros follows. It is asked for damaged logs only, since it reads.
func (w *walk) dataEnd(index int, at int64) int64 {
	for i := len(w.segs) - 1; i >= index; i-- {
		seg := w.segs[i]
		if seg == nil {
			continue
		}
		end := at
		_ = w.eachData(seg, max(at, seg.base), func(at int64, b []byte) error {
			end = at + int64(len(b))
			return nil
		})
		if end > at {
			return end
		}
	}
	return at
}

// eachData calls fn for what is written in a segment from offset from on, in pieces that neither
// begin nor end with a page of zeros.
func (w *walk) eachData(seg *segment, from int64, fn func(at int64, b []byte) error) error {
	defer seg.file.Search(int(from - seg.base))()
	for pos := int(from - seg.base); ; {
		pos = seg.file.NextData(pos)
		if pos >= w.read.size {
			return nil
		}
		end := min((pos/vfs.PageSize+1)*vfs.PageSize, w.read.size)
		b, err := w.read.at(seg.file, pos, end-pos)
		if err != nil {
			return err
		}
		n := len(b)
		for n > 0 && b[n-1] == 0 {
			n--
		}
		if n > 0 {
			if err := fn(seg.base+int64(pos), b[:n]); err != nil {
				return err
			}
		}
		pos = end
	}
}

// setAside copies a stretch of the log to a file of its own, and says in a second one why. Both are
// on disk when it returns; before that the log is not touched.
func (w *walk) setAside(a aside) (err error) {
	l := w.log
	if a.to <= a.from {
		l.cfg.Notice("CommitLog ends before it did", "offset", a.from, "reason", a.why)
		return nil
	}
	if err = l.cfg.FS.MkdirAll(l.cfg.DamagedDir); err != nil {
		return fmt.Errorf("commitlog: set %d bytes at %d aside: %w", a.to-a.from, a.from, err)
	}
	now := l.cfg.Now().UTC()
	path := filepath.Join(l.cfg.DamagedDir,
		fmt.Sprintf("%0*d.%s", nameDigits, a.from, now.Format("20060102T150405.000")))
	text, err := json.Marshal(note{
		Offset: a.from, Size: a.to - a.from, Next: a.next, Reason: a.why, Done: a.done,
		At: now.Format("2006-01-02T15:04:05.000Z"),
	})
	if err == nil {
		err = w.copyTo(path, a.from, a.to)
	}
	if err == nil {
		err = vfs.WriteFileAtomicIn(l.cfg.FS, path+".json", append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("commitlog: set %d bytes at %d aside: %w", a.to-a.from, a.from, err)
	}
	l.cfg.Notice("part of the CommitLog set aside", "offset", a.from, "bytes", a.to-a.from,
		"next", a.next, "reason", a.why, "done", a.done, "copy", path)
	return nil
}

// copyTo writes the bytes [from, to) of the log to a file: byte n of it is byte from+n of the log.
// What nobody wrote stays a hole.
func (w *walk) copyTo(path string, from, to int64) error {
	fsys := w.log.cfg.FS
	out, err := fsys.OpenFile(path+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = out.Truncate(to - from)
	for _, seg := range w.segs {
		if err != nil || seg == nil || seg.base+w.log.size <= from || seg.base >= to {
			continue
		}
		err = w.eachData(seg, max(from, seg.base), func(at int64, b []byte) error {
			if at >= to {
				return nil
			}
			_, err := out.WriteAt(b[:min(int64(len(b)), to-at)], at-from)
			return err
		})
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		_ = fsys.Remove(path + ".tmp")
		return err
	}
	if err := fsys.Rename(path+".tmp", path); err != nil {
		return err
	}
	return fsys.SyncDir(w.log.cfg.DamagedDir)
}

const (
	// skippedTopic is the topic of the records that take the place of damaged bytes. They are marked
	// as the rollback of a transaction, which no queue and no index has.
	skippedTopic = "SKYLARK_SKIPPED"
	// skippedMax is the greatest size of one of them, in bytes.
	skippedMax = 1 << 20
)

// mend puts records without meaning, and at the end of a segment a blank, in the place of the
// damaged bytes [at, next). The segments are on disk when it returns.
func (w *walk) mend(index int, at, next int64) error {
	v, _, err := w.validAt(next)
	if err != nil {
		return err
	}
	storeMS := v.StoreMS()
	w.read.file = nil // what it holds is changed below
	for _, seg := range w.segs[index:] {
		if seg.base >= next {
			break
		}
		from, to := max(at, seg.base), min(next, seg.base+w.log.size)
		if from == to {
			break
		}
		if to == seg.base+w.log.size {
			err = mendEnd(seg, from, to)
		} else {
			err = mendMiddle(seg, from, to, storeMS)
		}
		if err == nil {
			err = seg.file.SyncAll()
		}
		if err != nil {
			return fmt.Errorf("commitlog: skip the bytes from %d to %d: %w", at, next, err)
		}
	}
	return nil
}

// validAt reads the record at an offset, which is valid.
func (w *walk) validAt(at int64) (record.View, string, error) {
	i := (at - w.segs[0].base) / w.log.size
	return w.valid(w.segs[i], at)
}

// mendEnd closes a segment at from.
func mendEnd(seg *segment, from, to int64) error {
	if to-from < record.BlankSize {
		return nil // too little for a record: the end of a segment
	}
	var blank [record.BlankSize]byte
	record.PutBlank(blank[:], int(to-from))
	return seg.file.WriteAt(blank[:], from-seg.base)
}

// mendMiddle fills [from, to) with records. Fewer bytes than the smallest of them takes stay as they
// are; no record that was ever there is so short.
func mendMiddle(seg *segment, from, to, storeMS int64) error {
	d := record.Draft{Topic: []byte(skippedTopic), SysFlag: record.SysRollback, Body: []byte{}}
	least := int64(d.Size())
	for from < to {
		size := min(to-from, skippedMax)
		if rest := to - from - size; rest > 0 && rest < least {
			size -= least
		}
		if size < least {
			return nil
		}
		d.Body = make([]byte, size-least)
		b := make([]byte, size)
		d.Encode(b, record.Place{Physical: record.PhysicalOffset(from), StoreMS: storeMS})
		if err := seg.file.WriteAt(b, from-seg.base); err != nil {
			return err
		}
		from += size
	}
	return nil
}
