// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"runtime/debug"
)

// choose sets queue and address of the next attempt.
func (p *Producer) choose(rt *topicRoute, op *sendOp) error {
	switch m := op.message; {
	case op.pinned:
	case m != nil && m.Queue != nil:
		op.queue = *m.Queue
	case m != nil && !p.free(m):
		q, err := p.selectQueue(rt, m)
		if err != nil {
			return err
		}
		op.queue = q
	case op.wentAway && op.notLast == "": // the same queue again, over a new connection
	default:
		op.queue = p.next(rt.writable, op)
	}
	op.addr = rt.master(op.queue.Broker)
	if op.addr == "" {
		return fmt.Errorf("client: broker %s of topic %s has no address: %w",
			op.queue.Broker, op.topic.name, ErrNoRoute)
	}
	return nil
}

// free reports whether any queue will do for a message.
func (p *Producer) free(m *Message) bool {
	return m.Queue == nil && m.OrderingKey == "" && spreads(p.cfg.selector)
}

// selectQueue asks the selector.
func (p *Producer) selectQueue(rt *topicRoute, m *Message) (Queue, error) {
	s := p.cfg.selector
	if spreads(s) {
		s = HashJava
	}
	i, err := p.selected(s, m, rt.writable)
	if err != nil {
		return Queue{}, err
	}
	if i < 0 || i >= len(rt.writable) {
		return Queue{}, fmt.Errorf("client: selector chose queue %d of %d of topic %s: %w",
			i, len(rt.writable), m.Topic, ErrInvalidMessage)
	}
	return rt.writable[i], nil
}

// selected calls a selector; a panic of the user's is an error.
func (p *Producer) selected(s Selector, m *Message, queues []Queue) (i int, err error) {
	if policy, ours := s.(Policy); ours {
		return policy.Select(m, queues), nil
	}
	defer func() {
		if v := recover(); v != nil {
			p.client.cfg.logger.Error("panic in a selector", "topic", m.Topic, "err", v,
				"stack", string(debug.Stack()))
			err = fmt.Errorf("client: the selector panicked for topic %s: %v: %w", m.Topic, v,
				ErrInvalidMessage)
		}
	}()
	return s.Select(m, queues), nil
}

// next goes round the queues, passing over those of brokers that this message failed at and, with
// latency fault tolerance, those of slow brokers. When it failed at all of them, only the last one
// is passed over.
func (p *Producer) next(queues []Queue, op *sendOp) Queue {
	n := uint32(len(queues))
	at := op.topic.turn.Add(1)
	if p.cfg.selector == Selector(Random) {
		at = uint32(Random.Select(nil, queues))
	}
	if p.faults != nil {
		if q, ok := p.faults.choose(queues, at, op.notLast); ok {
			return q
		}
		return queues[at%n]
	}
	if op.notLast == "" {
		return queues[at%n]
	}
	for i := range n {
		if q := queues[(at+i)%n]; !op.failedAt(q.Broker) {
			return q
		}
	}
	for i := range n {
		if q := queues[(at+i)%n]; q.Broker != op.notLast {
			return q
		}
	}
	return queues[at%n]
}

// failedAt reports whether an attempt at a broker failed.
func (op *sendOp) failedAt(broker string) bool {
	for i := range op.attempts {
		if op.attempts[i].Queue.Broker == broker {
			return true
		}
	}
	return false
}
