// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package zerocopy

import (
	"errors"
	"io"
)

// ReadAt fills p with the region's bytes from offset at on and returns how many there were. On this
// platform the bytes come from memory; a region without it is errors.ErrUnsupported.
func (r *Region) ReadAt(p []byte, at int64) (int, error) {
	if at >= int64(r.Size) {
		return 0, io.EOF
	}
	if r.Mem == nil {
		return 0, errors.ErrUnsupported
	}
	return short(copy(p, r.Mem[at:r.Size]), len(p))
}
