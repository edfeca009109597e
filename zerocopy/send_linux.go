// SPDX-License-Identifier: Apache-2.0

package zerocopy

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writevMax caps the slices of one Writev. The kernel refuses more than 1024 (UIO_MAXIOV).
const writevMax = 512

// writevFew is the number of slices for which Writev clears only a small table.
const writevFew = 16

// Sendfile sends up to most bytes of the region's file range to the socket in one system call and
// returns how many went; the caller advances the region. It does not block on a non-blocking
// socket, where unix.EAGAIN means nothing was sent, but it may wait for the disk when the range is
// not in the page cache. A file that ends before the region does is io.ErrUnexpectedEOF.
//
// Cost: one system call, no allocation, no copy.
func Sendfile(sock int, r *Region, most int) (int, error) {
	count := min(r.Size, most)
	if count <= 0 {
		return 0, nil
	}
	for {
		off := r.Off
		n, err := unix.Sendfile(sock, r.FD, &off, count)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.ErrUnexpectedEOF
		}
		return n, nil
	}
}

// Writev sends the slices in order, at most 512 of them, in one system call and returns how many
// bytes went. The slices may lie in mappings: a page that has to be read from disk is waited for
// without holding up other goroutines, and one beyond the end of its file is unix.EFAULT.
//
// Cost: one system call, no allocation, one copy by the kernel.
func Writev(sock int, bufs [][]byte) (int, error) {
	if len(bufs) <= writevFew {
		return writevSmall(sock, bufs)
	}
	var iov [writevMax]unix.Iovec
	return writev(sock, bufs, iov[:])
}

func writevSmall(sock int, bufs [][]byte) (int, error) {
	var iov [writevFew]unix.Iovec
	return writev(sock, bufs, iov[:])
}

func writev(sock int, bufs [][]byte, iov []unix.Iovec) (int, error) {
	used := 0
	for _, b := range bufs {
		if used == len(iov) {
			break
		}
		if len(b) == 0 {
			continue
		}
		iov[used].Base = &b[0]
		iov[used].SetLen(len(b))
		used++
	}
	if used == 0 {
		return 0, nil
	}
	for {
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(sock),
			uintptr(unsafe.Pointer(&iov[0])), uintptr(used))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}

// Send sends b to a non-blocking socket in one system call and returns how many bytes went. With
// more set the kernel holds back an incomplete packet for what follows (MSG_MORE). b must be
// ordinary memory, not a mapping: the call does not tell the Go scheduler, which makes it cheap but
// would stop other goroutines if a page had to be read from disk.
//
// Cost: one system call, no allocation, one copy by the kernel.
func Send(sock int, b []byte, more bool) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	flags := uintptr(unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT)
	if more {
		flags |= unix.MSG_MORE
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(sock),
			uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}
