// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// StartReason says why a consumer begins a queue where it does.
type StartReason int

const (
	// StartCommitted says that the group has an offset and goes on there.
	StartCommitted StartReason = iota
	// StartYoung says that the group has none, and that the broker answers 0 because the queue's first message is
	// still there and in its memory. Consumers take that for an offset of theirs, also those that
	// want to begin at the end. consumeFromLastStrict=true of a Skylark broker turns it off.
	StartYoung
	// StartByClient says that the group has none, and that the consumer's own setting decides: the end, the
	// beginning or a time.
	StartByClient
)

// QueueStart is where a group that begins now would begin a queue.
type QueueStart struct {
	Queue    client.Queue
	Min, Max int64 // first offset there is, and the next to be written
	Reason   StartReason
	Offset   int64 // -1 with StartByClient
}

// StartOffsets tells, for each readable queue of a topic, where a push consumer of the group would
// begin if it started now (RocketMQ ConsumerManageProcessor.queryConsumerOffset and
// RebalancePushImpl.computePullFromWhere). The answer for a young queue changes with time: once the
// first message is deleted or no longer in memory, the consumer's own setting decides.
func (a *Admin) StartOffsets(ctx context.Context, group, topic string) ([]QueueStart, error) {
	if group == "" {
		return nil, invalid("start offsets", "the group has no name")
	}
	route, err := a.TopicRoute(ctx, topic)
	if err != nil {
		return nil, err
	}
	var list []QueueStart
	for _, r := range route.Queues {
		if r.Perm&PermRead == 0 {
			continue
		}
		for id := range r.ReadQueues {
			s, err := a.startOffset(ctx, group, client.Queue{Topic: topic, Broker: r.Broker, ID: id})
			if err != nil {
				return list, err
			}
			list = append(list, s)
		}
	}
	return list, nil
}

func (a *Admin) startOffset(
	ctx context.Context, group string, q client.Queue,
) (s QueueStart, err error) {
	s.Queue = q
	if s.Min, err = a.MinOffset(ctx, q); err != nil {
		return s, err
	}
	if s.Max, err = a.MaxOffset(ctx, q); err != nil {
		return s, err
	}
	s.Offset, err = a.Offset(ctx, group, q)
	if !errors.Is(err, ErrNotFound) {
		return s, err
	}
	// As a push consumer asks: without saying whether 0 will do for none.
	s.Reason = StartYoung
	s.Offset, err = a.askOffset(ctx, fmt.Sprintf("start of group %s in queue %s", group, q), q,
		remoting.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
			Group: group, Topic: q.Topic, QueueID: int32(q.ID),
		})
	if errors.Is(err, ErrNotFound) {
		s.Reason, s.Offset, err = StartByClient, -1, nil
	}
	return s, err
}
