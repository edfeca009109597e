// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// queueBroker finds the process that serves a queue: the master, else a slave.
func (a *Admin) queueBroker(ctx context.Context, op string, q client.Queue) (Broker, error) {
	route, err := a.TopicRoute(ctx, q.Topic)
	if err != nil {
		return Broker{}, err
	}
	for _, b := range route.Brokers {
		if b.Name != q.Broker {
			continue
		}
		if x, ok := b.nearest(); ok {
			return x, nil
		}
	}
	err = fmt.Errorf("broker %s serves no queue of topic %s: %w", q.Broker, q.Topic, ErrNoBroker)
	return Broker{}, &Error{Op: op, Err: err, Next: "TopicRoute lists the brokers of the topic"}
}

// Offset returns the offset that a group continues a queue from. ErrNotFound when it has none.
func (a *Admin) Offset(ctx context.Context, group string, q client.Queue) (int64, error) {
	zero := false
	return a.askOffset(ctx, fmt.Sprintf("offset of group %s in queue %s", group, q), q,
		remoting.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
			Group: group, Topic: q.Topic, QueueID: int32(q.ID), SetZeroIfNotFound: &zero,
		})
}

// alreadyReset is how a broker says that it drops a commit, in an answer of success: an operator
// has reset the queue and no member has taken note yet.
const alreadyReset = "Offset has been previously reset"

// SetOffset stores the offset that a group continues a queue from, also over an earlier reset.
// Members that hold the queue overwrite it with their next commit; ResetOffsets moves those too.
func (a *Admin) SetOffset(ctx context.Context, group string, q client.Queue, offset int64) error {
	op := fmt.Sprintf("set offset of group %s in queue %s to %d", group, q, offset)
	if offset < 0 {
		return invalid(op, "the offset is negative")
	}
	b, err := a.queueBroker(ctx, op, q)
	if err != nil {
		return err
	}
	res, err := a.ask(ctx, op, b, remoting.UpdateConsumerOffset,
		&protocol.UpdateConsumerOffsetRequest{
			Group: group, Topic: q.Topic, QueueID: int32(q.ID), HasQueueID: true,
			CommitOffset: offset, HasOffset: true,
		}, nil)
	if err == nil && res.Remark == alreadyReset {
		r := Reset{Group: group, Topic: q.Topic, To: AtOffset(offset), Queue: &q}
		_, err = a.resetAt(ctx, op, b, r)
	}
	return err
}

// MinOffset returns the offset of a queue's first message.
func (a *Admin) MinOffset(ctx context.Context, q client.Queue) (int64, error) {
	return a.askOffset(ctx, "first offset of queue "+q.String(), q, remoting.GetMinOffset,
		&protocol.MinOffsetRequest{Topic: q.Topic, QueueID: int32(q.ID)})
}

// MaxOffset returns the offset of a queue's next message.
func (a *Admin) MaxOffset(ctx context.Context, q client.Queue) (int64, error) {
	return a.askOffset(ctx, "end of queue "+q.String(), q, remoting.GetMaxOffset,
		&protocol.MaxOffsetRequest{Topic: q.Topic, QueueID: int32(q.ID)})
}

// OffsetAt returns the offset of a queue's first message that was stored at or after t, its end
// when there is none.
func (a *Admin) OffsetAt(ctx context.Context, q client.Queue, t time.Time) (int64, error) {
	return a.askOffset(ctx, fmt.Sprintf("offset of queue %s at %s", q, t.Format(time.RFC3339)), q,
		remoting.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{
			Topic: q.Topic, QueueID: int32(q.ID), Timestamp: t.UnixMilli(),
		})
}

func (a *Admin) askOffset(
	ctx context.Context, op string, q client.Queue, code remoting.RequestCode, h remoting.Header,
) (int64, error) {
	b, err := a.queueBroker(ctx, op, q)
	if err != nil {
		return 0, err
	}
	res, err := a.ask(ctx, op, b, code, h, nil)
	if err != nil {
		return 0, err
	}
	var o protocol.OffsetResponse
	if err := o.Decode(res.Command); err != nil {
		return 0, explain(op, err)
	}
	return o.Offset, nil
}

// EarliestTime returns when a queue's first message was stored; zero when it is empty.
func (a *Admin) EarliestTime(ctx context.Context, q client.Queue) (time.Time, error) {
	op := "time of the first message of queue " + q.String()
	b, err := a.queueBroker(ctx, op, q)
	if err != nil {
		return time.Time{}, err
	}
	res, err := a.ask(ctx, op, b, remoting.GetEarliestMsgStoreTime, &protocol.EarliestStoreTimeRequest{
		Topic: q.Topic, QueueID: int32(q.ID),
	}, nil)
	if err != nil {
		return time.Time{}, err
	}
	var h protocol.EarliestStoreTimeResponse
	if err := h.Decode(res.Command); err != nil {
		return time.Time{}, explain(op, err)
	}
	return timeOf(h.Timestamp), nil
}

// CloneOffsets gives group to the offsets of group from, in one topic or in all when topic is
// empty, at every broker. Unless offline is set, topics that from's members do not subscribe to are
// left out.
func (a *Admin) CloneOffsets(
	ctx context.Context, from, to, topic string, offline bool,
) ([]Done, error) {
	op := fmt.Sprintf("clone offsets of group %s to group %s", from, to)
	if from == "" || to == "" || from == to {
		return nil, invalid(op, "two different groups are needed")
	}
	return a.tell(ctx, op, Everywhere(), remoting.CloneGroupOffset, &protocol.CloneGroupOffsetRequest{
		SrcGroup: from, DestGroup: to, Topic: topic, Offline: offline,
	}, nil)
}

// CommittedOffsets returns all offsets that a group has committed, as Progress does, without asking
// how far the queues are.
func (a *Admin) CommittedOffsets(
	ctx context.Context, group string,
) (map[client.Queue]int64, error) {
	op := "offsets of group " + group
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) (w protocol.ConsumerOffsetWrapper, err error) {
			err = a.askFor(ctx, op, b, remoting.GetAllConsumerOffset, nil, &w)
			return w, err
		})
	offsets := map[client.Queue]int64{}
	for _, x := range answers {
		for key, queues := range x.Value.OffsetTable {
			topic, g, ok := cutKey(key)
			if !ok || g != group {
				continue
			}
			for id, offset := range queues {
				offsets[client.Queue{Topic: topic, Broker: x.Broker.Name, ID: int(id)}] = offset
			}
		}
	}
	return offsets, err
}

// isOffline reports whether an error says that nobody of the group is connected.
func isOffline(err error) bool { return errors.Is(err, ErrNotOnline) }
