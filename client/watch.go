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
}

// watch tells the hooks that a message is to be sent and returns what is sent in its place. Without
// hooks and trace it costs nothing.
func (p *Producer) watch(ctx context.Context, m *Message) (*Message, *watched) {
	hooks := &p.client.cfg.hooks
	if m == nil || !hooks.watchesSends() {
		return m, nil
	}
	ctx, m = hooks.onSend(ctx, m)
	return m, &watched{ctx: ctx, message: m, from: time.Now()}
}

// unwatch tells how a watched send ended.
func (p *Producer) unwatch(w *watched, r SendResult, err error) {
	p.client.cfg.hooks.onSent(w.ctx, w.message, r, err)
}
