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
	cursor int64  // end of what was reserved; published <= cursor
	// The cursor at which the preparer is woken next, so that the usual append makes one comparison.
	wakeAt int64
	asked  bool  // the next segment was asked for
	signal int64 // the cursor at which the flusher is told that many bytes wait
	bulk   bulk
}

// Reserve returns space for size bytes, one record or all records of a batch, which therefore share
// a segment. When the rest of the segment is too small for them and RocketMQ's 8 bytes of blank, it
// is closed with a blank and the next one taken. The bytes are handed on by Publish; until then
// further reservations follow behind. Nothing was reserved when there is an error.
//
// It fails with ErrTooLarge, ErrClosed, the error of a failed flush, or when no next segment could
// be made, for instance on a full disk; the next call tries again.
//
// Cost: no allocation, no system call; it blocks only when it outruns the preparation of the next
// segment, or with Config.Sync the disk by 32 MiB.
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
	if dst, err = l.space(size); err != nil {
		return nil, 0, err
	}
	at = record.PhysicalOffset(a.cursor)
	a.cursor += int64(size)
	if size >= l.cfg.BulkLeast {
		a.bulk.large += int64(size)
	}
	if a.cursor >= a.wakeAt {
		l.wakePreparer()
	}
	return dst, at, nil
}

// space returns the memory that size bytes at the cursor are encoded into.
func (l *Log) space(size int) ([]byte, error) {
	a := &l.app
	if l.stage != nil {
		return l.take(a.tail, a.cursor, size)
	}
	if a.bulk.on.Load() || a.bulk.used > 0 {
		return l.gather(size)
	}
	pos := a.cursor - a.tail.base
	return a.mem[pos : pos+int64(size) : pos+int64(size)], nil
}

// Publish makes everything below end readable and due for flushing; with Config.Sync it is readable
// when the flusher has written it. end is the end of a reservation; storeMS is the store time of the
// last record before it. Commit has been called since the last reservation. It does not block.
func (l *Log) Publish(end record.PhysicalOffset, storeMS int64) {
	a := &l.app
	if a.bulk.used > 0 {
		panic("commitlog: publish before commit")
	}
	if was := l.published.Load(); int64(end) <= was || int64(end) > a.cursor {
		panic(fmt.Sprintf("commitlog: publish %d: published is %d and reserved %d",
			end, was, a.cursor))
	}
	// In this order: who reads the time first and published second never has too late a time.
	l.published.Store(int64(end))
	if l.stage == nil {
		l.wrote.Store(int64(end))
	}
	l.publishedMS.Store(storeMS)
	l.flush.published(int64(end) >= a.signal)
	if int64(end) >= a.signal {
		a.signal = int64(end) + l.cfg.FlushBytes
	}
}

// Abandon clears what was reserved and not published, so that no recovery takes it for records. It is
// for an appender that cannot go on, and appends nothing any more.
func (l *Log) Abandon() {
	l.writable.Store(false)
	if l.stage != nil {
		return // it never leaves memory
	}
	l.app.bulk.used = 0
	for at := l.published.Load(); at < l.app.cursor; {
		seg := l.segments.Load().find(at, l.size)
		if seg == nil {
			return
		}
		end := min(l.app.cursor, seg.base+l.size)
		clear(seg.file.Bytes()[at-seg.base : end-seg.base])
		at = end
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
		blank, err := l.space(record.BlankSize)
		if err != nil {
			return fmt.Errorf("commitlog: append at %d: close the segment: %w", a.cursor, err)
		}
		record.PutBlank(blank, int(rest))
	}
	if a.bulk.used > 0 {
		l.writeBulk()
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
	a.bulk.large, a.bulk.since = 0, cursor
	if l.stage != nil {
		seg.claim(cursor-seg.base, l.zeroStep())
	}
	l.prepare.tail.Store(seg)
}
