// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/skylarkmq/skylark/storage/record"
)

// Entry is one record of the log. Its bytes are valid until the callback returns.
type Entry struct {
	At   record.PhysicalOffset
	View record.View
	// Sound says that the body has the check sum that the record names, and so has the whole record
	// where it carries one.
	Sound bool
}

// EndReason says why a walk ended.
type EndReason string

// The reasons.
const (
	// EndUnused: behind the last record the file is zero, as it is before it is written.
	EndUnused EndReason = "unused"
	// EndOfFiles: the last file is full, or there is none behind it.
	EndOfFiles EndReason = "end of files"
	// EndStale: an old record lies there, which names another offset as its own: the file was used
	// before.
	EndStale EndReason = "stale record"
	// EndTorn: something lies there that is no record, and no record follows: a write that did not
	// come to its end. The next start cuts it off.
	EndTorn EndReason = "torn end"
	// EndDamage: something lies there that is no record, and records follow.
	EndDamage EndReason = "damage"
	// EndGap: the next file is missing.
	EndGap EndReason = "missing file"
)

// End is where a walk ended.
type End struct {
	At     record.PhysicalOffset `json:"at"`
	Reason EndReason             `json:"reason"`
	Detail string                `json:"detail,omitempty"`
}

// ErrStop ends a walk from its callback without being an error.
var ErrStop = errors.New("inspect: stop")

const (
	readStep      = 1 << 20
	progressEvery = 16 << 20 // bytes
	unusedLook    = 64 << 10 // zero bytes behind the end that make it unused
)

// Records calls do for each record from an offset on, which must be the start of one, to the end of the
// log. It reads ahead in steps of 1 MiB and blocks for the disk. It returns where the log ended; the
// error is that of the context, of the disk, or of do.
func (d *Dir) Records(
	ctx context.Context, from record.PhysicalOffset, progress Progress, do func(Entry) error,
) (End, error) {
	w := walker{dir: d, at: int64(from)}
	told := w.at
	for {
		if w.at-told >= progressEvery {
			told = w.at
			if progress != nil {
				progress(told-int64(from), int64(d.Max()-from))
			}
			if err := ctx.Err(); err != nil {
				return End{At: record.PhysicalOffset(w.at)}, err
			}
		}
		e, end, err := w.next()
		if err != nil || end != nil {
			if end == nil {
				end = &End{At: record.PhysicalOffset(w.at)}
			}
			return *end, err
		}
		if err := do(e); err != nil {
			if errors.Is(err, ErrStop) {
				err = nil
			}
			return End{At: e.At}, err
		}
	}
}

// walker reads records one after the other.
type walker struct {
	dir *Dir
	at  int64 // of the next record
	buf []byte
	own int64 // where buf begins in the log
}

func (w *walker) next() (Entry, *End, error) {
	for {
		s := w.dir.find(w.at)
		if s == nil {
			return Entry{}, w.over(), nil
		}
		b, err := w.bytes(s, record.HeadSize)
		if err != nil {
			return Entry{}, nil, err
		}
		size, blank, ok := record.PeekSize(b)
		if ok && blank {
			w.at = s.base + s.size
			continue
		}
		if !ok || size < record.MinSize || w.at+int64(size) > s.base+s.size {
			return w.stop(s, b)
		}
		if b, err = w.bytes(s, int(size)); err != nil {
			return Entry{}, nil, err
		}
		v, err := record.Parse(b)
		if err != nil {
			return w.broken(err.Error())
		}
		e := Entry{At: record.PhysicalOffset(w.at), View: v}
		if v.PhysicalOffset() != e.At {
			return Entry{}, &End{
				At: e.At, Reason: EndStale, Detail: fmt.Sprintf("it says %d", v.PhysicalOffset()),
			}, nil
		}
		present, whole := v.CheckPropertyCRC()
		e.Sound = v.CheckCRC() && (!present || whole)
		w.at += int64(size)
		return e, nil, nil
	}
}

// over says why there is no file at w.at.
func (w *walker) over() *End {
	end := &End{At: record.PhysicalOffset(w.at), Reason: EndOfFiles}
	if w.at < int64(w.dir.Max()) {
		end.Reason, end.Detail = EndGap, "the file that begins here is not there"
	}
	return end
}

