// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"sync"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

const (
	// chunkSize is the size of a chunk in bytes, unless one reservation is larger. What comes during
	// one flush fits into a few, which stay in the processor's cache.
	chunkSize = 512 << 10
	// spareMax is how many chunks are kept for later.
	spareMax = 8
	// stageMax is how many bytes of chunks may hold what is not in the file. Beyond it the appender
	// writes them itself, so that a disk that stands still costs its time and not the memory.
	stageMax = 32 << 20
)

// stage holds what was appended with Config.Sync on its way to the file. The flusher writes all that
// was published by one call for each chunk and then syncs the file, once.
//
// Stores into the mapping would need no copy, but then a flush has to find the dirty pages, write
// protect each and wait for a fault of the appender at the next store to it; and that fault may wait
// for the file system's journal, which a flush keeps busy. Staged, a flush of the same bytes takes half
// the time and the appender never meets the disk. What a death of the process takes with it was
// promised to nobody: a synchronous log promises with the flush, or with WriteOut.
type stage struct {
	// Confined to the appender.
	tail *chunk // what is appended to, the last of chunks; nil: none yet

	// Guards what follows. Never held across I/O.
	mu     sync.Mutex
	chunks []*chunk // with bytes that are not in the file, oldest first
	spare  []*chunk
	bytes  int // of the buffers of chunks

	// Held while bytes go to the file, so that they go in order. Taken before mu.
	writing sync.Mutex
	// Guarded by writing: the last page of a write.
	page [vfs.PageSize]byte
}

// chunk is a stretch of one segment: bytes [at, at+len) of the log lie in buf.
type chunk struct {
	seg *segment
	at  int64
	buf []byte
	// used is how much of buf is reserved. The appender's own until the chunk is closed.
	used int
	// Guarded by stage.mu. next is where the log goes on behind a closed chunk: its end, or the start
	// of the next segment behind a blank.
	closed bool
	next   int64
}

// take returns size bytes of buffer for the offset at, which is where the last reservation ended or the
// start of a segment. Called by the appender.
//
// Cost: no allocation in the steady state, no lock as long as the chunk has room.
func (l *Log) take(seg *segment, at int64, size int) ([]byte, error) {
	s := l.stage
	c := s.tail
	if c == nil || c.seg != seg || c.used+size > len(c.buf) {
		var err error
		if c, err = l.nextChunk(seg, at, size); err != nil {
			return nil, err
		}
	}
	b := c.buf[c.used : c.used+size : c.used+size]
	c.used += size
	return b, nil
}

// nextChunk closes the chunk that is appended to and begins one at an offset.
func (l *Log) nextChunk(seg *segment, at int64, size int) (*chunk, error) {
	s := l.stage
	if s.full(size) {
		if err := l.WriteOut(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.tail; old != nil {
		old.closed, old.next = true, at
	}
	var c *chunk
	if n := len(s.spare); n > 0 && size <= chunkSize {
		c = s.spare[n-1]
		s.spare[n-1] = nil
		s.spare = s.spare[:n-1]
	} else {
		c = &chunk{buf: make([]byte, max(size, chunkSize))}
	}
	c.seg, c.at, c.used, c.closed = seg, at, 0, false
	s.chunks = append(s.chunks, c)
	s.bytes += len(c.buf)
	s.tail = c
	return c, nil
}

// full reports whether size bytes more are too many.
func (s *stage) full(size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes+size > stageMax
}

// WriteOut brings what was published before the call into the file, where it survives the end of the
// process, without waiting for the disk to have it; the flush follows as always. Without Config.Sync it
// is there already. It may wait for a write that is under way. An error is that of a failed flush.
func (l *Log) WriteOut() error {
	if l.stage == nil {
		return nil
	}
	if err := l.writeOut(l.published.Load()); err != nil {
		l.failFlush(err)
		return l.Err()
	}
	return nil
}

// writeOut brings the log below end into the file and moves wrote.
func (l *Log) writeOut(end int64) error {
	s := l.stage
	s.writing.Lock()
	defer s.writing.Unlock()
	for l.wrote.Load() < end {
		c, from, to, next := s.first(l.wrote.Load(), end)
		if from < to {
			if err := l.writeChunk(c, from, to); err != nil {
				return err
			}
		}
		l.wrote.Store(next)
		s.drop(next)
	}
	return nil
}

// writeChunk writes the bytes [from, to) of the log, which lie in a chunk, with zeros up to the end of
// the page. Into a page of the disk that is not in memory the kernel can only write as a whole; for
// less it would read it first.
func (l *Log) writeChunk(c *chunk, from, to int64) error {
	seg := c.seg
	b, at, end := c.buf[from-c.at:to-c.at], from-seg.base, to-seg.base
	seg.claim(end, l.zeroStep())
	page := end &^ (vfs.PageSize - 1)
	if !l.cfg.Prewrite || page <= at || page == end {
		return seg.file.Write(b, int(at))
	}
	if err := seg.file.Write(b[:page-at], int(at)); err != nil {
		return err
	}
	n := copy(l.stage.page[:], b[page-at:])
	clear(l.stage.page[n:])
	return seg.file.Write(l.stage.page[:min(vfs.PageSize, l.size-page)], int(page))
}

// first returns the chunk that goes on at the offset wrote, which of its bytes are to be written for
// the log to be in the file up to end, and where the log goes on behind them.
func (s *stage) first(wrote, end int64) (c *chunk, from, to, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c = s.chunks[0]
	from = max(wrote, c.at) // the rest of a segment may be too small for a blank
	if c.closed && end >= c.at+int64(c.used) {
		return c, from, c.at + int64(c.used), c.next
	}
	return c, from, end, end
}

// drop takes the first chunk off the list when all of it is in the file and nothing more comes to it.
func (s *stage) drop(wrote int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chunks[0]
	if !c.closed || c.next > wrote {
		return
	}
	n := copy(s.chunks, s.chunks[1:])
	s.chunks[n] = nil
	s.chunks = s.chunks[:n]
	s.bytes -= len(c.buf)
	c.seg = nil
	if len(c.buf) == chunkSize && len(s.spare) < spareMax {
		s.spare = append(s.spare, c)
	}
}

// Published returns the end of what was published. Wrote follows it, at once without Config.Sync.
func (l *Log) Published() record.PhysicalOffset {
	return record.PhysicalOffset(l.published.Load())
}
