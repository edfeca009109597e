// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crashfs

import (
	"errors"
	"io"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// file passes on to the real one and notes what was synced.
type file struct {
	vfs.File
	fs   *FS
	node *node
}

func (f *file) WriteAt(b []byte, at int64) (int, error) {
	if err := f.fs.before("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}

func (f *file) WriteZeros(from, size int64) error {
	if err := f.fs.before("write", f.Name()); err != nil {
		return err
	}
	return f.File.WriteZeros(from, size)
}

func (f *file) Truncate(size int64) error {
	if err := f.fs.before("truncate", f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *file) Allocate(size int64) error {
	if err := f.fs.before("allocate", f.Name()); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *file) Zero(from, size int64) error {
	if err := f.fs.before("zero", f.Name()); err != nil {
		return err
	}
	return f.File.Zero(from, size)
}

func (f *file) Sync() error {
	if err := f.fs.before("sync", f.Name()); err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	return f.keep(0, size)
}

func (f *file) Map(size int) (vfs.Mapping, error) {
	m, err := f.File.Map(size)
	if err != nil {
		return nil, err
	}
	return &mapping{Mapping: m, file: f, size: size}, nil
}

// keep notes that the pages of a range, and the length of the file, are on disk. It reads through
// the descriptor: a store into the mapping at the same time is no data race of this process.
func (f *file) keep(from, to int64) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	from = from / vfs.PageSize * vfs.PageSize
	to = min(size, (to+vfs.PageSize-1)/vfs.PageSize*vfs.PageSize)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	b := f.node.durable
	if int64(len(b)) < size {
		b = append(b, make([]byte, size-int64(len(b)))...)
	}
	b = b[:size]
	f.node.durable = b
	if from >= to {
		return nil
	}
	if _, err := f.ReadAt(b[from:to], from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// mapping notes what msync covers.
type mapping struct {
	vfs.Mapping
	file *file
	size int
}

func (m *mapping) Sync(from, size int) error {
	if err := m.file.fs.before("msync", m.file.Name()); err != nil {
		return err
	}
	return m.file.keep(int64(from), int64(min(from+size, m.size)))
}
