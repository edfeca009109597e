// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	consumerPullBytes = 256 << 10
	consumerSuspend   = 15 * time.Second // how long the broker holds a pull with nothing to return
	flowControlPause  = 20 * time.Millisecond
	noProgressPause   = 50 * time.Millisecond
)

// lane does the pulls of one broker: it resolves the address, hands requests to the connection and
// reads answers. Requests are asynchronous, so one goroutine serves all queues there, and a broker
// that cannot be reached delays no other.
type lane struct {
	k      *Consumer
	events *fifo[*pull] // to be sent, or answered; at most one of each queue counts
}

// pull is one request for messages. The lane owns it, apart from while it waits for its answer.
type pull struct {
	q       *queue
	at      int64
	version int64 // of the subscription
	sql     bool
	expr    string // of pop

	sent     time.Time
	addr     string
	answered bool
	res      *invoke.Response
	err      error
}

// Answered implements invoke.Waiter. It runs on the connection's reader.
func (p *pull) Answered(res *invoke.Response, err error) {
	p.res, p.err, p.answered = res, err, true
	p.q.lane.events.push(p)
}

// laneLocked returns the lane of a broker.
func (k *Consumer) laneLocked(broker string) *lane {
	l := k.lanes[broker]
	if l == nil {
		l = &lane{k: k, events: newFIFO[*pull]()}
		k.lanes[broker] = l
		k.wg.Go(l.run)
	}
	return l
}

func (l *lane) run() {
	for p := range l.events.all() {
		if !p.answered {
			if err := l.send(p); err != nil {
				p.err = err
				l.answer(p)
			}
			continue
		}
		l.answer(p)
	}
}

// current reports whether a pull is still the one that its queue waits for.
func (l *lane) current(p *pull) bool {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	return p.q.pull == p && !p.q.dropped
}

func (l *lane) send(p *pull) error {
	if !l.current(p) {
		return nil
	}
	k, q := l.k, p.q
	ctx, cancel := context.WithTimeout(k.ctx, k.client.cfg.callTimeout)
	defer cancel()
	addr, err := k.address(ctx, q.id, q.brokerID)
	if err != nil {
		return err
	}
	conn, err := k.client.pool.Conn(ctx, addr)
	if err != nil {
		return err
	}
	p.addr, p.sent = addr, time.Now()
	if k.cfg.pop {
		return conn.Start(context.Background(), p.popRequest(), p)
	}
	h := protocol.PullRequest{
		Group: q.group, Topic: q.topic, QueueID: int32(q.id.ID), QueueOffset: p.at,
		MaxMessages: int32(min(pullBatch, k.cfg.prefetch)), SysFlag: protocol.PullSuspend,
		SuspendMS: consumerSuspend.Milliseconds(), SubVersion: p.version,
		ExpressionType: []byte(protocol.ExpressionTag), MaxBytes: consumerPullBytes,
		RequestSource: -1, BrokerName: q.name,
	}
	if p.sql {
		h.ExpressionType = []byte(protocol.ExpressionSQL92)
	}
	// No position rides on the pull, as it does in RocketMQ's clients: brokers may handle it after a
	// later one that was stored by a request of its own, when the queue goes to another member.
	return conn.Start(context.Background(), &invoke.Request{
		Code: remoting.PullMessage, Header: &h, Timeout: pullTimeout,
	}, p)
}

// answer takes what came of a pull and starts the next one.
func (l *lane) answer(p *pull) {
	k := l.k
	if p.addr != "" && len(k.client.cfg.hooks.request) > 0 {
		failed := p.err
		if failed == nil {
			failed = brokerError("pull", p.q.id.Broker, p.addr, p.res.Code, p.res.Remark)
		}
		k.client.cfg.hooks.onRequest("pull", p.addr, 0, time.Since(p.sent), failed)
	}
	if !l.current(p) {
		return
	}
	if p.err != nil {
		l.fail(p, p.err)
		return
	}
	if k.cfg.pop {
		l.popped(p)
		return
	}
	switch p.res.Code {
	case remoting.Success, remoting.PullNotFound, remoting.PullRetryImmediately,
		remoting.PullOffsetMoved:
	default:
		l.fail(p, brokerError("pull", p.q.id.Broker, p.addr, p.res.Code, p.res.Remark))
		return
	}
	var h protocol.PullResponse
	if err := h.Decode(p.res.Command); err != nil {
		l.fail(p, fmt.Errorf("client: pull: answer of %s: %w", p.addr, err))
		return
	}
	p.q.brokerID = h.SuggestBrokerID
	if p.res.Code == remoting.PullOffsetMoved {
		l.correct(p, h.NextOffset)
		return
	}
	k.mu.Lock()
	sub := p.q.sub
	k.mu.Unlock()
	var ds []*delivery
	next := h.NextOffset
	if p.res.Code == remoting.Success {
		ds, next = l.decode(p, sub, &h)
	}
	l.arrive(p, sub, ds, next)
}

