// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"runtime/debug"

	"github.com/skylarkmq/skylark/zerocopy"
)

const (
	// outBuffer is the size of the buffers in which answers are built: 64 answers to sends fit.
	outBuffer = 16 << 10
	// reserveMin is the room below which Reserve begins another buffer.
	reserveMin = 512
	// segmentsKeep caps the segment tables that a loop keeps, and the size of each.
	segmentsKeep = 64
	// regionCost is what keeping account of one region takes in memory, in bytes.
	regionCost = 128
)

// segment is one piece of output: bytes in a buffer of the pool, or a region.
type segment struct {
	buf    []byte          // ours, from the pool; nil: the region counts
	sent   int             // bytes of buf that went
	region zerocopy.Region // what is left of it
	asFile bool            // by sendfile; otherwise from memory
	sealed bool            // somebody is sending buf: nothing may be added
}

// mem returns the unsent bytes in memory.
func (s *segment) mem() []byte {
	if s.buf != nil {
		return s.buf[s.sent:]
	}
	return s.region.Mem
}

// held returns the bytes of memory that are kept only because this segment is unsent.
func (s *segment) held() int64 {
	switch {
	case s.buf != nil:
		return int64(len(s.buf) - s.sent)
	case s.region.FD < 0:
		return int64(s.region.Size) + regionCost
	}
	return regionCost
}

// outQueue is what a connection has to send, in order. It belongs to the connection's loop. A
// segment holds its buffer or region until it was sent completely or the connection is closed.
type outQueue struct {
	segs  []segment
	head  int   // segs[head:] are unsent, none of them empty
	bytes int64 // sum of held() over them
	fresh []byte
}

func (q *outQueue) empty() bool { return q.head == len(q.segs) }
func (q *outQueue) count() int  { return len(q.segs) - q.head }

// push appends a segment that is not empty.
func (q *outQueue) push(l *Loop, s segment) {
	if q.segs == nil {
		q.segs = l.takeSegments()
	}
	if q.head > segmentsKeep && q.head > len(q.segs)/2 {
		n := copy(q.segs, q.segs[q.head:])
		clear(q.segs[n:])
		q.segs, q.head = q.segs[:n], 0
	}
	q.bytes += s.held()
	q.segs = append(q.segs, s)
}

// reserve returns a buffer with room for n more bytes: the last one of the queue if that has it,
// with its content, or a fresh one.
func (q *outQueue) reserve(l *Loop, n int) []byte {
	if !q.empty() {
		t := &q.segs[len(q.segs)-1]
		// A buffer that a large frame has outgrown is not gone on with: growing it again and again
		// would copy everything that waits.
		if t.buf != nil && !t.sealed && cap(t.buf) <= outBuffer && cap(t.buf)-len(t.buf) >= n {
			return t.buf
		}
	}
	if q.fresh == nil || cap(q.fresh) < n {
		q.drop(l)
		q.fresh = l.bufs.get(max(n, outBuffer))
	}
	return q.fresh
}

// commit takes back what reserve returned, with a frame added to it, possibly in a new array.
func (q *outQueue) commit(l *Loop, b []byte) {
	if q.fresh == nil {
		t := &q.segs[len(q.segs)-1]
		q.bytes += int64(len(b) - len(t.buf))
		if cap(b) != cap(t.buf) {
			l.bufs.put(t.buf)
		}
		t.buf = b
		return
	}
	if cap(b) != cap(q.fresh) {
		l.bufs.put(q.fresh)
	}
	if len(b) == 0 {
		q.fresh = b
		return
	}
	q.fresh = nil
	q.push(l, segment{buf: b})
}

// drop gives back a buffer that was reserved and not committed.
func (q *outQueue) drop(l *Loop) {
	if q.fresh != nil {
		l.bufs.put(q.fresh)
		q.fresh = nil
	}
}

// advance removes the first n bytes and gives back whatever was sent completely.
func (q *outQueue) advance(l *Loop, n int) {
	for n > 0 {
		s := &q.segs[q.head]
		if s.buf != nil {
			k := min(n, len(s.buf)-s.sent)
			s.sent += k
			q.bytes -= int64(k)
			n -= k
			if s.sent < len(s.buf) {
				return
			}
			l.bufs.put(s.buf)
		} else {
			k := min(n, s.region.Size)
			if s.region.FD < 0 {
				q.bytes -= int64(k)
			}
			n -= k
			s.region.Advance(k)
			if s.region.Size > 0 {
				return
			}
			q.bytes -= regionCost
			s.region.Release()
		}
		*s = segment{}
		q.head++
	}
	if q.empty() {
		q.rest(l)
	}
}

// rest gives up the table of an empty queue: idle connections hold no memory.
func (q *outQueue) rest(l *Loop) {
	if q.segs != nil {
		l.putSegments(q.segs)
	}
	q.segs, q.head = nil, 0
	q.drop(l)
}

// release gives back everything unsent.
func (q *outQueue) release(l *Loop) {
	for i := q.head; i < len(q.segs); i++ {
		s := &q.segs[i]
		if s.buf != nil {
			l.bufs.put(s.buf)
		}
		s.region.Release()
		*s = segment{}
	}
	q.head, q.bytes = len(q.segs), 0
	q.rest(l)
}

// takeSegments and putSegments keep segment tables for connections that have something to send.
func (l *Loop) takeSegments() []segment {
	if n := len(l.tables); n > 0 {
		t := l.tables[n-1]
		l.tables[n-1] = nil
		l.tables = l.tables[:n-1]
		return t
	}
	return make([]segment, 0, 8)
}

func (l *Loop) putSegments(t []segment) {
	if len(l.tables) < segmentsKeep && cap(t) <= segmentsKeep {
		l.tables = append(l.tables, t[:0])
	}
}

// way says how a region travels. A run by itself is worth a sendfile early; of several, each costs
// a call of its own that way, and only large ones earn it. Between these sizes the kernel copies
// from the mapping, and small pieces are gathered in a buffer.
type way uint8

const (
	wayCopy way = iota
	wayMemory
	wayFile
)

func (c *Config) way(r *zerocopy.Region, scattered bool) way {
	limit := c.SendfileFrom
	if scattered {
		limit = c.ScatteredFrom
	}
	switch {
	case r.FD >= 0 && (r.Mem == nil || r.Size >= limit):
		return wayFile
	case r.Size < c.CopyBelow, r.FD >= 0 && !scattered:
		return wayCopy
	}
	return wayMemory
}

// appendMapped appends the bytes of regions that may lie in a mapping. A mapping whose file was cut
// short faults; that is reported instead of ending the process, and nothing is appended.
func appendMapped(dst []byte, runs []zerocopy.Region) (out []byte, ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if !ok && recover() != nil {
			out = dst
		}
	}()
	out = dst
	for i := range runs {
		out = append(out, runs[i].Mem...)
	}
	return out, true
}
