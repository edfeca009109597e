// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// resetPatience bounds how long running handlers are waited for when positions are reset.
const resetPatience = 10 * time.Second

// brokerAsks implements asked: changed members (40), reset positions (220), and an operator's
// questions (221, 307, 309).
func (k *Consumer) brokerAsks(addr string, cmd *remoting.Command) (*invoke.Response, bool) {
	var group string
	var serve func(cmd *remoting.Command) *invoke.Response
	switch cmd.Request() {
	case remoting.NotifyConsumerIDsChanged:
		return nil, wokenBy(cmd, k.client.onWire(k.group), k.balancer)
	case remoting.ResetConsumerClientOffset:
		group, serve = "group", k.serveReset
	case remoting.GetConsumerStatusFromClient:
		group, serve = "group", k.serveStatus
	case remoting.GetConsumerRunningInfo:
		group, serve = "consumerGroup", k.serveInfo
	case remoting.ConsumeMessageDirectly:
		group, serve = "consumerGroup", k.serveDirectly
	default:
		return nil, false
	}
	if name, _ := cmd.Fields.Get(group); string(name) != k.client.onWire(k.group) || !k.isRunning() {
		return nil, false
	}
	own := cmd.Clone()
	k.background(func() {
		res := serve(own)
		if own.IsOneway() {
			return
		}
		if err := k.client.pool.Respond(addr, own.Opaque, res); err != nil {
			k.client.cfg.logger.Debug("answering a broker", "addr", addr, "err", err)
		}
	})
	return nil, true
}

// wokenBy wakes a balancer when the notice is for its group.
func wokenBy(cmd *remoting.Command, group string, b *balancer) bool {
	name, _ := cmd.Fields.Get("consumerGroup")
	if string(name) != group {
		return false
	}
	b.wake()
	return true
}

func refusal(code remoting.ResponseCode, err error) *invoke.Response {
	return &invoke.Response{Code: code, Remark: err.Error()}
}

// serveReset moves queues to the positions that an operator chose. Running handlers are waited for.
func (k *Consumer) serveReset(cmd *remoting.Command) *invoke.Response {
	var h protocol.ResetOffsetRequest
	if err := h.Decode(cmd); err != nil {
		return refusal(remoting.SystemError, err)
	}
	var body protocol.ResetOffsetBody
	if err := protocol.Unmarshal(cmd.Body, &body); err != nil {
		return refusal(remoting.SystemError, err)
	}
	var moved []*queue
	to := map[*queue]int64{}
	k.mu.Lock()
	for q, offset := range body.OffsetTable {
		id := plainQueue(q)
		id.Topic = k.client.offWire(id.Topic)
		if held := k.queues[id]; held != nil {
			held.holdLocked()
			moved = append(moved, held)
			to[held] = offset
		}
	}
	k.mu.Unlock()
	k.awaitCalm(moved, resetPatience)
	k.mu.Lock()
	for _, q := range moved {
		q.suspended = false
		q.moveAllLocked(to[q])
	}
	k.mu.Unlock()
	k.client.cfg.logger.Info("positions reset", "group", k.group, "topic", h.Topic,
		"queues", len(moved))
	if err := k.commit(k.ctx, moved, false); err != nil {
		return refusal(remoting.SystemError, err)
	}
	return &invoke.Response{Code: remoting.Success}
}

// holdLocked fetches and hands nothing out any more until moveAllLocked.
func (q *queue) holdLocked() {
	q.ready = list[*delivery]{}
	if q.keys != nil {
		q.keys = map[string][]*delivery{}
	}
	q.frozen, q.pull = true, nil
}

// moveAllLocked lets go of all that was fetched and goes on at offset, in either direction.
func (q *queue) moveAllLocked(offset int64) {
	if q.dropped {
		return
	}
	for q.entries.len() > 0 {
		if d := q.entries.pop(); !d.done {
			d.detached = true
			q.shrinkLocked(d)
		}
	}
	q.full, q.frozen = false, false
	q.moveLocked(offset)
}

// serveStatus tells the positions of a topic's queues.
func (k *Consumer) serveStatus(cmd *remoting.Command) *invoke.Response {
	var h protocol.ConsumerStatusRequest
	if err := h.Decode(cmd); err != nil {
		return refusal(remoting.SystemError, err)
	}
	body := protocol.ConsumerStatusBody{MessageQueueTable: map[protocol.MessageQueue]int64{}}
	k.mu.Lock()
	for id, q := range k.queues {
		if k.client.onWire(id.Topic) == h.Topic {
			id.Topic = h.Topic
			body.MessageQueueTable[wireQueue(id)] = q.positionLocked()
		}
	}
	k.mu.Unlock()
	return &invoke.Response{Code: remoting.Success, Body: protocol.Marshal(&body)}
}

