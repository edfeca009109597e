// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// topicsAtOnce is how many topics one request makes.
const topicsAtOnce = 500

// makeTopic makes one topic, as mqadmin updateTopic does.
func (l *lab) makeTopic(ctx context.Context, name string, queues int) error {
	c, err := l.pool.Conn(ctx, l.broker.Addr)
	if err != nil {
		return err
	}
	return l.call(ctx, c, remoting.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
		Topic: name, ReadQueueNums: int32(queues), WriteQueueNums: int32(queues),
		Perm: protocol.PermRead | protocol.PermWrite, TopicFilterType: protocol.SingleTag,
	}, nil)
}

// makeTopics makes topics PREFIX-0, PREFIX-1 and so on.
func (l *lab) makeTopics(ctx context.Context, prefix string, n, queues int) error {
	c, err := l.pool.Conn(ctx, l.broker.Addr)
	if err != nil {
		return err
	}
	for from := 0; from < n; from += topicsAtOnce {
		var list protocol.TopicConfigList
		for i := from; i < min(from+topicsAtOnce, n); i++ {
			list.TopicConfigList = append(list.TopicConfigList, &protocol.TopicConfig{
				TopicName: fmt.Sprintf("%s-%d", prefix, i), ReadQueueNums: int32(queues),
				WriteQueueNums: int32(queues), Perm: protocol.PermRead | protocol.PermWrite,
				TopicFilterType: protocol.SingleTag,
			})
		}
		body := protocol.Marshal(list)
		if err := l.call(ctx, c, remoting.UpdateAndCreateTopicList, nil, body); err != nil {
			return err
		}
	}
	return nil
}

// fillQueues sends one message to each queue.
func (l *lab) fillQueues(ctx context.Context, prefix string, topics, queues int) error {
	c, err := l.pool.Conn(ctx, l.broker.Addr)
	if err != nil {
		return err
	}
	w := newWindow()
	for t := range topics {
		for q := range queues {
			if err := w.send(ctx, c, fmt.Sprintf("%s-%d", prefix, t), q); err != nil {
				return err
			}
		}
	}
	return w.drain(ctx)
}

// producers holds n connections that have sent one heartbeat each.
func (l *lab) producers(ctx context.Context, n int) ([]*invoke.Conn, error) {
	var conns []*invoke.Conn
	for i := range n {
		c, err := l.pool.Dial(ctx, l.broker.Addr)
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
		if err := l.call(ctx, c, remoting.HeartBeat, nil, producerBeat(i)); err != nil {
			return nil, fmt.Errorf("heartbeat %d: %w", i, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// producerBeat is the body of the heartbeat of an idle producer.
func producerBeat(i int) []byte {
	return protocol.Marshal(protocol.HeartbeatData{
		ClientID:        fmt.Sprintf("idle@%d", i),
		ProducerDataSet: []protocol.ProducerData{{GroupName: "idle"}},
	})
}

func groupName(i int) string { return fmt.Sprintf("group-%d", i) }

// consumers has n groups subscribe to the reference topic, by a client each, and commit a position
// in each of its queues.
func (l *lab) consumers(ctx context.Context, n int) error {
	sub, err := protocol.ParseSubscription(referenceTopic, "*", "")
	if err != nil {
		return err
	}
	sub.SubVersion = time.Now().UnixMilli()
	for i := range n {
		c, err := l.pool.Dial(ctx, l.broker.Addr)
		if err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		group := groupName(i)
		body := protocol.Marshal(protocol.HeartbeatData{
			ClientID: fmt.Sprintf("consumer@%d", i),
			ConsumerDataSet: []protocol.ConsumerData{{
				GroupName: group, ConsumeType: "CONSUME_PASSIVELY", MessageModel: "CLUSTERING",
				ConsumeFromWhere:    protocol.ConsumeFromLastOffset,
				SubscriptionDataSet: []protocol.SubscriptionData{sub},
			}},
		})
		if err := l.call(ctx, c, remoting.HeartBeat, nil, body); err != nil {
			return fmt.Errorf("heartbeat of group %d: %w", i, err)
		}
		for q := range int32(8) {
			if err := l.call(ctx, c, remoting.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
				Group: group, Topic: referenceTopic, QueueID: q, HasQueueID: true, HasOffset: true,
			}, nil); err != nil {
				return fmt.Errorf("position of group %d: %w", i, err)
			}
		}
	}
	return nil
}
