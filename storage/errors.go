// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
)

// Errors of Append and Open. Others carry the path and wrap the cause.
var (
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("storage: store is closed")
	// ErrReadOnly says that the store takes no messages any more, because writing to disk failed
	// once. Reads go on; only a new start, which recovers, helps.
	ErrReadOnly = errors.New("storage: store is read-only after a failed write")
	// ErrDiskFull says that the disk is fuller than the configured ratio, or has no block left. It
	// ends by itself when there is space again.
	ErrDiskFull = errors.New("storage: disk is full")
	// ErrUnsure says that a message is stored, with its results set, and that writing it to its file
	// failed: with Config.SyncFlush the end of the process, or of the machine, may take it. Nobody
	// can read it before the next start.
	ErrUnsure = errors.New("storage: message is stored, but its write failed")
	// ErrOutOfRange says that an offset lies outside the log.
	ErrOutOfRange = errors.New("storage: offset is outside the log")
)

// IllegalError says why a message can never be stored (RocketMQ MESSAGE_ILLEGAL, code 13).
type IllegalError struct {
	Index  int // of the element in a batch, from 0; -1 for a single message or the batch itself
	Reason string
}

func (e *IllegalError) Error() string {
	if e.Index >= 0 {
		return fmt.Sprintf("storage: message %d of the batch is illegal: %s", e.Index, e.Reason)
	}
	return "storage: message is illegal: " + e.Reason
}

func illegal(index int, format string, args ...any) *IllegalError {
	return &IllegalError{Index: index, Reason: fmt.Sprintf(format, args...)}
}
