// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/skylarkmq/skylark/storage/vfs"
)

const (
	pageSize = vfs.PageSize
	// allocateMax is the greatest step, in bytes, by which blocks are reserved ahead of the writer.
	// Steps double with what a file holds, so that many small queues stay small.
	allocateMax = 1 << 20
)

// segment is one mapped queue file. It is unmapped when the last of its references goes: the one of
// its queue's table, and one for each reader and writer at work.
type segment struct {
	queue *Queue
	base  int64 // position of the first byte, counted over all files of the queue
	file  vfs.Mapping
	mem   []byte // file.Bytes()
	refs  atomic.Int32
	used  atomic.Bool // since the last look of CloseIdle or evict

	// allocated is how many bytes from the start are known to have blocks. Confined to the writer.
	allocated int64

	resident residence // guarded by mu of the queue
}

// fileName returns the name of the file that begins at base.
func fileName(base int64) string { return fmt.Sprintf("%020d", base) }

// parseFileName is the inverse of fileName.
func parseFileName(name string) (base int64, ok bool) {
	if len(name) != 20 {
		return 0, false
	}
	base, err := strconv.ParseInt(name, 10, 64)
	return base, err == nil && base >= 0
}

// openSegment maps the file of q that begins at base, with one reference for the caller. create
// makes the file when it is missing; a file is extended to its full size, without blocks.
//
// The last file of a queue is mostly a hole, so it has no read-ahead: the fault of its first unit
// would fill the page cache with 6 MB of zeros, for each queue. A reader then faults once for each
// page of 204 units that is not there, and never waits for more than that page.
func openSegment(q *Queue, base int64, create, last bool) (*segment, error) {
	path := filepath.Join(q.dir(), fileName(base))
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := q.set.cfg.FS.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size := q.set.cfg.FileSize
	length, err := f.Size()
	if err != nil {
		return nil, err
	}
	if length != size {
		if !create && length != 0 {
			return nil, fmt.Errorf("%s has %d bytes instead of %d", path, length, size)
		}
		if err := f.Truncate(size); err != nil {
			return nil, err
		}
	}
	file, err := f.Map(int(size))
	if err != nil {
		return nil, err
	}
	if last {
		file.ReadAhead(false)
	}
	s := &segment{queue: q, base: base, file: file, mem: file.Bytes()}
	s.refs.Store(1)
	s.used.Store(true)
	return s, nil
}

// retain takes a reference; false when the segment is already going away.
func (s *segment) retain() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			if !s.used.Load() {
				s.used.Store(true)
			}
			return true
		}
	}
}

// release gives a reference back and unmaps the file with the last one.
func (s *segment) release() {
	switch n := s.refs.Add(-1); {
	case n == 0:
		s.mem = nil
		if err := s.file.Unmap(); err != nil {
			panic(fmt.Sprintf("consumequeue: unmap queue file at %d: %v", s.base, err))
		}
	case n < 0:
		panic(fmt.Sprintf("consumequeue: queue file at %d released %d times too often", s.base, -n))
	}
}

// reserve makes sure that the first end bytes have blocks. Writer only.
func (s *segment) reserve(end int64) error {
	if end <= s.allocated {
		return nil
	}
	size := int64(len(s.mem))
	step := min(max(end, pageSize), allocateMax)
	upTo := min((end+step+pageSize-1)&^(pageSize-1), size)
	path := filepath.Join(s.queue.dir(), fileName(s.base))
	f, err := s.queue.set.cfg.FS.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	err = f.Allocate(upTo)
	if errors.Is(err, vfs.ErrNotSupported) {
		err = fillHoles(f, s.allocated, upTo)
	}
	if err != nil {
		return err
	}
	s.allocated = upTo
	return nil
}

// fillHoles gives the pages of [from, to) blocks by writing to those that read as zero. It is for
// file systems without fallocate.
func fillHoles(f vfs.File, from, to int64) error {
	var page, zero [pageSize]byte
	for at := from; at < to; at += pageSize {
		n := min(to-at, pageSize)
		clear(page[:])
		if _, err := f.ReadAt(page[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if page != zero {
			continue
		}
		if _, err := f.WriteAt(zero[:n], at); err != nil {
			return err
		}
	}
	return nil
}
