// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// WheelName is the name of the wheel's file in the store's directory.
const WheelName = "timerwheel"

// wheel is the slots of all ticks that can have messages. The file is read and written through its
// descriptor and never mapped: its pages belong to the page cache, not to this process. One bit for
// each slot says whether its tick has messages and is not past. It is made when the first message
// comes. Confined to one goroutine.
type wheel struct {
	fs   vfs.FS
	path string
	file vfs.File // nil: there is none yet
	full [slotsTotal / 64]uint64
	live int // bits set
}

// open opens the file if there is one. ok is false when it is not of the wheel's size.
func (w *wheel) open() (exists, ok bool, err error) {
	if _, err := w.fs.Stat(w.path); err != nil {
		return false, false, nil //nolint:nilerr // it is made when it is needed
	}
	f, err := w.fs.OpenFile(w.path, os.O_RDWR, 0)
	if err != nil {
		return true, false, fmt.Errorf("timer: open %s: %w", w.path, err)
	}
	size, err := f.Size()
	if err != nil || size != wheelSize {
		_ = f.Close()
		return true, false, err
	}
	w.file = f
	return true, true, nil
}

// create makes an empty wheel. All of it is allocated, so that a full disk cannot keep a slot from
// being written, and its length is durable on return.
func (w *wheel) create() error {
	f, err := w.fs.OpenFile(w.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("timer: create %s: %w", w.path, err)
	}
	if err = f.Allocate(wheelSize); errors.Is(err, vfs.ErrNotSupported) {
		err = f.Truncate(wheelSize)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = w.fs.SyncDir(filepath.Dir(w.path))
	}
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("timer: create %s: %w", w.path, err)
	}
	w.file = f
	return nil
}

// slot returns the slot of a tick, an empty one when it has no messages.
func (w *wheel) slot(tick int64) (slot, error) {
	empty := slot{tick: tick, first: -1, last: -1}
	if w.file == nil {
		return empty, nil
	}
	var b [slotSize]byte
	if _, err := w.file.ReadAt(b[:], tick%slotsTotal*slotSize); err != nil {
		return empty, fmt.Errorf("timer: read %s: %w", w.path, err)
	}
	if s := decodeSlot(b[:]); s.tick == tick && s.last >= 0 {
		return s, nil
	}
	return empty, nil
}

// put writes a slot. The caller has made the file.
func (w *wheel) put(s slot) error {
	var b [slotSize]byte
	s.encode(b[:])
	if _, err := w.file.WriteAt(b[:], s.tick%slotsTotal*slotSize); err != nil {
		return fmt.Errorf("timer: write %s: %w", w.path, err)
	}
	return nil
}

// each shows every slot that was ever written, in the order of the file.
func (w *wheel) each(show func(index int64, s slot)) error {
	if w.file == nil {
		return nil
	}
	buf := make([]byte, 64<<10)
	for at := w.file.NextData(0); at < wheelSize; at = w.file.NextData(at) {
		at -= at % slotSize
		n := min(int64(len(buf)), wheelSize-at)
		if _, err := w.file.ReadAt(buf[:n], at); err != nil {
			return fmt.Errorf("timer: read %s: %w", w.path, err)
		}
		for i := int64(0); i < n; i += slotSize {
			if s := decodeSlot(buf[i:]); s.tick > 0 {
				show((at+i)/slotSize, s)
			}
		}
		at += n
	}
	return nil
}

// mark notes that a tick has messages.
func (w *wheel) mark(tick int64) {
	i := tick % slotsTotal
	if bit := uint64(1) << (i % 64); w.full[i/64]&bit == 0 {
		w.full[i/64] |= bit
		w.live++
	}
}

// clear notes that a tick is past.
func (w *wheel) clear(tick int64) {
	i := tick % slotsTotal
	if bit := uint64(1) << (i % 64); w.full[i/64]&bit != 0 {
		w.full[i/64] &^= bit
		w.live--
	}
}

// marked reports whether a tick has messages.
func (w *wheel) marked(tick int64) bool {
	i := tick % slotsTotal
	return w.full[i/64]&(1<<(i%64)) != 0
}

// next returns the first tick at or after from that has messages; ok is false when none has.
func (w *wheel) next(from int64) (tick int64, ok bool) {
	if w.live == 0 {
		return 0, false
	}
	start := from % slotsTotal
	word := w.full[start/64] &^ (1<<(start%64) - 1)
	for i := range int64(slotsTotal/64 + 1) {
		at := (start/64 + i) % (slotsTotal / 64)
		if i > 0 {
			word = w.full[at]
		}
		if word != 0 {
			found := at*64 + int64(bits.TrailingZeros64(word))
			return from + (found-start+slotsTotal)%slotsTotal, true
		}
	}
	return 0, false
}

func (w *wheel) close() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
