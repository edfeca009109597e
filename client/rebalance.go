// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sharer has queues that a balancer divides.
type sharer interface {
	// topics are the subscribed ones.
	topics() []string
	// adopt makes the queues of r this member's, gives up others, and reports whether all of it
	// worked. Queues of topics that r does not mention stay as they are, unless they are not
	// subscribed to any more.
	adopt(ctx context.Context, r *assignment) (balanced bool)
}

// assignment is what one round found out.
type assignment struct {
	mine map[string][]Queue // by topic; a topic that could not be asked about is missing
	old  map[Queue]bool     // queues that were there when their topic was first seen
}

// unbalancedSoon and unbalancedLater are the pauses before a round that follows one which could not
// do everything: the first few come soon.
const (
	unbalancedSoon  = time.Second
	unbalancedLater = 5 * time.Second
	unbalancedFew   = 5
	complainEvery   = time.Minute
)

// balancer finds out which queues are this member's, again and again: every 20 s, when a broker says
// that members changed, when routes or subscriptions change. One goroutine, run.
type balancer struct {
	desk
	share     sharer
	assignor  Assignor
	all       bool // every queue is this member's: broadcasting, pop, or no group
	pop       bool // queues stand for all of a broker
	every     time.Duration
	least     time.Duration // between two rounds
	wakeup    chan struct{} // capacity 1
	announced atomic.Bool   // brokers have been told the subscriptions

	// trouble is why a topic got no queues in the last round; nil: each got its share.
	trouble atomic.Pointer[error]

	// Confined to run.
	old        map[string]map[Queue]bool // first seen queues, by topic
	blocked    *error                    // the trouble of this round
	complained time.Time
	quiet      int // complaints not logged
}

func newBalancer(d desk, s sharer, cfg *consumerConfig) *balancer {
	return &balancer{
		desk: d, share: s, assignor: cfg.assignor, all: cfg.broadcast || cfg.pop || d.group == "",
		pop:   cfg.pop,
		every: cfg.rebalanceEvery, least: cfg.rebalanceLeast, wakeup: make(chan struct{}, 1),
		old: map[string]map[Queue]bool{},
	}
}

// wake has a round done soon.
func (b *balancer) wake() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}

// announce has brokers told the subscriptions before the next round, which is soon.
func (b *balancer) announce() {
	b.announced.Store(false)
	b.wake()
}

// run does rounds until ctx ends.
func (b *balancer) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		wait := jitter(b.every)
		if b.round(ctx) {
			failures = 0
		} else {
			failures++
			wait = min(wait, unbalancedLater)
			if failures <= unbalancedFew {
				wait = min(wait, unbalancedSoon)
			}
		}
		if !b.sleep(ctx, wait) {
			return
		}
		if early := b.least - time.Since(began); early > 0 {
			t := time.NewTimer(early)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
	}
}

func (b *balancer) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.wakeup:
	case <-ctx.Done():
		return false
	}
	return true
}

// round divides the queues of all topics once.
func (b *balancer) round(ctx context.Context) (balanced bool) {
	topics := b.share.topics()
	b.blocked = nil
	defer func() { b.trouble.Store(b.blocked) }()
	for topic := range b.old {
		if !slices.Contains(topics, topic) {
			delete(b.old, topic)
		}
	}
	routes := b.routesOf(ctx, topics)
	if b.group != "" && !b.announced.Swap(true) {
		b.client.heartbeat() // or the member list would lack this client
	}
	a := assignment{mine: map[string][]Queue{}, old: map[Queue]bool{}}
	balanced = len(routes) == len(topics)
	var mu sync.Mutex
	lists := &memberLists{list: map[string][]string{}}
	var known []string
	for topic, rt := range routes {
		known = append(known, topic)
		for q := range b.seen(topic, rt) {
			a.old[q] = true
		}
	}
	atOnce(known, func(topic string) {
		mine, err := b.divide(ctx, routes[topic], lists)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			balanced = false
			b.complain(ctx, topic, err)
			return
		}
		a.mine[topic] = mine
		if len(routes[topic].readable) == 0 {
			b.complain(ctx, topic, &noQueueError{topic, "read"})
		}
	})
	if ctx.Err() != nil {
		return false
	}
	return b.share.adopt(ctx, &a) && balanced
}

// routesOf returns the routes that are known or can be asked for.
func (b *balancer) routesOf(ctx context.Context, topics []string) map[string]*topicRoute {
	routes := map[string]*topicRoute{}
	var mu sync.Mutex
	atOnce(topics, func(topic string) {
		rt := b.client.routes.cached(topic)
		var err error
		if rt == nil || rt.template || len(rt.readable) == 0 {
			ctx, cancel := b.client.bounded(ctx)
			rt, err = b.client.routes.fetch(ctx, topic)
			cancel()
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			b.absent(topic, err)
			b.complain(ctx, topic, err)
			return
		}
		routes[topic] = rt
	})
	return routes
}

// seen returns the queues that a topic had when it was first looked at. What comes later begins
// with its first message: nobody can have meant to pass it over.
func (b *balancer) seen(topic string, rt *topicRoute) map[Queue]bool {
	if b.old[topic] == nil {
		b.old[topic] = map[Queue]bool{}
		for _, q := range rt.readable {
			b.old[topic][q] = true
		}
	}
	return b.old[topic]
}

// absent notes that a topic did not exist at first, so that all its queues are new.
func (b *balancer) absent(topic string, err error) {
	if errors.Is(err, ErrNoRoute) && b.old[topic] == nil {
		b.old[topic] = map[Queue]bool{}
	}
}

// errNotListed: brokers do not know yet that this client is in the group.
var errNotListed = errors.New("this client is not in the list of members yet")

// divide works out which queues of one topic are this member's.
func (b *balancer) divide(
	ctx context.Context, rt *topicRoute, lists *memberLists,
) ([]Queue, error) {
	queues := slices.Clone(rt.readable)
	sortQueues(queues)
	if b.pop {
		queues = popQueues(queues)
	}
	if b.all || len(queues) == 0 {
		return queues, nil
	}
	members, err := b.members(ctx, rt, lists)
	if err != nil {
		return nil, err
	}
	slices.Sort(members)
	if !slices.Contains(members, b.client.id) {
		b.announced.Store(false)
		return nil, errNotListed
	}
	return b.assignor.Assign(b.client.id, members, queues), nil
}

// complain keeps what keeps queues from being assigned for who waits for them, and logs it once a
// minute.
func (b *balancer) complain(ctx context.Context, topic string, err error) {
	if ctx.Err() != nil {
		return
	}
	if b.blocked == nil {
		b.blocked = &err
	}
	if errors.Is(err, errNotListed) || time.Since(b.complained) < complainEvery {
		b.quiet++
		b.client.cfg.logger.Debug("queues are not assigned", "group", b.group, "topic", topic,
			"err", err)
		return
	}
	b.client.cfg.logger.Warn("queues are not assigned", "group", b.group, "topic", topic, "err", err,
		"unlogged", b.quiet)
	b.complained, b.quiet = time.Now(), 0
}
