// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 15 * time.Second

// sent has the names of the Java driver.
type sent struct {
	Status      string `json:"status"`
	MsgID       string `json:"msgId"`
	OffsetMsgID string `json:"offsetMsgId"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
	Broker      string `json:"broker"`
	Body        string `json:"body,omitempty"`
}

func outcome(r *primitive.SendResult, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	s := sent{Status: "SEND_OK", MsgID: r.MsgID, OffsetMsgID: r.OffsetMsgID, QueueOffset: r.QueueOffset}
	if r.Status != primitive.SendOK {
		s.Status = fmt.Sprint("status ", r.Status)
	}
	if r.MessageQueue != nil {
		s.QueueID, s.Broker = r.MessageQueue.QueueId, r.MessageQueue.BrokerName
	}
	return s, nil
}

func (a arguments) message() *primitive.Message {
	body := a.Body
	if a.Fill != "" {
		body = strings.Repeat(a.Fill, a.Size/len(a.Fill)+1)[:a.Size]
	}
	m := primitive.NewMessage(a.Topic, []byte(body))
	if a.Tags != "" {
		m.WithTag(a.Tags)
	}
	if a.Keys != "" {
		m.WithKeys(strings.Fields(a.Keys))
	}
	if a.OrderKey != "" {
		m.WithShardingKey(a.OrderKey)
	}
	if a.DelayLevel > 0 {
		m.WithDelayTimeLevel(a.DelayLevel)
	}
	for k, v := range a.Properties {
		m.WithProperty(k, v)
	}
	if a.QueueID != nil {
		m.Queue = &primitive.MessageQueue{Topic: a.Topic, BrokerName: a.Broker, QueueId: *a.QueueID}
	}
	return m
}

func registerProducers(ops map[string]operation) {
	var known handles[rocketmq.Producer]
	ops["producer.start"] = func(a arguments) (any, error) {
		opts := []producer.Option{
			producer.WithNameServer([]string{a.NameServer}), producer.WithGroupName(a.Group),
			producer.WithInstanceName(a.Instance), producer.WithSendMsgTimeout(sendTimeout),
		}
		if a.CompressOver > 0 {
			opts = append(opts, producer.WithCompressMsgBodyOverHowmuch(a.CompressOver))
		}
		if a.Trace {
			opts = append(opts, producer.WithTrace(&primitive.TraceConfig{
				GroupName: a.Group, Access: primitive.Local, NamesrvAddrs: []string{a.NameServer},
			}))
		}
		p, err := rocketmq.NewProducer(opts...)
		if err != nil {
			return nil, err
		}
		return known.add(p), p.Start()
	}
	ops["producer.send"] = func(a arguments) (any, error) {
		p, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		return send(p, a)
	}
	ops["producer.batch"] = func(a arguments) (any, error) {
		p, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		var batch []*primitive.Message
		for _, m := range a.Messages {
			batch = append(batch, m.message())
		}
		return outcome(p.SendSync(context.Background(), batch...))
	}
	ops["producer.many"] = func(a arguments) (any, error) {
		p, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		out := []any{}
		for i := range a.Count {
			a.Body = fmt.Sprint(a.Prefix, i)
			r, err := outcome(p.SendSync(context.Background(), a.message()))
			if err != nil {
				return nil, err
			}
			s := r.(sent)
			s.Body = a.Body
			out = append(out, s)
		}
		return out, nil
	}
	ops["producer.request"] = func(a arguments) (any, error) {
		p, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		m, err := p.Request(context.Background(), 5*time.Second, a.message())
		if err != nil {
			return nil, err
		}
		return received{Topic: m.Topic, Properties: m.GetProperties(), Body: string(m.Body)}, nil
	}
	ops["producer.stop"] = func(a arguments) (any, error) {
		p, err := known.remove(a.Handle)
		if err != nil {
			return nil, err
		}
		return nil, p.Shutdown()
	}
}

func send(p rocketmq.Producer, a arguments) (any, error) {
	ctx := context.Background()
	switch a.Mode {
	case "", "sync":
		return outcome(p.SendSync(ctx, a.message()))
	case "oneway":
		return nil, p.SendOneWay(ctx, a.message())
	case "async":
		type result struct {
			r   *primitive.SendResult
			err error
		}
		done := make(chan result, 1)
		err := p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, err error) {
			done <- result{r, err}
		}, a.message())
		if err != nil {
			return nil, err
		}
		select {
		case d := <-done:
			return outcome(d.r, d.err)
		case <-time.After(sendTimeout):
			return nil, fmt.Errorf("no callback in %v", sendTimeout)
		}
	}
	return nil, fmt.Errorf("mode %q", a.Mode)
}

func registerAdmin(ops map[string]operation) {
	with := func(a arguments, do func(ctx context.Context, tool admin.Admin) (any, error)) (any, error) {
		tool, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{a.NameServer})))
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
		defer cancel()
		value, err := do(ctx, tool)
		_ = tool.Close()
		return value, err
	}
	ops["admin.createTopic"] = func(a arguments) (any, error) {
		return with(a, func(ctx context.Context, tool admin.Admin) (any, error) {
			return nil, tool.CreateTopic(ctx, admin.WithTopicCreate(a.Topic), admin.WithBrokerAddrCreate(a.Address),
				admin.WithReadQueueNums(a.Queues), admin.WithWriteQueueNums(a.Queues))
		})
	}
	ops["admin.deleteTopic"] = func(a arguments) (any, error) {
		return with(a, func(ctx context.Context, tool admin.Admin) (any, error) {
			return nil, tool.DeleteTopic(ctx, admin.WithTopicDelete(a.Topic), admin.WithBrokerAddrDelete(a.Address),
				admin.WithNameSrvAddr([]string{a.NameServer}))
		})
	}
	ops["admin.topicList"] = func(a arguments) (any, error) {
		return with(a, func(ctx context.Context, tool admin.Admin) (any, error) {
			list, err := tool.FetchAllTopicList(ctx)
			if err != nil {
				return nil, err
			}
			return list.TopicList, nil
		})
	}
	ops["admin.groups"] = func(a arguments) (any, error) {
		return with(a, func(ctx context.Context, tool admin.Admin) (any, error) {
			list, err := tool.GetAllSubscriptionGroup(ctx, a.Address, sendTimeout)
			if err != nil {
				return nil, err
			}
			names := []string{}
			for name := range list.SubscriptionGroupTable {
				names = append(names, name)
			}
			return names, nil
		})
	}
}