// arrive gives the messages to the queue.
func (l *lane) arrive(p *pull, sub *protocol.SubscriptionData, ds []*delivery, next int64) {
	k, q := l.k, p.q
	k.mu.Lock()
	if q.pull != p || q.dropped {
		k.mu.Unlock()
		return
	}
	q.pull, q.failures = nil, 0
	q.pulledAt = time.Now()
	k.statsLocked(q.id.Topic).pulled(len(ds), q.pulledAt, q.pulledAt.Sub(p.sent))
	earlier := next < q.next
	if sub != q.sub { // the filter changed since they were decoded
		ds = slices.DeleteFunc(ds, func(d *delivery) bool { return !wants(q.sub, tagOf(d.view)) })
	}
	q.arriveLocked(ds, next)
	var reason string
	if next == p.at && len(ds) == 0 && time.Since(p.sent) < noProgressPause {
		q.fetchLaterLocked(noProgressPause) // the broker does not hold pulls
	} else {
		reason = q.fetchLocked()
	}
	k.mu.Unlock()
	if earlier {
		k.client.cfg.logger.Warn("broker answers with an earlier offset", "group", k.group,
			"queue", q.id.String(), "offset", p.at, "next", next)
	}
	if reason != "" {
		k.client.cfg.hooks.onThrottle(q.id, reason)
	}
}

// correct goes on at the offset that the broker gave for one that its queue does not have. It is
// stored at once, and what was fetched from there on is dropped: it is not what the queue holds.
func (l *lane) correct(p *pull, next int64) {
	k, q := l.k, p.q
	k.client.cfg.logger.Warn("position corrected", "group", k.group, "queue", q.id.String(),
		"offset", p.at, "next", next)
	k.mu.Lock()
	if q.pull != p || q.dropped {
		k.mu.Unlock()
		return
	}
	if next == p.at { // it says the same again: not at full speed
		q.pull = nil
		q.fetchLaterLocked(noProgressPause)
		k.mu.Unlock()
		return
	}
	q.moveLocked(next)
	k.mu.Unlock()
	k.background(func() {
		if err := k.commit(k.ctx, []*queue{q}, false); err != nil && k.ctx.Err() == nil {
			k.client.cfg.logger.Warn("storing a corrected position", "group", k.group, "err", err)
		}
	})
}

// fail has the pull tried again, later each time.
func (l *lane) fail(p *pull, err error) {
	k, q := l.k, p.q
	if k.ctx.Err() != nil {
		return
	}
	q.brokerID = 0
	var be *BrokerError
	pause := time.Duration(0)
	if errors.As(err, &be) {
		switch remoting.ResponseCode(be.Code) {
		case remoting.FlowControl:
			pause = flowControlPause
		case remoting.SubscriptionNotExist, remoting.SubscriptionNotLatest,
			remoting.SubscriptionGroupNotExist:
			k.client.wakeHeartbeats() // the broker does not know us yet
		default:
		}
	}
	if pause == 0 {
		k.client.routes.stale(q.id.Topic)
	}
	k.mu.Lock()
	if q.pull != p || q.dropped {
		k.mu.Unlock()
		return
	}
	q.pull = nil
	if pause == 0 {
		pause = min(retryFirst<<min(q.failures, 10), retryMost)
		q.failures++
	}
	q.fetchLaterLocked(pause)
	failures := q.failures
	k.mu.Unlock()
	log := k.client.cfg.logger.Debug
	switch {
	case errors.Is(err, remoting.ErrFrameTooLarge) && failures == 1: // will not pass by itself
		log, err = k.client.cfg.logger.Error, advised(err)
	case failures == persistentFailures:
		log = k.client.cfg.logger.Warn
	}
	log("pull", "group", k.group, "queue", q.id.String(), "err", err)
	k.client.cfg.hooks.onThrottle(q.id, err.Error())
}

