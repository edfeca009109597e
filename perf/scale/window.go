// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// windowSize is how many requests of this program are in flight at most.
const windowSize = 256

// window sends requests with a bounded number of them in flight. One goroutine uses it.
type window struct {
	free chan error // a token for each place, with the outcome of the request that had it
}

func newWindow() *window {
	w := &window{free: make(chan error, windowSize)}
	for range windowSize {
		w.free <- nil
	}
	return w
}

// do sends a request once there is a place. The error may be that of an earlier one; an answer
// other than success is one.
func (w *window) do(ctx context.Context, c *invoke.Conn, r *invoke.Request) error {
	if err := <-w.free; err != nil {
		return err
	}
	r.Timeout = time.Minute
	return c.Async(ctx, r, func(r *invoke.Response, err error) {
		if err == nil {
			err = r.Err()
		}
		w.free <- err
	})
}

// send sends a small message to one queue.
func (w *window) send(ctx context.Context, c *invoke.Conn, topic string, queue int) error {
	return w.do(ctx, c, &invoke.Request{
		Code: remoting.SendMessageV2, Body: []byte("one"), Header: &protocol.SendRequest{
			Group: []byte("scale"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"),
			DefaultTopicQueues: 8, QueueID: int32(queue), BornMS: time.Now().UnixMilli(),
			MaxReconsumeTimes: -1,
		},
	})
}

// drain waits until every request was answered.
func (w *window) drain(ctx context.Context) error {
	for range windowSize {
		select {
		case err := <-w.free:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// costOf notes the server's CPU for each of n requests, which one makes. The cheapest of several
// runs counts.
func (l *lab) costOf(
	ctx context.Context, name string, n int, one func(w *window, i int) error,
) error {
	for repeat := range l.plan.repeats {
		before, err := l.broker.Usage()
		if err != nil {
			return err
		}
		w := newWindow()
		for i := range n {
			if err := one(w, i); err != nil {
				return err
			}
		}
		if err := w.drain(ctx); err != nil {
			return err
		}
		after, err := l.broker.Usage()
		if err != nil {
			return err
		}
		us := (after.CPUSeconds() - before.CPUSeconds()) * 1e6 / float64(n)
		if repeat == 0 || us < l.readings[name] {
			l.readings[name] = us
		}
	}
	return nil
}
