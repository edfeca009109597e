// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

// crew is the worker pool of a consumer, shared by all its queues. Workers are started when there is
// work for them and live as long as the consumer. Guarded by Consumer.mu.
type crew struct {
	cond     *sync.Cond // work came, or the end
	ready    list[*queue]
	workers  map[*worker]struct{}
	idle     int  // workers that wait
	coming   bool // one of them, or a new one, was called and has not looked yet
	watching bool // an alarm looks for handlers that take too long
}

// worker calls handlers. Its fields are its own, apart from those that Consumer.mu guards.
type worker struct {
	k     *Consumer
	fates []fate
	now   time.Time // when the last handler ended

	// Guarded by Consumer.mu.
	queue   *queue
	batch   []*delivery
	began   time.Time
	ctx     *handlerContext // of the handler that runs
	givenUp bool            // it took too long and its messages were sent back
}

// fate is what becomes of a delivery.
type fate struct {
	settled bool
	failed  bool          // for the statistics
	after   time.Duration // of another try here
}

// listLocked puts a queue in line when it has something to hand out.
func (k *Consumer) listLocked(q *queue) {
	if !q.runnableLocked() {
		return
	}
	if !q.listed {
		q.listed = true
		k.crew.ready.push(q)
	}
	k.wakeLocked()
}

// wakeLocked has one more worker look for work, unless one is on its way. That one, when it finds
// some and leaves more, wakes the next: so short handlers do not wake a crew for nothing, and long
// ones soon have all of it.
func (k *Consumer) wakeLocked() {
	c := &k.crew
	switch {
	case c.coming:
	case c.idle > 0:
		c.coming = true
		c.cond.Signal()
	case len(c.workers) < k.cfg.concurrency && k.phase == running:
		c.coming = true
		w := &worker{k: k}
		if c.workers == nil {
			c.workers = map[*worker]struct{}{}
		}
		c.workers[w] = struct{}{}
		go w.run()
	}
}

// runnableLocked reports whether a message of the queue may be handed out now.
func (q *queue) runnableLocked() bool {
	if q.ready.len() == 0 || q.dropped || q.frozen || q.pausedLocked() {
		return false
	}
	if !q.k.cfg.ordered {
		return true
	}
	return !q.busy && !q.suspended && q.lockValidLocked()
}

// nextLocked gives a worker up to a batch of messages of one queue, queues taking turns.
func (k *Consumer) nextLocked(w *worker) bool {
	c := &k.crew
	for c.ready.len() > 0 {
		q := c.ready.pop()
		q.listed = false
		if !q.runnableLocked() {
			continue
		}
		w.queue, w.batch = q, w.batch[:0]
		for len(w.batch) < k.work.size && q.ready.len() > 0 {
			d := q.ready.pop()
			d.started = true
			if k.cfg.pop && !time.Now().Before(d.expires) { // others have it by now
				q.settleLocked(d)
				continue
			}
			w.batch = append(w.batch, d)
		}
		if len(w.batch) == 0 {
			continue
		}
		q.active += len(w.batch)
		q.busy = k.cfg.ordered && !k.cfg.byKey
		if q.runnableLocked() {
			q.listed = true
			c.ready.push(q)
		}
		w.began = time.Now()
		q.tookAt = w.began
		w.givenUp = false
		w.ctx = &w.batch[0].ctx
		if w.ctx.ended() { // of an earlier try
			w.ctx = &handlerContext{}
		}
		w.ctx.begin(k.values, w.began.Add(k.cfg.handlerTimeout))
		k.watchLocked(k.cfg.handlerTimeout)
		if c.ready.len() > 0 {
			k.wakeLocked()
		}
		return true
	}
	return false
}

// run works until the consumer ends.
func (w *worker) run() {
	k := w.k
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crew.coming = false
	for {
		for !k.nextLocked(w) {
			if k.phase == over {
				delete(k.crew.workers, w)
				k.crew.cond.Broadcast()
				return
			}
			k.crew.idle++
			k.crew.cond.Wait()
			k.crew.idle--
			k.crew.coming = false
		}
		k.mu.Unlock()
		w.handle()
		k.mu.Lock()
		w.finishLocked()
	}
}

// handle calls the handler with the worker's batch and settles what it says. No lock is held.
func (w *worker) handle() {
	k := w.k
	w.fates = w.fates[:0]
	for range w.batch {
		w.fates = append(w.fates, fate{})
	}
	if k.work.one != nil {
		w.handleOne(w.batch[0])
	} else {
		w.handleBatch()
	}
	w.ctx.end(context.Canceled)
	w.now = time.Now()
}

func (w *worker) handleOne(d *delivery) {
	k := w.k
	hooks := &k.client.cfg.hooks
	err := d.open()
	if err == nil {
		ctx := context.Context(w.ctx)
		if len(hooks.receive) > 0 {
			ctx = hooks.onReceive(ctx, &d.m)
		}
		request := w.traceBefore(d)
		err = protect(ctx, k.work.one, &d.m)
		w.traceAfter(d, request, err)
		if len(hooks.handled) > 0 {
			hooks.onHandled(ctx, &d.m, err)
		}
	}
	w.decide(0, err)
}

