// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"time"
)

// The hooks that WithHooks takes. A value may implement any number of them; several values are
// called in the order they were given. None is called with a lock held. They may be called from
// several goroutines at once. OnConnect and OnDisconnect run on a connection's goroutines and must
// not block; the others run on the goroutine of what they tell about, which waits for them. A panic
// in a hook is logged and otherwise ignored.
type (
	// ConnectHook is told of each connection made.
	ConnectHook interface{ OnConnect(addr string) }
	// DisconnectHook is told of each connection that ended, and why.
	DisconnectHook interface{ OnDisconnect(addr string, err error) }
	// RequestHook is told of each request that has its answer or none. op says what was asked, as in
	// BrokerError; bytes is the size of the body that was sent; err is nil when the peer answered
	// success.
	RequestHook interface {
		OnRequest(op, addr string, bytes int, took time.Duration, err error)
	}
	// SendHook is called before a message is sent, once whatever the number of attempts. m is the
	// hooks' own copy: they may add to its Properties, which are never nil. The context returned
	// goes on to the next hook and to OnSent.
	SendHook interface {
		OnSend(ctx context.Context, m *Message) context.Context
	}
	// SentHook is told how a send ended.
	SentHook interface {
		OnSent(ctx context.Context, m *Message, r SendResult, err error)
	}
	// ReceiveHook is called before a message is given to a handler or handed out. The context goes on
	// to the next hook, to the handler and to OnHandled; HandlerGroup tells whether there is one.
	ReceiveHook interface {
		OnReceive(ctx context.Context, m *Received) context.Context
	}
	// HandledHook is told how a handler ended.
	HandledHook interface {
		OnHandled(ctx context.Context, m *Received, err error)
	}
	// RebalanceHook is told which queues a consumer of a group got and lost.
	RebalanceHook interface {
		OnRebalance(group string, assigned, revoked []Queue)
	}
	// ThrottleHook is told why a queue is not read or written as fast as it could be: limits of a
	// consumer, or a broker that asks a producer to send slower.
	ThrottleHook interface {
		OnThrottle(q Queue, reason string)
	}
	// BufferHook is told what a producer holds whenever that changes. Calls may come out of order.
	BufferHook interface{ OnBuffer(messages, bytes int) }
)

// hooks are the values of WithHooks by what they implement.
type hooks struct {
	panicked func(hook string, value any) // logs

	connect    []ConnectHook
	disconnect []DisconnectHook
	request    []RequestHook
	send       []SendHook
	sent       []SentHook
	receive    []ReceiveHook
	handled    []HandledHook
	rebalance  []RebalanceHook
	throttle   []ThrottleHook
	buffer     []BufferHook
}

// collect adds v to the list if it implements H.
func collect[H any](list *[]H, v any) bool {
	h, ok := v.(H)
	if ok {
		*list = append(*list, h)
	}
	return ok
}

// add enters one value of the user.
func (h *hooks) add(v any) error {
	if v == nil {
		return fmt.Errorf("hook is nil")
	}
	found := false
	for _, is := range []bool{
		collect(&h.connect, v), collect(&h.disconnect, v), collect(&h.request, v),
		collect(&h.send, v), collect(&h.sent, v), collect(&h.receive, v), collect(&h.handled, v),
		collect(&h.rebalance, v), collect(&h.throttle, v), collect(&h.buffer, v),
	} {
		found = found || is
	}
	if !found {
		return fmt.Errorf("hook of type %T implements none of the hook interfaces: give one of "+
			"ConnectHook, RequestHook, SendHook and the others", v)
	}
	return nil
}

// guard ends a panic of a hook.
func (h *hooks) guard(name string) {
	if v := recover(); v != nil {
		h.panicked(name, v)
	}
}

func (c *Client) hookPanicked(hook string, value any) {
	c.cfg.logger.Error("panic in a hook", "hook", hook, "err", value, "stack", string(debug.Stack()))
}

func (h *hooks) onConnect(addr string) {
	for _, x := range h.connect {
		func() {
			defer h.guard("OnConnect")
			x.OnConnect(addr)
		}()
	}
}

func (h *hooks) onDisconnect(addr string, err error) {
	for _, x := range h.disconnect {
		func() {
			defer h.guard("OnDisconnect")
			x.OnDisconnect(addr, err)
		}()
	}
}

func (h *hooks) onRequest(op, addr string, bytes int, took time.Duration, err error) {
	for _, x := range h.request {
		func() {
			defer h.guard("OnRequest")
			x.OnRequest(op, addr, bytes, took, err)
		}()
	}
}

// watchesSends reports whether a send needs a copy of its message for the hooks.
func (h *hooks) watchesSends() bool { return len(h.send)+len(h.sent) > 0 }

// onSend returns the copy of m that the hooks have seen and what follows uses.
func (h *hooks) onSend(ctx context.Context, m *Message) (context.Context, *Message) {
	own := *m
	own.Properties = maps.Clone(m.Properties)
	if own.Properties == nil {
		own.Properties = map[string]string{}
	}
	for _, x := range h.send {
		func() {
			defer h.guard("OnSend")
			if next := x.OnSend(ctx, &own); next != nil {
				ctx = next
			}
		}()
	}
	return ctx, &own
}

func (h *hooks) onSent(ctx context.Context, m *Message, r SendResult, err error) {
	for _, x := range h.sent {
		func() {
			defer h.guard("OnSent")
			x.OnSent(ctx, m, r, err)
		}()
	}
}

func (h *hooks) onReceive(ctx context.Context, m *Received) context.Context {
	for _, x := range h.receive {
		func() {
			defer h.guard("OnReceive")
			if next := x.OnReceive(ctx, m); next != nil {
				ctx = next
			}
		}()
	}
	return ctx
}

func (h *hooks) onHandled(ctx context.Context, m *Received, err error) {
	for _, x := range h.handled {
		func() {
			defer h.guard("OnHandled")
			x.OnHandled(ctx, m, err)
		}()
	}
}

func (h *hooks) onRebalance(group string, assigned, revoked []Queue) {
	for _, x := range h.rebalance {
		func() {
			defer h.guard("OnRebalance")
			x.OnRebalance(group, assigned, revoked)
		}()
	}
}

func (h *hooks) onThrottle(q Queue, reason string) {
	for _, x := range h.throttle {
		func() {
			defer h.guard("OnThrottle")
			x.OnThrottle(q, reason)
		}()
	}
}

func (h *hooks) onBuffer(messages, bytes int) {
	for _, x := range h.buffer {
		func() {
			defer h.guard("OnBuffer")
			x.OnBuffer(messages, bytes)
		}()
	}
}
