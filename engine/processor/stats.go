// SPDX-License-Identifier: Apache-2.0

// GET_TOPIC_STATS_INFO (202), GET_CONSUME_STATS (208), QUERY_CONSUME_TIME_SPAN (303),
// VIEW_BROKER_STATS_DATA (315), GET_BROKER_CONSUME_STATS (317) and QUERY_CONSUME_QUEUE (321), after
// RocketMQ's AdminBrokerProcessor. A committed offset beyond the end of its queue is shown as the
// end: the reference shows it as it is, which makes a lag negative.

package processor

import (
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Statistics answers what tools ask about topics and groups.
type Statistics struct{ *Leaves }

// Register adds the request codes.
func (p *Statistics) Register(t Cold) {
	t[remoting.GetTopicStatsInfo] = onHeader(
		func(_ *Caller, r *protocol.TopicRequest) Reply { return jsonReply(p.Topic(r.Topic)) })
	t[remoting.GetConsumeStats] = onHeader(
		func(_ *Caller, r *protocol.ConsumeStatsRequest) Reply {
			return Reply{Body: protocol.Marshal(p.Group(r))}
		})
	t[remoting.QueryConsumeTimeSpan] = onHeader(
		func(_ *Caller, r *protocol.ConsumeTimeSpanRequest) Reply { return jsonReply(p.Span(r)) })
	t[remoting.ViewBrokerStatsData] = onHeader(
		func(_ *Caller, r *protocol.BrokerStatsRequest) Reply { return jsonReply(p.View(r)) })
	t[remoting.GetBrokerConsumeStats] = onHeader(
		func(_ *Caller, r *protocol.BrokerConsumeStatsRequest) Reply {
			return Reply{Body: protocol.Marshal(p.Broker(r))}
		})
	t[remoting.QueryConsumeQueue] = onHeader(
		func(_ *Caller, r *protocol.QueryConsumeQueueRequest) Reply {
			reply := jsonReply(p.Units(r))
			if reply.Code == remoting.Success && reply.Remark == "" {
				reply.Remark = notSet
			}
			return reply
		})
}

// Topic returns the bounds of a topic's queues and the time of their last messages.
func (p *Statistics) Topic(name string) (table protocol.TopicStatsTable, err error) {
	c, err := p.topicConfig(name)
	if err != nil {
		return table, err
	}
	table.OffsetTable = map[protocol.MessageQueue]protocol.TopicOffset{}
	for id := range max(c.WriteQueueNums, c.ReadQueueNums) {
		lowest, end := p.bounds(name, id)
		table.OffsetTable[p.queue(name, id)] = protocol.TopicOffset{
			MinOffset: lowest, MaxOffset: end, LastUpdateTimestamp: p.lastStored(name, id, end),
		}
	}
	table.TopicPutTPS = p.Stats.TopicPutTPS(name)
	return table, nil
}

// lastStored is the store time of the message before an offset, 0 when there is none.
func (p *Statistics) lastStored(topic string, id int32, before int64) int64 {
	if before <= 0 {
		return 0
	}
	return max(0, p.Store.StoreTimeAt([]byte(topic), id, record.QueueOffset(before-1)))
}

// Group returns how far a group has read the named topics, or all it has offsets of. Topics that do
// not exist are left out, and so are those that the group, being online, no longer subscribes,
// unless a list names them.
func (p *Statistics) Group(r *protocol.ConsumeStatsRequest) protocol.ConsumeStats {
	topics, listed := p.Offsets.Topics(r.Group), false
	switch {
	case r.TopicList != "":
		topics, listed = strings.Split(r.TopicList, ";"), true
	case r.Topic != "":
		topics = []string{r.Topic}
	}
	total := protocol.ConsumeStats{
		OffsetTable: map[protocol.MessageQueue]protocol.OffsetWrapper{},
	}
	for _, name := range topics {
		c, ok := p.Topics.Find(name)
		if !ok || !listed && !p.subscribes(r.Group, name) {
			continue
		}
		for id := range c.ReadQueueNums {
			total.OffsetTable[p.queue(name, id)] = p.position(r.Group, name, id, true)
		}
		total.ConsumeTPS += p.Stats.GroupGetTPS(r.Group, name)
	}
	return total
}

// position is a group's place in one queue. withPulled adds what it has fetched and not committed.
func (p *Statistics) position(
	group, topic string, id int32, withPulled bool,
) (w protocol.OffsetWrapper) {
	_, w.BrokerOffset = p.bounds(topic, id)
	off, _ := p.Offsets.Query([]byte(group), []byte(topic), id)
	w.ConsumerOffset = min(max(off, 0), w.BrokerOffset)
	w.LastTimestamp = p.lastStored(topic, id, w.ConsumerOffset)
	if withPulled {
		pulled, _ := p.Offsets.Pulled([]byte(group), []byte(topic), id)
		w.PullOffset = max(w.ConsumerOffset, min(pulled, w.BrokerOffset))
	}
	return w
}

// Broker returns Group for every group of this broker, with the sum of all lags. As in the
// reference the queues are those that are written to, and nothing is said of pulled messages.
func (p *Statistics) Broker(r *protocol.BrokerConsumeStatsRequest) protocol.ConsumeStatsList {
	list := protocol.ConsumeStatsList{
		BrokerAddr: p.BrokerAddr, ConsumeStatsList: []map[string][]protocol.ConsumeStats{},
	}
	for _, name := range p.Groups.Names() {
		perTopic := []protocol.ConsumeStats{}
		for _, topic := range p.Offsets.Topics(name) {
			c, ok := p.Topics.Find(topic)
			if !ok || r.Order && !c.Order || !p.subscribes(name, topic) {
				continue
			}
			one := protocol.ConsumeStats{
				ConsumeTPS:  p.Stats.GroupGetTPS(name, topic),
				OffsetTable: map[protocol.MessageQueue]protocol.OffsetWrapper{},
			}
			for id := range c.WriteQueueNums {
				w := p.position(name, topic, id, false)
				one.OffsetTable[p.queue(topic, id)] = w
				list.TotalDiff += w.BrokerOffset - w.ConsumerOffset
			}
			perTopic = append(perTopic, one)
		}
		list.ConsumeStatsList = append(list.ConsumeStatsList,
			map[string][]protocol.ConsumeStats{name: perTopic})
	}
	return list
}

// Span returns for each queue of a topic the times of its first and last message and of the last
// one that a group consumed, and how long the next one has been waiting.
func (p *Statistics) Span(
	r *protocol.ConsumeTimeSpanRequest,
) (body protocol.ConsumeTimeSpanBody, err error) {
	c, err := p.topicConfig(r.Topic)
	if err != nil {
		return body, err
	}
	body.ConsumeTimeSpanSet = []protocol.QueueTimeSpan{}
	topic := []byte(r.Topic)
	for id := range c.WriteQueueNums {
		queue := p.queue(r.Topic, id)
		span := protocol.QueueTimeSpan{
			MessageQueue: &queue, MinTimeStamp: p.Store.EarliestStoreTime(topic, id), MaxTimeStamp: -1,
		}
		_, end := p.bounds(r.Topic, id)
		if end > 0 {
			span.MaxTimeStamp = p.Store.StoreTimeAt(topic, id, record.QueueOffset(end-1))
		}
		off, _ := p.Offsets.Query([]byte(r.Group), topic, id)
		off = min(off, end)
		span.ConsumeTimeStamp = span.MinTimeStamp
		if off > 0 {
			span.ConsumeTimeStamp = p.Store.StoreTimeAt(topic, id, record.QueueOffset(off-1))
		}
		if off = max(off, 0); off < end {
			next := p.Store.StoreTimeAt(topic, id, record.QueueOffset(off))
			span.DelayTime = max(0, p.Now().UnixMilli()-next)
		}
		span.MinTimeStampStr = displayTime(span.MinTimeStamp)
		span.MaxTimeStampStr = displayTime(span.MaxTimeStamp)
		span.ConsumeTimeStampStr = displayTime(span.ConsumeTimeStamp)
		body.ConsumeTimeSpanSet = append(body.ConsumeTimeSpanSet, span)
	}
	return body, nil
}

// displayTime is RocketMQ's UtilAll.formatDate of a time span.
func displayTime(ms int64) string {
	text := time.UnixMilli(ms).Format("2006-01-02#15:04:05.000")
	return strings.Replace(text, ".", ":", 1)
}

// View returns one statistic by its name and key.
func (p *Statistics) View(r *protocol.BrokerStatsRequest) (protocol.BrokerStatsData, error) {
	data, ok := p.Stats.View(r.StatsName, r.StatsKey)
	if !ok {
		return data, remoting.Errorf(remoting.SystemError,
			"The stats <%s> <%s> not exist", r.StatsName, r.StatsKey)
	}
	return data, nil
}

// unitsMax bounds one answer of QUERY_CONSUME_QUEUE.
const unitsMax = 1024

// Units returns entries of a queue as they are on disk.
func (p *Statistics) Units(
	r *protocol.QueryConsumeQueueRequest,
) (body protocol.QueryConsumeQueueBody, err error) {
	topic := []byte(r.Topic)
	lowest, end, ok := p.Store.QueueBounds(topic, r.QueueID)
	if !ok {
		if _, known := p.Topics.Find(r.Topic); !known {
			return body, remoting.Errorf(remoting.SystemError,
				"%d@%s is not exist!", r.QueueID, r.Topic)
		}
	}
	if r.Index < 0 || r.Index >= int64(end) {
		// RocketMQ says so and calls it a success.
		return body, remoting.Errorf(remoting.Success,
			"Index %d of %d@%s is not exist!", r.Index, r.QueueID, r.Topic)
	}
	body.MinQueueIndex, body.MaxQueueIndex = int64(lowest), int64(end)
	body.QueueData = []protocol.ConsumeQueueData{}
	var codes []int32
	if r.Group != "" {
		if s, ok := p.Members.Find(r.Group, r.Topic); ok {
			body.SubscriptionData, codes = &s.Data, s.Codes
		}
	}
	at := max(record.QueueOffset(r.Index), lowest)
	for n := int32(0); n < min(r.Count, unitsMax) && at < end; n++ {
		unit, ok := p.Store.Unit(topic, r.QueueID, at)
		if !ok {
			break
		}
		body.QueueData = append(body.QueueData, protocol.ConsumeQueueData{
			Eval:         body.SubscriptionData != nil && matches(codes, unit.TagsCode),
			PhysicOffset: int64(unit.At), PhysicSize: unit.Size, TagsCode: unit.TagsCode,
		})
		at++
	}
	return body, nil
}

func matches(codes []int32, tagsCode int64) bool {
	if codes == nil {
		return true
	}
	for _, code := range codes {
		if int64(code) == tagsCode {
			return true
		}
	}
	return false
}
