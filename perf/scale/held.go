// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	heldTopic  = "held"
	heldQueues = 1000 // that are waited on; one more stands beside them
	// heldFor is how long the broker may hold a pull: longer than a level takes.
	heldFor = 300 * time.Second
)

// held are pulls that wait at the broker, one connection for each group.
type held struct {
	lab      *lab
	level    int
	conns    []*invoke.Conn
	next     []int64 // queue offset of each queue that is waited for
	answered atomic.Int64

	waiting sync.WaitGroup
	mu      sync.Mutex
	err     error // the first one
}

// hold has the broker hold so many pulls.
func (l *lab) hold(ctx context.Context, level int) (*held, error) {
	if err := l.makeTopic(ctx, heldTopic, heldQueues+1); err != nil {
		return nil, err
	}
	h := &held{lab: l, level: level, next: make([]int64, heldQueues)}
	for i := range (level + heldQueues - 1) / heldQueues {
		c, err := l.pool.Dial(ctx, l.broker.Addr)
		if err != nil {
			return nil, err
		}
		// The first pull of a group makes the group, on a worker. A thousand at once would be a
		// thousand commands for the workers, of which the broker takes 10 000 in all.
		first := h.pull(i, 0)
		first.SysFlag = protocol.PullSubscription
		r, err := c.Call(ctx, &invoke.Request{Code: remoting.PullMessage, Header: first})
		if err != nil {
			return nil, err
		}
		if r.Code != remoting.PullNotFound {
			return nil, fmt.Errorf("the first pull of group %d: %w", i, r.Err())
		}
		h.conns = append(h.conns, c)
	}
	return h, h.park(ctx)
}

// pull is the header of a pull of one group and queue, which may be held.
func (h *held) pull(group, queue int) *protocol.PullRequest {
	return &protocol.PullRequest{
		Group: fmt.Appendf(nil, "held-%d", group), Topic: []byte(heldTopic), QueueID: int32(queue),
		QueueOffset: h.next[queue], MaxMessages: 32, Subscription: []byte("*"), MaxBytes: -1,
		SysFlag:   protocol.PullSuspend | protocol.PullSubscription,
		SuspendMS: heldFor.Milliseconds(), RequestSource: -1,
	}
}

// park sends the pulls and returns when the broker has looked at all of them.
func (h *held) park(ctx context.Context) error {
	h.waiting.Add(h.level)
	for i := range h.level {
		r := &invoke.Request{
			Code: remoting.PullMessage, Header: h.pull(i/heldQueues, i%heldQueues), Borrow: true,
		}
		if err := h.conns[i/heldQueues].Async(ctx, r, h.done); err != nil {
			return err
		}
	}
	// A loop handles what one connection sends in its order: once this is answered, all pulls
	// before it are held.
	for _, c := range h.conns {
		err := h.lab.call(ctx, c, remoting.GetMaxOffset, &protocol.MaxOffsetRequest{Topic: heldTopic}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *held) done(r *invoke.Response, err error) {
	if err == nil {
		err = r.Err()
	}
	h.answered.Add(1)
	if err != nil {
		h.mu.Lock()
		if h.err == nil {
			h.err = err
		}
		h.mu.Unlock()
	}
	h.waiting.Done()
}

// sendBeside notes the CPU of sends to the one queue of the topic that nobody waits on.
func (h *held) sendBeside(ctx context.Context) error {
	c, err := h.lab.pool.Conn(ctx, h.lab.broker.Addr)
	if err != nil {
		return err
	}
	return h.lab.costOf(ctx, besideCPU, h.lab.plan.messages, func(w *window, _ int) error {
		return w.send(ctx, c, heldTopic, heldQueues)
	})
}

// wokenLeast is how many pulls are woken before their CPU is told.
const wokenLeast = 100_000

// wake sends a message to each queue that is waited on, again and again, and notes the CPU of the
// broker for each pull: taking it, holding it, waking it, and its share of the message.
func (h *held) wake(ctx context.Context) error {
	c, err := h.lab.pool.Conn(ctx, h.lab.broker.Addr)
	if err != nil {
		return err
	}
	before, err := h.lab.broker.Usage()
	if err != nil {
		return err
	}
	rounds := max(wokenLeast/h.level, 2)
	for range rounds {
		w := newWindow()
		for queue := range heldQueues {
			if err := w.send(ctx, c, heldTopic, queue); err != nil {
				return err
			}
			h.next[queue]++
		}
		if err := w.drain(ctx); err != nil {
			return err
		}
		if err := h.wait(ctx); err != nil {
			return err
		}
		if err := h.park(ctx); err != nil {
			return err
		}
	}
	after, err := h.lab.broker.Usage()
	used := after.CPUSeconds() - before.CPUSeconds()
	h.lab.readings[wakeCPU] = used * 1e6 / float64(rounds*h.level)
	return err
}

// wait returns when every pull was answered.
func (h *held) wait(ctx context.Context) error {
	all := make(chan struct{})
	go func() {
		h.waiting.Wait()
		close(all)
	}()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case <-all:
	case <-limit.C:
		return fmt.Errorf("not every pull that waited was answered within a minute")
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}
