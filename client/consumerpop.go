// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	popQueueID   = -1 // all queues of a topic at one broker
	popPoll      = 15 * time.Second
	popTimeout   = popPoll + 10*time.Second
	popUnacked   = 96 // messages of one broker and topic that are not settled
	popCkProp    = "POP_CK"
	popInvisible = 5 * time.Second // the least
	popMost      = 300 * time.Second
)

// WithPop takes messages by RocketMQ's pop requests: brokers hand each message to any member of the
// group and hide it from the others for the time invisible, 5 s to 300 s. Queues are not divided,
// so a member that hangs holds up only what it has. Handlers must settle a message within that
// time, or it comes again. It excludes WithOrdered and WithBroadcast, and needs a broker of version
// 5: Run fails with ErrUnsupported at an older one.
func WithPop(invisible time.Duration) ConsumerOption {
	return forConsumers("WithPop", func(c *consumerConfig) {
		c.popInvisible, c.pop = invisible, true
	})
}

// popDelays are how long a message stays hidden after its failures, by their number.
var popDelays = [...]time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute,
	4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute, 8 * time.Minute,
	9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// sincePop is the version of RocketMQ 5.0.0, as brokers tell it with each answer.
const sincePop = 413

func (c *consumerConfig) checkPop() error {
	switch {
	case !c.pop:
		return nil
	case c.ordered || c.broadcast:
		return errors.New("WithPop excludes WithOrdered and WithBroadcast")
	case c.popInvisible < popInvisible || c.popInvisible > popMost:
		return fmt.Errorf("pop: invisible for %s, at least %s and at most %s",
			c.popInvisible, popInvisible, popMost)
	}
	c.prefetch = min(c.prefetch, popUnacked)
	return nil
}

// popQueues stand for the queues of a topic: one for each broker.
func popQueues(queues []Queue) []Queue {
	var out []Queue
	for _, q := range queues {
		q.ID = popQueueID
		if !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	return out
}

// popRequest asks for messages of all queues of a topic at a broker.
func (p *pull) popRequest() *invoke.Request {
	q := p.q
	c := &q.k.cfg
	h := &protocol.PopRequest{
		Group: string(q.group), Topic: string(q.topic), QueueID: popQueueID,
		MaxMessages: int32(min(pullBatch, c.prefetch)), InvisibleMS: c.popInvisible.Milliseconds(),
		PollMS: popPoll.Milliseconds(), BornMS: time.Now().UnixMilli(), InitMode: 1,
		ExpressionType: protocol.ExpressionTag, Expression: p.expr, Order: new(bool),
		BrokerName: q.id.Broker,
	}
	if c.start == Earliest {
		h.InitMode = 0
	}
	if p.sql {
		h.ExpressionType = protocol.ExpressionSQL92
	}
	return &invoke.Request{Code: remoting.PopMessage, Header: h, Timeout: popTimeout}
}

// popped takes the answer to a pop.
func (l *lane) popped(p *pull) {
	switch p.res.Code {
	case remoting.Success, remoting.PollingFull, remoting.PollingTimeout, remoting.PullNotFound:
	default:
		l.fail(p, brokerError("pop", p.q.id.Broker, p.addr, p.res.Code, p.res.Remark))
		return
	}
	l.k.mu.Lock()
	sub := p.q.sub
	l.k.mu.Unlock()
	var ds []*delivery
	if p.res.Code == remoting.Success {
		var h protocol.PopResponse
		err := h.Decode(p.res.Command)
		if err == nil {
			ds, _ = l.decode(p, &protocol.SubscriptionData{}, &protocol.PullResponse{})
			ds, err = l.stamp(p, sub, ds, &h)
		}
		if err != nil {
			l.fail(p, fmt.Errorf("client: pop: answer of %s: %w", p.addr, err))
			return
		}
	}
	l.arrive(p, sub, ds, 0)
}

// stamp gives each message the receipt that settles it. Those whose tag is not wanted are settled at
// once: nobody else of the group wants them either.
func (l *lane) stamp(
	p *pull, sub *protocol.SubscriptionData, ds []*delivery, h *protocol.PopResponse,
) ([]*delivery, error) {
	starts, err := parseStarts(h.StartOffsetInfo)
	if err != nil {
		return nil, err
	}
	expires := p.sent.Add(time.Duration(h.InvisibleMS) * time.Millisecond)
	if !h.HasInfo { // old brokers: the first message of a queue is its start
		for _, d := range ds {
			key := startKey(string(d.view.Topic()), d.view.QueueID())
			if at, ok := starts[key]; !ok || d.offset < at {
				starts[key] = d.offset
			}
		}
	}
	kept := ds[:0]
	for _, d := range ds {
		d.m.Source.ID = int(d.view.QueueID())
		d.expires = expires
		if ck, ok := record.Property(d.view.Properties(), popCkProp); ok {
			d.receipt = string(ck)
		} else {
			topic := string(d.view.Topic())
			start, ok := starts[startKey(topic, d.view.QueueID())]
			if !ok {
				return nil, fmt.Errorf("no start offset for queue %d of topic %s",
					d.view.QueueID(), topic)
			}
			d.receipt = fmt.Sprintf("%d %d %d %d %s %s %d %d", start, h.PopMS, h.InvisibleMS,
				h.ReviveQueueID, retryKind(topic), p.q.id.Broker, d.view.QueueID(), d.offset)
		}
		if !wants(sub, tagOf(d.view)) {
			l.k.ack(p.q, d)
			continue
		}
		kept = append(kept, d)
	}
	return kept, nil
}

// retryKind tells retry topics from others, as receipts do.
func retryKind(topic string) string {
	if protocol.IsRetryTopic(topic) {
		return "1"
	}
	return "0"
}

func startKey(topic string, queue int32) string {
	return retryKind(topic) + "@" + strconv.Itoa(int(queue))
}

// parseStarts reads "kind queue offset;..." (RocketMQ's ExtraInfoUtil).
func parseStarts(text string) (map[string]int64, error) {
	starts := map[string]int64{}
	for part := range strings.SplitSeq(text, ";") {
		f := strings.Fields(part)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return nil, fmt.Errorf("start offsets %q", text)
		}
		at, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("start offsets %q: %w", text, err)
		}
		starts[f[0]+"@"+f[1]] = at
	}
	return starts, nil
}

