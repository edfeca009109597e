// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Message is a stored message with all that a broker keeps about it.
type Message struct {
	client.Received

	All       map[string]string // every property, RocketMQ's own too
	SysFlag   int32             // compression, transaction and address family
	Flag      int32             // as the producer set it
	LogOffset int64             // bytes; where the record lies in the broker's log
	StoreSize int               // bytes of the record
	BodyCRC   uint32            // CRC-32 of the stored body, lower 31 bits
	HalfAt    int64             // where the half message of a transaction lies in its queue
}

func messageOf(broker string, b []byte) (Message, error) {
	v, err := record.Parse(b)
	if err != nil {
		return Message{}, fmt.Errorf("record of %s: %w: %w", broker, client.ErrInvalidRecord, err)
	}
	r, err := client.ParseStored(broker, b)
	if err != nil {
		return Message{}, err
	}
	m := Message{
		Received: *r, All: map[string]string{}, SysFlag: v.SysFlag(), Flag: v.Flag(),
		LogOffset: int64(v.PhysicalOffset()), StoreSize: int(v.TotalSize()),
		BodyCRC: uint32(v.BodyCRC()), HalfAt: v.PreparedOffset(),
	}
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		m.All[string(name)] = string(value)
		return true
	})
	return m, nil
}

// messagesOf reads records that lie one behind the other.
func messagesOf(op, broker string, body []byte) ([]Message, error) {
	var list []Message
	for len(body) > 0 {
		v, err := record.Parse(body)
		if err != nil {
			err = fmt.Errorf("answer of %s: %w: %w", broker, client.ErrInvalidRecord, err)
			return list, explain(op, err)
		}
		m, err := messageOf(broker, body[:v.TotalSize()])
		if err != nil {
			return list, explain(op, err)
		}
		list = append(list, m)
		body = body[v.TotalSize():]
	}
	return list, nil
}

// MessageByOffsetID returns the message at the place that its offset id names. ErrNotFound when
// there is none, ErrNoBroker when no name server knows the address in the id (see WithAnyAddress).
func (a *Admin) MessageByOffsetID(ctx context.Context, id string) (Message, error) {
	op := "message " + id
	b, at, err := a.brokerOfID(ctx, op, id)
	if err != nil {
		return Message{}, err
	}
	res, err := a.ask(ctx, op, b, remoting.ViewMessageByID,
		&protocol.ViewMessageRequest{Offset: int64(at)}, nil)
	var be *client.BrokerError
	if errors.As(err, &be) && be.Code == int(remoting.SystemError) {
		err = &Error{
			Op: op, Err: fmt.Errorf("%w: %w", ErrNotFound, be),
			Next: "the message has expired, or the id is of another broker at this address",
		}
	}
	if err != nil {
		return Message{}, err
	}
	m, err := messageOf(b.Name, res.Body)
	return m, explain(op, err)
}

// brokerOfID finds the broker that an offset id names, and the place in its log.
func (a *Admin) brokerOfID(
	ctx context.Context, op, id string,
) (Broker, record.PhysicalOffset, error) {
	host, at, err := record.ParseOffsetID(id)
	if err != nil {
		return Broker{}, 0, invalid(op, "%w", err)
	}
	b := a.brokerAt(ctx, host.String())
	if b.Name == "" && !a.cfg.anyAddr {
		return Broker{}, 0, &Error{
			Op: op, Err: fmt.Errorf("the id names %s: %w", host, ErrNoBroker),
			Next: "no name server knows a broker at that address; is it a unique id? then use MessageByID",
		}
	}
	return b, at, nil
}

// RecheckHalf has a broker ask again about the half message of a transaction that it has given up
// asking about; topic is the one it is meant for, offsetID that of the half message.
func (a *Admin) RecheckHalf(ctx context.Context, topic, offsetID string) error {
	op := "check half message " + offsetID + " again"
	b, _, err := a.brokerOfID(ctx, op, offsetID)
	if err != nil {
		return err
	}
	_, err = a.ask(ctx, op, b, remoting.ResumeCheckHalfMessage,
		&protocol.ResumeCheckHalfRequest{Topic: topic, MsgID: offsetID}, nil)
	return err
}

// MessageByID returns the message with a unique id: the one that SendResult.ID and Received.ID
// have. Of several, for example redeliveries, it is the last one stored. ErrNotFound when there is
// none.
func (a *Admin) MessageByID(ctx context.Context, topic, id string) (Message, error) {
	list, err := a.MessagesByID(ctx, topic, id)
	if len(list) == 0 {
		return Message{}, err
	}
	return list[len(list)-1], nil
}

// MessagesByID returns all messages with a unique id, by the time they were stored; at most 32 of
// each broker. ErrNotFound when there is none. With an error that is partial, those found
// elsewhere.
func (a *Admin) MessagesByID(ctx context.Context, topic, id string) ([]Message, error) {
	op := fmt.Sprintf("messages %s of topic %s", id, topic)
	return a.query(ctx, op, &protocol.QueryMessageRequest{
		Topic: topic, Key: id, MaxNum: 32, EndTimestamp: math.MaxInt64, UniqueKeyQuery: true,
		IndexType: "U",
	}, func(m *Message) bool { return m.ID == id })
}

// KeyQuery narrows MessagesByKey. The zero value is all times and 64 messages of each broker.
type KeyQuery struct {
	From, To time.Time // store time; zero: open
	Max      int       // messages of each broker; 0: 64, as RocketMQ's mqadmin
}