func (w *worker) handleBatch() {
	k := w.k
	hooks := &k.client.cfg.hooks
	ms := make([]*Received, 0, len(w.batch))
	ctx := context.Context(w.ctx)
	which := make([]int, 0, len(w.batch))
	results := make([]error, len(w.batch))
	for i, d := range w.batch {
		if results[i] = d.open(); results[i] != nil {
			continue
		}
		ctx = hooks.onReceive(ctx, &d.m)
		ms = append(ms, &d.m)
		which = append(which, i)
	}
	var errs []error
	requests := make([]string, len(w.batch))
	for _, i := range which {
		requests[i] = w.traceBefore(w.batch[i])
	}
	if len(ms) > 0 {
		errs = protectBatch(ctx, k.work.batch, ms)
	}
	for at, i := range which {
		var err error
		if errs != nil {
			if err = errMissing; at < len(errs) {
				err = errs[at]
			}
		}
		w.traceAfter(w.batch[i], requests[i], err)
		hooks.onHandled(ctx, &w.batch[i].m, err)
		results[i] = err
	}
	stopped := false
	for i := range w.batch {
		if stopped { // order: nothing behind a message that is to be tried again
			w.fates[i] = fate{after: suspendFor}
			continue
		}
		w.decide(i, results[i])
		stopped = k.cfg.ordered && !k.cfg.byKey && !w.fates[i].settled
	}
}

// errMissing stands for an entry that a batch handler left out.
var errMissing = errors.New("client: the batch handler returned fewer errors than it got messages")

// open decompresses the body. A body that cannot be read is nothing a handler or another try could
// mend.
func (d *delivery) open() error {
	if d.inflated {
		return nil
	}
	body, err := inflate(d.view.Body(), d.view.SysFlag())
	if err != nil {
		return DeadLetter(&DecodeError{Source: d.m.Source, Offset: d.offset, Err: err})
	}
	d.m.Body, d.inflated = body, true
	return nil
}

// decide works out the fate of a message and does what it takes: sending it back may wait for a
// broker.
func (w *worker) decide(i int, err error) {
	d, k := w.batch[i], w.k
	what := decide(err)
	if what.how != handled {
		k.tell(d, err)
	}
	if k.cfg.pop {
		w.settlePop(i, what)
		return
	}
	if what.how == handled {
		w.fates[i] = fate{settled: true}
		return
	}
	if what.how == skipped {
		w.fates[i] = fate{settled: true}
		return
	}
	w.fates[i] = fate{failed: true}
	if !k.counts(w) {
		return // the next owner of the queue gets it
	}
	if limit := k.cfg.retries(); k.cfg.ordered && limit >= 0 && d.m.Attempt > limit {
		what.how = deadLetter
	}
	switch {
	case k.cfg.broadcast && (!k.cfg.ordered || what.how == deadLetter):
		k.client.cfg.logger.Warn("message dropped", "group", k.group, "topic", d.m.Topic,
			"queue", w.queue.id.String(), "offset", d.offset, "err", err)
		w.fates[i].settled = true
	case k.cfg.ordered && what.how == again:
		w.fates[i].after = what.after
		if what.after < 0 {
			w.fates[i].after = suspendFor
		}
	default:
		w.fates[i].after = k.cfg.againAfter
		if k.cfg.ordered {
			w.fates[i].after = suspendFor
		}
		if err := k.giveBack(k.ctx, w.queue, d, delayLevel(what)); err != nil {
			k.client.cfg.logger.Warn("message could not be sent back", "group", k.group,
				"queue", w.queue.id.String(), "offset", d.offset, "err", err)
			return
		}
		w.fates[i].settled = true
	}
}

// counts reports whether what a worker's handler said is still asked for.
func (k *Consumer) counts(w *worker) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !w.queue.lost && !w.givenUp
}

// tell logs a handler's error: panics with their stack, others at debug level.
func (k *Consumer) tell(d *delivery, err error) {
	if p := (*panicked)(nil); errors.As(err, &p) {
		k.client.cfg.logger.Error("handler panicked", "group", k.group, "topic", d.m.Topic,
			"id", d.m.ID, "err", p.value, "stack", string(p.stack))
		return
	}
	k.client.cfg.logger.Debug("handler", "group", k.group, "topic", d.m.Topic, "id", d.m.ID,
		"attempt", d.m.Attempt, "err", err)
}

