// SPDX-License-Identifier: Apache-2.0

// ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053), after
// RocketMQ's AckMessageProcessor and ChangeInvisibleTimeProcessor. Different: an acknowledgement that
// could not be stored is an error and no success; a new invisible time and the end of the old one
// are stored together.

package processor

import (
	"github.com/skylarkmq/skylark/engine/pop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

func (p *Pops) registerAcks(t Cold) {
	t[remoting.AckMessage] = onHeader(func(c *Caller, r *protocol.AckRequest) Reply {
		return withEmptyFields(done(p.ack(c, r)))
	})
	t[remoting.BatchAckMessage] = func(_ *Caller, cmd *remoting.Command) Reply {
		var body protocol.BatchAckBody
		if len(cmd.Body) > 0 {
			if err := unmarshal(cmd.Body, &body); err != nil {
				return Fail(err)
			}
		}
		if len(body.Acks) == 0 {
			return withEmptyFields(Reply{Code: remoting.NoMessage})
		}
		for i := range body.Acks {
			if err := p.batchAck(body.BrokerName, &body.Acks[i]); err != nil {
				return Fail(err)
			}
		}
		return withEmptyFields(Reply{})
	}
	t[remoting.ChangeMessageInvisibleTime] = onHeader(
		func(c *Caller, r *protocol.ChangeInvisibleRequest) Reply { return p.change(c, r) })
}

// acknowledged checks where a message lies and reads its receipt.
func (p *Pops) acknowledged(c *Caller, r *protocol.AckRequest, endToo int64) (
	a pop.Acked, err error,
) {
	cfg, ok := p.Topics.Find(r.Topic)
	if !ok {
		return a, remoting.Errorf(remoting.TopicNotExist, "topic[%s] not exist, apply first please! %s",
			r.Topic, FAQ)
	}
	if r.QueueID < 0 || r.QueueID >= cfg.ReadQueueNums {
		return a, illegalQueue(remoting.MessageIllegal, c, cfg, r.QueueID)
	}
	low, end, _ := p.Store.QueueBounds([]byte(r.Topic), r.QueueID)
	if r.Offset < int64(low) || r.Offset >= int64(end)+endToo {
		return a, remoting.Errorf(remoting.NoMessage,
			"offset is illegal, key:%s@%d, commit:%d, store:%d~%d", r.Topic, r.QueueID, r.Offset, low, end)
	}
	receipt, err := pop.ParseReceipt(r.ExtraInfo)
	if err != nil {
		return a, remoting.Errorf(remoting.SystemError, "%v", err)
	}
	if !receipt.Ordered() && (receipt.ReviveQueue < 0 || receipt.ReviveQueue >= p.ReviveQueues) {
		return a, remoting.Errorf(remoting.MessageIllegal,
			"extraInfo names revive queue %d of %d", receipt.ReviveQueue, p.ReviveQueues)
	}
	return pop.Acked{
		Topic: r.Topic, Group: r.Group, Queue: r.QueueID, Receipt: receipt, Offsets: []int64{r.Offset},
	}, nil
}

func (p *Pops) ack(c *Caller, r *protocol.AckRequest) error {
	a, err := p.acknowledged(c, r, 1)
	if err != nil {
		return err
	}
	if a.Receipt.Ordered() {
		return p.ackInOrder(&a, r.Offset)
	}
	return p.Service.Ack(&a)
}

// batchAck acknowledges the messages of one checkpoint whose bits are set.
func (p *Pops) batchAck(broker string, b *protocol.BatchAck) error {
	name, err := pop.TopicOfKind(b.Retry, b.Topic, b.ConsumerGroup)
	if err != nil {
		return remoting.Errorf(remoting.SystemError, "%v", err)
	}
	low, end, ok := p.Store.QueueBounds([]byte(name), b.QueueID)
	if !ok {
		return nil
	}
	a := pop.Acked{
		Topic: name, Group: b.ConsumerGroup, Queue: b.QueueID,
		Receipt: pop.Receipt{
			StartOffset: b.StartOffset, PopMS: b.PopTime, InvisibleMS: b.InvisibleTime,
			ReviveQueue: b.ReviveQueueID, Broker: broker,
		},
	}
	for _, bit := range bits(b.BitSet) {
		off := b.StartOffset + bit
		if off < int64(low) || off > int64(end) {
			continue
		}
		if a.Receipt.Ordered() {
			if err := p.ackInOrder(&a, off); err != nil {
				return err
			}
			continue
		}
		a.Offsets = append(a.Offsets, off)
	}
	switch {
	case len(a.Offsets) == 0:
		return nil
	case b.ReviveQueueID < 0 || b.ReviveQueueID >= p.ReviveQueues:
		return remoting.Errorf(remoting.MessageIllegal, "revive queue %d of %d", b.ReviveQueueID, p.ReviveQueues)
	}
	return p.Service.Ack(&a)
}

// ackInOrder acknowledges a message of an ordered pop: the group's offset moves to the first that is
// not acknowledged.
func (p *Pops) ackInOrder(a *pop.Acked, off int64) error {
	name, groupName := []byte(a.Topic), []byte(a.Group)
	if at, ok := p.Offsets.Committed(groupName, name, a.Queue); ok && off < at {
		return nil
	}
	now := p.Now().UnixMilli()
	switch next := p.Orders.Commit(a.Topic, a.Group, a.Queue, off, a.Receipt.PopMS, now); next {
	case pop.OrderNotOut:
		return remoting.Errorf(remoting.MessageIllegal, "offset is illegal, key:%s@%d, commit:%d",
			a.Topic, a.Queue, off)
	case pop.OrderOld:
		return nil
	default:
		p.Offsets.Commit(groupName, name, a.Queue, next)
	}
	if !p.Orders.Blocked(a.Topic, a.Group, a.Queue, "", a.Receipt.InvisibleMS, now) {
		p.Wake(a.Topic, a.Group, a.Queue)
	}
	return nil
}

// change gives a message a new invisible time from now on.
func (p *Pops) change(c *Caller, r *protocol.ChangeInvisibleRequest) Reply {
	refused := func(err error) Reply {
		reply := Fail(err)
		reply.Header = &protocol.ChangeInvisibleResponse{}
		return reply
	}
	a, err := p.acknowledged(c, &r.AckRequest, 0)
	if err == nil && r.InvisibleMS < 0 {
		err = remoting.Errorf(remoting.InvalidParameter, "the field invisibleTime is %d", r.InvisibleMS)
	}
	if err != nil {
		return refused(err)
	}
	answer := &protocol.ChangeInvisibleResponse{
		PopMS: a.Receipt.PopMS, InvisibleMS: r.InvisibleMS, ReviveQueueID: a.Receipt.ReviveQueue,
	}
	if a.Receipt.Ordered() {
		at, ok := p.Offsets.Committed([]byte(a.Group), []byte(a.Topic), a.Queue)
		if ok && r.Offset < at {
			return Reply{Remark: notSet, Header: &protocol.ChangeInvisibleResponse{}}
		}
		visible := p.Now().UnixMilli() + r.InvisibleMS
		p.Orders.SetVisible(a.Topic, a.Group, a.Queue, r.Offset, a.Receipt.PopMS, visible)
		answer.InvisibleMS = visible - a.Receipt.PopMS
		return Reply{Remark: notSet, Header: answer}
	}
	if answer.PopMS, err = p.Service.Change(&a, r.InvisibleMS); err != nil {
		return refused(err)
	}
	return Reply{Remark: notSet, Header: answer}
}

// bits lists the bits that are set in a little-endian bit set.
func bits(set []byte) (list []int64) {
	for i, b := range set {
		for bit := range 8 {
			if b>>uint(bit)&1 != 0 {
				list = append(list, int64(8*i+bit))
			}
		}
	}
	return list
}
