// SPDX-License-Identifier: Apache-2.0

// Package vfs is the file system as storage sees it: files, mappings, directory sync, the lock of
// a store directory and configuration files that survive a crash.
//
// OS is the real one. The interfaces exist for package crashfs, which can lose power: it keeps what
// was synced and drops the rest. Nothing here logs; errors name the path. Everything may be called
// from any goroutine, and everything may block on the disk, so no event loop calls it.
//
//	lock, err := vfs.LockFile(filepath.Join(root, "lock"))
//	source, err := vfs.LoadJSONFile(filepath.Join(root, "config/topics.json"), decode)
//	err = vfs.WriteFileAtomic(filepath.Join(root, "config/topics.json"), data)
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// PageSize is the granularity of mappings on disk and of RocketMQ's flush arithmetic, in bytes.
const PageSize = 4096

// ErrNotSupported says that the platform or the file system cannot do what was asked; the caller
// has a slower way.
var ErrNotSupported = errors.New("not supported by this platform or file system")

// FS is a file system. Paths are those of package os.
type FS interface {
	// OpenFile opens a file; flag and perm are those of os.OpenFile.
	OpenFile(path string, flag int, perm os.FileMode) (File, error)
	// ReadDir lists a directory, sorted by name.
	ReadDir(path string) ([]fs.DirEntry, error)
	// Stat describes a file.
	Stat(path string) (fs.FileInfo, error)
	// MkdirAll creates a directory with its parents. What was created is durable on return.
	MkdirAll(path string) error
	// Rename replaces newpath; durable after SyncDir.
	Rename(oldpath, newpath string) error
	// Remove deletes a file; durable after SyncDir.
	Remove(path string) error
	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir(path string) error
	// Life names the life of the page cache above path. When the name is the same at two times,
	// nothing that was written between them was lost from memory: at most processes died. It is
	// empty where the system cannot tell.
	Life(path string) string
	// Usage reports the space of the file system that holds path.
	Usage(path string) (Usage, error)
}

// File is an open file. Ranges are in bytes. Its methods may be called at once, except Close.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Name returns the path it was opened with.
	Name() string
	// FD returns the descriptor, for sendfile; it is valid until Close.
	FD() int
	// Size returns the length.
	Size() (int64, error)
	// Truncate sets the length; new bytes are holes.
	Truncate(size int64) error
	// Allocate makes sure that [0, size) has blocks on disk and that the file is at least that long.
	// Bytes that exist stay. ErrNotSupported: the file system cannot; nothing was changed.
	Allocate(size int64) error
	// Zero makes a range read as zeros and keeps its blocks where the file system can.
	Zero(from, size int64) error
	// WriteZeros writes zeros to a range that reads as zeros, past the page cache, so that later writes
	// there find blocks that count as written, and syncing them changes nothing in the file system's
	// own books. from and size are multiples of PageSize. Nobody writes to the range meanwhile.
	// ErrNotSupported: the file system cannot; nothing was changed.
	WriteZeros(from, size int64) error
	// Sync makes content and length durable.
	Sync() error
	// WriteBehind starts writing a range out and does not wait. It promises nothing.
	WriteBehind(from, size int64) error
	// Forget drops clean pages of a range from the page cache.
	Forget(from, size int64) error
	// ReadAhead switches the kernel's read-ahead for this descriptor, which is on at first. It is
	// off around NextData: pages that read-ahead brought in count as data there.
	ReadAhead(on bool)
	// NextData returns the first position at or after from that may hold anything but zeros, or the
	// length of the file. Holes and blocks never written are passed over without reading them.
	NextData(from int64) int64
	// Resident reports whether the whole range is in the page cache; ErrNotSupported on kernels
	// that cannot tell cheaply.
	Resident(from, size int64) (bool, error)
	// Prefetch asks for a range to be read into the page cache and does not wait. It promises nothing.
	Prefetch(from, size int64) error
	// Map maps [0, size) for reading, and for writing when the file was opened for that. The file must
	// be that long and stay so.
	Map(size int) (Mapping, error)
	Close() error
}

// Mapping is a file in memory. Touching a page whose block cannot be read or allocated is a memory
// fault (SIGBUS): map only allocated files, and guard reads with debug.SetPanicOnFault.
type Mapping interface {
	// Bytes returns the mapped bytes, valid until Unmap.
	Bytes() []byte
	// Sync makes a range durable, widened to whole pages. It blocks until the disk has it.
	Sync(from, size int) error
	// Populate creates writable pages for a range, so that stores there do not fault. Bytes that
	// exist stay. ErrNotSupported on kernels that cannot.
	Populate(from, size int) error
	// Detach has the next access to a page of the range fault; what is in the pages stays. It concerns
	// the pages that lie in the range as a whole, and promises nothing.
	Detach(from, size int)
	// ReadAhead switches what a fault brings in: the page and its neighbours, as at first, which on a
	// disk with much read-ahead are megabytes of zeros where a file has a hole; or the page alone.
	ReadAhead(on bool)
	// Resident reports whether the whole range is in the page cache; ErrNotSupported where the system
	// cannot tell. One system call.
	Resident(from, size int) (bool, error)
	// Unmap ends the mapping; Bytes must not be touched any more.
	Unmap() error
}

// Usage is the space of a file system in bytes.
type Usage struct {
	Total int64
	Free  int64 // including what only root may use
	Avail int64 // for us
}

// UsedRatio returns the used share, 0 to 1, of what this process could ever use, as RocketMQ
// computes it (UtilAll.getDiskPartitionSpaceUsedPercent). File systems that give no size, as some in
// memory and on networks do, count as empty.
func (u Usage) UsedRatio() float64 {
	if u.Total <= 0 {
		return 0
	}
	used := u.Total - u.Free
	if used+u.Avail <= 0 {
		return 1
	}
	return float64(used) / float64(used+u.Avail)
}
