// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Properties that say where a dead letter came from. Brokers set the first two (RocketMQ's
// AbstractSendMessageProcessor.consumerSendMsgBack), proxies the others.
const (
	propRetryTopic = "RETRY_TOPIC"
	propOriginID   = "ORIGIN_MESSAGE_ID"
	propDLQTopic   = "DLQ_ORIGIN_TOPIC"
	propDLQID      = "DLQ_ORIGIN_MESSAGE_ID"
)

// letterBatch is how many dead letters are asked for at once; brokers give no more than 32.
const letterBatch = 32

// DeadLetterQuery says which dead letters of a group are meant: those that fit everything it sets.
type DeadLetterQuery struct {
	Group    string    // the consumer group (required)
	From     time.Time // became a dead letter at or after; zero: open
	To       time.Time // became a dead letter before; zero: until now
	Key      string    // one of its keys
	Tag      string
	Topic    string // it was first sent to
	OriginID string // offset id that it had there, or its unique id
	// Consumed in vain at least and at most so often; 0: open. What was given up at once counts 1.
	MinReconsumeTimes, MaxReconsumeTimes int
	Limit                                int // letters; 0: all
}

func (q *DeadLetterQuery) check(op string) error {
	switch {
	case q.Group == "":
		return invalid(op, "the group is empty")
	case q.Limit < 0:
		return invalid(op, "the limit %d is negative", q.Limit)
	case q.MinReconsumeTimes < 0 || q.MaxReconsumeTimes < 0 ||
		q.MaxReconsumeTimes > 0 && q.MinReconsumeTimes > q.MaxReconsumeTimes:
		return invalid(op, "reconsume times from %d to %d: none fits", q.MinReconsumeTimes,
			q.MaxReconsumeTimes)
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To):
		return invalid(op, "times from %s to %s: none fits", q.From, q.To)
	}
	return nil
}

// fits tells whether a letter is meant.
func (q *DeadLetterQuery) fits(l *DeadLetter) bool {
	return (q.From.IsZero() || !l.StoredAt.Before(q.From)) &&
		(q.To.IsZero() || l.StoredAt.Before(q.To)) &&
		(q.Key == "" || slices.Contains(l.Keys, q.Key)) && (q.Tag == "" || l.Tag == q.Tag) &&
		(q.Topic == "" || l.OriginTopic == q.Topic) &&
		(q.OriginID == "" || l.OriginID == q.OriginID || l.ID == q.OriginID) &&
		l.ReconsumeTimes >= q.MinReconsumeTimes &&
		(q.MaxReconsumeTimes == 0 || l.ReconsumeTimes <= q.MaxReconsumeTimes)
}

// DeadLetter is a message that a group could not handle. Its place, times and offset id are those
// in the dead-letter topic, its unique id, keys and properties those of the message.
type DeadLetter struct {
	Message

	OriginTopic    string // that it was first sent to; empty when the letter does not say
	OriginID       string // offset id that it had there
	ReconsumeTimes int    // how often it was consumed in vain

	stored record.View
}

func letterOf(m Message, v record.View) DeadLetter {
	l := DeadLetter{Message: m, ReconsumeTimes: m.Attempt - 1, stored: v}
	l.OriginTopic, l.OriginID = m.All[propRetryTopic], m.All[propOriginID]
	if l.OriginTopic == "" {
		l.OriginTopic = m.All[propDLQTopic]
	}
	if l.OriginID == "" {
		l.OriginID = m.All[propDLQID]
	}
	return l
}

// DeadLetters returns the dead letters of a group that were there when the call began, queue by
// queue, each queue from the oldest on. It reads them without consuming: no position of any group
// changes. Besides the letter in hand it holds at most 32.
//
// An error with a zero letter ends one queue, the others go on; ErrNotFound when the group has no
// dead letters at any broker, client.ErrPermission where the topic may not be read.
func (a *Admin) DeadLetters(
	ctx context.Context, q DeadLetterQuery,
) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		op := "dead letters of group " + q.Group
		queues, err := a.letterQueues(ctx, op, &q)
		if err != nil {
			yield(DeadLetter{}, err)
			return
		}
		left := q.Limit
		for _, lq := range queues {
			err := a.scan(ctx, op, lq, func(l *DeadLetter) error {
				if !q.fits(l) {
					return nil
				}
				if !yield(*l, nil) {
					return errEnough
				}
				if left--; left == 0 {
					return errEnough
				}
				return nil
			}, nil)
			if errors.Is(err, errEnough) || err != nil && !yield(DeadLetter{}, err) {
				return
			}
		}
	}
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

// letterQueue is the part of one dead-letter queue that a call reads.
type letterQueue struct {
	queue    client.Queue
	broker   Broker
	from, to int64 // offsets
}