// persistentFailures is how many pulls of a queue fail in a row before a warning.
const persistentFailures = 5

// decode makes deliveries of the records of an answer and says where the next pull begins. Records
// whose tag only shares a hash with a wanted one are left out. A record that cannot be read ends
// the answer: it is asked for again, and passed over when it comes first.
func (l *lane) decode(
	p *pull, sub *protocol.SubscriptionData, h *protocol.PullResponse,
) (ds []*delivery, next int64) {
	q := p.q
	body := p.res.Body
	n, texts := measure(body)
	slab := make([]delivery, n)
	ds = make([]*delivery, 0, n)
	q.decoder.start(texts)
	defer q.decoder.end()
	next = p.at
	for i := range n {
		v, _ := record.Parse(body) // measure did it before
		body = body[v.TotalSize():]
		offset := int64(v.QueueOffset()) + h.OffsetDelta
		next = max(next, offset+1)
		if v.SysFlag()&sysUnwrap == sysUnwrap {
			ds = l.open(ds, q, sub, v, h.OffsetDelta)
			continue
		}
		if wants(sub, tagOf(v)) {
			d := &slab[i]
			l.fill(d, q, v, h.OffsetDelta)
			ds = append(ds, d)
		}
	}
	if len(body) == 0 {
		return ds, h.NextOffset
	}
	if n == 0 {
		next = p.at + 1
	}
	_, err := record.Parse(body)
	l.k.client.cfg.logger.Error("record cannot be read", "group", l.k.group, "queue", q.id.String(),
		"offset", next, "passedOver", n == 0, "err", err)
	return ds, next
}

// fill makes a delivery of a record. Its body stays as stored until a worker has it.
func (l *lane) fill(d *delivery, q *queue, v record.View, offsetDelta int64) {
	q.decoder.fill(&d.m, v, offsetDelta, v.Body())
	d.view, d.offset, d.size = v, d.m.Offset, int(v.TotalSize())
	d.inflated = v.SysFlag()&sysCompressed == 0
	d.key = d.m.OrderingKey
}

// open adds the messages of an inner batch.
func (l *lane) open(
	ds []*delivery, q *queue, sub *protocol.SubscriptionData, v record.View, offsetDelta int64,
) []*delivery {
	body, err := inflate(v.Body(), v.SysFlag())
	if err == nil {
		err = unwrap(v, body, func(one record.View) {
			if wants(sub, tagOf(one)) {
				d := &delivery{}
				l.fill(d, q, one, offsetDelta)
				ds = append(ds, d)
			}
		})
	}
	if err != nil {
		l.k.client.cfg.logger.Error("inner batch cannot be read", "group", l.k.group,
			"queue", q.id.String(), "offset", int64(v.QueueOffset())+offsetDelta, "err", err)
	}
	return ds
}

// background runs do on a goroutine that the end of the consumer waits for.
func (k *Consumer) background(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.phase == running {
		k.wg.Go(do)
	}
}

// checkFilter asks a broker of the topic whether it can serve a filter.
func (k *Consumer) checkFilter(ctx context.Context, s *subscription) error {
	rt, err := k.client.routes.fetch(ctx, s.topic)
	if err != nil {
		return err
	}
	data := s.data
	data.Topic = k.client.onWire(s.topic)
	for name := range rt.brokers {
		addr := rt.reader(name, 0)
		if addr == "" {
			continue
		}
		res, err := k.client.call(ctx, "check filter", name, addr, &invoke.Request{
			Code: remoting.CheckClientConfig,
			Body: protocol.Marshal(&protocol.CheckClientRequest{
				ClientID: k.client.id, Group: k.client.onWire(k.group), SubscriptionData: &data,
			}),
		})
		if err == nil && k.cfg.pop && res.Version > 0 && res.Version < sincePop {
			return fmt.Errorf("broker %s (%s) is older than RocketMQ 5 and has no pop, leave WithPop "+
				"out: %w", name, addr, ErrUnsupported)
		}
		return err
	}
	return fmt.Errorf("client: topic %s: %w", s.topic, ErrNoRoute)
}
