// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// adopt implements sharer: it drops the queues that went to others and starts the new ones.
func (k *Consumer) adopt(ctx context.Context, a *assignment) (balanced bool) {
	mine := map[Queue]bool{}
	for _, qs := range a.mine {
		for _, q := range qs {
			mine[q] = true
		}
	}
	balanced = true
	var add []Queue
	var gone []*queue
	k.mu.Lock()
	for id, q := range k.queues {
		_, asked := a.mine[id.Topic]
		if k.subs[id.Topic] == nil || asked && !mine[id] {
			k.dropLocked(q)
			gone = append(gone, q)
		}
	}
	for id := range mine {
		switch {
		case k.queues[id] != nil || k.subs[id.Topic] == nil:
		case k.leaving[id] != nil:
			k.leaving[id].wanted = true // its end wakes the balancer
			balanced = false
		default:
			add = append(add, id)
		}
	}
	k.releaseLaterLocked(gone)
	k.mu.Unlock()
	sortQueues(add)
	queues := k.prepare(ctx, add, a.old)
	if len(queues) < len(add) {
		balanced = false
	}
	k.begin(ctx, queues)
	return balanced
}

// prepare locks new queues if that is needed and finds out where they begin. Queues for which that
// fails are left out.
func (k *Consumer) prepare(ctx context.Context, add []Queue, old map[Queue]bool) []*queue {
	locked := map[Queue]bool{}
	needsLock := k.cfg.ordered && !k.cfg.broadcast
	if needsLock {
		locked = k.lock(ctx, add)
	}
	var mu sync.Mutex
	var queues []*queue
	atOnce(add, func(id Queue) {
		if needsLock && !locked[id] {
			return
		}
		at, stored, err := k.origin(ctx, id, old[id])
		if err != nil {
			if ctx.Err() == nil {
				k.client.cfg.logger.Warn("position of a new queue", "group", k.group,
					"queue", id.String(), "err", err)
			}
			return
		}
		q := k.newQueue(id, at, stored)
		q.lockedAt = time.Now()
		mu.Lock()
		queues = append(queues, q)
		mu.Unlock()
	})
	return queues
}

// origin works out where a queue begins: the stored position, else the start option. Queues that
// appeared while the consumer runs begin with their first message.
func (k *Consumer) origin(ctx context.Context, id Queue, old bool) (at int64, stored bool, err error) {
	if k.cfg.pop { // the broker knows
		return 0, true, nil
	}
	if k.store != nil {
		at, stored, err = k.store.Load(ctx, k.group, id)
	} else {
		at, stored, err = k.stored(ctx, id, true)
	}
	if err != nil || stored {
		return at, stored, err
	}
	s := k.cfg.start
	if !old {
		s = Earliest
	}
	at, err = k.start(ctx, id, s)
	return at, false, err
}

// begin tells the user of new queues and starts fetching them.
func (k *Consumer) begin(ctx context.Context, queues []*queue) {
	if len(queues) == 0 {
		return
	}
	ids := idsOf(queues)
	k.callBack(ctx, k.cfg.onAssigned, ids)
	k.mu.Lock()
	if k.phase != running {
		k.mu.Unlock()
		k.unlock(context.WithoutCancel(ctx), ids)
		return
	}
	var stray []Queue
	for _, q := range queues {
		s := k.subs[q.id.Topic]
		if s == nil { // unsubscribed meanwhile
			stray = append(stray, q.id)
			continue
		}
		q.sub = &s.data
		q.lane = k.laneLocked(q.id.Broker)
		k.queues[q.id] = q
		q.fetchLocked()
	}
	k.mu.Unlock()
	k.unlock(ctx, stray)
	k.client.cfg.hooks.onRebalance(k.group, ids, nil)
}

func idsOf(queues []*queue) []Queue {
	ids := make([]Queue, 0, len(queues))
	for _, q := range queues {
		ids = append(ids, q.id)
	}
	sortQueues(ids)
	return ids
}

// dropLocked stops fetching and handing out a queue. release does the rest.
func (k *Consumer) dropLocked(q *queue) {
	q.dropped = true
	q.pull = nil
	delete(k.queues, q.id)
	k.leaving[q.id] = q
}

// releaseLaterLocked gives dropped queues up on a goroutine of its own.
func (k *Consumer) releaseLaterLocked(queues []*queue) {
	if len(queues) == 0 {
		return
	}
	k.wg.Go(func() {
		if err := k.release(context.WithoutCancel(k.ctx), queues, k.cfg.revokeTimeout); err != nil {
			k.client.cfg.logger.Warn("giving queues up", "group", k.group, "err", err)
		}
	})
}

