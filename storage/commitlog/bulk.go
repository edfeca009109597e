// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"fmt"
	"sync/atomic"
)

const (
	// bulkMax is how many bytes are gathered before they are written, unless one reservation is larger.
	bulkMax = 1 << 20
	// bulkKeep is how large a buffer is kept between rounds: a message of the default limit fits.
	bulkKeep = 4<<20 + 128<<10
)

// bulk is reservations that are written to the file in place of being stored into the mapping, while
// most of what comes are large ones: client batches and large messages.
//
// For a store the kernel has to find each page, fill it with zeros, map it, and account for its first
// change, ahead of the writer or not. A write of many pages at once gives the file system large pieces of
// memory that it fills with the bytes themselves. It costs a system call, so small turns are better off with
// the mapping. Both share the page cache: readers see no difference, nor does the end of the process.
type bulk struct {
	on atomic.Bool // written by the appender

	// Confined to the appender.
	large int64 // bytes of large reservations since the last choice
	since int64 // the cursor then
	seg   *segment
	at    int64 // where in the log the bytes in buf go
	buf   []byte
	used  int
	err   error // of a write that failed; final
}

// chooseBulk looks each time the cursor has gone a step at what the step was made of. Called by the
// appender.
func (l *Log) chooseBulk() {
	a := &l.app
	b := &a.bulk
	passed := a.cursor - b.since
	if l.stage != nil || passed < l.step() {
		return
	}
	b.on.Store(b.large >= passed-passed/4)
	b.large, b.since = 0, a.cursor
}

// gather returns memory for size bytes at the cursor.
func (l *Log) gather(size int) ([]byte, error) {
	a := &l.app
	b := &a.bulk
	if b.used > 0 && (b.used+size > bulkMax || b.at+int64(b.used) != a.cursor) {
		l.writeBulk()
	}
	if b.err != nil {
		return nil, b.err
	}
	if b.used == 0 {
		b.seg, b.at = a.tail, a.cursor
	}
	if need := b.used + size; need > len(b.buf) {
		grown := make([]byte, max(need, min(2*len(b.buf), bulkMax), 256<<10))
		copy(grown, b.buf[:b.used])
		b.buf = grown
	}
	from := b.used
	b.used += size
	return b.buf[from:b.used:b.used], nil
}

// writeBulk writes what was gathered. Commit tells what came of it.
func (l *Log) writeBulk() {
	b := &l.app.bulk
	if err := b.seg.file.Write(b.buf[:b.used], int(b.at-b.seg.base)); err != nil && b.err == nil {
		b.err = fmt.Errorf("commitlog: append at %d: %w", b.at, err)
	}
	b.used, b.seg = 0, nil
	if len(b.buf) > bulkKeep {
		b.buf = nil
	}
}

// Commit brings what was reserved and filled since the last Publish into the file, which Publish takes
// for granted. After an error, which is final, nothing of it may be published.
//
// Cost: nothing, or one write where most of what comes is large.
func (l *Log) Commit() error {
	b := &l.app.bulk
	if b.used > 0 {
		l.writeBulk()
	}
	return b.err
}
