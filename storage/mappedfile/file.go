// SPDX-License-Identifier: Apache-2.0

// Package mappedfile owns one preallocated file in memory: creating, mapping, populating ahead of
// the writer, flushing ranges, and keeping it in place while somebody still sends from it.
//
// It knows nothing about what the bytes mean. A File starts with one hold, of its owner; regions
// take further ones. The mapping ends and the descriptor closes when the last hold goes, never
// earlier: a descriptor closed and reused would send the bytes of another file.
//
// One goroutine writes into Bytes; any goroutine may call the methods. Stores into the mapping
// cannot fail as long as the file is allocated (Create, Allocate), except by an I/O error of a page
// that must be read first: that is a memory fault (SIGBUS). Who reads or writes bytes that may not
// be in memory calls debug.SetPanicOnFault in his goroutine and recovers.
//
//	f, err := mappedfile.Create(vfs.OS(), path, size)
//	n := copy(f.Bytes()[at:], data)
//	err = f.Flush(at, at+n)
//	err = f.Close()
package mappedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

// ErrClosed is returned for a file whose last hold is gone.
var ErrClosed = errors.New("mappedfile: file is closed")

// SizeError says that a file does not have the size it must have.
type SizeError struct {
	Path      string
	Got, Want int64 // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("mappedfile: open %s: it has %d bytes, must have %d", e.Path, e.Got, e.Want)
}

// File is one file of fixed size.
type File struct {
	// Set before Create or Open returns, then constant.
	fs   vfs.FS
	path string
	size int // bytes
	f    vfs.File
	gone chan struct{} // closed when mapping and descriptor are
	// readOnly: the file system, or the file, does not let us write.
	readOnly bool

	mapping atomic.Pointer[mapping] // nil until Map
	holds   atomic.Int64            // the owner's and one per region; at 0 the file is torn down

	// Bytes [0, populated) have writable pages, or populating was given up.
	populated    atomic.Int64
	noPopulating atomic.Bool

	nameSynced atomic.Bool  // the directory entry is durable
	closed     atomic.Bool  // the owner's hold is given up
	flushErr   atomic.Value // error: the first failed flush

	// Guards Map against itself.
	mapMu sync.Mutex
}

// mapping pairs the bytes with what unmaps them.
type mapping struct {
	vfs.Mapping
	bytes []byte
}

// Create makes a new file of size bytes, allocated on disk and reading as zeros, and maps it. Its
// name becomes durable with the first Flush. On a file system without allocation it writes zeros.
// It blocks. After an error, such as a full disk, no file is left.
func Create(fsys vfs.FS, path string, size int) (*File, error) {
	file, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("mappedfile: create %s: %w", path, err)
	}
	f := newFile(fsys, path, size, file)
	if err = f.allocate(); err == nil {
		err = f.Map()
	}
	if err != nil {
		_ = file.Close()
		_ = fsys.Remove(path)
		return nil, fmt.Errorf("mappedfile: create %s with %d bytes: %w", path, size, err)
	}
	return f, nil
}

