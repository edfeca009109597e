// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// WithLatencyFaultTolerance passes over brokers for a while that were slow or failed: RocketMQ's
// table of times. With a detector, a broker that failed counts as reachable again only when a probe
// has reached it. The default is off.
func WithLatencyFaultTolerance(detector bool) ProducerOption {
	return func(c *producerConfig) { c.tolerant, c.detector = true, detector }
}

// avoidFor is how long a broker is passed over for a latency (RocketMQ's MQFaultStrategy).
func avoidFor(latency time.Duration) time.Duration {
	switch {
	case latency >= 15*time.Second:
		return 30 * time.Second
	case latency >= 5*time.Second:
		return 10 * time.Second
	case latency >= 3*time.Second:
		return 6 * time.Second
	case latency >= 1800*time.Millisecond:
		return 5 * time.Second
	case latency >= 550*time.Millisecond:
		return 2 * time.Second
	default:
		return 0
	}
}

const (
	isolated    = 10 * time.Second // the latency that a failure counts as
	detectEvery = 3 * time.Second
	detectAgain = 2 * time.Second // at least, between two probes of one broker
	detectLimit = 200 * time.Millisecond
)

// faultTable knows which brokers of a producer are slow.
type faultTable struct {
	detector bool

	mu      sync.Mutex
	brokers map[string]*fault
}

type fault struct {
	until       time.Time // not available before
	unreachable bool
	checked     time.Time
}

func newFaultTable(detector bool) *faultTable {
	return &faultTable{detector: detector, brokers: map[string]*fault{}}
}

// note takes the outcome of an attempt.
func (f *faultTable) note(broker string, took time.Duration, err error) {
	reachable := true
	var ie *invoke.Error
	var be *BrokerError
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		return // the caller gave up, which says nothing of the broker
	case errors.As(err, &ie):
		took, reachable = isolated, !f.detector
	case errors.As(err, &be):
		took, reachable = isolated, false
	}
	wait := avoidFor(took)
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.brokers[broker]
	if x == nil {
		if wait == 0 && reachable {
			return
		}
		x = &fault{}
		f.brokers[broker] = x
	}
	x.unreachable = !reachable
	if until := time.Now().Add(wait); until.After(x.until) {
		x.until = until
	}
}

// choose looks from a queue on for one whose broker is available and did not just fail, then for
// one that is at least reachable.
func (f *faultTable) choose(queues []Queue, from uint32, notLast string) (Queue, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	n := uint32(len(queues))
	for _, fits := range []func(x *fault) bool{
		func(x *fault) bool { return !now.Before(x.until) },
		func(x *fault) bool { return !x.unreachable },
	} {
		for i := range n {
			q := queues[(from+i)%n]
			x := f.brokers[q.Broker]
			if q.Broker != notLast && (x == nil || fits(x)) {
				return q, true
			}
		}
	}
	return Queue{}, false
}

// due returns the unreachable brokers to probe now and forgets those that no route mentions.
func (f *faultTable) due(addrs map[string]string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	var list []string
	for name, x := range f.brokers {
		switch {
		case addrs[name] == "":
			delete(f.brokers, name)
		case x.unreachable && now.Sub(x.checked) >= detectAgain:
			x.checked = now
			list = append(list, name)
		}
	}
	return list
}

func (f *faultTable) reached(broker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.brokers[broker]; x != nil {
		x.unreachable = false
	}
}

// detect probes brokers that could not be reached until they can.
func (p *Producer) detect() {
	for {
		t := time.NewTimer(jitter(detectEvery))
		select {
		case <-t.C:
		case <-p.ctx.Done():
			t.Stop()
			return
		}
		addrs := p.client.routes.masters()
		for _, broker := range p.faults.due(addrs) {
			ctx, cancel := context.WithTimeout(p.ctx, detectLimit)
			_, err := p.client.request(ctx, "detect", addrs[broker], &invoke.Request{
				Code:   remoting.GetMaxOffset,
				Header: &protocol.MaxOffsetRequest{Topic: protocol.SelfTestTopic, BrokerName: broker},
			})
			cancel()
			if err == nil {
				p.faults.reached(broker)
			}
		}
	}
}