// ackHeader is what settles a message: the receipt says where it was read.
func (k *Consumer) ackHeader(q *queue, d *delivery) (protocol.AckRequest, error) {
	f := strings.Fields(d.receipt)
	if len(f) < 8 {
		return protocol.AckRequest{}, fmt.Errorf("client: receipt %q is not one of pop", d.receipt)
	}
	queueID, err1 := strconv.ParseInt(f[6], 10, 32)
	offset, err2 := strconv.ParseInt(f[7], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return protocol.AckRequest{}, fmt.Errorf("client: receipt %q: %w", d.receipt, err)
	}
	topic := string(q.topic)
	switch f[4] {
	case "1":
		topic = protocol.RetryPrefix + string(q.group) + "_" + topic
	case "2":
		topic = protocol.RetryPrefix + string(q.group) + "+" + topic
	}
	return protocol.AckRequest{
		Group: string(q.group), Topic: topic, QueueID: int32(queueID), ExtraInfo: d.receipt,
		Offset: offset, BrokerName: f[5],
	}, nil
}

// ack tells the broker that a message is done, without waiting for the answer: when it is lost the
// message comes again.
func (k *Consumer) ack(q *queue, d *delivery) {
	h, err := k.ackHeader(q, d)
	if err == nil {
		err = k.startAsync(q, &invoke.Request{
			Code: remoting.AckMessage, Header: &h, Timeout: k.client.cfg.callTimeout,
		})
	}
	if err != nil {
		k.client.cfg.logger.Warn("ack", "group", k.group, "queue", q.id.String(), "err", err)
	}
}

// startAsync sends a request to the master of a queue's broker and logs an answer that is not
// success.
func (k *Consumer) startAsync(q *queue, r *invoke.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), k.client.cfg.callTimeout)
	defer cancel()
	addr, err := k.address(ctx, q.id, 0)
	if err != nil {
		return err
	}
	conn, err := k.client.pool.Conn(ctx, addr)
	if err != nil {
		return err
	}
	return conn.Async(context.Background(), r, func(res *invoke.Response, err error) {
		if err == nil {
			err = brokerError("ack", q.id.Broker, addr, res.Code, res.Remark)
		}
		if err != nil {
			k.client.cfg.logger.Debug("ack", "group", k.group, "queue", q.id.String(), "err", err)
		}
	})
}

// hide has a message come again after the delay of its number of attempts, or as the handler says.
func (k *Consumer) hide(ctx context.Context, q *queue, d *delivery, after time.Duration) error {
	h, err := k.ackHeader(q, d)
	if err != nil {
		return err
	}
	if after < 0 {
		after = popDelays[min(d.m.Attempt, len(popDelays))-1]
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.backWithin)
	defer cancel()
	return k.ask(ctx, "changing the invisible time", q.id, &invoke.Request{
		Code: remoting.ChangeMessageInvisibleTime, Header: &protocol.ChangeInvisibleRequest{
			AckRequest: h, InvisibleMS: max(after, time.Second).Milliseconds(),
		},
	}, nil)
}

// settlePop does what the fate of a popped message takes. What fails leaves the message hidden until
// its time is over.
func (w *worker) settlePop(i int, what decision) {
	k, q, d := w.k, w.queue, w.batch[i]
	w.fates[i] = fate{settled: true, failed: what.how == again || what.how == deadLetter}
	if what.how == again && d.m.Attempt > k.cfg.retries() {
		what.how = deadLetter
	}
	var err error
	switch what.how {
	case again:
		err = k.hide(k.ctx, q, d, what.after)
	case deadLetter:
		if err = k.giveBack(k.ctx, q, d, levelDead); err == nil {
			k.ack(q, d)
		}
	default:
		k.ack(q, d)
	}
	if err != nil {
		k.client.cfg.logger.Warn("message could not be settled", "group", k.group,
			"queue", q.id.String(), "offset", d.offset, "err", err)
	}
}