// Open opens an existing file of exactly size bytes, else it returns a *SizeError. The file is not
// mapped yet, see Map. One that cannot be written is opened and mapped for reading: a store into such
// a mapping is a memory fault.
func Open(fsys vfs.FS, path string, size int) (*File, error) {
	file, err := fsys.OpenFile(path, os.O_RDWR, 0)
	readOnly := errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
	if readOnly {
		file, err = fsys.OpenFile(path, os.O_RDONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("mappedfile: open %s: %w", path, err)
	}
	got, err := file.Size()
	switch {
	case err != nil:
		err = fmt.Errorf("mappedfile: open %s: %w", path, err)
	case got != int64(size):
		err = &SizeError{Path: path, Got: got, Want: int64(size)}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	f := newFile(fsys, path, size, file)
	f.readOnly = readOnly
	f.nameSynced.Store(true)
	return f, nil
}

func newFile(fsys vfs.FS, path string, size int, file vfs.File) *File {
	f := &File{fs: fsys, path: path, size: size, f: file, gone: make(chan struct{})}
	f.holds.Store(1)
	return f
}

// allocate gives every byte a block, so that no store can find the disk full.
func (f *File) allocate() error {
	err := f.f.Allocate(int64(f.size))
	if !errors.Is(err, vfs.ErrNotSupported) {
		return err
	}
	if err := f.f.Truncate(int64(f.size)); err != nil {
		return err
	}
	return f.f.Zero(0, int64(f.size))
}

// Allocate fills the holes of an opened file with blocks, since a store into a hole of a mapped
// file is a memory fault when the disk is full. Where the file system cannot, it does nothing.
func (f *File) Allocate() error {
	err := f.f.Allocate(int64(f.size))
	if err != nil && !errors.Is(err, vfs.ErrNotSupported) {
		return fmt.Errorf("mappedfile: allocate %s: %w", f.path, err)
	}
	return nil
}

// Map maps the file; a second call does nothing.
func (f *File) Map() error {
	f.mapMu.Lock()
	defer f.mapMu.Unlock()
	if f.mapping.Load() != nil {
		return nil
	}
	m, err := f.f.Map(f.size)
	if err != nil {
		return fmt.Errorf("mappedfile: map %s: %w", f.path, err)
	}
	f.mapping.Store(&mapping{Mapping: m, bytes: m.Bytes()})
	return nil
}

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// ReadOnly reports whether the file can only be read.
func (f *File) ReadOnly() bool { return f.readOnly }

// Size returns the size in bytes.
func (f *File) Size() int { return f.size }

// Bytes returns the mapped bytes, nil before Map. They stay in place while the caller has a hold.
func (f *File) Bytes() []byte {
	if m := f.mapping.Load(); m != nil {
		return m.bytes
	}
	return nil
}

// ReadAt reads through the descriptor, which cannot fault.
func (f *File) ReadAt(b []byte, at int64) (int, error) { return f.f.ReadAt(b, at) }

// WriteAt writes through the descriptor. It is for repairs while nobody else writes.
func (f *File) WriteAt(b []byte, at int64) error {
	if _, err := f.f.WriteAt(b, at); err != nil {
		return fmt.Errorf("mappedfile: write %d bytes at %d of %s: %w", len(b), at, f.path, err)
	}
	return nil
}

// Search prepares the file for NextData from a position on, and done ends it: clean pages behind
// the position leave the page cache and no read-ahead brings in others, since cached pages count as
// data. The pages must go too: those that read-ahead has marked would start it again.
func (f *File) Search(from int) (done func()) {
	f.f.ReadAhead(false)
	at := int64(from) &^ (vfs.PageSize - 1)
	_ = f.f.Forget(at, int64(f.size)-at) // without it more zeros are read
	return func() { f.f.ReadAhead(true) }
}

// NextData returns the first position at or after from that may hold anything but zeros, or the
// size of the file.
func (f *File) NextData(from int) int { return int(min(f.f.NextData(int64(from)), int64(f.size))) }

// Stat describes the file on disk.
func (f *File) Stat() (fs.FileInfo, error) { return f.fs.Stat(f.path) }

// Resident reports whether a range is in memory, so that reading it does not wait for the disk;
// vfs.ErrNotSupported where the kernel cannot tell. One system call.
func (f *File) Resident(from, size int) (bool, error) {
	resident, err := f.f.Resident(int64(from), int64(size))
	if m := f.mapping.Load(); m != nil && errors.Is(err, vfs.ErrNotSupported) {
		return m.Resident(from, size) // Linux before 6.5
	}
	return resident, err
}

// Prefetch asks for a range to be read into memory and does not wait.
func (f *File) Prefetch(from, size int) {
	_ = f.f.Prefetch(int64(from), int64(min(size, f.size-from))) // without it reads are slower
}

// Retain takes a hold, given back with Release. It fails when the file is being torn down.
func (f *File) Retain() bool {
	for {
		n := f.holds.Load()
		if n <= 0 {
			return false
		}
		if f.holds.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives a hold back. It does not block: the last one lets another goroutine tear the file
// down, as unmapping and freeing a gigabyte takes a while.
func (f *File) Release() {
	switch n := f.holds.Add(-1); {
	case n == 0:
		go f.tearDown() //nolint:errcheck // nobody is left to tell
	case n < 0:
		panic(fmt.Sprintf("mappedfile: %s released more often than retained: %d", f.path, n))
	}
}

// Region returns the bytes [at, at+size) with a hold on the file, which the owner of the region
// releases. ok is false when the file is being torn down. The range must lie in the file.
//
// Cost: no allocation, no system call.
func (f *File) Region(at, size int) (r zerocopy.Region, ok bool) {
	if at < 0 || size < 0 || at+size > f.size {
		panic(fmt.Sprintf("mappedfile: region [%d, +%d) of %s, which has %d bytes",
			at, size, f.path, f.size))
	}
	if !f.Retain() {
		return zerocopy.Region{}, false
	}
	r = zerocopy.Region{FD: f.f.FD(), Off: int64(at), Size: size, Holder: f}
	if b := f.Bytes(); b != nil {
		r.Mem = b[at : at+size] // capacity reaches on, so that neighbours can be merged
	}
	return r, true
}

// Close gives up the owner's hold. Without other holds the file is unmapped and closed on return,
// else when the last one goes; Gone tells. A second call does nothing. It does not flush.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	if f.holds.Add(-1) == 0 {
		return f.tearDown()
	}
	return nil
}

// Delete removes the name at once and gives up the owner's hold. Regions stay valid and the space
// is freed when the last of them goes. Who needs the removal durable syncs the directory.
func (f *File) Delete() error {
	err := f.fs.Remove(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("mappedfile: delete %s: %w", f.path, err)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Gone is closed when the file is unmapped and its descriptor closed.
func (f *File) Gone() <-chan struct{} { return f.gone }

// tearDown runs once, after the last hold.
func (f *File) tearDown() error {
	defer close(f.gone)
	var err error
	if m := f.mapping.Load(); m != nil {
		err = m.Unmap()
	}
	if closeErr := f.f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("mappedfile: close %s: %w", f.path, err)
	}
	return nil
}

// dir returns the directory of the file.
func (f *File) dir() string { return filepath.Dir(f.path) }

// Write makes a file of size bytes that begins with head and reads as zeros from there on, without
// blocks. Its content is durable on return, its name when the directory is synced.
func Write(fsys vfs.FS, path string, size int64, head []byte) error {
	file, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("mappedfile: write %s: %w", path, err)
	}
	if err = file.Truncate(size); err == nil {
		_, err = file.WriteAt(head, 0)
	}
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("mappedfile: write %s of %d bytes: %w", path, size, err)
	}
	return nil
}

// Extend gives an existing file that is too short its full size; the new bytes read as zeros. The
// length is durable on return.
func Extend(fsys vfs.FS, path string, size int64) error {
	file, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("mappedfile: extend %s: %w", path, err)
	}
	err = file.Truncate(size)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("mappedfile: extend %s to %d bytes: %w", path, size, err)
	}
	return nil
}
