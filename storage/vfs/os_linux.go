// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Life is the boot of the kernel and the mount: a disk that was pulled out and put back, or copied, is
// mounted anew. Kernels before 6.8 use numbers of mounts again, so they do not tell.
func (osFS) Life(path string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + strconv.FormatUint(st.Mnt_id, 10)
}

// fallocate calls the kernel; file systems that do not know the mode give ErrNotSupported.
func (f *osFile) fallocate(mode uint32, from, size int64) error {
	err := eintr(func() error { return unix.Fallocate(f.fd, mode, from, size) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return ErrNotSupported
	}
	return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
}

func (f *osFile) Allocate(size int64) error { return f.fallocate(0, 0, size) }

func (f *osFile) Zero(from, size int64) error {
	if size <= 0 {
		return nil
	}
	// ZERO_RANGE keeps the blocks, so a later store through a mapping cannot run out of space.
	err := f.fallocate(unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, from, size)
	if errors.Is(err, ErrNotSupported) {
		err = f.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, size)
		if err == nil {
			err = f.fallocate(0, from, size)
		}
	}
	if errors.Is(err, ErrNotSupported) {
		err = f.writeZeros(from, size)
	}
	return err
}

func (f *osFile) WriteZeros(from, size int64) error {
	// Direct writes need memory that is aligned; fresh pages are, and are zero.
	zeros, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return &fs.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	defer func() { _ = unix.Munmap(zeros) }()
	fd, err := unix.Open(f.Name(), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) {
		return ErrNotSupported
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	for done := 0; done < len(zeros); {
		n, err := unix.Pwrite(fd, zeros[done:], from+int64(done))
		switch {
		case err == nil:
			done += n
		case errors.Is(err, unix.EINVAL) && done == 0:
			return ErrNotSupported
		case !errors.Is(err, unix.EINTR):
			return &fs.PathError{Op: "write zeros", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// Sync leaves out what reading does not need, such as the time of the last change: writing that too
// would cost a commit of the file system's journal each time.
func (f *osFile) Sync() error {
	if err := eintr(func() error { return unix.Fdatasync(f.fd) }); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) WriteBehind(from, size int64) error {
	return eintr(func() error {
		return unix.SyncFileRange(f.fd, from, size, unix.SYNC_FILE_RANGE_WRITE)
	})
}

func (f *osFile) Forget(from, size int64) error {
	return eintr(func() error { return unix.Fadvise(f.fd, from, size, unix.FADV_DONTNEED) })
}

func (f *osFile) ReadAhead(on bool) {
	advice := unix.FADV_RANDOM
	if on {
		advice = unix.FADV_NORMAL
	}
	_ = unix.Fadvise(f.fd, 0, 0, advice) // without it reads are as right, and slower
}

func (f *osFile) NextData(from int64) int64 {
	at, err := unix.Seek(f.fd, from, unix.SEEK_DATA) // the position is used by nobody
	if err == nil {
		return at
	}
	if size, sizeErr := f.Size(); sizeErr == nil && errors.Is(err, unix.ENXIO) {
		return size
	}
	return from
}

// Arguments and answer of cachestat(2), Linux 6.5.
type cachestatRange struct{ off, size uint64 }

type cachestat struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }

func (f *osFile) Resident(from, size int64) (bool, error) {
	begin := from / PageSize
	end := (from + size + PageSize - 1) / PageSize
	arg := cachestatRange{off: uint64(begin * PageSize), size: uint64((end - begin) * PageSize)}
	var st cachestat
	_, _, errno := unix.Syscall6(unix.SYS_CACHESTAT, uintptr(f.fd),
		uintptr(unsafe.Pointer(&arg)), uintptr(unsafe.Pointer(&st)), 0, 0, 0)
	if errno == 0 {
		return st.cached >= uint64(end-begin), nil
	}
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		return false, ErrNotSupported
	}
	return false, &fs.PathError{Op: "cachestat", Path: f.Name(), Err: errno}
}

func (f *osFile) Prefetch(from, size int64) error {
	return eintr(func() error { return unix.Fadvise(f.fd, from, size, unix.FADV_WILLNEED) })
}

// residentPages is how many pages one call of mincore is asked about.
const residentPages = 64

// Resident asks mincore, which tells of the page cache also what this mapping never touched.
func (m *osMapping) Resident(from, size int) (bool, error) {
	from, to := pages(from, size, len(m.b))
	page := os.Getpagesize()
	var there [residentPages]byte
	for from < to {
		n := min((to-from+page-1)/page, residentPages)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m.b[from])),
			uintptr(min(n*page, to-from)), uintptr(unsafe.Pointer(&there[0])))
		if errno == unix.ENOSYS {
			return false, ErrNotSupported
		}
		if errno != 0 {
			return false, &fs.PathError{Op: "mincore", Path: m.path, Err: errno}
		}
		for _, b := range there[:n] {
			if b&1 == 0 {
				return false, nil
			}
		}
		from += n * page
	}
	return true, nil
}

func (m *osMapping) Populate(from, size int) error {
	from, to := pages(from, size, len(m.b))
	if from == to {
		return nil
	}
	err := eintr(func() error { return unix.Madvise(m.b[from:to], unix.MADV_POPULATE_WRITE) })
	if errors.Is(err, unix.EINVAL) { // Linux before 5.14
		return ErrNotSupported
	}
	if err != nil {
		return &fs.PathError{Op: "populate", Path: m.path, Err: err}
	}
	return nil
}

// Detach is safe for shared mappings of files only, which all of ours are: the page cache keeps the
// bytes, and the page tables hand it their dirty marks.
func (m *osMapping) Detach(from, size int) {
	page := os.Getpagesize()
	begin, end := (max(0, from)+page-1)/page*page, min(from+size, len(m.b))/page*page
	if begin < end {
		_ = unix.Madvise(m.b[begin:end], unix.MADV_DONTNEED)
	}
}

func (m *osMapping) ReadAhead(on bool) {
	advice := unix.MADV_RANDOM
	if on {
		advice = unix.MADV_NORMAL
	}
	_ = unix.Madvise(m.b, advice) // without it faults are as right, and slower
}
