// SPDX-License-Identifier: Apache-2.0

// QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15), SEARCH_OFFSET_BY_TIMESTAMP (29),
// GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32),
// GET_ALL_CONSUMER_OFFSET (43) and GET_ALL_DELAY_OFFSET (45), after RocketMQ's
// ConsumerManageProcessor and AdminBrokerProcessor. Left out: static topics. As there, 29 to 32 do
// not ask whether topic and queue exist, and 15 stores for any queue id.

package processor

import (
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Offsets answers what consumers ask and tell about their positions.
type Offsets struct{ *Leaves }

// Register adds the request codes.
func (p *Offsets) Register(t Cold) {
	t[remoting.QueryConsumerOffset] = onHeader(
		func(_ *Caller, r *protocol.QueryConsumerOffsetRequest) Reply {
			return offsetReply(p.Query(r))
		})
	t[remoting.UpdateConsumerOffset] = onHeader(
		func(_ *Caller, r *protocol.UpdateConsumerOffsetRequest) Reply { return p.commitReply(r) })
	t[remoting.SearchOffsetByTimestamp] = onHeader(
		func(_ *Caller, r *protocol.SearchOffsetRequest) Reply {
			return offsetReply(p.Search(r), p.ordinary(r.Topic))
		})
	t[remoting.GetMaxOffset] = onHeader(func(_ *Caller, r *protocol.MaxOffsetRequest) Reply {
		_, end := p.bounds(r.Topic, r.QueueID)
		return offsetReply(end, p.ordinary(r.Topic))
	})
	t[remoting.GetMinOffset] = onHeader(func(_ *Caller, r *protocol.MinOffsetRequest) Reply {
		lowest, _ := p.bounds(r.Topic, r.QueueID)
		return offsetReply(lowest, p.ordinary(r.Topic))
	})
	t[remoting.GetEarliestMsgStoreTime] = onHeader(
		func(_ *Caller, r *protocol.EarliestStoreTimeRequest) Reply {
			if err := p.ordinary(r.Topic); err != nil {
				return Fail(err)
			}
			ms := p.Store.EarliestStoreTime([]byte(r.Topic), r.QueueID)
			return Reply{Header: &protocol.EarliestStoreTimeResponse{Timestamp: ms}}
		})
	t[remoting.GetAllConsumerOffset] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.MarshalFastJSON(p.All())}
	}
	t[remoting.GetAllDelayOffset] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.MarshalFastJSON(p.delays())}
	}
}

func (p *Offsets) commitReply(r *protocol.UpdateConsumerOffsetRequest) Reply {
	stored, err := p.Commit(r)
	reply := withEmptyFields(done(err))
	if err == nil && !stored {
		reply.Remark = "Offset has been previously reset"
	}
	return reply
}

// commitLight commits on an event loop: the file is written later, by the table.
func (p *Offsets) commitLight(cmd *remoting.Command) (Reply, bool) {
	var r protocol.UpdateConsumerOffsetRequest
	if err := r.Decode(cmd); err != nil {
		return Fail(err), true
	}
	return p.commitReply(&r), true
}

// queryLight answers on an event loop when the group has an offset; where it has none the store is
// asked.
func (p *Offsets) queryLight(cmd *remoting.Command) (Reply, bool) {
	var r protocol.QueryConsumerOffsetRequest
	if err := r.Decode(cmd); err != nil {
		return Fail(err), true
	}
	if err := p.ordinary(r.Topic); err != nil {
		return offsetReply(0, err), true
	}
	off, ok := p.Offsets.Query([]byte(r.Group), []byte(r.Topic), r.QueueID)
	return offsetReply(off, nil), ok
}

func offsetReply(off int64, err error) Reply {
	if err != nil {
		return withEmptyFields(Fail(err))
	}
	return Reply{Header: &protocol.OffsetResponse{Offset: off}}
}

