// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"time"
)

type groupKey struct{}

// HandlerGroup returns the consumer group whose handler ctx was made for. ok is false for any other
// context, so a ReceiveHook can tell messages of a Consumer, for which OnHandled follows, from those
// of a Reader.
func HandlerGroup(ctx context.Context) (group string, ok bool) {
	group, ok = ctx.Value(groupKey{}).(string)
	return group, ok
}

// handlerContext is the context of one call of a handler. It is part of the memory of the message,
// costs no allocation until somebody waits for its end, and needs no timer of its own: the consumer
// ends it.
type handlerContext struct {
	values   context.Context // never ends
	deadline time.Time

	mu    sync.Mutex
	err   error
	done  chan struct{}   // nil until asked for
	after []*contextAfter // what AfterFunc registered
}

type contextAfter struct{ f func() }

func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *handlerContext) Value(key any) any { return c.values.Value(key) }

func (c *handlerContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *handlerContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// AfterFunc lets package context derive from this one without a goroutine for each child.
func (c *handlerContext) AfterFunc(f func()) (stop func() bool) {
	a := &contextAfter{f}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.after = append(c.after, a)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, o := range c.after {
			if o == a {
				c.after = append(c.after[:i], c.after[i+1:]...)
				return true
			}
		}
		return false
	}
}

// end ends the context with err, unless it has ended.
func (c *handlerContext) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, a := range after {
		go a.f()
	}
}

// ended reports whether the context has ended, and so belongs to an earlier call.
func (c *handlerContext) ended() bool { return c.Err() != nil }

// begin sets the context up, once.
func (c *handlerContext) begin(values context.Context, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values, c.deadline = values, deadline
}