// stop tells unused space from damage.
func (w *walker) stop(s *segment, head []byte) (Entry, *End, error) {
	look := min(unusedLook, s.base+s.size-w.at)
	b, err := w.bytes(s, int(look))
	if err != nil {
		return Entry{}, nil, err
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		if next := w.dir.find(s.base + s.size); next != nil {
			return Entry{}, w.unusedOrHole(next), nil
		}
		return Entry{}, &End{At: record.PhysicalOffset(w.at), Reason: EndUnused}, nil
	}
	return w.broken(fmt.Sprintf("no record begins with % x", head[:min(8, len(head))]))
}

// broken tells a torn end from damage in the middle by looking for a record that lies where it says.
func (w *walker) broken(detail string) (Entry, *End, error) {
	end := &End{At: record.PhysicalOffset(w.at), Reason: EndTorn, Detail: detail}
	prefix := record.MagicPrefix()
	at := w.at + 1
	for s := w.dir.find(at); s != nil; s = w.dir.find(at) {
		look := walker{dir: w.dir, at: at}
		b, err := look.bytes(s, readStep)
		if err != nil {
			return Entry{}, nil, err
		}
		i := bytes.Index(b, prefix)
		switch {
		case i < 0:
			at += int64(max(len(b)-len(prefix)+1, 1))
			continue
		case w.holds(at + int64(i) - record.MagicOffset):
			end.Reason = EndDamage
			end.Detail += fmt.Sprintf("; a record follows at %d", at+int64(i)-record.MagicOffset)
			return Entry{}, end, nil
		}
		at += int64(i) + 1
	}
	return Entry{}, end, nil
}

// holds reports whether a whole record lies at an offset, and says so.
func (w *walker) holds(at int64) bool {
	s := w.dir.find(at)
	if s == nil || at <= w.at {
		return false
	}
	look := walker{dir: w.dir, at: at}
	b, err := look.bytes(s, record.HeadSize)
	if err != nil {
		return false
	}
	size, blank, ok := record.PeekSize(b)
	if !ok || blank || size < record.MinSize || at+int64(size) > s.base+s.size {
		return false
	}
	if b, err = look.bytes(s, int(size)); err != nil {
		return false
	}
	v, err := record.Parse(b)
	return err == nil && int64(v.PhysicalOffset()) == at && v.CheckCRC()
}

// unusedOrHole: a broker makes the next file before it needs it, so a file behind an unused rest is
// well if it is unused too.
func (w *walker) unusedOrHole(next *segment) *End {
	head := make([]byte, record.HeadSize)
	n, _ := next.file.ReadAt(head, 0)
	if len(bytes.Trim(head[:n], "\x00")) == 0 {
		return &End{At: record.PhysicalOffset(w.at), Reason: EndUnused}
	}
	return w.damage(fmt.Sprintf("zeros, though the next file, %d, has records", next.base))
}

func (w *walker) damage(detail string) *End {
	return &End{At: record.PhysicalOffset(w.at), Reason: EndDamage, Detail: detail}
}

// bytes returns up to n bytes at w.at, which lie in s; fewer at the end of the file.
func (w *walker) bytes(s *segment, n int) ([]byte, error) {
	n = int(min(int64(n), s.base+s.size-w.at))
	if w.at >= w.own && w.at+int64(n) <= w.own+int64(len(w.buf)) {
		return w.buf[w.at-w.own:][:n], nil
	}
	want := int(min(int64(max(n, readStep)), s.base+s.size-w.at))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf = w.buf[:want]
	got, err := s.file.ReadAt(w.buf, w.at-s.base)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	w.buf, w.own = w.buf[:got], w.at
	if got < n {
		return nil, fmt.Errorf("inspect: %s: file was cut short while it was read: %w",
			s.file.Name(), io.ErrUnexpectedEOF)
	}
	return w.buf[:n], nil
}

// Record returns the record at an offset. It fails when none begins there.
func (d *Dir) Record(at record.PhysicalOffset) (Entry, error) {
	w := walker{dir: d, at: int64(at)}
	e, end, err := w.next()
	if err == nil && end != nil {
		err = fmt.Errorf("inspect: no record at %d: %s %s", at, end.Reason, end.Detail)
	}
	if err == nil && e.At != at {
		err = fmt.Errorf("inspect: no record at %d: the file ends there", at)
	}
	return e, err
}
