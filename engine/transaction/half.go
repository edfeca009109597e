// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"bytes"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/record"
)

// Names of properties (RocketMQ MessageConst).
const (
	propTransactionID = "__transactionId__"
	propRealTopic     = "REAL_TOPIC"
	propRealQueue     = "REAL_QID"
	propGroup         = "PGROUP"
	propTags          = "TAGS"
	propUniqueKey     = "UNIQ_KEY"
	propCheckTimes    = "TRANSACTION_CHECK_TIMES"
	propImmunity      = "CHECK_IMMUNITY_TIME_IN_SECONDS"
	propPreparedAt    = "TRAN_PREPARED_QUEUE_OFFSET"

	// propMoved marks an op record whose half messages were not ended but copied to the end of their
	// queue; on a copy it is the offset of what was copied. RocketMQ ignores it: for its check both
	// kinds of op record mean that this copy is settled.
	propMoved = "TRAN_MOVED"
)

// CopyRoom is how many bytes of properties a half message must have left for what its copies get: the
// number of its checks and the offset of the copy before.
const CopyRoom = 80

// opTag is the tag of op records (RocketMQ TransactionalMessageUtil.REMOVE_TAG).
const opTag = "d"

// AppendHalf adds to dst what makes a message with these properties a half message: its transaction
// id, and where it shall go. The properties must end with their separator.
func AppendHalf(dst, uniqueKey []byte, topic string, queue int32) []byte {
	dst = record.AppendProperty(dst, propTransactionID, uniqueKey)
	dst = record.AppendProperty(dst, propRealTopic, topic)
	dst = append(dst, propRealQueue...)
	dst = append(dst, 1)
	dst = strconv.AppendInt(dst, int64(queue), 10)
	return append(dst, 2)
}

// half is a half message as it lies in the log. It aliases the record.
type half struct {
	view    record.View
	offset  int64  // in the queue of half messages
	unique  []byte // UNIQ_KEY
	group   []byte
	topic   []byte // where it shall go
	queue   int32
	times   int   // checks so far
	counted bool  // times is present: an earlier copy was checked
	movedAt int64 // the copy this one was made of by this broker; -1: none
	preAt   int64 // the copy this one was made of by RocketMQ for its immunity time; -1: none

	immunity    time.Duration
	hasImmunity bool
}

// parseHalf reads a record. ok is false when it is no half message.
func parseHalf(b []byte, timeOut time.Duration) (h half, ok bool) {
	v, err := record.Parse(b)
	if err != nil || string(v.Topic()) != protocol.HalfTopic {
		return half{}, false
	}
	h = half{view: v, offset: int64(v.QueueOffset()), preAt: -1, movedAt: -1, queue: -1}
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		switch string(name) {
		case propGroup:
			h.group = value
		case propUniqueKey:
			h.unique = value
		case propRealTopic:
			h.topic = value
		case propRealQueue:
			if n, err := strconv.ParseInt(string(value), 10, 32); err == nil {
				h.queue = int32(n)
			}
		case propCheckTimes:
			if n, err := strconv.Atoi(string(value)); err == nil && n > 0 {
				h.times, h.counted = n, true
			}
		case propImmunity:
			h.immunity, h.hasImmunity = immunity(value, timeOut), true
		case propMoved:
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && n >= 0 {
				h.movedAt = n
			}
		case propPreparedAt:
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && n >= 0 {
				h.preAt = n
			}
		}
		return true
	})
	return h, true
}

// immunityMax bounds an immunity time; more seconds than it holds count as it.
const immunityMax = 365 * 24 * time.Hour

// immunity reads seconds as RocketMQ does: -1, and what is no number, means the time-out.
func immunity(text []byte, timeOut time.Duration) time.Duration {
	seconds, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || seconds == -1 {
		return timeOut
	}
	return time.Duration(min(max(seconds, 0), int64(immunityMax/time.Second))) * time.Second
}

// dueMS is when a half message is to be checked. Store times are this broker's own clock; a
// producer's clock may be wrong, so it is believed only where RocketMQ's rule is about it, and never
// beyond the store time.
func (h *half) dueMS(timeOut, interval time.Duration) int64 {
	stored := h.view.StoreMS()
	switch {
	case h.hasImmunity && !h.counted, h.hasImmunity && h.preAt >= 0:
		return min(h.view.BornMS(), stored) + h.immunity.Milliseconds()
	case h.counted:
		return stored + interval.Milliseconds()
	default:
		return stored + timeOut.Milliseconds()
	}
}

// overImmunity tells whether an end that is no answer to a check comes too late: RocketMQ then waits
// for the check (EndTransactionProcessor.rejectCommitOrRollback).
func (h *half) overImmunity(nowMS int64, timeOut time.Duration) bool {
	return h.hasImmunity && nowMS-h.view.BornMS() > max(h.immunity, timeOut).Milliseconds()
}

// committed is the message that a commit delivers. It aliases the half message.
func (h *half) committed() record.Draft {
	d := h.view.Draft()
	d.Topic, d.QueueID = h.topic, h.queue
	d.SysFlag = d.SysFlag&^record.SysTransactionMask | record.SysCommit
	d.PreparedOffset = int64(h.view.PhysicalOffset())
	d.Properties = record.DeleteProperty(nil, d.Properties, propRealTopic, propRealQueue, propMoved,
		record.PropertyCRC32)
	d.TagsCode = tagsCode(d.Properties)
	return d
}

// renewed is the half message as it is stored again, with its number of checks, but without the mark of
// a copy. Its properties are appended to scratch.
func (h *half) renewed(scratch []byte, times int) (grown []byte, d record.Draft) {
	d = h.view.Draft()
	start := len(scratch)
	if times == h.times {
		scratch = record.DeleteProperty(scratch, d.Properties, record.PropertyCRC32, propMoved)
	} else {
		scratch = record.DeleteProperty(scratch, d.Properties, record.PropertyCRC32, propMoved, propCheckTimes)
		scratch = record.AppendProperty(scratch, propCheckTimes, strconv.Itoa(times))
	}
	d.Properties = scratch[start:len(scratch):len(scratch)]
	d.TagsCode = tagsCode(d.Properties)
	return scratch, d
}

func tagsCode(props []byte) int64 {
	tags, _ := record.Property(props, propTags)
	return record.TagsCode(tags)
}

// eachOffset reads the body of an op record: half queue offsets with commas between or behind them,
// or a single one as brokers before 5.0 wrote it.
func eachOffset(body []byte, do func(offset int64)) {
	for text := range bytes.SplitSeq(body, []byte(",")) {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && n >= 0 {
			do(n)
		}
	}
}
