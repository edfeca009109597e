// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package zerocopy

import "errors"

// Sendfile is not available here: callers use ReadAt and an ordinary write.
func Sendfile(int, *Region, int) (int, error) {
	return 0, errors.ErrUnsupported
}

// Writev is not available here: callers use net.Buffers.
func Writev(int, [][]byte) (int, error) {
	return 0, errors.ErrUnsupported
}

// Send is not available here: callers use an ordinary write.
func Send(int, []byte, bool) (int, error) {
	return 0, errors.ErrUnsupported
}
