// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// change is a rebalance notification that is due once the lock is given back.
type change struct {
	group string
	chs   []Channel
}

// Unregister takes a connection out of a producer group and a consumer group; empty names are
// skipped. notify says whether the consumer group wants its members told.
func (m *Members) Unregister(ch Channel, producerGroup, consumerGroup string, notify bool) {
	var told []Channel
	left := false
	m.mu.Lock()
	if producerGroup != "" {
		m.leaveProducerLocked(ch, producerGroup)
	}
	if g := m.consumers[consumerGroup]; g != nil {
		left = m.leaveLocked(g, ch)
		if notify && g.view.Model != protocol.Broadcasting {
			told = g.channels()
		}
	}
	m.mu.Unlock()
	if left {
		m.cfg.Left(consumerGroup)
	}
	if len(told) > 0 {
		m.cfg.NotifyChange(consumerGroup, told)
	}
}

// ChannelClosed takes a connection out of every group. The members that stay are told whatever
// their group's notify flag says, as in RocketMQ.
func (m *Members) ChannelClosed(ch Channel) {
	var changes []change
	var left []string
	m.mu.Lock()
	if in := m.channels[ch]; in != nil {
		for name := range in.producers {
			m.leaveProducerLocked(ch, name)
		}
		for name := range in.consumers {
			g := m.consumers[name]
			if m.leaveLocked(g, ch) {
				left = append(left, name)
			}
			if g.view.Model != protocol.Broadcasting && len(g.members) > 0 {
				changes = append(changes, change{name, g.channels()})
			}
		}
	}
	m.mu.Unlock()
	for _, name := range left {
		m.cfg.Left(name)
	}
	for _, c := range changes {
		m.cfg.NotifyChange(c.group, c.chs)
	}
}

// leaveLocked removes a connection from a consumer group, and the group with its last member, of
// which it tells.
func (m *Members) leaveLocked(g *consumerGroup, ch Channel) (last bool) {
	g.members = slices.DeleteFunc(g.members, func(p *member) bool { return p.Channel == ch })
	clear(g.warned)
	if len(g.members) == 0 {
		delete(m.consumers, g.name)
		m.publishLocked(g.name, nil)
	}
	if in := m.channels[ch]; in != nil {
		delete(in.consumers, g.name)
		m.forgetLocked(ch, in)
	}
	return len(g.members) == 0
}

func (m *Members) leaveProducerLocked(ch Channel, name string) {
	g := m.producers[name]
	in := m.channels[ch]
	if g == nil || in == nil || in.producers[name] == nil {
		return
	}
	g.members = slices.DeleteFunc(g.members, func(c *producer) bool {
		gone := c.Channel == ch
		if gone && m.byClient[c.ID] == ch && len(in.producers) == 1 {
			delete(m.byClient, c.ID)
		}
		if gone {
			g.dropID(c.ID)
		}
		return gone
	})
	clear(g.warned)
	if len(g.members) == 0 {
		delete(m.producers, name)
	}
	delete(in.producers, name)
	m.forgetLocked(ch, in)
}

func (m *Members) forgetLocked(ch Channel, in *memberships) {
	if len(in.consumers) == 0 && len(in.producers) == 0 {
		delete(m.channels, ch)
	}
}

// Expire removes clients that were silent for longer than the time-out at now and returns their
// connections, to be closed. The members that stay are told to rebalance before it returns; in
// RocketMQ they find out by themselves, up to 20 s later.
func (m *Members) Expire(now time.Time) []Channel {
	gone, changes := m.expire(now)
	for _, c := range changes {
		m.cfg.NotifyChange(c.group, c.chs)
	}
	return gone
}

func (m *Members) expire(now time.Time) (gone []Channel, changes []change) {
	limit := now.Add(-m.cfg.ChannelTimeout).UnixMilli()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.consumers {
		before := len(g.members)
		for _, p := range slices.Clone(g.members) {
			if p.LastMS < limit {
				m.leaveLocked(g, p.Channel)
				if !slices.Contains(gone, p.Channel) {
					gone = append(gone, p.Channel)
				}
			}
		}
		if n := len(g.members); n > 0 && n < before && g.view.Model != protocol.Broadcasting {
			changes = append(changes, change{g.name, g.channels()})
		}
	}
	for name, g := range m.producers {
		for _, c := range slices.Clone(g.members) {
			if c.LastMS < limit {
				m.leaveProducerLocked(c.Channel, name)
				if !slices.Contains(gone, c.Channel) {
					gone = append(gone, c.Channel)
				}
			}
		}
	}
	oldest := now.Add(-m.cfg.SubscriptionTimeout).UnixMilli()
	for key, s := range m.extra {
		if s.Data.SubVersion < oldest {
			delete(m.extra, key)
		}
	}
	return gone, changes
}

// armLocked starts the timer that looks for silent clients, unless it runs.
func (m *Members) armLocked() {
	if m.armed || m.closed {
		return
	}
	m.armed = true
	if m.timer == nil {
		m.timer = time.AfterFunc(m.cfg.ScanPeriod, m.scan)
		return
	}
	m.timer.Reset(m.cfg.ScanPeriod)
}

// scan runs on the timer. It is armed again only while there is something to watch.
func (m *Members) scan() {
	if gone := m.Expire(m.cfg.Now()); len(gone) > 0 {
		m.cfg.Expired(gone)
	}
	m.cfg.Scanned(m.cfg.Now())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed = false
	if len(m.channels) > 0 || len(m.extra) > 0 {
		m.armLocked()
	}
}
