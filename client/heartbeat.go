// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"slices"
	"strings"
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

// fullBeats knows the brokers that have the subscriptions of this client and need not be told again
// (RocketMQ's MQClientInstance.sendHeartbeatToBrokerV2).
type fullBeats struct {
	mu    sync.Mutex         // guards known
	known map[string]toldOne // by address
}

// toldOne is what a broker has, and the connection it came by: over another one there may be a broker
// that was started anew and knows nothing.
type toldOne struct {
	conn        *invoke.Conn
	fingerprint int32
}

func (b *fullBeats) has(addr string, one toldOne) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[addr] == one
}

// told notes what a broker answered to a heartbeat.
func (b *fullBeats) told(addr string, one toldOne, h protocol.HeartbeatResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !h.SupportV2 || h.SubChanged {
		delete(b.known, addr)
		return
	}
	if b.known == nil {
		b.known = map[string]toldOne{}
	}
	b.known[addr] = one
}

func (b *fullBeats) forgetAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.known)
}

// sendHeartbeats tells every known broker which groups this client has, all 30 s and when woken.
func (c *Client) sendHeartbeats() {
	for {
		t := time.NewTimer(jitter(c.cfg.beatEvery))
		select {
		case <-t.C:
			c.beatAll()
		case <-c.beat:
			t.Stop()
			c.heartbeat()
		case <-c.ctx.Done():
			t.Stop()
			return
		}
	}
}

// heartbeat tells brokers everything: something is new, or one of them does not know this client.
func (c *Client) heartbeat() {
	c.beats.forgetAll()
	c.beatAll()
}

// beatAll tells masters, and with readers the slaves too. Nothing is sent without a group.
func (c *Client) beatAll() {
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
	full := &invoke.Request{Code: remoting.HeartBeat}
	short := full
	if c.cfg.shortBeats {
		full.Body = inFull(&data)
		short = &invoke.Request{Code: remoting.HeartBeat, Body: inShort(data)}
	} else {
		full.Body = protocol.Marshal(&data)
	}
	c.eachBroker(c.ctx, len(data.ConsumerDataSet) > 0, func(ctx context.Context, addr string) {
		var err error
		if c.cfg.shortBeats {
			err = c.beat2(ctx, addr, full, short, data.HeartbeatFingerprint)
		} else {
			_, err = c.call(ctx, "heartbeat", addr, addr, full)
		}
		if err != nil && c.ctx.Err() == nil {
			c.cfg.logger.Debug("heartbeat", "addr", addr, "err", err)
		}
	})
}

// beat2 sends one heartbeat of version 2: the short one to a broker that has the rest.
func (c *Client) beat2(
	ctx context.Context, addr string, full, short *invoke.Request, fingerprint int32,
) error {
	conn, err := c.pool.Conn(ctx, addr)
	if err != nil {
		return err
	}
	one, r := toldOne{conn, fingerprint}, full
	if c.beats.has(addr, one) {
		r = short
	}
	from := time.Now()
	res, err := c.over(ctx, conn, r)
	c.tellHooks("heartbeat", addr, r, from, res, err)
	if err != nil {
		return err
	}
	var h protocol.HeartbeatResponse
	if err := h.Decode(res.Command); err != nil {
		return err
	}
	c.beats.told(addr, one, h)
	return brokerError("heartbeat", addr, addr, res.Code, res.Remark)
}

// inFull gives a heartbeat its fingerprint and returns its body. Groups and topics get an order, since
// the fingerprint must change only with them.
func inFull(h *protocol.HeartbeatData) []byte {
	slices.SortFunc(h.ProducerDataSet, func(a, b protocol.ProducerData) int {
		return strings.Compare(a.GroupName, b.GroupName)
	})
	slices.SortFunc(h.ConsumerDataSet, func(a, b protocol.ConsumerData) int {
		return strings.Compare(a.GroupName, b.GroupName)
	})
	for i := range h.ConsumerDataSet {
		slices.SortFunc(h.ConsumerDataSet[i].SubscriptionDataSet,
			func(a, b protocol.SubscriptionData) int { return strings.Compare(a.Topic, b.Topic) })
	}
	h.HeartbeatFingerprint = h.Fingerprint()
	return protocol.Marshal(h)
}

// inShort returns the body of a heartbeat without subscriptions.
func inShort(h protocol.HeartbeatData) []byte {
	h.WithoutSub = true
	h.ConsumerDataSet = slices.Clone(h.ConsumerDataSet)
	for i := range h.ConsumerDataSet {
		h.ConsumerDataSet[i].SubscriptionDataSet = []protocol.SubscriptionData{}
	}
	return protocol.Marshal(&h)
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
