// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// sendOp is one send with all its attempts. It belongs to one goroutine at a time.
type sendOp struct {
	producer *Producer
	message  *Message
	topic    string
	header   protocol.SendRequest
	code     remoting.RequestCode
	body     []byte
	ids      []string // unique ids, one for each message
	once     bool     // another queue would break what the caller asked for

	started  time.Time
	deadline time.Time
	queue    Queue
	addr     string
	attempts []Attempt
	lost     bool // a request went out and its answer did not come
	notLast  string

	// Asynchronous sends only.
	done    func(SendResult, error)
	size    int
	epoch   uint64
	tryFrom time.Time
	res     *invoke.Response
	err     error
}

// prepare checks a message and renders what all attempts share. The body is not copied unless it is
// compressed.
func (p *Producer) prepare(m *Message) (*sendOp, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	id := string(p.client.ids.Append(nil))
	props, err := m.properties(id)
	if err != nil {
		return nil, err
	}
	body, sysFlag := p.compressor.compress(m.Body)
	op := p.newOp(m.Topic, props, sysFlag)
	op.message, op.body, op.ids = m, body, []string{id}
	op.once = m.Queue != nil || m.OrderingKey != "" || !spreads(p.cfg.selector)
	return op, nil
}

// spreads reports whether a selector leaves the choice of another queue to a retry.
func spreads(s Selector) bool {
	return s == nil || s == Selector(RoundRobin) || s == Selector(Random)
}

func (p *Producer) newOp(topic string, props []byte, sysFlag int32) *sendOp {
	now := time.Now()
	return &sendOp{
		producer: p, topic: topic, code: remoting.SendMessageV2,
		started: now, deadline: now.Add(p.cfg.sendTimeout),
		header: protocol.SendRequest{
			Group: []byte(p.client.onWire(p.group)), Topic: []byte(p.client.onWire(topic)),
			DefaultTopic:       []byte(protocol.TBW102),
			DefaultTopicQueues: defaultTopicQueues, SysFlag: sysFlag, MaxReconsumeTimes: -1,
			BornMS: now.UnixMilli(), Properties: props,
		},
	}
}

// send makes attempts until one settles the message.
func (p *Producer) send(ctx context.Context, op *sendOp) (SendResult, error) {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	for {
		if err := p.pick(ctx, op); err != nil {
			return SendResult{}, op.fail(err)
		}
		from := time.Now()
		res, err := p.client.pool.Call(ctx, op.addr, op.request())
		if err == nil {
			var r SendResult
			if r, err = op.result(res); err == nil {
				return r, nil
			}
		}
		again := op.tried(from, err)
		if cause := context.Cause(ctx); cause != nil {
			return SendResult{}, op.fail(cause)
		}
		if !again {
			return SendResult{}, op.fail(nil)
		}
	}
}

// pick chooses queue and address of the next attempt, away from the broker of the last one.
func (p *Producer) pick(ctx context.Context, op *sendOp) error {
	rt, err := p.client.routes.forSend(ctx, op.topic, p.cfg.template)
	if err != nil {
		return err
	}
	return p.choose(rt, op)
}

func (p *Producer) choose(rt *topicRoute, op *sendOp) error {
	queues := rt.writable
	switch m := op.message; {
	case m != nil && m.Queue != nil:
		op.queue = *m.Queue
	case m != nil && (!spreads(p.cfg.selector) || m.OrderingKey != ""):
		s := p.cfg.selector
		if spreads(s) {
			s = HashJava
		}
		i := s.Select(m, queues)
		if i < 0 || i >= len(queues) {
			return fmt.Errorf("client: selector chose queue %d of %d of topic %s: %w",
				i, len(queues), op.topic, ErrInvalidMessage)
		}
		op.queue = queues[i]
	default:
		op.queue = p.next(queues, op.notLast)
	}
	op.addr = rt.master(op.queue.Broker)
	if op.addr == "" {
		return fmt.Errorf("client: broker %s of topic %s has no address: %w",
			op.queue.Broker, op.topic, ErrNoRoute)
	}
	return nil
}

// next goes round the queues, passing over those of broker notLast when there are others.
func (p *Producer) next(queues []Queue, notLast string) Queue {
	n := uint32(len(queues))
	at := p.turn.Add(1)
	if p.cfg.selector == Selector(Random) {
		at = uint32(Random.Select(nil, queues))
	}
	for i := range n {
		if q := queues[(at+i)%n]; q.Broker != notLast {
			return q
		}
	}
	return queues[at%n]
}

// request renders the attempt. The header is built anew each time, with the queue of this attempt.
func (op *sendOp) request() *invoke.Request {
	h := op.header
	h.QueueID = int32(op.queue.ID)
	h.BrokerName = []byte(op.queue.Broker)
	return &invoke.Request{Code: op.code, Header: &h, Body: op.body}
}

// result reads an answer; a *BrokerError when the message was not stored.
func (op *sendOp) result(res *invoke.Response) (SendResult, error) {
	r := SendResult{Queue: op.queue}
	switch res.Code {
	case remoting.Success:
		r.Status = Stored
	case remoting.FlushDiskTimeout:
		r.Status = FlushDiskTimeout
	case remoting.FlushSlaveTimeout:
		r.Status = FlushSlaveTimeout
	case remoting.SlaveNotAvailable:
		r.Status = SlaveNotAvailable
	default:
		return SendResult{}, brokerError("send", op.queue.Broker, op.addr, res.Code, res.Remark)
	}
	var h protocol.SendResponse
	if err := h.Decode(res.Command); err != nil {
		return SendResult{}, fmt.Errorf("client: send: answer of %s: %w", op.addr, err)
	}
	r.OffsetID = string(h.MsgID)
	r.Queue.ID = int(h.QueueID)
	r.Offset = h.QueueOffset
	r.ID = op.ids[0]
	if v, ok := res.Command.Fields.Get("recallHandle"); ok {
		r.RecallHandle = string(v)
	}
	return r, nil
}

// tried notes a failed attempt and reports whether another one makes sense: another broker may do
// better, and there are attempts left.
func (op *sendOp) tried(from time.Time, err error) (again bool) {
	op.attempts = append(op.attempts, Attempt{
		Queue: op.queue, Took: time.Since(from), Err: err,
	})
	op.notLast = op.queue.Broker
	var ie *invoke.Error
	var be *BrokerError
	switch {
	case errors.As(err, &ie):
		op.lost = op.lost || ie.Sent
		again = !errors.Is(err, invoke.ErrTooLarge)
		op.producer.client.routes.stale(op.topic)
	case errors.As(err, &be):
		again = retriable(remoting.ResponseCode(be.Code))
		if again {
			op.producer.client.routes.stale(op.topic)
		}
	default:
		op.lost = true // an answer that says stored, and cannot be read
	}
	return again && !op.once && len(op.attempts) <= op.producer.cfg.retries
}

// retriable are the codes after which RocketMQ's producer asks another broker.
func retriable(code remoting.ResponseCode) bool {
	switch code {
	case remoting.TopicNotExist, remoting.ServiceNotAvailable, remoting.SystemError,
		remoting.SystemBusy, remoting.NoPermission, remoting.NoBuyerID,
		remoting.NotInCurrentUnit, remoting.GoAway:
		return true
	default:
		return false
	}
}

// fail sums the attempts up. stop is why no further one was made, nil when the last one says it.
func (op *sendOp) fail(stop error) error {
	if errors.Is(stop, ErrInvalidMessage) && len(op.attempts) == 0 {
		return stop
	}
	return &SendError{Topic: op.topic, Attempts: op.attempts, MaybeStored: op.lost, stop: stop}
}