// release gives dropped queues up: it waits for their handlers, at most for patience, ends the
// contexts of those that still run, stores positions and unlocks.
func (k *Consumer) release(ctx context.Context, queues []*queue, patience time.Duration) error {
	k.awaitCalm(queues, patience)
	k.mu.Lock()
	var late []*handlerContext
	for _, q := range queues {
		q.lost = true
	}
	for w := range k.crew.workers {
		if w.queue != nil && w.queue.lost {
			late = append(late, w.ctx)
		}
	}
	k.mu.Unlock()
	for _, c := range late {
		c.end(context.Canceled)
	}
	if len(late) > 0 && patience >= k.cfg.drainTimeout {
		k.awaitCalm(queues, k.cfg.revokeTimeout) // draining: see whether they heed it
	}
	ids := idsOf(queues)
	k.callBack(ctx, k.cfg.onRevoked, ids)
	err := k.commit(ctx, queues, true)
	k.unlock(ctx, ids)
	k.mu.Lock()
	again := false
	for _, q := range queues {
		k.held -= q.count
		k.bytes -= q.bytes
		q.count, q.bytes = 0, 0
		again = again || q.wanted
		if k.leaving[q.id] == q {
			delete(k.leaving, q.id)
		}
	}
	k.uncrowdLocked()
	k.mu.Unlock()
	if len(ids) > 0 {
		k.client.cfg.hooks.onRebalance(k.group, nil, ids)
	}
	if again {
		k.balancer.wake()
	}
	return err
}

// awaitCalm waits until no handler has a message of the queues, but no longer than patience, nor
// than Close may.
func (k *Consumer) awaitCalm(queues []*queue, patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	for _, q := range queues {
		k.mu.Lock()
		calm := q.calm
		if q.active > 0 && calm == nil {
			calm = make(chan struct{})
			q.calm = calm
		}
		k.mu.Unlock()
		if calm == nil {
			continue
		}
		select {
		case <-calm:
		case <-t.C:
			return
		case <-k.hurry:
			return
		}
	}
}

// commitLoop stores positions every few seconds.
func (k *Consumer) commitLoop() {
	for {
		t := time.NewTimer(jitter(k.cfg.commitEvery))
		select {
		case <-t.C:
		case <-k.ctx.Done():
			t.Stop()
			return
		}
		k.mu.Lock()
		queues := make([]*queue, 0, len(k.queues))
		for _, q := range k.queues {
			queues = append(queues, q)
		}
		k.mu.Unlock()
		if err := k.commit(k.ctx, queues, false); err != nil && k.ctx.Err() == nil {
			k.client.cfg.logger.Warn("storing positions", "group", k.group, "err", err)
		}
	}
}

// commit stores the positions of queues where they changed. Only one store of a queue is under way
// at a time, or an old position could overtake a newer one: final waits for it, otherwise the queue
// is passed over.
func (k *Consumer) commit(ctx context.Context, queues []*queue, final bool) error {
	type save struct {
		q      *queue
		at     int64
		forced bool
	}
	if k.cfg.pop {
		return nil
	}
	var saves []save
	for _, q := range queues {
		k.mu.Lock()
		for final && q.saving != nil {
			saving := q.saving
			k.mu.Unlock()
			<-saving
			k.mu.Lock()
		}
		at := q.positionLocked()
		if q.saving == nil && (at > q.committed || q.forced && at != q.committed) &&
			(final || !q.dropped) {
			q.saving = make(chan struct{})
			saves = append(saves, save{q, at, q.forced})
			q.forced = false
		}
		k.mu.Unlock()
	}
	var mu sync.Mutex
	var errs []error
	stored := func(s save, err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		close(s.q.saving)
		s.q.saving = nil
		if err == nil {
			s.q.committed = s.at
		} else {
			s.q.forced = s.q.forced || s.forced
		}
	}
	if k.store != nil && len(saves) > 0 {
		offsets := map[Queue]int64{}
		for _, s := range saves {
			offsets[s.q.id] = s.at
		}
		err := k.store.Save(ctx, k.group, offsets)
		for _, s := range saves {
			stored(s, err)
		}
		if err != nil {
			return fmt.Errorf("client: consumer %s: storing positions: %w", k.group, err)
		}
		return nil
	}
	where := func(s save) brokerTopic { return brokerTopic{s.q.id.Broker, s.q.id.Topic} }
	oneFirst(saves, where, func(s save) {
		err := k.desk.store(ctx, s.q.id, s.at)
		stored(s, err)
		if err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
	})
	return errors.Join(errs...)
}
