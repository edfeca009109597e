// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strconv"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// appendInner stores an inner batch: its record as it is, with the queue offset of its first message
// in the property INNER_BASE (RocketMQ BatchConsumeQueue.assignQueueOffset).
func (s *Store) appendInner(e *Entry, now int64) error {
	d := &e.Draft
	if d.SysFlag&record.SysTransactionMask == record.SysPrepared {
		return illegal(-1, "an inner batch cannot be half of a transaction")
	}
	count, err := innerCount(d.Properties)
	if err != nil {
		return err
	}
	q, err := s.queueFor(d, 1)
	if err != nil {
		return err
	}
	if !q.Batch() {
		return illegal(-1, "it is an inner batch, and the queues of its topic are no batch queues")
	}
	given := d.Properties
	defer func() { d.Properties = given }()
	s.inner = record.DeleteProperty(s.inner[:0], given, record.PropertyInnerBase)
	s.inner = record.AppendProperty(s.inner, record.PropertyInnerBase, strconv.FormatInt(int64(q.Next()), 10))
	d.Properties = s.inner
	if err := s.check(d, -1); err != nil {
		return err
	}
	if err := s.measure(e); err != nil {
		return err
	}
	return s.write(e, q, count, now)
}

// innerCount returns how many queue offsets an inner batch takes: INNER_NUM, or one.
func innerCount(props []byte) (int16, error) {
	text, ok := record.Property(props, record.PropertyInnerNum)
	if !ok {
		return 1, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 16)
	if err != nil || n <= 0 {
		return 0, illegal(-1, "property %s is %.20q, a record can hold 1 to %d messages", record.PropertyInnerNum,
			text, consumequeue.MaxBatchCount)
	}
	return int16(n), nil
}

// scanBatch is scan for a batch queue: it counts messages, and passes on whole records. The first one
// may begin before the offset that was asked for; the consumer leaves out what it has.
func (s *Store) scanBatch(q *consumequeue.Queue, req *ReadRequest, res *ReadResult) {
	res.Status, res.Next = OffsetFoundNull, req.From
	first, ok := q.Find(req.From)
	if !ok {
		return
	}
	units, ok := q.Units(first)
	if !ok {
		return
	}
	defer units.Release()
	l := s.limits(req)
	l.scanBytes = max(s.cfg.MaxFilterBytes, min(req.MaxMessages, 1<<24)*consumequeue.BatchUnitSize)
	c := collector{s: s, req: req, res: res, limits: &l}
	defer c.window.release()
	res.Status = NoMatchedMessage
	for i := range units.Len() {
		u := units.Batch(i)
		far := int64(u.Base-req.From) * consumequeue.BatchUnitSize
		if far >= int64(l.scanBytes) || l.full(res, u.Unit, int(u.Count)) {
			break
		}
		res.Next = u.Behind()
		c.add(u)
	}
	s.finish(&c.run, res)
	if req.Touch {
		for i := range res.Regions {
			touch(res.Regions[i].Mem)
		}
	}
	res.Cold = s.cold(c.first, c.pulling, res.Regions)
	res.SuggestSlave = l.end-c.pulling > s.inMemory
}

// collector gathers the records of a read of a batch queue.
type collector struct {
	s      *Store
	req    *ReadRequest
	res    *ReadResult
	limits *limits
	run    run
	window window

	first, pulling, skipTo record.PhysicalOffset
}

// add takes a record if it matches and the log has it.
func (c *collector) add(u consumequeue.BatchUnit) {
	c.pulling = u.At
	if u.At < c.skipTo || !tagMatches(u.Unit, c.req.TagCodes) {
		return
	}
	if u.At < c.limits.logMin {
		c.skipTo = u.At - u.At%c.limits.segment + c.limits.segment
		if c.res.Messages == 0 {
			c.res.Status = MessageWasRemoving
		}
		return
	}
	if c.req.Filter != nil && !c.window.match(c.s.log, u.Unit, c.req.Filter) {
		return
	}
	r := &c.run
	if r.size > 0 && (u.At != r.at+record.PhysicalOffset(r.size) || r.size > maxRun-u.Size) {
		c.s.finish(r, c.res)
	}
	if r.size == 0 {
		r.at = u.At
	}
	if c.res.Messages == 0 {
		c.first = u.At
	}
	r.size += u.Size
	r.messages += int(u.Count)
	c.res.Messages += int(u.Count)
	c.res.Bytes += int(u.Size)
	c.res.Status = Found
}

// batchByTime is OffsetByTime for a batch queue, by the store times that its units have (RocketMQ
// BatchConsumeQueue.getOffsetInQueueByTime): the first record stored at or after ms, or the last one
// when all are older. With upper it is the last record stored at or before ms.
func batchByTime(q *consumequeue.Queue, ms int64, upper bool) record.QueueOffset {
	position, ok := q.SearchBatch(func(u consumequeue.BatchUnit) bool {
		return u.StoreMS > ms || u.StoreMS == ms && !upper
	})
	if !ok {
		return q.Low()
	}
	if upper || position == q.End() {
		position--
	}
	u, ok := q.BatchUnit(max(position, q.Min()))
	if !ok {
		return q.Low() // an empty queue
	}
	return u.Base
}