// finishLocked enters the fates of a batch.
func (w *worker) finishLocked() {
	k, q := w.k, w.queue
	stats := k.statsLocked(q.id.Topic)
	took := w.now.Sub(w.began)
	q.active -= len(w.batch)
	q.busy = false
	freed := 0
	var back []*delivery
	var pause time.Duration // of the first that goes back
	for i, d := range w.batch {
		f := w.fates[i]
		stats.handled(f.failed, w.now, took)
		switch {
		case w.givenUp: // its fate was decided without the handler
		case f.settled:
			q.settleLocked(d)
			q.passLocked(d)
			freed++
		case d.detached || q.lost:
			q.passLocked(d)
			freed++
		default:
			if f.failed {
				d.m.Attempt++
			}
			if k.cfg.ordered && !k.cfg.byKey {
				if back == nil {
					pause = f.after
				}
				back = append(back, d)
				continue
			}
			k.againLocked(q, d, f.after)
		}
	}
	if len(back) > 0 {
		k.suspendLocked(q, back, pause)
	}
	if q.active == 0 && q.calm != nil {
		close(q.calm)
		q.calm = nil
	}
	clear(w.batch)
	w.batch, w.ctx, w.queue = w.batch[:0], nil, nil
	if k.cfg.ordered && freed > 0 {
		k.listLocked(q)
	}
}

// againLocked offers a message once more after d has passed. A key waits with it.
func (k *Consumer) againLocked(q *queue, d *delivery, after time.Duration) {
	k.alarms.after(after, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if d.detached || q.dropped {
			return
		}
		q.ready.push(d)
		k.listLocked(q)
	})
}

// suspendLocked puts messages back at the front of an ordered queue, which goes on after d.
func (k *Consumer) suspendLocked(q *queue, back []*delivery, after time.Duration) {
	q.ready.putBack(back)
	q.suspended = true
	k.alarms.after(after, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		q.suspended = false
		k.listLocked(q)
	})
}

// watchLocked has an alarm look at running handlers after d, unless one does already.
func (k *Consumer) watchLocked(d time.Duration) {
	if k.crew.watching {
		return
	}
	k.crew.watching = true
	k.alarms.after(d, k.watch)
}

// watch ends the contexts of handlers whose time is over. One that goes on for as long again as the
// revoke timeout has its messages sent back, since nothing else would move the position.
func (k *Consumer) watch() {
	limit, final := k.cfg.handlerTimeout, k.cfg.handlerTimeout+k.cfg.revokeTimeout
	now := time.Now()
	var late []*handlerContext
	next := time.Duration(-1)
	k.mu.Lock()
	k.crew.watching = false
	for w := range k.crew.workers {
		if w.queue == nil || w.givenUp {
			continue
		}
		ran := now.Sub(w.began)
		if ran >= limit {
			late = append(late, w.ctx)
			if ran >= final && !k.cfg.ordered && !k.cfg.pop && k.phase == running && !w.queue.lost {
				w.givenUp = true
				q, ds := w.queue, append([]*delivery(nil), w.batch...)
				k.wg.Go(func() { k.giveUp(q, ds) })
				continue
			}
		}
		left := limit - ran
		if left <= 0 {
			left = max(final-ran, time.Millisecond)
		}
		if ran >= final {
			left = limit // ordered, pop: its context has ended, there is nothing else to do
		}
		if next < 0 || left < next {
			next = left
		}
	}
	if next >= 0 {
		k.watchLocked(next)
	}
	k.mu.Unlock()
	for _, ctx := range late {
		ctx.end(context.DeadlineExceeded)
	}
}

// giveUp settles messages whose handler does not return (RocketMQ's cleanExpiredMsg).
func (k *Consumer) giveUp(q *queue, ds []*delivery) {
	for _, d := range ds {
		k.client.cfg.logger.Warn("handler does not return", "group", k.group, "topic", d.m.Source.Topic,
			"queue", q.id.String(), "offset", d.offset)
		err := error(nil)
		if !k.cfg.broadcast {
			err = k.giveBack(k.ctx, q, d, levelOfExpired)
		}
		k.mu.Lock()
		if err == nil {
			q.settleLocked(d)
			q.passLocked(d)
		} else if k.phase == running {
			k.alarms.after(k.cfg.againAfter, func() {
				k.background(func() { k.giveUp(q, []*delivery{d}) })
			})
		}
		k.mu.Unlock()
	}
}

// awaitCrewLocked waits until all workers have ended, but not for handlers that ignore the end of
// their context. It returns how many of these there are.
func (k *Consumer) awaitCrewLocked() (left int) {
	for {
		left = 0
		for w := range k.crew.workers {
			if w.queue != nil {
				left++
			}
		}
		if len(k.crew.workers) == left {
			return left
		}
		k.crew.cond.Wait()
	}
}

// brokerRefused reports whether an error is a broker's answer, so that nothing was done.
func brokerRefused(err error, codes ...remoting.ResponseCode) bool {
	var be *BrokerError
	if !errors.As(err, &be) {
		return false
	}
	for _, c := range codes {
		if be.Code == int(c) {
			return true
		}
	}
	return len(codes) == 0
}