// letterQueues finds the queues of the group's dead letters, and where in them to read. Where a
// queue ends is fixed here: a letter that is resent, fails and comes back is not met again.
func (a *Admin) letterQueues(
	ctx context.Context, op string, q *DeadLetterQuery,
) ([]letterQueue, error) {
	if err := q.check(op); err != nil {
		return nil, err
	}
	topic := protocol.DLQPrefix + q.Group
	route, err := a.TopicRoute(ctx, topic)
	if errors.Is(err, client.ErrNoRoute) {
		return nil, &Error{
			Op: op, Err: fmt.Errorf("there is no topic %s: %w", topic, ErrNotFound),
			Next: "the group has no dead letters, or is named otherwise",
		}
	}
	if err != nil {
		return nil, err
	}
	brokers := map[string]Broker{}
	for _, b := range route.Brokers {
		if x, ok := b.nearest(); ok {
			brokers[b.Name] = x
		}
	}
	var list []letterQueue
	for _, rq := range route.Queues {
		b, ok := brokers[rq.Broker]
		if !ok {
			continue
		}
		if rq.Perm&PermRead == 0 {
			return nil, &Error{
				Op:   op,
				Err:  fmt.Errorf("topic %s may not be read at %s: %w", topic, b, client.ErrPermission),
				Next: "RocketMQ before 4.9.5 made it so; give it permission 6 with UpdateTopic",
			}
		}
		for id := range max(rq.ReadQueues, rq.WriteQueues) {
			lq := letterQueue{
				queue: client.Queue{Topic: topic, Broker: b.Name, ID: id}, broker: b,
			}
			if lq.from, lq.to, err = a.letterRange(ctx, q, lq.queue); err != nil {
				return nil, err
			}
			list = append(list, lq)
		}
	}
	return list, nil
}

func (a *Admin) letterRange(
	ctx context.Context, q *DeadLetterQuery, at client.Queue,
) (from, to int64, err error) {
	if to, err = a.MaxOffset(ctx, at); err != nil {
		return 0, 0, err
	}
	if q.From.IsZero() {
		from, err = a.MinOffset(ctx, at)
	} else {
		from, err = a.OffsetAt(ctx, at, q.From)
	}
	return from, to, err
}

// scan hands each letter of a part of a queue to do, in order, and after each batch tells at, if
// there is one, which offset comes next. An error of either ends it.
func (a *Admin) scan(
	ctx context.Context, op string, lq letterQueue, do func(*DeadLetter) error,
	at func(next int64) error,
) error {
	for next := lq.from; next < lq.to; {
		body, after, err := a.pull(ctx, op, lq.broker, lq.queue, next, letterBatch)
		if err != nil {
			return err
		}
		for len(body) > 0 {
			v, err := record.Parse(body)
			if err != nil {
				err = fmt.Errorf("record in %s: %w: %w", lq.queue, client.ErrInvalidRecord, err)
				return explain(op, err)
			}
			body = body[v.TotalSize():]
			if o := int64(v.QueueOffset()); o < next || o >= lq.to {
				continue
			}
			m, err := messageOf(lq.queue.Broker, v.Bytes())
			if err != nil {
				return explain(op, fmt.Errorf("offset %d: %w", v.QueueOffset(), err))
			}
			l := letterOf(m, v)
			if err := do(&l); err != nil {
				return err
			}
		}
		if after <= next {
			return nil // the queue was made anew and is shorter than it was
		}
		next = after
		if at != nil {
			if err := at(min(next, lq.to)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullAgain is how often a broker may answer that the disk comes first.
const pullAgain = 20

// pull reads up to count records of a queue and returns them as they came, with the offset that
// comes after them. Without a record the offset moves to where there are some, if that is ahead.
func (a *Admin) pull(
	ctx context.Context, op string, b Broker, q client.Queue, offset int64, count int32,
) (body []byte, next int64, err error) {
	for again := 0; ; again++ {
		res, err := a.ask(ctx, op, b, remoting.PullMessage, &protocol.PullRequest{
			Group: []byte(protocol.ToolsConsumerGroup), Topic: []byte(q.Topic), QueueID: int32(q.ID),
			QueueOffset: offset, MaxMessages: count, SysFlag: protocol.PullSubscription,
			Subscription: []byte(protocol.SubscribeAll), ExpressionType: []byte(protocol.ExpressionTag),
			MaxBytes: -1, RequestSource: -1, BrokerName: []byte(q.Broker),
		}, nil)
		var be *client.BrokerError
		moved := false
		if errors.As(err, &be) {
			switch remoting.ResponseCode(be.Code) {
			case remoting.PullRetryImmediately:
				if again < pullAgain {
					continue
				}
			case remoting.PullNotFound, remoting.PullOffsetMoved:
				moved = true
			}
		}
		if err != nil && !moved {
			return nil, 0, err
		}
		var h protocol.PullResponse
		if err := h.Decode(res.Command); err != nil {
			return nil, 0, explain(op, err)
		}
		if moved {
			return nil, h.NextOffset, nil
		}
		return res.Body, h.NextOffset, nil
	}
}
