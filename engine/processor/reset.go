// SPDX-License-Identifier: Apache-2.0

// INVOKE_BROKER_TO_RESET_OFFSET (222), QUERY_CORRECTION_OFFSET (308) and CLONE_GROUP_OFFSET (314),
// after RocketMQ's AdminBrokerProcessor and Broker2Client. Where the reference deletes the groups
// of a filter list from the live table (308) they are only left out here, and 314 copies each topic
// where the reference copies the header's topic once per topic.

package processor

import (
	"math"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Resets answers an operator who moves the positions of groups.
type Resets struct{ *Leaves }

// Register adds the request codes.
func (p *Resets) Register(t Cold) {
	t[remoting.InvokeBrokerToResetOffset] = onHeader(
		func(c *Caller, r *protocol.ResetOffsetRequest) Reply {
			return jsonReply(p.Reset(c, r))
		})
	t[remoting.QueryCorrectionOffset] = onHeader(
		func(_ *Caller, r *protocol.QueryCorrectionOffsetRequest) Reply {
			return Reply{Body: protocol.MarshalFastJSON(p.Correction(r))}
		})
	t[remoting.CloneGroupOffset] = onHeader(
		func(_ *Caller, r *protocol.CloneGroupOffsetRequest) Reply { return done(p.Clone(r)) })
}

// noOffset stands for an absent offset in a reset request.
const noOffset = -1

// Reset moves a group on a topic to an offset or to a point in time, on one queue or on all.
func (p *Resets) Reset(
	c *Caller, r *protocol.ResetOffsetRequest,
) (body protocol.ResetOffsetBody, err error) {
	topic, ok := p.Topics.Find(r.Topic)
	if !ok {
		return body, remoting.Errorf(remoting.TopicNotExist, "Topic %s does not exist", r.Topic)
	}
	if _, ok := p.Groups.Find(r.Group); !ok {
		return body, remoting.Errorf(remoting.SubscriptionGroupNotExist,
			"Group %s does not exist", r.Group)
	}
	if p.ClientReset {
		return p.resetClients(c, r, topic)
	}
	queues := []int32{r.QueueID}
	if r.QueueID < 0 {
		queues = queues[:0]
		for id := range topic.ReadQueueNums {
			queues = append(queues, id)
		}
	}
	body.OffsetTable = make(map[protocol.MessageQueue]int64, len(queues))
	for _, id := range queues {
		target, err := p.target(r, id)
		if err != nil {
			return protocol.ResetOffsetBody{}, err
		}
		body.OffsetTable[p.queue(r.Topic, id)] = target
	}
	for q, target := range body.OffsetTable {
		p.Offsets.Reset([]byte(r.Group), []byte(r.Topic), q.QueueID, target)
	}
	if p.OffsetsReset != nil {
		p.OffsetsReset(r.Topic)
	}
	// What an operator is told to be done survives a death, unlike what consumers commit.
	return body, p.Offsets.Persist()
}

// target is where a reset moves one queue: the offset asked for, if one queue is named, or the
// offset of a time, or the end.
func (p *Resets) target(r *protocol.ResetOffsetRequest, id int32) (int64, error) {
	lowest, end := p.bounds(r.Topic, id)
	if r.QueueID >= 0 && r.Offset != noOffset {
		if r.Offset < lowest || r.Offset > end+1 {
			return 0, remoting.Errorf(remoting.SystemError,
				"Target offset %d not in consume queue range [%d-%d]", r.Offset, lowest, end)
		}
		return r.Offset, nil
	}
	if r.Timestamp < 0 {
		return end, nil
	}
	return max(0, int64(p.Store.OffsetByTime([]byte(r.Topic), id, r.Timestamp, false))), nil
}

// resetClients tells the group's online clients where to go on, and keeps nothing here.
func (p *Resets) resetClients(
	c *Caller, r *protocol.ResetOffsetRequest, topic *protocol.TopicConfig,
) (body protocol.ResetOffsetBody, err error) {
	body.OffsetTable = make(map[protocol.MessageQueue]int64, topic.WriteQueueNums)
	for id := range topic.WriteQueueNums {
		now, ok := p.Offsets.Query([]byte(r.Group), []byte(r.Topic), id)
		if !ok {
			return protocol.ResetOffsetBody{}, remoting.Errorf(remoting.SystemError,
				"THe consumer group <%s> not exist", r.Group)
		}
		_, target := p.bounds(r.Topic, id)
		if r.Timestamp >= 0 {
			target = int64(p.Store.OffsetByTime([]byte(r.Topic), id, r.Timestamp, false))
		}
		target = max(0, target)
		if !r.Force {
			target = min(target, now)
		}
		body.OffsetTable[p.queue(r.Topic, id)] = target
	}
	clients := p.Members.Consumers(r.Group)
	if len(clients) == 0 {
		return protocol.ResetOffsetBody{}, remoting.Errorf(remoting.ConsumerNotOnline,
			"Consumer not online, so can not reset offset, Group: %s Topic: %s Timestamp: %d",
			r.Group, r.Topic, r.Timestamp)
	}
	push := protocol.Marshal(body)
	if c.Language == remoting.LanguageCPP {
		push = protocol.Marshal(listOf(body))
	}
	for _, client := range clients {
		if client.Version < versionResetable {
			return protocol.ResetOffsetBody{}, remoting.Errorf(remoting.SystemError,
				"the client does not support this feature. version=%d", client.Version)
		}
	}
	for _, client := range clients {
		p.Clients.Oneway(client.Channel, remoting.ResetConsumerClientOffset, r, push)
	}
	return body, nil
}

// versionResetable is V3_0_7_SNAPSHOT, the first that understands a reset.
const versionResetable = 28

func listOf(body protocol.ResetOffsetBody) protocol.ResetOffsetBodyForC {
	list := protocol.ResetOffsetBodyForC{OffsetTable: []protocol.MessageQueueForC{}}
	for q, off := range body.OffsetTable {
		list.OffsetTable = append(list.OffsetTable, protocol.MessageQueueForC{
			BrokerName: q.BrokerName, Offset: off, QueueID: q.QueueID, Topic: q.Topic,
		})
	}
	return list
}

// Correction returns for each queue of a topic the lowest offset of all groups, not below the
// queue's own lowest, or the greatest number where that is beyond the compared group's offset.
func (p *Resets) Correction(
	r *protocol.QueryCorrectionOffsetRequest,
) protocol.QueryCorrectionOffsetBody {
	skipped := map[string]bool{}
	for name := range strings.SplitSeq(r.FilterGroups, ",") {
		skipped[strings.TrimSpace(name)] = true
	}
	lowest := map[int32]int64{}
	for _, group := range p.Offsets.Groups(r.Topic) {
		if skipped[group] {
			continue
		}
		for queue, off := range p.Offsets.Queues(group, r.Topic) {
			floor, _ := p.bounds(r.Topic, queue)
			if off < floor {
				continue
			}
			if have, ok := lowest[queue]; !ok || off < have {
				lowest[queue] = off
			}
		}
	}
	if r.CompareGroup != "" {
		for queue, off := range p.Offsets.Queues(r.CompareGroup, r.Topic) {
			if have, ok := lowest[queue]; ok && have > off {
				lowest[queue] = math.MaxInt64
			}
		}
	}
	return protocol.QueryCorrectionOffsetBody{CorrectionOffsets: lowest}
}

// Clone gives a group the positions of another, on one topic or on all that the other has. Topics
// that the other no longer subscribes are left out, unless the request says to take it as offline.
func (p *Resets) Clone(r *protocol.CloneGroupOffsetRequest) error {
	topics := []string{r.Topic}
	if r.Topic == "" {
		topics = p.Offsets.Topics(r.SrcGroup)
	}
	for _, topic := range topics {
		if _, ok := p.Topics.Find(topic); !ok {
			continue
		}
		if !r.Offline && !p.subscribes(r.SrcGroup, topic) {
			continue
		}
		p.Offsets.Clone(r.SrcGroup, r.DestGroup, topic)
	}
	return p.Offsets.Persist()
}

// subscribes tells whether a topic counts as one the group reads: it subscribes it now, or it is
// not online and its offsets are all there is to go by.
func (p *Leaves) subscribes(group, topic string) bool {
	s, state := p.Members.Subscription([]byte(group), []byte(topic))
	return s != nil || !state.Online
}
