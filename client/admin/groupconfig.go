// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"maps"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// GroupConfig is what a broker keeps about a consumer group. NewGroup gives the defaults; a zero
// GroupConfig is a group that may not consume.
type GroupConfig struct {
	Name string

	Enabled      bool // the group may consume
	FromMin      bool // it may start from the first message
	Broadcast    bool // it may consume in broadcast mode
	Ordered      bool // messages that it sends back keep their order (consumeMessageOrderly)
	NotifyChange bool // members are told when others come and go

	RetryQueues int // of its retry topic
	MaxRetries  int // redeliveries before a message becomes a dead letter
	RetryPolicy RetryPolicy

	ConsumeTimeout time.Duration // whole minutes
	BrokerID       int64         // from which it reads; 0 is the master
	SlowBrokerID   int64         // from which it reads when it is far behind
	SysFlag        int
	Attributes     map[string]string

	// Subscriptions that the broker insists on; nil: none.
	Subscriptions []GroupSubscription
}

// GroupSubscription is a subscription in a group's configuration.
type GroupSubscription struct {
	Topic, Expression, ExpressionType string
	Version                           int64
}

// RetryPolicy says when a message is delivered again. The zero value is the broker's table of delay
// levels, from 10 s to 2 h.
type RetryPolicy struct {
	Delays []time.Duration // of the first, second... redelivery; the last counts for the rest

	// Exponential, when Initial is not zero: Initial times Multiplier for each further one, at most
	// Max.
	Initial, Max time.Duration
	Multiplier   int
}

// NewGroup returns what a group is that nobody configured.
func NewGroup(name string) GroupConfig {
	c := protocol.DefaultSubscriptionGroup(name)
	return groupConfigOf(&c)
}

func groupConfigOf(c *protocol.SubscriptionGroupConfig) GroupConfig {
	g := GroupConfig{
		Name: c.GroupName, Enabled: c.ConsumeEnable, FromMin: c.ConsumeFromMinEnable,
		Broadcast: c.ConsumeBroadcastEnable, Ordered: c.ConsumeMessageOrderly,
		NotifyChange: c.NotifyConsumerIDsChangedEnable, RetryQueues: int(c.RetryQueueNums),
		MaxRetries: int(c.RetryMaxTimes), RetryPolicy: retryPolicyOf(c.GroupRetryPolicy),
		ConsumeTimeout: time.Duration(c.ConsumeTimeoutMinute) * time.Minute, BrokerID: c.BrokerID,
		SlowBrokerID: c.WhichBrokerWhenConsumeSlowly, SysFlag: int(c.GroupSysFlag),
		Attributes: maps.Clone(c.Attributes),
	}
	for _, s := range c.SubscriptionDataSet {
		g.Subscriptions = append(g.Subscriptions, GroupSubscription{
			Topic: s.Topic, Expression: s.Expression, ExpressionType: s.ExpressionType, Version: s.Version,
		})
	}
	return g
}

func retryPolicyOf(p *protocol.GroupRetryPolicy) RetryPolicy {
	switch {
	case p == nil:
	case p.Type == protocol.RetryPolicyExponential && p.ExponentialRetryPolicy != nil:
		e := p.ExponentialRetryPolicy
		return RetryPolicy{Initial: millis(e.Initial), Max: millis(e.Max), Multiplier: int(e.Multiplier)}
	case p.CustomizedRetryPolicy != nil:
		var r RetryPolicy
		for _, ms := range p.CustomizedRetryPolicy.Next {
			r.Delays = append(r.Delays, millis(ms))
		}
		return r
	}
	return RetryPolicy{}
}

func (p RetryPolicy) wire() *protocol.GroupRetryPolicy {
	w := &protocol.GroupRetryPolicy{Type: protocol.RetryPolicyCustomized}
	if p.Initial != 0 {
		w.Type = protocol.RetryPolicyExponential
		w.ExponentialRetryPolicy = &protocol.ExponentialRetryPolicy{
			Initial: p.Initial.Milliseconds(), Max: p.Max.Milliseconds(), Multiplier: int64(p.Multiplier),
		}
		return w
	}
	if len(p.Delays) > 0 {
		w.CustomizedRetryPolicy = &protocol.CustomizedRetryPolicy{}
		for _, d := range p.Delays {
			w.CustomizedRetryPolicy.Next = append(w.CustomizedRetryPolicy.Next, d.Milliseconds())
		}
	}
	return w
}

func (g *GroupConfig) check(op string) error {
	if err := protocol.ValidGroup([]byte(g.Name)); err != nil {
		return invalid(op, "group %q: %w", g.Name, err)
	}
	if g.RetryQueues < 0 || g.MaxRetries < -1 || g.ConsumeTimeout < 0 {
		return invalid(op, "group %s with %d retry queues, %d retries and a timeout of %s",
			g.Name, g.RetryQueues, g.MaxRetries, g.ConsumeTimeout)
	}
	p := g.RetryPolicy
	if p.Initial < 0 || p.Max < p.Initial ||
		p.Initial != 0 && (p.Multiplier < 1 || len(p.Delays) > 0) {
		return invalid(op, "retry policy of group %s: initial %s, max %s, multiplier %d and %d delays",
			g.Name, p.Initial, p.Max, p.Multiplier, len(p.Delays))
	}
	return nil
}

func (g *GroupConfig) wire() *protocol.SubscriptionGroupConfig {
	c := &protocol.SubscriptionGroupConfig{
		GroupName: g.Name, ConsumeEnable: g.Enabled, ConsumeFromMinEnable: g.FromMin,
		ConsumeBroadcastEnable: g.Broadcast, ConsumeMessageOrderly: g.Ordered,
		NotifyConsumerIDsChangedEnable: g.NotifyChange, RetryQueueNums: int32(g.RetryQueues),
		RetryMaxTimes: int32(g.MaxRetries), GroupRetryPolicy: g.RetryPolicy.wire(),
		ConsumeTimeoutMinute: int32(g.ConsumeTimeout / time.Minute), BrokerID: g.BrokerID,
		WhichBrokerWhenConsumeSlowly: g.SlowBrokerID, GroupSysFlag: int32(g.SysFlag),
		Attributes: maps.Clone(g.Attributes),
	}
	for _, s := range g.Subscriptions {
		c.SubscriptionDataSet = append(c.SubscriptionDataSet, protocol.SimpleSubscriptionData{
			Topic: s.Topic, Expression: s.Expression, ExpressionType: s.ExpressionType, Version: s.Version,
		})
	}
	return c
}
