// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// cutKey takes topic@group apart.
func cutKey(key string) (topic, group string, ok bool) { return strings.Cut(key, "@") }

// Position is a place in a queue that a group can be moved to.
type Position struct {
	ms     int64 // -1: the end
	offset int64 // -1: not by offset
}

// AtEnd is behind the last message.
func AtEnd() Position { return Position{ms: -1, offset: -1} }

// AtStart is the first message.
func AtStart() Position { return Position{ms: 0, offset: -1} }

// AtTime is the first message that was stored at or after t.
func AtTime(t time.Time) Position { return Position{ms: max(t.UnixMilli(), 0), offset: -1} }

// AtOffset is one offset, for Reset.Queue.
func AtOffset(offset int64) Position { return Position{ms: 0, offset: offset} }

func (p Position) String() string {
	switch {
	case p.offset >= 0:
		return fmt.Sprintf("offset %d", p.offset)
	case p.ms < 0:
		return "the end"
	case p.ms == 0:
		return "the start"
	default:
		return time.UnixMilli(p.ms).Format(time.RFC3339Nano)
	}
}

// Reset says whose offsets are moved where.
type Reset struct {
	Group, Topic string
	To           Position
	// Queue is the only queue to move; nil: all of the topic. AtOffset needs it.
	Queue *client.Queue
	// BackOnly leaves queues alone that the group has not come so far in: nothing is skipped.
	BackOnly bool
}

// QueueOffset is where a queue continues.
type QueueOffset struct {
	Queue  client.Queue
	Offset int64
}

// ResetOffsets moves the offsets of a group in one topic, at each broker of the topic, whether
// members are online or not: brokers that keep resets themselves (RocketMQ 5) move both their table
// and the members, others tell the members, and where nobody is online this call stores the
// offsets. Brokers before RocketMQ 5 reset single queues only while nobody is online
// (client.ErrUnsupported). It returns where the queues continue, by broker and id; with a partial error, those that
// were moved. ErrNoGroup and client.ErrNoRoute for what does not exist.
func (a *Admin) ResetOffsets(ctx context.Context, r Reset) ([]QueueOffset, error) {
	op := fmt.Sprintf("reset group %s in topic %s to %s", r.Group, r.Topic, r.To)
	if r.Group == "" || r.Topic == "" {
		return nil, invalid(op, "group or topic is missing")
	}
	if r.To.offset >= 0 && r.Queue == nil {
		return nil, invalid(op, "an offset is that of one queue: set Queue")
	}
	if r.Queue != nil && (r.Queue.Topic != r.Topic || r.Queue.ID < 0) {
		return nil, invalid(op, "queue %s is none of the topic", r.Queue)
	}
	list, err := a.brokersOf(ctx, op, r.Topic)
	if err != nil {
		return nil, err
	}
	if r.Queue != nil {
		b, err := a.queueBroker(ctx, op, *r.Queue)
		if err != nil {
			return nil, err
		}
		list = []Broker{b}
	}
	answers, err := each(ctx, op, list, func(ctx context.Context, b Broker) ([]QueueOffset, error) {
		return a.resetAt(ctx, op, b, r)
	})
	var moved []QueueOffset
	for _, x := range answers {
		moved = append(moved, x.Value...)
	}
	slices.SortFunc(moved, func(a, b QueueOffset) int { return compareQueues(a.Queue, b.Queue) })
	return moved, err
}

// resetAt moves the queues of one broker.
func (a *Admin) resetAt(ctx context.Context, op string, b Broker, r Reset) ([]QueueOffset, error) {
	if r.BackOnly {
		return a.resetBack(ctx, op, b, r)
	}
	if r.Queue != nil {
		if alone, err := a.resetsQueue(ctx, op, b, r.Group); err != nil {
			return nil, err
		} else if !alone {
			return a.resetOffline(ctx, op, b, r)
		}
	}
	h := &protocol.ResetOffsetRequest{
		Topic: r.Topic, Group: r.Group, Timestamp: r.To.ms, Force: true, QueueID: -1, Offset: r.To.offset,
	}
	if r.Queue != nil {
		h.QueueID = int32(r.Queue.ID)
	}
	var body protocol.ResetOffsetBody
	err := a.askFor(ctx, op, b, remoting.InvokeBrokerToResetOffset, h, &body)
	if isOffline(err) {
		return a.resetOffline(ctx, op, b, r)
	}
	if err != nil {
		return nil, err
	}
	var moved []QueueOffset
	for q, offset := range body.OffsetTable {
		if q.BrokerName == "" {
			q.BrokerName = b.Name
		}
		moved = append(moved, QueueOffset{queueOf(q), offset})
	}
	return moved, nil
}