// Query returns a group's offset of a queue. A group without one gets 0 on a young queue, whose
// first message is still there and in memory, unless FromLastStrict is set; otherwise code 22, and
// the client decides by its consume-from-where.
func (p *Offsets) Query(r *protocol.QueryConsumerOffsetRequest) (int64, error) {
	if err := p.ordinary(r.Topic); err != nil {
		return 0, err
	}
	topic := []byte(r.Topic)
	if off, ok := p.Offsets.Query([]byte(r.Group), topic, r.QueueID); ok {
		return off, nil
	}
	if r.SetZeroIfNotFound != nil && !*r.SetZeroIfNotFound {
		return 0, remoting.Errorf(remoting.QueryNotFound,
			"Not found, do not set to zero, maybe this group boot first")
	}
	lowest, end, ok := p.Store.QueueBounds(topic, r.QueueID)
	if ok && lowest <= 0 && end > 0 && !p.FromLastStrict && p.Store.InMemory(topic, r.QueueID, 0) {
		return 0, nil
	}
	return 0, remoting.Errorf(remoting.QueryNotFound,
		"Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

// Commit stores a group's offset. The group must be known, it is not created; so must the topic.
// stored is false while a reset is pending, which the next pull takes.
func (p *Offsets) Commit(r *protocol.UpdateConsumerOffsetRequest) (stored bool, err error) {
	topic := []byte(r.Topic)
	if _, ok := p.Groups.Find(r.Group); !ok {
		return false, remoting.Errorf(remoting.SubscriptionGroupNotExist,
			"Group %s not exist!", r.Group)
	}
	if _, ok := p.Topics.Find(r.Topic); !ok {
		return false, remoting.Errorf(remoting.TopicNotExist, "Topic %s not exist!", r.Topic)
	}
	if err := p.ordinary(r.Topic); err != nil {
		return false, err
	}
	if !r.HasQueueID {
		return false, remoting.Errorf(remoting.InvalidParameter,
			"QueueId is null, topic is %s", r.Topic)
	}
	if !r.HasOffset {
		return false, remoting.Errorf(remoting.InvalidParameter,
			"Offset is null, topic is %s", r.Topic)
	}
	stored = p.Offsets.Commit([]byte(r.Group), topic, r.QueueID, r.CommitOffset)
	if _, ok := p.Topics.Find(r.Topic); !ok {
		// Deleted meanwhile: the offset must not outlive the topic, or a topic that is made anew
		// under the name would begin behind its end.
		p.Offsets.RemoveTopic(r.Topic)
		return false, remoting.Errorf(remoting.TopicNotExist, "Topic %s not exist!", r.Topic)
	}
	return stored, nil
}

// Search returns the first offset at or after a time, or with boundary UPPER the last at or before.
func (p *Offsets) Search(r *protocol.SearchOffsetRequest) int64 {
	upper := r.Boundary == protocol.BoundaryUpper
	return int64(p.Store.OffsetByTime([]byte(r.Topic), r.QueueID, r.Timestamp, upper))
}

// delays returns the positions of the delay levels.
func (p *Offsets) delays() protocol.DelayOffsetWrapper {
	if p.DelayOffsets != nil {
		return p.DelayOffsets()
	}
	version := protocol.DataVersion{Timestamp: p.BootTime.UnixMilli()}
	return protocol.DelayOffsetWrapper{DataVersion: &version, OffsetTable: map[int32]int64{}}
}

// All returns the offset table in the form of its file.
func (p *Offsets) All() protocol.ConsumerOffsetWrapper {
	offsets, pulled := p.Offsets.Snapshot()
	version := p.Offsets.Version()
	topics := map[string][]string{}
	for name := range offsets {
		topic, group, _ := strings.Cut(name, "@")
		topics[group] = append(topics[group], topic)
	}
	return protocol.ConsumerOffsetWrapper{
		DataVersion: &version, GroupTopicMap: topics, OffsetTable: offsets, PullOffsetTable: pulled,
	}
}
