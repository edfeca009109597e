// SPDX-License-Identifier: Apache-2.0

//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OS returns the file system of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenFile(path string, flag int, perm os.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	writable := flag&(os.O_WRONLY|os.O_RDWR) != 0
	return &osFile{File: f, fd: int(f.Fd()), writable: writable}, nil
}

func (osFS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

func (osFS) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

func (osFS) Rename(oldpath, newpath string) error { return os.Rename(oldpath, newpath) }

func (osFS) Remove(path string) error { return os.Remove(path) }

func (o osFS) MkdirAll(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return o.SyncDir(parent)
}

func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (osFS) Usage(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := eintr(func() error { return unix.Statfs(path, &st) }); err != nil {
		return Usage{}, fmt.Errorf("vfs: space of %s: %w", path, err)
	}
	unit := int64(st.Bsize) //nolint:unconvert // the type differs between platforms
	return Usage{
		Total: int64(st.Blocks) * unit, Free: int64(st.Bfree) * unit,
		Avail: int64(st.Bavail) * unit,
	}, nil
}

// osFile keeps the descriptor beside the os.File, which owns it.
type osFile struct {
	*os.File
	fd       int
	writable bool
}

func (f *osFile) FD() int { return f.fd }

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t // File.Stat allocates
	if err := unix.Fstat(f.fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st.Size, nil
}

// zeroStep is how much writeZeros writes at once, in bytes.
const zeroStep = 1 << 20

// writeZeros is the slow way of Zero and of Allocate, for file systems without fallocate.
func (f *osFile) writeZeros(from, size int64) error {
	zeros := make([]byte, min(size, zeroStep))
	for size > 0 {
		n, err := f.WriteAt(zeros[:min(size, zeroStep)], from)
		if err != nil {
			return err
		}
		from, size = from+int64(n), size-int64(n)
	}
	return nil
}

func (f *osFile) Map(size int) (Mapping, error) {
	access := unix.PROT_READ
	if f.writable {
		access |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(f.fd, 0, size, access, unix.MAP_SHARED)
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return &osMapping{b: b, path: f.Name()}, nil
}

// osMapping is a shared mapping of a file from its start.
type osMapping struct {
	b    []byte
	path string
}

func (m *osMapping) Bytes() []byte { return m.b }

func (m *osMapping) Sync(from, size int) error {
	from, to := pages(from, size, len(m.b))
	if from == to {
		return nil
	}
	// Not repeated on EINTR or any other error: after a failed write-back the kernel may call the
	// pages clean, and a second msync would report success for bytes that are not on disk.
	if err := unix.Msync(m.b[from:to], unix.MS_SYNC); err != nil {
		return &fs.PathError{Op: "msync", Path: m.path, Err: err}
	}
	return nil
}

func (m *osMapping) Unmap() error {
	b := m.b
	m.b = nil
	if b == nil {
		return nil
	}
	if err := unix.Munmap(b); err != nil {
		return &fs.PathError{Op: "munmap", Path: m.path, Err: err}
	}
	return nil
}

// pages widens a range to whole pages of the system, within [0, limit).
func pages(from, size, limit int) (begin, end int) {
	page := os.Getpagesize()
	begin = max(0, from) / page * page
	end = min(limit, (max(0, from+size)+page-1)/page*page)
	return begin, max(begin, end)
}

// eintr repeats a call that a signal interrupted.
func eintr(call func() error) error {
	for {
		err := call()
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
