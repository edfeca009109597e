// SPDX-License-Identifier: Apache-2.0

package mappedfile

import (
	"errors"
	"fmt"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// detachLeast is the length of a range, in bytes, from which on Flush detaches it. Below that there are
// few interrupts, and likely readers at the end of the file.
const detachLeast = 256 << 10

// Flush makes the bytes [from, to) durable, and with them the name and length of the file. It
// blocks until the disk has them, and may run beside the writer.
//
// A failed flush is final: every later call returns the same error, since the kernel may have
// dropped the bytes and marked their pages clean, so that a repeated call would lie.
//
// Cost: three system calls; it writes the pages of the range only, also when others are dirty. Long
// ranges are detached from the page tables first: to write a page out the kernel takes the right to
// store to it from every processor, and interrupts them for each page that is mapped, which took a
// sixth of the broker's time under a full load. Who reads the range next has a fault for each 64 KiB.
func (f *File) Flush(from, to int) error {
	if err := f.Err(); err != nil {
		return err
	}
	m := f.mapping.Load()
	if m == nil || !f.Retain() {
		return ErrClosed
	}
	defer f.Release()
	if from >= to {
		return nil
	}
	if to-from >= detachLeast {
		m.Detach(from, to-from)
	}
	err := f.f.WriteBehind(int64(from), int64(to-from)) // starts all writes before msync waits
	if err == nil {
		err = m.Sync(from, to-from)
	}
	if err == nil {
		err = f.syncName()
	}
	if err != nil {
		return f.fail(fmt.Errorf("mappedfile: flush [%d, %d) of %s: %w", from, to, f.path, err))
	}
	return nil
}

// SyncAll makes the whole file durable through the descriptor, as Flush does for a range.
func (f *File) SyncAll() error {
	if err := f.Err(); err != nil {
		return err
	}
	if !f.Retain() {
		return ErrClosed
	}
	defer f.Release()
	err := f.f.Sync()
	if err == nil {
		err = f.syncName()
	}
	if err != nil {
		return f.fail(fmt.Errorf("mappedfile: sync %s: %w", f.path, err))
	}
	return nil
}

// Write writes bytes through the descriptor. Readers of the mapping see them, as both share the page
// cache; the disk has them after SyncAll. It blocks while the file system is busy, not for the disk. An
// error is final, as that of Flush, and so is a file that was cut: a write would only make a hole in it.
func (f *File) Write(b []byte, at int) error {
	if err := f.Err(); err != nil {
		return err
	}
	if !f.Retain() {
		return ErrClosed
	}
	defer f.Release()
	if n, err := f.f.Size(); err == nil && n < int64(f.size) {
		return f.fail(fmt.Errorf("mappedfile: write %d bytes at %d of %s: the file was cut to %d bytes, it had %d",
			len(b), at, f.path, n, f.size))
	}
	if _, err := f.f.WriteAt(b, int64(at)); err != nil {
		return f.fail(fmt.Errorf("mappedfile: write %d bytes at %d of %s: %w", len(b), at, f.path, err))
	}
	return nil
}

// WriteZeros writes zeros to [from, to), whole pages that hold nothing yet and that nobody writes to
// meanwhile, so that a later Write and SyncAll there need not touch the file system's journal.
// vfs.ErrNotSupported says that the file system cannot; no error is final. It blocks for the disk.
func (f *File) WriteZeros(from, to int) error {
	if !f.Retain() {
		return ErrClosed
	}
	defer f.Release()
	if err := f.f.WriteZeros(int64(from), int64(to-from)); err != nil {
		return fmt.Errorf("mappedfile: write zeros from %d of %s: %w", from, f.path, err)
	}
	return nil
}

// syncName makes the directory entry durable, once.
func (f *File) syncName() error {
	if f.nameSynced.Load() {
		return nil
	}
	if err := f.fs.SyncDir(f.dir()); err != nil {
		return err
	}
	f.nameSynced.Store(true)
	return nil
}

// Err returns the error of the flush that failed, nil as long as none did.
func (f *File) Err() error {
	err, _ := f.flushErr.Load().(*flushError)
	if err == nil {
		return nil
	}
	return err.cause
}

// flushError gives all errors the one type that atomic.Value wants.
type flushError struct{ cause error }

// fail keeps the first error and returns it.
func (f *File) fail(err error) error {
	f.flushErr.CompareAndSwap(nil, &flushError{cause: err})
	return f.Err()
}

// Zero makes the bytes [from, size) read as zeros, without giving up their blocks.
func (f *File) Zero(from int) error {
	if err := f.f.Zero(int64(from), int64(f.size-from)); err != nil {
		return fmt.Errorf("mappedfile: zero %s from %d: %w", f.path, from, err)
	}
	return nil
}

// ForgetTail prepares an opened file, not mapped yet, for appending at a position. What recovery
// read there is in the page cache in large units, and a store into one of them would dirty, and a
// flush write, a megabyte instead of a page. So it is written out and dropped.
func (f *File) ForgetTail(at int) error {
	if err := f.SyncAll(); err != nil {
		return err
	}
	from := int64(at) / vfs.PageSize * vfs.PageSize
	if err := f.f.Forget(from, int64(f.size)-from); err != nil {
		return fmt.Errorf("mappedfile: drop cached pages of %s: %w", f.path, err)
	}
	return nil
}

// Populate creates writable pages up to the byte end, at most step bytes, and reports whether more
// is left to do below end. The first call begins at the page of from. Call it in a loop from one
// goroutine at a time, ahead of the writer: a store into a page that is not there costs the writer
// a fault that may wait for the file system's journal (16 ms at the 99.9th percentile).
//
// It dirties what it creates, so a window ahead of the writer is enough and the whole file too
// much. A kernel that cannot do it (Linux before 5.14) leaves the faults to the writer.
//
// The kernel reads ahead of the faults, megabytes of zeros at once in large pages. That is the
// cheapest way where memory is at hand, half a microsecond for each 4096 bytes. Where it is not, as
// in a virtual machine whose host has taken back what was free, it takes ten times that and keeps a
// processor for up to 18 ms at a time, and whoever waits for that processor with it; see
// PopulateGently.
func (f *File) Populate(from, end, step int) (more bool, err error) {
	return f.populate(from, end, step, step)
}

// PopulateGently is Populate in pieces of 64 KiB, each read before it is made writable, so that the
// kernel reads no more than that at once and takes small pages. Each 4096 bytes cost 3 to 4
// microseconds, whatever the state of memory is, and no piece a millisecond.
func (f *File) PopulateGently(from, end, step int) (more bool, err error) {
	return f.populate(from, end, step, gentlePiece)
}

// gentlePiece is what PopulateGently does at once.
const gentlePiece = 64 << 10

// populate creates pages in pieces; those smaller than the step are read first.
func (f *File) populate(from, end, step, piece int) (more bool, err error) {
	m := f.mapping.Load()
	if m == nil || f.noPopulating.Load() || !f.Retain() {
		return false, nil
	}
	defer f.Release()
	end = min(end, f.size)
	at := max(int(f.populated.Load()), from/vfs.PageSize*vfs.PageSize)
	if at >= end {
		return false, nil
	}
	for stop := min(at+step, end); at < stop; {
		n := min(piece, stop-at)
		if piece < step {
			f.Prefetch(at, n)
		}
		if err := m.Populate(at, n); err != nil {
			f.noPopulating.Store(true)
			if errors.Is(err, vfs.ErrNotSupported) {
				return false, nil
			}
			return false, fmt.Errorf("mappedfile: populate %s from %d: %w", f.path, at, err)
		}
		at += n
		f.populated.Store(int64(at))
	}
	return at < end, nil
}

// Populated returns the end of the bytes that have writable pages.
func (f *File) Populated() int { return int(f.populated.Load()) }
