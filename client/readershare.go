// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/skylarkmq/skylark/net/protocol"
)

// adopt implements sharer: positions of queues that go are stored before others may have them.
func (r *Reader) adopt(ctx context.Context, a *assignment) (balanced bool) {
	mine := map[Queue]bool{}
	for _, qs := range a.mine {
		for _, q := range qs {
			mine[q] = true
		}
	}
	var gone, got []Queue
	at := map[Queue]int64{}
	r.mu.Lock()
	for q, f := range r.queues {
		if _, asked := a.mine[q.Topic]; asked && !mine[q] {
			gone = append(gone, q)
			if f.doneAt >= 0 && f.doneAt != f.committed {
				at[q] = f.doneAt
			}
			r.dropLocked(f)
		}
	}
	for q := range mine {
		if r.queues[q] == nil {
			got = append(got, q)
		}
	}
	r.mu.Unlock()
	sortQueues(gone)
	sortQueues(got)
	r.callBack(ctx, r.cfg.onRevoked, gone)
	balanced = r.storeGone(ctx, at)
	r.callBack(ctx, r.cfg.onAssigned, got)
	r.mu.Lock()
	for _, q := range got {
		start := r.cfg.start
		if !a.old[q] {
			start = Earliest // what appears while the reader runs is new
		}
		delete(r.positions, q) // others may have had it since
		r.addLocked(q, r.subscriptionTo(q.Topic), start)
	}
	r.mu.Unlock()
	if len(got)+len(gone) > 0 {
		r.client.cfg.hooks.onRebalance(r.group, got, gone)
	}
	return balanced
}

// storeGone stores the positions of queues that went away.
func (r *Reader) storeGone(ctx context.Context, at map[Queue]int64) bool {
	if len(at) == 0 {
		return true
	}
	// Close must not keep them from being stored: the queues are not the reader's any more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.client.cfg.callTimeout)
	defer cancel()
	err := r.beginStore(ctx)
	if err == nil {
		err = r.storeAll(ctx, at)
		r.endStore()
	}
	if err != nil {
		r.client.cfg.logger.Warn("storing positions", "group", r.group, "err", err)
	}
	return err == nil
}

func (r *Reader) subscriptionTo(topic string) protocol.SubscriptionData {
	for _, s := range r.cfg.subscriptions {
		if s.topic == topic {
			return s.data
		}
	}
	return protocol.SubscriptionData{SubString: protocol.SubscribeAll}
}

// shared are the queues that were assigned by the group.
func (r *Reader) shared() []Queue {
	if r.balancer == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var queues []Queue
	for q := range r.queues {
		queues = append(queues, q)
	}
	sortQueues(queues)
	return queues
}
