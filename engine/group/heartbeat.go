// SPDX-License-Identifier: Apache-2.0

package group

import (
	"hash/maphash"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// Heartbeat registers what a client said (RocketMQ ClientManageProcessor.heartBeat and
// heartBeatV2). Broken parts are left out and the rest is taken: a group or a topic without a name
// does not exist, a client without an id registers nothing. It blocks where Admit does.
func (m *Members) Heartbeat(
	ch Channel, client ClientInfo, data *protocol.HeartbeatData,
) HeartbeatResult {
	v2 := data.HeartbeatFingerprint != 0
	result := HeartbeatResult{SubChanged: !v2}
	if strings.TrimSpace(client.ID) == "" {
		if len(data.ConsumerDataSet)+len(data.ProducerDataSet) > 0 && m.tellBlank() {
			m.cfg.Notice("heartbeat without a client id", "addr", ch.RemoteAddr())
		}
		return result
	}
	client.LastMS = m.cfg.Now().UnixMilli()
	for i := range data.ConsumerDataSet {
		c := &data.ConsumerDataSet[i]
		if strings.TrimSpace(c.GroupName) == "" ||
			m.cfg.RejectPull && c.ConsumeType == protocol.ConsumeActively {
			continue
		}
		notify, ok := m.cfg.Admit(c)
		if !ok {
			continue
		}
		r := registration{
			ch: ch, client: client, data: c, notify: notify,
			fingerprint: data.HeartbeatFingerprint, short: v2 && data.WithoutSub,
		}
		stale, err := m.register(r)
		if stale && v2 {
			result.SubChanged = true
		}
		if err != nil && result.Refused == nil {
			result.Refused = err
		}
	}
	if m.cfg.ProducersOff {
		return result
	}
	for i := range data.ProducerDataSet {
		if name := data.ProducerDataSet[i].GroupName; strings.TrimSpace(name) != "" {
			m.registerProducer(name, Connection{ch, client})
		}
	}
	return result
}

// tellBlank is true once a minute: any client can send as many of these as it likes.
func (m *Members) tellBlank() bool {
	now, last := m.cfg.Now().UnixMilli(), m.blankMS.Load()
	return now-last >= time.Minute.Milliseconds() && m.blankMS.CompareAndSwap(last, now)
}

// registration is one consumer group of one heartbeat.
type registration struct {
	ch          Channel
	client      ClientInfo
	data        *protocol.ConsumerData
	notify      bool
	fingerprint int32
	short       bool // no subscriptions in the heartbeat: leave them as they are
}

// register follows RocketMQ's ConsumerManager.registerConsumer: members are told to rebalance when
// a connection is new or when a topic came or went, not when an expression changed. It returns
// whether the group's subscriptions may differ from what the client last said in full. An error
// refuses the client, and leaves the group as it was.
func (m *Members) register(r registration) (stale bool, err error) {
	var wished map[string]*Subscription
	var digest uint64
	if !r.short {
		wished, digest = m.wish(r.data.SubscriptionDataSet)
	}
	m.mu.Lock()
	g := m.consumers[r.data.GroupName]
	if g == nil {
		g = &consumerGroup{name: r.data.GroupName, warned: map[string]bool{}}
		m.consumers[g.name] = g
	}
	if m.cfg.RefuseDifferent {
		if r.short && m.memberLocked(r.ch, g.name) == nil {
			m.mu.Unlock()
			return true, nil // what it wants is not known: the full heartbeat first
		}
		if w, found := g.quarrel(r, wished); found {
			m.mu.Unlock()
			return false, m.refuse(g.name, w)
		}
	}
	stale = g.beaten && g.fingerprint != r.fingerprint
	g.fingerprint, g.beaten = r.fingerprint, true

	p, joined := g.join(r, m.membershipsLocked(r.ch))
	changed, same := false, true
	var subs map[string]*Subscription
	if g.view != nil {
		subs = g.view.Subs
	}
	if r.short {
		// RocketMQ does not ask for a full heartbeat here; a broker that was started anew would
		// then never learn the subscriptions.
		stale = stale || len(subs) == 0
	} else {
		p.subs, p.digest = wished, digest
		subs, changed, same = merge(subs, p.subs)
	}
	m.adoptLocked(g, r.data, subs, same)
	var told []Channel
	if (joined || changed) && r.notify && r.data.MessageModel != protocol.Broadcasting {
		told = g.channels()
	}
	warnings := g.inspect(p, joined)
	m.armLocked()
	m.mu.Unlock()

	m.warn(g.name, warnings)
	if !r.short {
		m.cfg.Registered(g.name, r.data.SubscriptionDataSet)
	}
	if told != nil {
		m.cfg.NotifyChange(g.name, told)
	}
	return stale, nil
}

// adoptLocked makes the latest heartbeat's values the group's, and visible, if they differ.
func (m *Members) adoptLocked(
	g *consumerGroup, c *protocol.ConsumerData, subs map[string]*Subscription, same bool,
) {
	v := &View{Type: c.ConsumeType, Model: c.MessageModel, From: c.ConsumeFromWhere, Subs: subs}
	if same && g.view != nil && g.view.Type == v.Type && g.view.Model == v.Model &&
		g.view.From == v.From {
		return
	}
	g.view = v
	m.publishLocked(g.name, v)
}

// join adds or refreshes the member behind a connection.
func (g *consumerGroup) join(r registration, in *memberships) (p *member, joined bool) {
	if p = in.consumers[g.name]; p == nil {
		p = &member{joinedMS: r.client.LastMS}
		g.members = append(g.members, p)
		in.consumers[g.name] = p
		joined = true
	}
	p.Connection = Connection{r.ch, r.client}
	return p, joined
}

// memberLocked returns what a connection is in a consumer group; nil: no member.
func (m *Members) memberLocked(ch Channel, group string) *member {
	if in := m.channels[ch]; in != nil {
		return in.consumers[group]
	}
	return nil
}

func (g *consumerGroup) channels() []Channel {
	chs := make([]Channel, len(g.members))
	for i, p := range g.members {
		chs[i] = p.Channel
	}
	return chs
}

// wish turns the subscriptions of a heartbeat into a map and its digest. Nameless ones are left
// out; of two for one topic the newer wins.
func (m *Members) wish(list []protocol.SubscriptionData) (map[string]*Subscription, uint64) {
	subs := make(map[string]*Subscription, len(list))
	for i := range list {
		topic := list[i].Topic
		if strings.TrimSpace(topic) == "" {
			continue
		}
		if old := subs[topic]; old == nil || list[i].SubVersion > old.Data.SubVersion {
			subs[topic] = newSubscription(list[i])
		}
	}
	var digest uint64
	for topic, s := range subs {
		var h maphash.Hash
		h.SetSeed(m.seed)
		for _, part := range [...]string{topic, s.Data.ExpressionType, s.Data.SubString} {
			h.WriteString(part)
			h.WriteByte(0)
		}
		digest ^= h.Sum64()
	}
	return subs, digest
}

// newSubscription completes what a client left out: no type is TAG, and tags whose hashes are
// missing are hashed here.
func newSubscription(d protocol.SubscriptionData) *Subscription {
	if d.ExpressionType == "" {
		d.ExpressionType = protocol.ExpressionTag
	}
	if d.ExpressionType != protocol.ExpressionTag || d.ClassFilterMode ||
		d.SubString == "*" || d.SubString == "" {
		return &Subscription{Data: d}
	}
	if len(d.CodeSet) == 0 {
		if parsed, err := protocol.ParseSubscription(d.Topic, d.SubString, ""); err == nil {
			d.CodeSet, d.TagsSet = parsed.CodeSet, parsed.TagsSet
		}
	}
	codes := d.CodeSet
	if codes == nil {
		codes = []int32{} // a filter that nothing passes, not the absence of one
	}
	return &Subscription{Data: d, Codes: codes}
}

// merge puts the subscriptions of one heartbeat over those of the group: unknown topics come,
// topics not listed go, and a listed one is replaced by a greater version only. changed tells of
// topics that came or went; with same the result is old itself.
func merge(
	old, fresh map[string]*Subscription,
) (next map[string]*Subscription, changed, same bool) {
	next = make(map[string]*Subscription, len(fresh))
	same = len(old) == len(fresh)
	for topic, s := range fresh {
		had := old[topic]
		switch {
		case had == nil:
			changed = true
		case s.Data.SubVersion <= had.Data.SubVersion:
			s = had
		}
		same = same && s == had
		next[topic] = s
	}
	if same {
		return old, false, true
	}
	for topic := range old {
		changed = changed || fresh[topic] == nil
	}
	return next, changed, false
}

func (m *Members) membershipsLocked(ch Channel) *memberships {
	in := m.channels[ch]
	if in == nil {
		in = &memberships{consumers: map[string]*member{}, producers: map[string]*producer{}}
		m.channels[ch] = in
	}
	return in
}

func (m *Members) registerProducer(name string, c Connection) {
	m.mu.Lock()
	g := m.producers[name]
	if g == nil {
		g = &producerGroup{warned: map[string]bool{}, ids: map[string]int{}}
		m.producers[name] = g
	}
	m.byClient[c.ID] = c.Channel
	in := m.membershipsLocked(c.Channel)
	m.armLocked()
	p, joined := in.producers[name], false
	if p == nil {
		p, joined = &producer{joinedMS: c.LastMS}, true
		g.members = append(g.members, p)
		in.producers[name] = p
		g.ids[c.ID]++
	} else if p.ID != c.ID {
		if m.byClient[p.ID] == c.Channel {
			delete(m.byClient, p.ID)
		}
		g.dropID(p.ID)
		g.ids[c.ID]++
	}
	p.Connection = c
	warnings := g.inspect(p, joined)
	first := joined && len(g.members) == 1
	m.mu.Unlock()
	m.warn(name, warnings)
	if first {
		m.cfg.ProducerJoined(name)
	}
}

// dropID takes one member with a client id out of the count.
func (g *producerGroup) dropID(id string) {
	if g.ids[id]--; g.ids[id] == 0 {
		delete(g.ids, id)
	}
}
