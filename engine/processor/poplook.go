// SPDX-License-Identifier: Apache-2.0

// NOTIFICATION (200054), POLLING_INFO (200055) and PEEK_MESSAGE (200052), after RocketMQ's
// NotificationProcessor, PollingInfoProcessor and PeekMessageProcessor. POP_ROLLBACK (200056) belongs
// to the RocksDB service and is not there.

package processor

import (
	"github.com/skylarkmq/skylark/engine/pop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

func (p *Pops) registerLooks(t Cold) {
	t[remoting.Notification] = onHeader(func(c *Caller, r *protocol.NotificationRequest) Reply {
		if r.BornMS == 0 {
			r.BornMS = p.Now().UnixMilli()
		}
		return p.notify(c, r)
	})
	t[remoting.PollingInfo] = onHeader(func(c *Caller, r *protocol.PollingInfoRequest) Reply {
		refused := func(err error) Reply {
			reply := Fail(err)
			reply.Header = &protocol.PollingInfoResponse{}
			return reply
		}
		if err := p.mayLook(c, r.Group, r.Topic, r.QueueID); err != nil {
			return refused(err)
		}
		n := p.Waiters.Of(r.Topic, r.Group, r.QueueID)
		return Reply{Remark: notSet, Header: &protocol.PollingInfoResponse{PollingNum: int32(n)}}
	})
	t[remoting.PeekMessage] = onHeader(func(c *Caller, r *protocol.PeekRequest) Reply { return p.peek(c, r) })
}

// mayLook makes the checks that these requests share.
func (p *Pops) mayLook(c *Caller, groupName, topicName string, queue int32) error {
	if !p.Readable() {
		return remoting.Errorf(remoting.NoPermission, "the broker[%s] peeking message is forbidden",
			p.Address)
	}
	if _, err := p.topicOf(c, topicName, queue); err != nil {
		return err
	}
	return p.groupOf(groupName)
}

// notifyWait is a NOTIFICATION that waits.
type notifyWait struct {
	pops    *Pops
	caller  *Caller
	request protocol.NotificationRequest
	wait    pop.Wait
}

// notify answers whether there is something to pop, or waits until there is.
func (p *Pops) notify(c *Caller, r *protocol.NotificationRequest) Reply {
	if err := p.mayLook(c, r.Group, r.Topic, r.QueueID); err != nil {
		reply := Fail(err)
		reply.Header = &protocol.NotificationResponse{}
		return reply
	}
	l := &look{
		group: r.Group, topic: r.Topic, queue: r.QueueID, order: r.Order != nil && *r.Order,
		attempt: r.AttemptID,
	}
	answer := &protocol.NotificationResponse{HasMsg: p.hasMessages(l)}
	if answer.HasMsg {
		return Reply{Remark: notSet, Header: answer}
	}
	w := &notifyWait{pops: p, caller: c, request: *r}
	w.wait = pop.Wait{
		Waiter: w, Topic: r.Topic, Group: r.Group, Queue: r.QueueID,
		Deadline: p.pollDeadline(r.BornMS, r.PollMS),
		Size: len(r.Topic) + len(r.Group) + len(r.AttemptID) + len(r.Expression) +
			len(r.ExpressionType),
	}
	switch p.Notified.Park(&w.wait) {
	case pop.ParkedHeld:
		if p.hasMessages(l) {
			p.Notified.WakeOne(r.Topic, r.Group, r.QueueID)
		}
		return Reply{Silent: true}
	case pop.ParkedFull:
		answer.PollingFull = true
	default:
	}
	return Reply{Remark: notSet, Header: answer}
}

// Wake looks again on a worker.
func (w *notifyWait) Wake(due bool) {
	p, c := w.pops, w.caller
	handed := p.Hand(0, func() {
		if due {
			w.request.PollMS = 0
		}
		if reply := p.notify(c, &w.request); !reply.Silent {
			c.Answer(reply)
		}
	})
	if !handed {
		c.Answer(Reply{Remark: notSet, Header: &protocol.NotificationResponse{}})
	}
}

// peek reads messages without taking them.
func (p *Pops) peek(c *Caller, r *protocol.PeekRequest) Reply {
	refused := func(err error) Reply {
		reply := Fail(err)
		reply.Header = &protocol.PopResponse{}
		return reply
	}
	if err := p.mayLook(c, r.Group, r.Topic, r.QueueID); err != nil {
		return refused(err)
	}
	answer := &protocol.PopResponse{}
	reply := Reply{Remark: "FOUND", Header: answer}
	left := int(min(r.MaxMessages, popMax))
	for _, name := range []string{pop.RetryTopic(r.Topic, r.Group, p.RetryV2), r.Topic} {
		cfg, ok := p.Topics.Find(name)
		if !ok {
			continue
		}
		for id := range cfg.ReadQueueNums {
			if name == r.Topic && r.QueueID >= 0 && id != r.QueueID {
				continue
			}
			left -= p.peekQueue(r, &reply, answer, name, id, left)
		}
	}
	if len(reply.Body) == 0 {
		reply.Code, reply.Remark = remoting.PullNotFound, "NO_MESSAGE_IN_QUEUE"
	}
	return reply
}

// peekQueue adds what a queue has behind the group's offset.
func (p *Pops) peekQueue(
	r *protocol.PeekRequest, reply *Reply, answer *protocol.PopResponse, name string, id int32, left int,
) (found int) {
	low, end, ok := p.Store.QueueBounds([]byte(name), id)
	if !ok {
		return 0
	}
	at, known := p.Offsets.Query([]byte(r.Group), []byte(name), id)
	if !known {
		at = int64(low)
	}
	at = max(at, int64(low))
	if left <= 0 || len(reply.Body) >= popBodyMax {
		answer.RestNum += max(int64(end)-at, 0)
		return 0
	}
	var res storage.ReadResult
	p.Store.Read(&storage.ReadRequest{
		Topic: []byte(name), Queue: id, From: record.QueueOffset(at), MaxMessages: left,
		Touch: true,
	}, &res)
	for i := range res.Regions {
		reply.Body = append(reply.Body, res.Regions[i].Mem...)
		res.Regions[i].Release()
	}
	answer.RestNum += max(int64(res.Max-res.Next), 0)
	return res.Messages
}
