// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"runtime/debug"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// Everything that reads or writes a mapping does it between a SetPanicOnFault and one of the
// functions below, on its own goroutine. A file that was cut short, or a block that cannot be read,
// then fails the one call that came by, and not the process. The cost is some nanoseconds a call.

// faulted is deferred by calls that return an error: it puts the fault there. The caller has
// switched PanicOnFault on; old is what it was.
func faulted(old bool, err *error) {
	debug.SetPanicOnFault(old)
	if fault := vfs.Fault(recover()); fault != nil {
		*err = fmt.Errorf("storage: %w", fault)
	}
}

// overlooked is deferred by calls whose answer for what is not there serves as well for what cannot
// be read.
func overlooked(old bool) {
	debug.SetPanicOnFault(old)
	_ = vfs.Fault(recover())
}

// readFaulted is deferred by Read.
func (s *Store) readFaulted(old bool, req *ReadRequest, res *ReadResult) {
	debug.SetPanicOnFault(old)
	fault := vfs.Fault(recover())
	if fault == nil {
		return
	}
	for i := range res.Regions {
		res.Regions[i].Release()
	}
	*res = ReadResult{
		Regions: res.Regions[:0], Min: res.Min, Max: res.Max, Status: OffsetFoundNull, Next: req.From,
		Err: fmt.Errorf("storage: read queue %s/%d at %d: %w", req.Topic, req.Queue, req.From, fault),
	}
}

// appendFaultedLocked ends a batch whose bytes could not be written. The end of the log, or of a
// queue, is no longer what it should be, so nothing more is taken until a start has recovered it; what
// was published before is as it was.
func (s *Store) appendFaultedLocked(fault error, es []Entry) {
	s.stopWriting("append failed", fault)
	for _, q := range s.touched {
		func() {
			defer overlooked(debug.SetPanicOnFault(true))
			q.Undo()
		}()
	}
	s.endRoundLocked()
	// What was refused must not be there after the next start. Where the bytes cannot be cleared
	// either, they are no record already.
	func() {
		defer overlooked(debug.SetPanicOnFault(true))
		s.log.Abandon()
	}()
	for i := range es {
		es[i].Err = fmt.Errorf("%w: %w", ErrReadOnly, fault)
	}
}

// stopWriting makes the store read-only until the next start, and says why.
func (s *Store) stopWriting(what string, err error) {
	if s.readOnly.CompareAndSwap(false, true) {
		s.cfg.Notice(what+", store is read-only until the next start", "err", err)
	}
}

// touch reads a byte of each page, so that a fault comes here and not where the bytes are used.
//
//go:noinline // or the compiler sees that nobody looks at the sum, and reads nothing
func touch(b []byte) (sum byte) {
	for at := 0; at < len(b); at += vfs.PageSize {
		sum ^= b[at]
	}
	if len(b) > 0 {
		sum ^= b[len(b)-1]
	}
	return sum
}
