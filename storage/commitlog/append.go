// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"fmt"

	"github.com/skylarkmq/skylark/storage/record"
)

// appender is the state of Reserve and Publish, which one goroutine calls at a time.
type appender struct {
	tail   *segment
	mem    []byte // of the tail, whole
	cursor int64  // end of what was reserved; wrote <= cursor
	// The cursor at which the preparer is woken next, so that the usual append makes one comparison.
	wakeAt int64
	asked  bool  // the next segment was asked for
	signal int64 // the cursor at which the flusher is told that many bytes wait
}

// Reserve returns space for size bytes, one record or all records of a batch, which therefore share
// a segment. When the rest of the segment is too small for them and RocketMQ's 8 bytes of blank, it
// is closed with a blank and the next one taken. The bytes become visible with Publish; until then
// further reservations follow behind. Nothing was reserved when there is an error.
//
// It fails with ErrTooLarge, ErrClosed, the error of a failed flush, or when no next segment could
// be made, for instance on a full disk; the next call tries again.
//
// Cost: no allocation, no system call; it blocks only when it outruns the preparation of the next
// segment.
func (l *Log) Reserve(size int) (dst []byte, at record.PhysicalOffset, err error) {
	if err := l.Err(); err != nil {
		return nil, 0, err
	}
	if !l.writable.Load() {
		return nil, 0, ErrClosed
	}
	if size <= 0 || int64(size)+record.BlankSize > l.size {
		return nil, 0, fmt.Errorf("%w: %d bytes, segments have %d", ErrTooLarge, size, l.size)
	}
	a := &l.app
	if a.cursor+int64(size)+record.BlankSize > a.tail.base+l.size {
		if err := l.roll(); err != nil {
			return nil, 0, err
		}
	}
	pos := a.cursor - a.tail.base
	dst = a.mem[pos : pos+int64(size) : pos+int64(size)]
	at = record.PhysicalOffset(a.cursor)
	a.cursor += int64(size)
	if a.cursor >= a.wakeAt {
		l.wakePreparer()
	}
	return dst, at, nil
}

// Publish makes everything below end readable and due for flushing. end is the end of a
// reservation; storeMS is the store time of the last record before it. It does not block.
func (l *Log) Publish(end record.PhysicalOffset, storeMS int64) {
	a := &l.app
	if was := l.wrote.Load(); int64(end) <= was || int64(end) > a.cursor {
		panic(fmt.Sprintf("commitlog: publish %d: wrote is %d and reserved %d", end, was, a.cursor))
	}
	// In this order: who reads the time first and wrote second never has too late a time.
	l.wrote.Store(int64(end))
	l.wroteMS.Store(storeMS)
	l.flush.published(int64(end) >= a.signal)
	if int64(end) >= a.signal {
		a.signal = int64(end) + l.cfg.FlushBytes
	}
}

// roll closes the tail with a blank and goes on in the next segment. When that is not to be had the
// tail stays as it is.
func (l *Log) roll() error {
	a := &l.app
	next, err := l.takeNext(a.tail.base + l.size)
	if err != nil {
		return fmt.Errorf("commitlog: append at %d: next segment: %w", a.cursor, err)
	}
	if rest := a.tail.base + l.size - a.cursor; rest >= record.BlankSize {
		record.PutBlank(a.mem[a.cursor-a.tail.base:], int(rest))
	}
	l.appendSegment(next)
	l.setTail(next, next.base)
	return nil
}

// setTail makes seg the one that is appended to, from cursor on.
func (l *Log) setTail(seg *segment, cursor int64) {
	a := &l.app
	a.tail, a.mem, a.cursor = seg, seg.file.Bytes(), cursor
	a.wakeAt = cursor // the first append wakes the preparer
	l.prepare.tail.Store(seg)
}
