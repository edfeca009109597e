// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	resendAttempts = 3

	levelByCount   = 0  // the broker chooses by how often the message came back
	levelDead      = -1 // to the dead-letter topic
	levelOfExpired = 3
	levelFirst     = 3 // of the first redelivery, when the client works it out
)

// delays are RocketMQ's levels, messageDelayLevel, from level 1 on.
var delays = [...]time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
	2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute,
	7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour,
}

// delayLevel is the level that a decision asks for: the first whose delay is not below the wish.
func delayLevel(what decision) int32 {
	if what.how == deadLetter {
		return levelDead
	}
	if what.after < 0 {
		return levelByCount
	}
	for i, d := range delays {
		if what.after <= d {
			return int32(i + 1)
		}
	}
	return int32(len(delays))
}

// giveBack has a message delivered again later, or moved to the dead-letter topic. The broker that
// holds it does that; when it refuses or cannot be reached the message goes to the group's retry
// topic as a new one. When the broker's answer was lost nothing more is tried, since it may have
// the message: a new one then would double it, and doubles would double again.
func (k *Consumer) giveBack(ctx context.Context, q *queue, d *delivery, level int32) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.backWithin)
	defer cancel()
	err := k.sendBack(ctx, q, d, level)
	if err == nil {
		return nil
	}
	var ie *invoke.Error
	if errors.As(err, &ie) && ie.Sent {
		return err
	}
	if rerr := k.resend(ctx, d, level); rerr != nil {
		return errors.Join(err, rerr)
	}
	return nil
}

// sendBack asks the broker that holds the message.
func (k *Consumer) sendBack(ctx context.Context, q *queue, d *delivery, level int32) error {
	rt := k.client.routes.cached(q.id.Topic)
	addr := ""
	if rt != nil {
		addr = rt.master(q.id.Broker)
	}
	if addr == "" {
		return fmt.Errorf("client: send back: broker %s has no master: %w", q.id.Broker, ErrNoRoute)
	}
	_, err := k.client.call(ctx, "send back", q.id.Broker, addr, &invoke.Request{
		Code: remoting.ConsumerSendMsgBack, Header: &protocol.ConsumerSendBackRequest{
			Offset: int64(d.view.PhysicalOffset()), Group: string(q.group), DelayLevel: level,
			OriginMsgID: d.m.ID, OriginTopic: originTopic(d.view),
			MaxReconsumeTimes: int32(max(k.cfg.retries(), -1)), BrokerName: q.id.Broker,
		},
	})
	return err
}

// originTopic is the topic a message was first sent to, as brokers know it.
func originTopic(v record.View) string {
	if t, ok := record.Property(v.Properties(), propRetryTopic); ok {
		return string(t)
	}
	return string(v.Topic())
}

// resend stores a copy of the message in the retry topic, at any broker that takes it.
func (k *Consumer) resend(ctx context.Context, d *delivery, level int32) error {
	rt, err := k.client.routes.forSend(ctx, k.retryTopic, true)
	if err != nil {
		return err
	}
	v := d.view
	count := v.ReconsumeTimes() + 1
	limit := int32(k.cfg.retries())
	if limit < 0 {
		limit = defaultMaxRetries
	}
	if level == levelDead {
		count = limit + 1 // beyond the limit, so that the broker makes it a dead letter
	}
	if level <= 0 {
		level = levelFirst + count
	}
	h := protocol.SendRequest{
		Group: []byte(protocol.InnerProducerGroup), Topic: []byte(k.client.onWire(k.retryTopic)),
		DefaultTopic: []byte(protocol.TBW102), DefaultTopicQueues: defaultTopicQueues,
		SysFlag: v.SysFlag() & (sysCompressed | sysCompressionMask), Flag: v.Flag(),
		BornMS: v.BornMS(), Properties: resendProperties(d, level),
		ReconsumeTimes: count, MaxReconsumeTimes: limit,
	}
	from := rand.IntN(len(rt.writable))
	for i := range resendAttempts {
		to := rt.writable[(from+i)%len(rt.writable)]
		h.QueueID, h.BrokerName = int32(to.ID), []byte(to.Broker)
		_, err = k.client.call(ctx, "resend", to.Broker, rt.master(to.Broker), &invoke.Request{
			Code: remoting.SendMessageV2, Header: &h, Body: v.Body(),
		})
		var ie *invoke.Error
		if err == nil || brokerRefused(err, remoting.FlushDiskTimeout, remoting.FlushSlaveTimeout,
			remoting.SlaveNotAvailable) { // these have stored it
			return nil
		}
		if errors.As(err, &ie) && ie.Sent || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// resendProperties are those of the stored message with what says that it is another try.
func resendProperties(d *delivery, level int32) []byte {
	var out []byte
	record.EachProperty(d.view.Properties(), func(name, value []byte) bool {
		switch string(name) {
		case propRetryTopic, propDelay, "ORIGIN_MESSAGE_ID", "RECONSUME_TIME",
			"MAX_RECONSUME_TIMES", "TRAN_MSG", propTimerDelay, propTimerDue, "TIMER_DELAY_SEC":
		default:
			out = record.AppendProperty(out, string(name), value)
		}
		return true
	})
	origin := d.m.ID
	if id, ok := record.Property(d.view.Properties(), "ORIGIN_MESSAGE_ID"); ok {
		origin = string(id)
	}
	out = record.AppendProperty(out, "ORIGIN_MESSAGE_ID", origin)
	out = record.AppendProperty(out, propRetryTopic, originTopic(d.view))
	return record.AppendProperty(out, propDelay, strconv.Itoa(int(level)))
}
