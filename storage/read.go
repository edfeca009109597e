// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"runtime/debug"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// defaultReadBytes bounds the bytes of one read when the request does not, and is the greatest
// bound that is taken; readBytesMin is the least (RocketMQ DefaultMessageStore.getMessage).
const (
	defaultReadBytes = 128 << 20
	readBytesMin     = 100
)

// ReadStatus is how a read went (RocketMQ GetMessageStatus).
type ReadStatus uint8

// The statuses of a read.
const (
	Found               ReadStatus = iota // at least one message
	NoMatchedMessage                      // messages were looked at, none matches
	MessageWasRemoving                    // messages match, but the log no longer has them
	OffsetFoundNull                       // the queue's file cannot be read at the offset
	OffsetOverflowOne                     // the offset is the end of the queue
	OffsetOverflowBadly                   // the offset is behind the end of the queue
	OffsetTooSmall                        // the offset is before the first message
	NoMatchedLogicQueue                   // the queue cannot exist
	NoMessageInQueue                      // the queue never had a message
)

// String returns the name that RocketMQ uses on the wire.
func (s ReadStatus) String() string {
	names := [...]string{
		"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL",
		"OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY", "OFFSET_TOO_SMALL",
		"NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return "UNKNOWN"
}

// ReadRequest asks for messages of one queue.
type ReadRequest struct {
	Topic       []byte
	Queue       int32
	From        record.QueueOffset
	MaxMessages int
	MaxBytes    int     // 0: no bound of the request's own
	TagCodes    []int32 // hashes of the tags that match, a few; nil: all messages match
	// Filter is asked about each record that TagCodes lets pass; nil: they all match. With one, Read
	// reads bytes of the log: see Recent.
	Filter Filter
	// MemoryOnly is for callers that must not wait for the disk: where units of the queue may have to
	// come from there, nothing is read and the result says ColdUnits.
	MemoryOnly bool
	// Touch has Read look at each page of what it returns, for callers that use the bytes themselves
	// and not only send them: what cannot be read is then an error here and no fault there.
	Touch bool
}

// Filter selects messages by their properties.
type Filter interface {
	// Match decides by a record's property text, which it neither keeps nor changes.
	Match(properties []byte) bool
}

// ReadResult is what Read found. Reuse it: the array of Regions is kept.
type ReadResult struct {
	Status ReadStatus
	Next   record.QueueOffset // where to go on reading
	// Min and Max are the bounds of the queue at the time of the read.
	Min, Max record.QueueOffset
	// Regions are the stored records, adjacent ones as one region. The caller releases each.
	Regions  []zerocopy.Region
	Messages int
	Bytes    int
	// SuggestSlave says that the reader is so far behind that it reads from disk.
	SuggestSlave bool
	// Cold says that some of the bytes are not in the page cache. The regions are valid, but
	// sending them would wait for the disk: see Store.Warm.
	Cold bool
	// ColdUnits says that nothing was read, see ReadRequest.MemoryOnly.
	ColdUnits bool
	// Err says that the files could not be read. Nothing was found then.
	Err error
}

// run is a stretch of adjacent records that is being collected.
type run struct {
	at       record.PhysicalOffset
	size     int32
	messages int
}

// Read collects messages of a queue from an offset on, by the rules of RocketMQ's
// DefaultMessageStore.getMessage: at least one message when any matches, then as many as the limits
// allow. It returns regions of the log; without a Filter it never touches their bytes.
//
// It may be called from any goroutine and does not block with MemoryOnly; without it units of a queue that
// were not read for a long time come from disk. Cost: no allocation, one hold per stretch of adjacent
// records; where the log is old, one system call when all of it is in memory, else one per stretch.
func (s *Store) Read(req *ReadRequest, res *ReadResult) {
	res.Regions = res.Regions[:0]
	*res = ReadResult{Regions: res.Regions}
	if s.closed.Load() {
		res.Status, res.Next = OffsetFoundNull, req.From
		return
	}
	q := s.lookup(req.Topic, req.Queue)
	if q == nil {
		res.Status = NoMessageInQueue
		if req.Queue < 0 {
			res.Status = NoMatchedLogicQueue
		}
		return
	}
	defer s.readFaulted(debug.SetPanicOnFault(true), req, res)
	res.Min, res.Max = q.Low(), q.Max()
	switch from := req.From; {
	case res.Max == 0:
		res.Status, res.Next = NoMessageInQueue, 0
	case from < res.Min:
		res.Status, res.Next = OffsetTooSmall, res.Min
	case from == res.Max:
		res.Status, res.Next = OffsetOverflowOne, from
	case from > res.Max:
		res.Status, res.Next = OffsetOverflowBadly, res.Max
	default:
		if req.MemoryOnly && !q.InMemory(from, s.cfg.MaxFilterBytes/consumequeue.UnitSize) {
			res.ColdUnits, res.Next = true, from
			s.colds.units.Add(1)
			return
		}
		if q.Batch() {
			s.scanBatch(q, req, res)
		} else {
			s.scan(q, req, res)
		}
		s.gets.reads.Add(1)
		s.gets.messages.Add(int64(res.Messages))
		s.gets.bytes.Add(int64(res.Bytes))
	}
}

// scan walks the units of one file of the queue from req.From on.
func (s *Store) scan(q *consumequeue.Queue, req *ReadRequest, res *ReadResult) {
	units, ok := q.Units(req.From)
	if !ok {
		perFile := record.QueueOffset(q.UnitsPerFile())
		res.Status, res.Next = OffsetFoundNull, (req.From/perFile+1)*perFile
		return
	}
	defer units.Release()
	l := s.limits(req)
	res.Status, res.Next = NoMatchedMessage, req.From
	var r run
	var w window
	defer w.release()
	var first, pulling, skipTo record.PhysicalOffset
	for i := range units.Len() {
		u := units.At(i)
		if i*consumequeue.UnitSize >= l.scanBytes || l.full(res, u, 1) {
			break
		}
		res.Next = req.From + record.QueueOffset(i) + 1
		if u.Filler() || u.Size <= 0 {
			continue
		}
		pulling = u.At
		if u.At < skipTo || !tagMatches(u, req.TagCodes) {
			continue
		}
		if u.At < l.logMin {
			// The file is gone, and with it the records up to the next one.
			skipTo = u.At - u.At%l.segment + l.segment
			if res.Messages == 0 {
				res.Status = MessageWasRemoving
			}
			continue
		}
		if req.Filter != nil {
			if i%lookAhead == 0 {
				w.ahead(&units, i+lookAhead/2)
			}
			if !w.match(s.log, u, req.Filter) {
				continue
			}
		}
		if r.size > 0 && (u.At != r.at+record.PhysicalOffset(r.size) || r.size > maxRun-u.Size) {
			s.finish(&r, res)
		}
		if r.size == 0 {
			r.at = u.At
		}
		if res.Messages == 0 {
			first = u.At
		}
		r.size += u.Size
		r.messages++
		res.Messages++
		res.Bytes += int(u.Size)
		res.Status = Found
	}
	s.finish(&r, res)
	if req.Touch {
		for i := range res.Regions {
			touch(res.Regions[i].Mem)
		}
	}
	res.Cold = s.cold(first, pulling, res.Regions)
	res.SuggestSlave = l.end-pulling > s.inMemory
}

// maxRun bounds one region, so that its size is an int32 on its way.
const maxRun = 1 << 30

// finish turns a stretch into a region.
func (s *Store) finish(r *run, res *ReadResult) {
	if r.size == 0 {
		return
	}
	region, err := s.log.Region(r.at, r.size)
	if err != nil { // deleted since the scan began
		res.Messages -= r.messages
		res.Bytes -= int(r.size)
		if res.Messages == 0 {
			res.Status = MessageWasRemoving
		}
	} else {
		res.Regions = append(res.Regions, region)
	}
	*r = run{}
}

// limits are the bounds of one read, worked out once.
type limits struct {
	scanBytes            int // of units
	messages, bytes      int
	memBytes, memCount   int
	diskBytes, diskCount int
	inMemoryFrom         record.PhysicalOffset
	logMin, end          record.PhysicalOffset
	segment              record.PhysicalOffset
}

func (s *Store) limits(req *ReadRequest) limits {
	maxBytes := req.MaxBytes
	if maxBytes <= 0 {
		maxBytes = defaultReadBytes
	}
	end := s.log.Wrote()
	return limits{
		scanBytes: max(s.cfg.MaxFilterBytes, min(req.MaxMessages, 1<<24)*consumequeue.UnitSize),
		messages:  req.MaxMessages,
		bytes:     min(max(maxBytes, readBytesMin), defaultReadBytes),
		memBytes:  s.cfg.MaxTransferBytesInMemory, memCount: s.cfg.MaxTransferCountInMemory,
		diskBytes: s.cfg.MaxTransferBytesInDisk, diskCount: s.cfg.MaxTransferCountInDisk,
		inMemoryFrom: end - s.inMemory,
		logMin:       s.log.Min(), end: end,
		segment: record.PhysicalOffset(s.cfg.SegmentSize),
	}
}

// full reports whether u does not fit into the result any more. The first message always fits.
func (l *limits) full(res *ReadResult, u consumequeue.Unit, count int) bool {
	n, b, size := res.Messages, res.Bytes, int(u.Size)
	if n == 0 || b == 0 {
		return false
	}
	if b >= l.bytes || n+count > l.messages || b+size > l.bytes {
		return true
	}
	if u.At >= l.inMemoryFrom {
		return b+size > l.memBytes || n >= l.memCount
	}
	return b+size > l.diskBytes || n >= l.diskCount
}

// QueueBounds returns the bounds of a queue; ok is false when it never had a message.
func (s *Store) QueueBounds(
	topic []byte, queue int32,
) (minimum, maximum record.QueueOffset, ok bool) {
	q := s.lookup(topic, queue)
	if q == nil {
		return 0, 0, false
	}
	return q.Low(), q.Max(), true
}

// Unit returns the unit of one message; ok is false when the queue has none at the offset. In a batch
// queue all messages of a record have one.
func (s *Store) Unit(topic []byte, queue int32, at record.QueueOffset) (consumequeue.Unit, bool) {
	q := s.lookup(topic, queue)
	if q == nil || at < q.Low() {
		return consumequeue.Unit{}, false
	}
	defer overlooked(debug.SetPanicOnFault(true))
	if q.Batch() {
		position, ok := q.Find(at)
		if !ok {
			return consumequeue.Unit{}, false
		}
		u, ok := q.BatchUnit(position)
		return u.Unit, ok && u.Base <= at
	}
	return q.Unit(at)
}

// InMemory reports whether the record of a message is taken to be in memory, by its distance from
// the end of the log.
func (s *Store) InMemory(topic []byte, queue int32, at record.QueueOffset) bool {
	u, ok := s.Unit(topic, queue, at)
	return ok && s.log.Wrote()-u.At <= s.inMemory
}

// Hot reports whether what lies at a physical offset was written by this process and not long ago, so
// that it is in memory. It makes no system call.
func (s *Store) Hot(at record.PhysicalOffset) bool {
	return at >= max(s.hotFrom, s.log.Wrote()-s.hotBytes)
}

// RecordAt returns the record at a physical offset as a region, which the caller releases. The
// bytes are checked to be a record that says it lies there, so the offset may come from anywhere; all
// of them were readable. The error is ErrOutOfRange, or that of files that cannot be read.
func (s *Store) RecordAt(at record.PhysicalOffset) (region zerocopy.Region, err error) {
	head, err := s.log.Region(at, record.BlankSize)
	if err != nil {
		return zerocopy.Region{}, ErrOutOfRange
	}
	defer func() {
		head.Release()
		if err != nil && region.Holder != nil {
			region.Release()
			region = zerocopy.Region{}
		}
	}()
	defer faulted(debug.SetPanicOnFault(true), &err)
	size, blank, ok := record.PeekSize(head.Mem)
	if !ok || blank || size < record.MinSize {
		return zerocopy.Region{}, ErrOutOfRange
	}
	region, err = s.log.Region(at, size)
	if err != nil {
		return zerocopy.Region{}, ErrOutOfRange
	}
	v, err := record.Parse(region.Mem)
	if err != nil || v.PhysicalOffset() != at {
		return region, ErrOutOfRange
	}
	touch(region.Mem)
	return region, nil
}