// serveInfo tells what mqadmin consumerStatus shows.
func (k *Consumer) serveInfo(cmd *remoting.Command) *invoke.Response {
	var h protocol.ConsumerRunningInfoRequest
	if err := h.Decode(cmd); err != nil {
		return refusal(remoting.SystemError, err)
	}
	now := time.Now()
	info := protocol.ConsumerRunningInfo{
		MQTable:    map[protocol.MessageQueue]protocol.ProcessQueueInfo{},
		MQPopTable: map[protocol.MessageQueue]protocol.PopProcessQueue{},
		Properties: map[string]string{
			protocol.PropNameServerAddr:     strings.Join(k.client.servers.all(), ";"),
			protocol.PropConsumeType:        string(protocol.ConsumePassively),
			protocol.PropClientVersion:      "V5_5_0",
			protocol.PropThreadPoolCoreSize: strconv.Itoa(k.cfg.concurrency),
			protocol.PropConsumeOrderly:     strconv.FormatBool(k.cfg.ordered),
		},
		StatusTable:      map[string]protocol.ConsumeStatus{},
		SubscriptionSet:  []protocol.SubscriptionData{},
		UserConsumerInfo: map[string]string{},
	}
	k.mu.Lock()
	info.Properties[protocol.PropConsumerStartTimestamp] = strconv.FormatInt(k.begunAt.UnixMilli(), 10)
	for _, topic := range slices.Sorted(maps.Keys(k.subs)) {
		data := k.subs[topic].data
		data.Topic = k.client.onWire(topic)
		info.SubscriptionSet = append(info.SubscriptionSet, data)
		info.StatusTable[data.Topic] = k.statsLocked(topic).status(now)
	}
	for id, q := range k.queues {
		id.Topic = k.client.onWire(id.Topic)
		info.MQTable[wireQueue(id)] = q.infoLocked()
	}
	k.mu.Unlock()
	if h.Jstack {
		stack := make([]byte, 1<<20)
		info.Jstack = string(stack[:runtime.Stack(stack, true)])
	}
	return &invoke.Response{Code: remoting.Success, Body: protocol.Marshal(&info)}
}

func (q *queue) infoLocked() protocol.ProcessQueueInfo {
	p := protocol.ProcessQueueInfo{
		CommitOffset: q.positionLocked(), CachedMsgCount: int32(q.count),
		CachedMsgSizeInMiB: int32(q.bytes >> 20), Locked: q.k.cfg.ordered && q.lockValidLocked(),
		LastLockTimestamp: milli(q.lockedAt), Droped: q.dropped,
		LastPullTimestamp: milli(q.pulledAt), LastConsumeTimestamp: milli(q.tookAt),
		TransactionMsgCount: int32(q.active),
	}
	if n := q.entries.len(); n > 0 {
		p.CachedMsgMinOffset, p.CachedMsgMaxOffset = q.entries.at(0).offset, q.entries.at(n-1).offset
	}
	return p
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// serveDirectly runs the handler once with the message in the body. Its result changes nothing.
func (k *Consumer) serveDirectly(cmd *remoting.Command) *invoke.Response {
	var h protocol.ConsumeDirectlyRequest
	if err := h.Decode(cmd); err != nil {
		return refusal(remoting.SystemError, err)
	}
	v, err := record.Parse(cmd.Body)
	if err != nil {
		return refusal(remoting.SystemError, err)
	}
	id := Queue{
		Topic: k.client.offWire(string(v.Topic())), Broker: h.BrokerName, ID: int(v.QueueID()),
	}
	d := &delivery{view: v, offset: int64(v.QueueOffset())}
	dec := newDecoder(id, string(v.Topic()), k.client.offWire)
	dec.fill(&d.m, v, 0, v.Body())
	began := time.Now()
	err = d.open()
	if err == nil {
		ctx, cancel := context.WithTimeout(k.values, k.cfg.handlerTimeout)
		defer cancel()
		stop := context.AfterFunc(k.ctx, cancel)
		defer stop()
		if k.work.one != nil {
			err = protect(ctx, k.work.one, &d.m)
		} else if errs := protectBatch(ctx, k.work.batch, []*Received{&d.m}); len(errs) > 0 {
			err = errs[0]
		}
	}
	res := protocol.ConsumeMessageDirectlyResult{
		AutoCommit: true, Order: k.cfg.ordered, ConsumeResult: "CR_SUCCESS",
		SpentTimeMills: time.Since(began).Milliseconds(),
	}
	if err != nil {
		res.Remark = err.Error()
		switch what := decide(err); {
		case what.how == skipped:
		case isPanic(err):
			res.ConsumeResult = "CR_THROW_EXCEPTION"
		default:
			res.ConsumeResult = "CR_LATER"
		}
	}
	return &invoke.Response{Code: remoting.Success, Body: protocol.Marshal(&res)}
}
