// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"
)

// watched is a send that hooks or the trace are told of.
type watched struct {
	ctx     context.Context
	message *Message
	from    time.Time

	// For the trace.
	kind    int
	addr    string // of the broker that has the message
	region  string
	traceOn bool
}

// Kinds of messages in the trace (RocketMQ's MessageType).
const (
	kindNormal = iota
	kindHalf
	kindCommit
	kindDelay
	kindOrder
)

// watch tells the hooks that a message is to be sent and returns what is sent in its place. Without
// hooks and trace it costs nothing.
func (p *Producer) watch(ctx context.Context, m *Message) (*Message, *watched) {
	hooks := &p.client.cfg.hooks
	if m == nil || !hooks.watchesSends() && p.tracer == nil {
		return m, nil
	}
	if hooks.watchesSends() {
		ctx, m = hooks.onSend(ctx, m)
	}
	return m, &watched{ctx: ctx, message: m, from: time.Now()}
}

// answered notes what the trace wants to know of a broker's answer.
func (w *watched) answered(op *sendOp) {
	if w != nil {
		w.addr, w.region, w.traceOn = op.addr, op.answer.region, op.answer.traceOn
	}
}

// unwatch tells how a watched send ended.
func (p *Producer) unwatch(w *watched, r SendResult, err error) {
	p.client.cfg.hooks.onSent(w.ctx, w.message, r, err)
	if err == nil {
		p.tracer.published(w, r)
	}
}