// sinceQueueResets is the version of RocketMQ 5.0.0. Brokers before it do not read the queue and the
// offset of a reset: they would move every queue of the topic, to the start.
const sinceQueueResets = 413

// resetsQueue reports whether a broker can reset a single queue. One that cannot leaves that to the
// caller as long as no member is online who would overwrite the offset; else it is an error.
func (a *Admin) resetsQueue(ctx context.Context, op string, b Broker, group string) (bool, error) {
	res, err := a.ask(ctx, op, b, remoting.GetConsumerConnectionList,
		&protocol.ConsumerConnectionRequest{Group: group}, nil)
	switch {
	case res != nil && res.Version >= sinceQueueResets:
		return true, nil
	case isOffline(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return false, &Error{
		Op: op, Err: fmt.Errorf("broker %s of version %s resets all queues of a topic or none: %w",
			b, versionText(res.Version), client.ErrUnsupported),
		Next: "stop the members of the group first, or reset the whole topic",
	}
}

// targets works out where queues of a broker would continue, with where the group is now.
func (a *Admin) targets(
	ctx context.Context, op string, b Broker, r Reset,
) (to, now map[client.Queue]int64, err error) {
	var s protocol.TopicStatsTable
	err = a.askFor(ctx, op, b, remoting.GetTopicStatsInfo, &protocol.TopicRequest{Topic: r.Topic}, &s)
	if err != nil {
		return nil, nil, err
	}
	var c protocol.ConsumeStats
	err = a.askFor(ctx, op, b, remoting.GetConsumeStats,
		&protocol.ConsumeStatsRequest{Group: r.Group, Topic: r.Topic}, &c)
	if err != nil {
		return nil, nil, err
	}
	to, now = map[client.Queue]int64{}, map[client.Queue]int64{}
	for q, bounds := range s.OffsetTable {
		key := queueOf(q)
		if r.Queue != nil && *r.Queue != key {
			continue
		}
		now[key] = bounds.MinOffset
		if at, ok := c.OffsetTable[q]; ok {
			now[key] = at.ConsumerOffset
		}
		to[key], err = a.target(ctx, op, b, key, r.To, bounds)
		if err != nil {
			return nil, nil, err
		}
	}
	return to, now, nil
}

func (a *Admin) target(
	ctx context.Context, op string, b Broker, q client.Queue, p Position, bounds protocol.TopicOffset,
) (int64, error) {
	switch {
	case p.offset >= 0:
		if p.offset < bounds.MinOffset || p.offset > bounds.MaxOffset {
			return 0, explain(op, fmt.Errorf("queue %s holds offsets %d to %d: %w",
				q, bounds.MinOffset, bounds.MaxOffset, client.ErrOffsetOutOfRange))
		}
		return p.offset, nil
	case p.ms < 0:
		return bounds.MaxOffset, nil
	case p.ms == 0:
		return bounds.MinOffset, nil
	}
	res, err := a.ask(ctx, op, b, remoting.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{
		Topic: q.Topic, QueueID: int32(q.ID), Timestamp: p.ms,
	}, nil)
	if err != nil {
		return 0, err
	}
	var o protocol.OffsetResponse
	err = o.Decode(res.Command)
	return max(o.Offset, 0), explain(op, err)
}

// resetOffline stores the offsets itself: nobody is online who would overwrite them.
func (a *Admin) resetOffline(
	ctx context.Context, op string, b Broker, r Reset,
) ([]QueueOffset, error) {
	to, now, err := a.targets(ctx, op, b, r)
	if err != nil {
		return nil, err
	}
	var moved []QueueOffset
	for q, offset := range to {
		if r.BackOnly && offset > now[q] {
			continue
		}
		_, err := a.ask(ctx, op, b, remoting.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
			Group: r.Group, Topic: q.Topic, QueueID: int32(q.ID), HasQueueID: true,
			CommitOffset: offset, HasOffset: true,
		}, nil)
		if err != nil {
			return moved, err
		}
		moved = append(moved, QueueOffset{q, offset})
	}
	slices.SortFunc(moved, func(a, b QueueOffset) int { return cmp.Compare(a.Queue.ID, b.Queue.ID) })
	return moved, nil
}

// resetBack moves only queues that go back, each by an offset of its own: what a broker of RocketMQ
// 5 does with isForce=false is to move them all.
func (a *Admin) resetBack(
	ctx context.Context, op string, b Broker, r Reset,
) ([]QueueOffset, error) {
	to, now, err := a.targets(ctx, op, b, r)
	if err != nil {
		return nil, err
	}
	var moved []QueueOffset
	for q, offset := range to {
		if offset >= now[q] {
			continue
		}
		one := Reset{Group: r.Group, Topic: r.Topic, To: AtOffset(offset), Queue: &q}
		m, err := a.resetAt(ctx, op, b, one)
		moved = append(moved, m...)
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}
