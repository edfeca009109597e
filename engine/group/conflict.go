// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"net"
	"slices"

	"github.com/skylarkmq/skylark/net/remoting"
)

// warning is a finding about two clients of a group that an operator should hear of.
type warning struct {
	msg      string
	clients  [2]string
	addrs    [2]string
	topic    string
	wishes   [2]string
	conflict bool
	again    bool // reported before
}

// inspect looks for members that contradict p: one that subscribes differently, so that messages
// of one expression reach clients that asked for another, and one that uses p's client id, so that
// both believe to own the same queues. Each finding is reported once until the members change.
func (g *consumerGroup) inspect(p *member, joined bool) []warning {
	var found []warning
	for _, other := range g.members {
		if other == p {
			continue
		}
		if other.ID == p.ID {
			if bothAlive(&p.Connection, &other.Connection, p.joinedMS, joined) &&
				firstTime(g.warned, "id\x00"+p.ID) {
				found = append(found, warning{
					msg:     "two clients use one client id, queues are not shared out between them",
					clients: [2]string{p.ID, other.ID},
					addrs:   [2]string{p.Channel.RemoteAddr(), other.Channel.RemoteAddr()},
				})
			}
			continue
		}
		if p.subs == nil || other.subs == nil || p.digest == other.digest {
			continue
		}
		if w, ok := g.difference(p, other); ok {
			found = append(found, w)
		}
	}
	return found
}

// bothAlive tells two clients with one id from one client that has connected anew: they come from
// two hosts, or the older connection has sent a heartbeat after the newer one joined.
func bothAlive(p, other *Connection, joinedMS int64, joined bool) bool {
	a, _, errA := net.SplitHostPort(p.Channel.RemoteAddr())
	b, _, errB := net.SplitHostPort(other.Channel.RemoteAddr())
	if errA == nil && errB == nil && a != b {
		return true
	}
	return !joined && other.LastMS > joinedMS
}

// inspect looks for another producer with p's client id: a reply for one of them may reach the other.
// All producers of a cluster may be of one group, so it searches only where there is one.
func (g *producerGroup) inspect(p *producer, joined bool) []warning {
	if g.ids[p.ID] < 2 {
		return nil
	}
	for _, other := range g.members {
		if other != p && other.ID == p.ID &&
			bothAlive(&p.Connection, &other.Connection, p.joinedMS, joined) && firstTime(g.warned, p.ID) {
			return []warning{{
				msg:     "two producers use one client id, replies may reach the wrong one",
				clients: [2]string{p.ID, other.ID},
				addrs:   [2]string{p.Channel.RemoteAddr(), other.Channel.RemoteAddr()},
			}}
		}
	}
	return nil
}

// difference describes the first topic, by name, on which two members differ.
func (g *consumerGroup) difference(p, other *member) (warning, bool) {
	first, found := "", false
	look := func(a, b map[string]*Subscription) {
		for topic, s := range a {
			if t := b[topic]; (t == nil || wishText(s) != wishText(t)) && (!found || topic < first) {
				first, found = topic, true
			}
		}
	}
	look(p.subs, other.subs)
	look(other.subs, p.subs)
	if !found {
		return warning{}, false
	}
	w := warning{
		msg:      "members of a group subscribe differently, messages will be missed",
		clients:  [2]string{p.ID, other.ID},
		addrs:    [2]string{p.Channel.RemoteAddr(), other.Channel.RemoteAddr()},
		topic:    first,
		wishes:   [2]string{wishText(p.subs[first]), wishText(other.subs[first])},
		conflict: true,
	}
	pair := []string{p.ID + "\x01" + w.wishes[0], other.ID + "\x01" + w.wishes[1]}
	slices.Sort(pair)
	return w, firstTime(g.warned, "sub\x00"+first+"\x00"+pair[0]+"\x00"+pair[1])
}

// quarrel looks for a member, other than the client itself, that reads a topic with another expression
// than the client wishes. One that reads more or fewer topics is none: clients subscribe one topic after
// the other while they start.
func (g *consumerGroup) quarrel(r registration, wished map[string]*Subscription) (warning, bool) {
	for _, other := range g.members {
		if other.Channel == r.ch || other.ID == r.client.ID {
			continue
		}
		for _, topic := range slices.Sorted(maps.Keys(wished)) {
			s, theirs := wished[topic], other.subs[topic]
			if theirs == nil || wishText(s) == wishText(theirs) {
				continue
			}
			return warning{
				msg:      "a client that subscribes differently is kept out of the group",
				clients:  [2]string{r.client.ID, other.ID},
				addrs:    [2]string{r.ch.RemoteAddr(), other.Channel.RemoteAddr()},
				topic:    topic,
				wishes:   [2]string{wishText(s), wishText(theirs)},
				conflict: true,
				again:    !firstTime(g.warned, "out\x00"+topic+"\x00"+r.client.ID+"\x00"+wishText(s)),
			}, true
		}
	}
	return warning{}, false
}

// refuse tells the operator, once, and the client, each time. No lock is held.
func (m *Members) refuse(group string, w warning) error {
	if !w.again {
		m.warn(group, []warning{w})
	}
	return remoting.Errorf(remoting.NoPermission, "client %s is kept out of group %s: it asks for %q of "+
		"topic %s, but %s at %s asks for %q; give it a group of its own (refuseDifferentSubscriptions)",
		w.clients[0], group, w.wishes[0], w.topic, w.clients[1], w.addrs[1], w.wishes[1])
}

func wishText(s *Subscription) string {
	if s == nil {
		return "(none)"
	}
	return s.Data.ExpressionType + " " + s.Data.SubString
}

// firstTime tells whether a finding is new, and remembers it.
func firstTime(warned map[string]bool, key string) bool {
	if warned[key] || len(warned) >= warningsMax {
		return false
	}
	warned[key] = true
	return true
}

// warn reports findings, without a lock held.
func (m *Members) warn(group string, found []warning) {
	for _, w := range found {
		kv := []any{
			"group", group, "client", w.clients[0], "addr", w.addrs[0],
			"otherClient", w.clients[1], "otherAddr", w.addrs[1],
		}
		if !w.conflict {
			m.twins.Add(1)
			m.cfg.Notice(w.msg, kv...)
			continue
		}
		m.conflicts.Add(1)
		kv = append(kv, "topic", w.topic, "asks", w.wishes[0], "otherAsks", w.wishes[1])
		m.cfg.Notice(w.msg, kv...)
	}
}
