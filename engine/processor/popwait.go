// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"time"

	"github.com/skylarkmq/skylark/engine/pop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Wake wakes who waits for messages of a group: with -1 whatever queue it waits for.
func (p *Pops) Wake(topic, groupName string, queue int32) {
	p.Waiters.Wake(topic, groupName, queue)
	p.Notified.Wake(topic, groupName, queue)
}

// Arrived is told that a queue has grown.
func (p *Pops) Arrived(topic string, queue int32) {
	p.Waiters.Arrived(topic, queue)
	p.Notified.Arrived(topic, queue)
}

// popWait is a pop that waits for messages.
type popWait struct {
	pops    *Pops
	caller  *Caller
	request protocol.PopRequest
	wait    pop.Wait
}

// pollDeadline is when a request that came at bornMS must be answered; the client's clock is not
// trusted to lie in the future.
func (p *Pops) pollDeadline(bornMS, pollMS int64) time.Time {
	const pollMax = 300_000 // milliseconds
	now := p.Now()
	if pollMS <= 0 {
		return now
	}
	return time.UnixMilli(min(bornMS, now.UnixMilli()) + min(pollMS, pollMax))
}

// park lets a pop wait. What came between the look at the queues and the parking wakes it at once.
func (p *Pops) park(w *popWait, r *protocol.PopRequest, order bool, rest int64) pop.Parked {
	w.wait = pop.Wait{
		Waiter: w, Topic: r.Topic, Group: r.Group, Queue: r.QueueID,
		Deadline: p.pollDeadline(r.BornMS, r.PollMS),
		Size: len(r.Topic) + len(r.Group) + len(r.AttemptID) + len(r.BrokerName) +
			len(r.Expression) + len(r.ExpressionType),
	}
	parked := p.Waiters.Park(&w.wait)
	if parked == pop.ParkedHeld && p.hasMessages(&look{
		group: r.Group, topic: r.Topic, queue: r.QueueID, order: order, attempt: r.AttemptID,
	}) {
		p.Waiters.WakeOne(r.Topic, r.Group, r.QueueID)
	}
	return parked
}

// Wake runs the request again on a worker.
func (w *popWait) Wake(due bool) {
	p, c := w.pops, w.caller
	if gone, ok := c.Channel.(interface{ Closed() bool }); ok && gone.Closed() {
		if !due { // what woke it is for somebody else
			p.Waiters.WakeOne(w.request.Topic, w.request.Group, w.request.QueueID)
		}
		return
	}
	handed := p.Hand(0, func() {
		if due {
			w.request.PollMS = 0
		}
		if reply := p.pop(c, &w.request); !reply.Silent {
			c.Answer(reply)
		}
	})
	if !handed {
		c.Answer(Reply{Code: remoting.PollingTimeout, Remark: "NO_MESSAGE_IN_QUEUE", Header: &protocol.PopResponse{
			PopMS: p.Now().UnixMilli(), InvisibleMS: w.request.InvisibleMS, HasInfo: true,
		}})
	}
}

// look asks whether there is something to pop.
type look struct {
	group, topic string
	queue        int32 // -1: any
	order        bool
	attempt      string
}

// hasMessages reports whether a pop would find something to look at.
func (p *Pops) hasMessages(l *look) bool {
	cfg, ok := p.Topics.Find(l.topic)
	if !ok {
		return false
	}
	if l.queue >= 0 {
		if p.waiting(l, l.topic, l.queue) {
			return true
		}
	} else if p.anyWaiting(l, cfg) {
		return true
	}
	if l.order {
		return false
	}
	for _, v2 := range []bool{false, true} {
		if v2 && !p.RetryV2 || !v2 && p.RetryV2 && !p.RetryV1Too {
			continue
		}
		if cfg, ok := p.Topics.Find(pop.RetryTopic(l.topic, l.group, v2)); ok && p.anyWaiting(l, cfg) {
			return true
		}
	}
	return false
}

func (p *Pops) anyWaiting(l *look, cfg *protocol.TopicConfig) bool {
	for id := range cfg.ReadQueueNums {
		if p.waiting(l, cfg.TopicName, id) {
			return true
		}
	}
	return false
}

func (p *Pops) waiting(l *look, name string, queue int32) bool {
	return p.Service.Waiting(&pop.Wish{
		Topic: name, Group: l.group, Queue: queue, Order: l.order, AttemptID: l.attempt,
	})
}
