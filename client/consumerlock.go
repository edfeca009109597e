// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// lockValidLocked reports whether the broker's lock on an ordered queue can still be relied on.
func (q *queue) lockValidLocked() bool {
	return q.k.cfg.broadcast || time.Since(q.lockedAt) < lockValidFor
}

// byBroker sorts queues by the broker that holds them.
func byBroker(ids []Queue) map[string][]Queue {
	brokers := map[string][]Queue{}
	for _, id := range ids {
		brokers[id.Broker] = append(brokers[id.Broker], id)
	}
	return brokers
}

// lock asks brokers for queues, or for more time with them, and returns those that were granted.
// A broker that does not answer grants none.
func (k *Consumer) lock(ctx context.Context, ids []Queue) map[Queue]bool {
	granted, _ := k.tryLock(ctx, ids)
	return granted
}

// tryLock is lock that also says which brokers answered.
func (k *Consumer) tryLock(
	ctx context.Context, ids []Queue,
) (granted map[Queue]bool, answered map[string]bool) {
	granted, answered = map[Queue]bool{}, map[string]bool{}
	brokers := byBroker(ids)
	var names []string
	for name := range brokers {
		names = append(names, name)
	}
	var mu sync.Mutex
	atOnce(names, func(name string) {
		res, err := k.callLocks(ctx, "lock", remoting.LockBatchMQ, brokers[name])
		if err == nil {
			var body protocol.LockBatchResponse
			if err = protocol.Unmarshal(res.Body, &body); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answered[name] = true
				for _, q := range body.LockOKMQSet {
					id := plainQueue(q)
					id.Topic = k.client.offWire(id.Topic)
					granted[id] = true
				}
				return
			}
		}
		if ctx.Err() == nil {
			k.client.cfg.logger.Debug("lock", "group", k.group, "broker", name, "err", err)
		}
	})
	return granted, answered
}

// unlock gives queues free, so that another member need not wait for the lock to run out.
func (k *Consumer) unlock(ctx context.Context, ids []Queue) {
	if !k.cfg.ordered || k.cfg.broadcast || len(ids) == 0 {
		return
	}
	// A renewal that is under way could lock them again.
	k.mu.Lock()
	renewing := k.renewing
	k.mu.Unlock()
	if renewing != nil {
		<-renewing
	}
	brokers := byBroker(ids)
	var names []string
	for name := range brokers {
		names = append(names, name)
	}
	atOnce(names, func(name string) {
		if _, err := k.callLocks(ctx, "unlock", remoting.UnlockBatchMQ, brokers[name]); err != nil {
			k.client.cfg.logger.Debug("unlock", "group", k.group, "broker", name, "err", err)
		}
	})
}

func (k *Consumer) callLocks(
	ctx context.Context, op string, code remoting.RequestCode, ids []Queue,
) (*invoke.Response, error) {
	body := protocol.LockBatchRequest{
		ClientID: k.client.id, ConsumerGroup: k.client.onWire(k.group),
	}
	for _, id := range ids {
		id.Topic = k.client.onWire(id.Topic)
		body.MQSet = append(body.MQSet, wireQueue(id))
	}
	rt := k.client.routes.cached(ids[0].Topic)
	if rt == nil || rt.master(ids[0].Broker) == "" {
		return nil, fmt.Errorf("client: %s: broker %s has no master: %w", op, ids[0].Broker, ErrNoRoute)
	}
	return k.client.call(ctx, op, ids[0].Broker, rt.master(ids[0].Broker), &invoke.Request{
		Code: code, Body: protocol.Marshal(&body),
	})
}

// lockLoop renews the locks of ordered queues. It waits for no handler, so that a slow one costs no
// lock.
func (k *Consumer) lockLoop() {
	for {
		t := time.NewTimer(jitter(k.cfg.lockEvery))
		select {
		case <-t.C:
		case <-k.ctx.Done():
			t.Stop()
			return
		}
		k.renewLocks()
	}
}

// renewLocks asks for more time. A queue that a broker refuses is another member's by now: it is
// dropped, and asked for again by the next round. Without an answer the lock holds until it runs
// out; nothing is handed out after that.
func (k *Consumer) renewLocks() {
	k.mu.Lock()
	queues := make([]*queue, 0, len(k.queues)+len(k.leaving))
	for _, q := range k.queues {
		queues = append(queues, q)
	}
	for _, q := range k.leaving { // handlers still run
		if !q.lost {
			queues = append(queues, q)
		}
	}
	renewing := make(chan struct{})
	k.renewing = renewing
	k.mu.Unlock()
	asked := time.Now()
	granted, answered := k.tryLock(k.ctx, idsOf(queues))
	var gone []*queue
	defer func() {
		for _, q := range gone {
			k.client.cfg.logger.Warn("lock of a queue was lost", "group", k.group,
				"queue", q.id.String())
		}
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewing = nil
	close(renewing)
	for _, q := range queues {
		switch {
		case granted[q.id]:
			q.lockedAt = asked
			k.listLocked(q)
		case answered[q.id.Broker] && k.queues[q.id] == q:
			k.dropLocked(q)
			gone = append(gone, q)
		}
	}
	if len(gone) > 0 && k.phase == running {
		k.releaseLaterLocked(gone)
		k.balancer.wake()
	}
}