// MessagesByKey returns the messages of a topic that have a key, by the time they were stored.
// ErrNotFound when there is none. With an error that is partial, those found elsewhere.
func (a *Admin) MessagesByKey(
	ctx context.Context, topic, key string, q KeyQuery,
) ([]Message, error) {
	op := fmt.Sprintf("messages with key %s of topic %s", key, topic)
	h := &protocol.QueryMessageRequest{
		Topic: topic, Key: key, MaxNum: int32(cmp.Or(q.Max, 64)), EndTimestamp: math.MaxInt64,
		IndexType: "K",
	}
	if key == "" || q.Max < 0 {
		return nil, invalid(op, "key %q, at most %d", key, q.Max)
	}
	if !q.From.IsZero() {
		h.BeginTimestamp = q.From.UnixMilli()
	}
	if !q.To.IsZero() {
		h.EndTimestamp = q.To.UnixMilli()
	}
	// Indexes hold hashes, which collide: only the keys themselves tell.
	return a.query(ctx, op, h, func(m *Message) bool { return slices.Contains(m.Keys, key) })
}

// query asks every broker of a topic and keeps what is wanted.
func (a *Admin) query(
	ctx context.Context, op string, h *protocol.QueryMessageRequest, want func(*Message) bool,
) ([]Message, error) {
	list, err := a.brokersOf(ctx, op, h.Topic)
	if err != nil {
		return nil, err
	}
	answers, err := each(ctx, op, list, func(ctx context.Context, b Broker) ([]Message, error) {
		res, err := a.ask(ctx, op, b, remoting.QueryMessage, h, nil)
		if err != nil {
			return nil, err
		}
		return messagesOf(op, b.Name, res.Body)
	})
	answers, err = except(op, answers, err, ErrNotFound)
	var found []Message
	for _, x := range answers {
		for _, m := range x.Value {
			if m.Source.Topic == h.Topic && want(&m) {
				found = append(found, m)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Message) int { return a.StoredAt.Compare(b.StoredAt) })
	if len(found) == 0 && err == nil {
		err = &Error{Op: op, Err: ErrNotFound, Next: nextNoMessage}
	}
	return found, err
}

// MessageAt returns the message at an offset of a queue. ErrNotFound when there is none.
func (a *Admin) MessageAt(ctx context.Context, q client.Queue, offset int64) (Message, error) {
	op := fmt.Sprintf("message %d of queue %s", offset, q)
	b, err := a.queueBroker(ctx, op, q)
	if err != nil {
		return Message{}, err
	}
	res, err := a.ask(ctx, op, b, remoting.PullMessage, &protocol.PullRequest{
		Group: []byte(protocol.ToolsConsumerGroup), Topic: []byte(q.Topic), QueueID: int32(q.ID),
		QueueOffset: offset, MaxMessages: 1, SysFlag: protocol.PullSubscription,
		Subscription: []byte(protocol.SubscribeAll), ExpressionType: []byte(protocol.ExpressionTag),
		RequestSource: -1, BrokerName: []byte(q.Broker),
	}, nil)
	var be *client.BrokerError
	if errors.As(err, &be) {
		switch remoting.ResponseCode(be.Code) {
		case remoting.PullNotFound, remoting.PullOffsetMoved, remoting.PullRetryImmediately:
			err = &Error{
				Op: op, Err: fmt.Errorf("%w: %w", ErrNotFound, be),
				Next: "TopicStatus says which offsets the queue holds",
			}
		}
	}
	if err != nil {
		return Message{}, err
	}
	list, err := messagesOf(op, b.Name, res.Body)
	if err == nil && (len(list) == 0 || list[0].Offset != offset) {
		err = &Error{Op: op, Err: ErrNotFound, Next: "TopicStatus says which offsets the queue holds"}
	}
	if err != nil {
		return Message{}, err
	}
	return list[0], nil
}

// QueueEntry is one entry of a queue's index file, which points at a message.
type QueueEntry struct {
	Offset     int64  // in the queue
	LogOffset  int64  // bytes
	Size       int    // bytes of the record
	TagsCode   int64  // hash of the tag, or when a delayed message is due
	Properties string // as the broker prints them; may be empty
}

// QueueEntries returns up to count entries of a queue's index from an offset on.
func (a *Admin) QueueEntries(
	ctx context.Context, q client.Queue, from int64, count int,
) ([]QueueEntry, error) {
	op := fmt.Sprintf("entries of queue %s from %d", q, from)
	if from < 0 || count < 1 {
		return nil, invalid(op, "offset %d, count %d", from, count)
	}
	b, err := a.queueBroker(ctx, op, q)
	if err != nil {
		return nil, err
	}
	var body protocol.QueryConsumeQueueBody
	err = a.askFor(ctx, op, b, remoting.QueryConsumeQueue, &protocol.QueryConsumeQueueRequest{
		Topic: q.Topic, QueueID: int32(q.ID), Index: from, Count: int32(count),
	}, &body)
	if err != nil {
		return nil, err
	}
	var list []QueueEntry
	for i, d := range body.QueueData {
		list = append(list, QueueEntry{
			Offset: from + int64(i), LogOffset: d.PhysicOffset, Size: int(d.PhysicSize),
			TagsCode: d.TagsCode, Properties: d.Msg,
		})
	}
	return list, nil
}
