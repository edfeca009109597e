// SPDX-License-Identifier: Apache-2.0

//go:build unix

package zerocopy

import (
	"io"

	"golang.org/x/sys/unix"
)

// ReadAt fills p with the region's bytes from offset at on and returns how many there were; less
// than len(p) comes with an error, io.EOF at the region's end and io.ErrUnexpectedEOF if the file
// is shorter than the region says. It reads the file rather than the mapping, so that a short file
// is an error and not a fault, and it may wait for the disk.
func (r *Region) ReadAt(p []byte, at int64) (int, error) {
	if at >= int64(r.Size) {
		return 0, io.EOF
	}
	want := min(len(p), r.Size-int(at))
	if r.FD < 0 {
		return short(copy(p[:want], r.Mem[at:]), len(p))
	}
	got := 0
	for got < want {
		n, err := unix.Pread(r.FD, p[got:want], r.Off+at+int64(got))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return got, err
		case n == 0:
			return got, io.ErrUnexpectedEOF
		}
		got += n
	}
	return short(got, len(p))
}
