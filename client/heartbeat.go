// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// beatsAtOnce bounds how many brokers are told at the same time.
const beatsAtOnce = 16

// wakeHeartbeats has heartbeats sent soon: a group or a broker is new.
func (c *Client) wakeHeartbeats() {
	select {
	case c.beat <- struct{}{}:
	default:
	}
}

// sendHeartbeats tells every known broker which groups this client has, all 30 s and when woken.
func (c *Client) sendHeartbeats() {
	for {
		t := time.NewTimer(jitter(c.cfg.beatEvery))
		select {
		case <-t.C:
		case <-c.beat:
			t.Stop()
		case <-c.ctx.Done():
			t.Stop()
			return
		}
		c.heartbeat()
	}
}

// heartbeat tells masters, and with readers the slaves too. Nothing is sent without a group.
func (c *Client) heartbeat() {
	data := protocol.HeartbeatData{
		ClientID:        c.id,
		ProducerDataSet: []protocol.ProducerData{}, ConsumerDataSet: []protocol.ConsumerData{},
	}
	for _, m := range c.currentMembers() {
		m.beatInto(&data)
	}
	if len(data.ProducerDataSet)+len(data.ConsumerDataSet) == 0 {
		return
	}
	r := &invoke.Request{Code: remoting.HeartBeat, Body: protocol.Marshal(&data)}
	c.eachBroker(c.ctx, len(data.ConsumerDataSet) > 0, func(ctx context.Context, addr string) {
		if _, err := c.call(ctx, "heartbeat", addr, addr, r); err != nil && c.ctx.Err() == nil {
			c.cfg.logger.Debug("heartbeat", "addr", addr, "err", err)
		}
	})
}

// eachBroker calls do for every known broker, several at once, each bounded by the call timeout.
func (c *Client) eachBroker(
	ctx context.Context, all bool, do func(ctx context.Context, addr string),
) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, beatsAtOnce)
	for _, addr := range c.routes.addresses(all) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, c.cfg.callTimeout)
			defer cancel()
			do(ctx, addr)
		})
	}
	wg.Wait()
}

// unregister tells every known broker that a group of this client is gone.
func (c *Client) unregister(ctx context.Context, producerGroup, consumerGroup string) {
	r := &invoke.Request{Code: remoting.UnregisterClient, Header: &protocol.UnregisterClientRequest{
		ClientID: c.id, ProducerGroup: producerGroup, ConsumerGroup: consumerGroup,
	}}
	c.eachBroker(ctx, consumerGroup != "", func(ctx context.Context, addr string) {
		if _, err := c.call(ctx, "unregister", addr, addr, r); err != nil {
			c.cfg.logger.Debug("unregister", "addr", addr, "err", err)
		}
	})
}
