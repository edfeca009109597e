// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// received has the names of the Java driver.
type received struct {
	Topic          string            `json:"topic"`
	Broker         string            `json:"broker"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	CommitOffset   int64             `json:"commitLogOffset"`
	MsgID          string            `json:"msgId"`
	OffsetMsgID    string            `json:"offsetMsgId"`
	Tags           string            `json:"tags"`
	Keys           string            `json:"keys"`
	Flag           int32             `json:"flag"`
	SysFlag        int32             `json:"sysFlag"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	BornTimestamp  int64             `json:"bornTimestamp"`
	StoreTimestamp int64             `json:"storeTimestamp"`
	BornHost       string            `json:"bornHost"`
	StoreHost      string            `json:"storeHost"`
	BodyCRC        int32             `json:"bodyCRC"`
	StoreSize      int32             `json:"storeSize"`
	Properties     map[string]string `json:"properties"`
	BodySize       int               `json:"bodySize"`
	BodySHA256     string            `json:"bodySha256"`
	Body           string            `json:"body,omitempty"`
}

func receive(m *primitive.MessageExt) received {
	hash := sha256.Sum256(m.Body)
	r := received{
		Topic: m.Topic, QueueOffset: m.QueueOffset, CommitOffset: m.CommitLogOffset, MsgID: m.MsgId,
		OffsetMsgID: m.OffsetMsgId, Tags: m.GetTags(), Keys: m.GetKeys(), Flag: m.Flag, SysFlag: m.SysFlag,
		ReconsumeTimes: m.ReconsumeTimes, BornTimestamp: m.BornTimestamp, StoreTimestamp: m.StoreTimestamp,
		BornHost: m.BornHost, StoreHost: m.StoreHost, BodyCRC: m.BodyCRC, StoreSize: m.StoreSize,
		Properties: m.GetProperties(), BodySize: len(m.Body), BodySHA256: hex.EncodeToString(hash[:]),
	}
	if m.Queue != nil {
		r.Broker, r.QueueID = m.Queue.BrokerName, m.Queue.QueueId
	}
	if len(m.Body) <= 4096 {
		r.Body = string(m.Body)
	}
	return r
}

// running is a push consumer with what its handler got.
type running struct {
	consumer rocketmq.PushConsumer

	mu    sync.Mutex
	got   []received
	calls map[string]int
	more  chan struct{} // closed and replaced when something came
}

func (r *running) handle(failures int, refused consumer.ConsumeResult) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		result := consumer.ConsumeSuccess
		for _, m := range messages {
			r.got = append(r.got, receive(m))
			r.calls[m.MsgId]++
			if r.calls[m.MsgId] <= failures {
				result = refused
			}
		}
		close(r.more)
		r.more = make(chan struct{})
		return result, nil
	}
}

func (r *running) await(count int, limit time.Duration) []received {
	deadline := time.After(limit)
	for {
		r.mu.Lock()
		got, more := append([]received{}, r.got...), r.more
		r.mu.Unlock()
		if len(got) >= count {
			return got
		}
		select {
		case <-more:
		case <-deadline:
			return got
		}
	}
}

func registerPush(ops map[string]operation) {
	var known handles[*running]
	ops["push.start"] = func(a arguments) (any, error) {
		opts := []consumer.Option{
			consumer.WithNameServer([]string{a.NameServer}), consumer.WithGroupName(a.Group),
			consumer.WithInstance(a.Instance), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
			consumer.WithConsumerOrder(a.Orderly), consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
		}
		refused := consumer.ConsumeRetryLater
		if a.Orderly {
			refused = consumer.SuspendCurrentQueueAMoment
		}
		if a.MaxReconsume > 0 {
			opts = append(opts, consumer.WithMaxReconsumeTimes(a.MaxReconsume))
		}
		if a.Broadcast {
			opts = append(opts, consumer.WithConsumerModel(consumer.BroadCasting))
		}
		c, err := rocketmq.NewPushConsumer(opts...)
		if err != nil {
			return nil, err
		}
		r := &running{consumer: c, calls: map[string]int{}, more: make(chan struct{})}
		sel := consumer.MessageSelector{}
		if a.Expression != "" {
			sel = consumer.MessageSelector{Type: consumer.TAG, Expression: a.Expression}
		}
		if a.SQL != "" {
			sel = consumer.MessageSelector{Type: consumer.SQL92, Expression: a.SQL}
		}
		if err := c.Subscribe(a.Topic, sel, r.handle(a.Failures, refused)); err != nil {
			return nil, err
		}
		return known.add(r), c.Start()
	}
	ops["push.await"] = func(a arguments) (any, error) {
		r, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		if a.TimeoutMS == 0 {
			a.TimeoutMS = 20_000
		}
		return r.await(max(a.Count, 1), time.Duration(a.TimeoutMS)*time.Millisecond), nil
	}
	ops["push.stop"] = func(a arguments) (any, error) {
		r, err := known.remove(a.Handle)
		if err != nil {
			return nil, err
		}
		return nil, r.consumer.Shutdown()
	}
}

func registerPull(ops map[string]operation) {
	var known handles[rocketmq.PullConsumer]
	ops["pull.start"] = func(a arguments) (any, error) {
		c, err := rocketmq.NewPullConsumer(consumer.WithNameServer([]string{a.NameServer}), consumer.WithGroupName(a.Group),
			consumer.WithInstance(a.Instance), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		if err != nil {
			return nil, err
		}
		sel := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
		if err := c.Subscribe(a.Topic, sel); err != nil {
			return nil, err
		}
		return known.add(c), c.Start()
	}
	// Polls and acknowledges until count messages came or the time is over.
	ops["pull.poll"] = func(a arguments) (any, error) {
		c, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		out := []received{}
		deadline := time.Now().Add(time.Duration(a.TimeoutMS) * time.Millisecond)
		for len(out) < a.Count && time.Now().Before(deadline) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			r, err := c.Poll(ctx, time.Second)
			if err == nil {
				for _, m := range r.GetMsgList() {
					out = append(out, receive(m))
				}
				c.ACK(ctx, r, consumer.ConsumeSuccess)
			}
			cancel()
		}
		return out, nil
	}
	ops["pull.from"] = func(a arguments) (any, error) {
		c, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		if a.QueueID == nil {
			return nil, fmt.Errorf("no queueId")
		}
		ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
		defer cancel()
		queue := &primitive.MessageQueue{Topic: a.Topic, BrokerName: a.Broker, QueueId: *a.QueueID}
		r, err := c.PullFrom(ctx, queue, a.Offset, a.Count)
		if err != nil {
			return nil, err
		}
		out := []received{}
		for _, m := range r.GetMessageExts() {
			out = append(out, receive(m))
		}
		return out, nil
	}
	ops["pull.stop"] = func(a arguments) (any, error) {
		c, err := known.remove(a.Handle)
		if err != nil {
			return nil, err
		}
		return nil, c.Shutdown()
	}
}
