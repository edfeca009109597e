// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Member is one connected client of a group.
type Member struct {
	ClientID string
	Addr     string    // host:port it comes from
	Language string    // as JAVA, GO
	Version  string    // of the protocol it speaks, as V5_5_0
	LastSeen time.Time // zero when the broker does not tell
	Brokers  []string  // names of those it is connected to, sorted
}

// Members is who consumes for a group, and how.
type Members struct {
	Group   string
	Members []Member // by client id
	Type    string   // CONSUME_PASSIVELY for push, CONSUME_ACTIVELY for pull, CONSUME_POP
	Model   string   // CLUSTERING or BROADCASTING
	From    string   // where a new group begins, as CONSUME_FROM_LAST_OFFSET
	Topics  []Subscription
}

// Subscription is what a group wants of a topic.
type Subscription struct {
	Topic          string
	Expression     string   // "*", "a || b", or SQL
	ExpressionType string   // TAG or SQL92
	Tags           []string // of a tag expression; empty: all
	Version        int64
}

// Members asks every broker who is connected for a consumer group and merges the answers.
// ErrNotOnline when there is nobody. With an error that is partial, the rest is filled.
func (a *Admin) Members(ctx context.Context, group string) (Members, error) {
	op := "members of group " + group
	m := Members{Group: group}
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) (list protocol.ConsumerConnection, err error) {
			err = a.askFor(ctx, op, b, remoting.GetConsumerConnectionList,
				&protocol.ConsumerConnectionRequest{Group: group}, &list)
			return list, err
		})
	answers, err = except(op, answers, err, ErrNotOnline)
	topics := map[string]Subscription{}
	for _, x := range answers {
		if x.Err != nil {
			continue
		}
		m.Type, m.Model = string(x.Value.ConsumeType), string(x.Value.MessageModel)
		m.From = string(x.Value.ConsumeFromWhere)
		for _, c := range x.Value.ConnectionSet {
			m.Members = addMember(m.Members, x.Broker.Name, memberOf(c))
		}
		for topic, s := range x.Value.SubscriptionTable {
			if s != nil && s.SubVersion >= topics[topic].Version {
				topics[topic] = subscriptionOf(topic, s)
			}
		}
	}
	for _, s := range topics {
		m.Topics = append(m.Topics, s)
	}
	slices.SortFunc(m.Topics, compareTopics)
	sortMembers(m.Members)
	return m, err
}

func memberOf(c protocol.Connection) Member {
	return Member{
		ClientID: c.ClientID, Addr: c.ClientAddr, Language: c.Language, Version: versionText(c.Version),
	}
}

// addMember enters a client, or notes one more broker of it.
func addMember(list []Member, broker string, m Member) []Member {
	for i := range list {
		if list[i].ClientID == m.ClientID {
			list[i].Brokers = append(list[i].Brokers, broker)
			if m.LastSeen.After(list[i].LastSeen) {
				list[i].LastSeen = m.LastSeen
			}
			return list
		}
	}
	m.Brokers = []string{broker}
	return append(list, m)
}

func sortMembers(list []Member) {
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ClientID, b.ClientID) })
	for i := range list {
		slices.Sort(list[i].Brokers)
		list[i].Brokers = slices.Compact(list[i].Brokers)
	}
}

func compareTopics(a, b Subscription) int { return cmp.Compare(a.Topic, b.Topic) }

func subscriptionOf(topic string, s *protocol.SubscriptionData) Subscription {
	sub := Subscription{
		Topic: topic, Expression: s.SubString, ExpressionType: s.ExpressionType,
		Tags: slices.Sorted(slices.Values(s.TagsSet)), Version: s.SubVersion,
	}
	if sub.ExpressionType == "" {
		sub.ExpressionType = protocol.ExpressionTag
	}
	return sub
}

// versionText names a version number of the protocol (RocketMQ's MQVersion): from V4_0_0_SNAPSHOT
// on it counts releases, each after its snapshot.
func versionText(v int32) string {
	const first, last = 212, 612
	if v < first || v >= last {
		return fmt.Sprintf("version %d", v)
	}
	n := v - first
	text := fmt.Sprintf("V%d_%d_%d", 4+n/200, n/20%10, n%20/2)
	if n%2 == 0 {
		text += "_SNAPSHOT"
	}
	return text
}

// Subscription returns what the members of a group want of a topic, as the first broker that knows
// it says. ErrNotFound when no broker does.
func (a *Admin) Subscription(ctx context.Context, group, topic string) (Subscription, error) {
	op := fmt.Sprintf("subscription of group %s to topic %s", group, topic)
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) (s protocol.SubscriptionByConsumer, err error) {
			err = a.askFor(ctx, op, b, remoting.QuerySubscriptionByConsumer,
				&protocol.TopicGroupRequest{Topic: topic, Group: group}, &s)
			return s, err
		})
	for _, x := range answers {
		if x.Value.SubscriptionData != nil {
			return subscriptionOf(topic, x.Value.SubscriptionData), nil
		}
	}
	if err == nil {
		err = &Error{Op: op, Err: ErrNotFound, Next: "Members lists what the group subscribes to"}
	}
	return Subscription{}, err
}

// ProducerMembers asks every broker which producers of a group are connected. ErrNotOnline when
// there is none. With an error that is partial, the rest is filled.
func (a *Admin) ProducerMembers(ctx context.Context, group string) ([]Member, error) {
	op := "producers of group " + group
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) (list protocol.ProducerConnection, err error) {
			err = a.askFor(ctx, op, b, remoting.GetProducerConnectionList,
				&protocol.ProducerConnectionRequest{Group: group}, &list)
			return list, err
		})
	answers, err = except(op, answers, err, ErrNotOnline)
	var list []Member
	for _, x := range answers {
		for _, c := range x.Value.ConnectionSet {
			list = addMember(list, x.Broker.Name, memberOf(c))
		}
	}
	sortMembers(list)
	return list, err
}

// Producers returns the connected producers of every group at the brokers of the target, by group.
func (a *Admin) Producers(ctx context.Context, at Target) (map[string][]Member, error) {
	op := "list producers"
	answers, err := collect(ctx, a, op, at,
		func(ctx context.Context, b Broker) (t protocol.ProducerTableInfo, err error) {
			err = a.askFor(ctx, op, b, remoting.GetAllProducerInfo, nil, &t)
			return t, err
		})
	groups := map[string][]Member{}
	for _, x := range answers {
		for group, infos := range x.Value.Data {
			for _, i := range infos {
				groups[group] = addMember(groups[group], x.Broker.Name, Member{
					ClientID: i.ClientID, Addr: strings.TrimPrefix(i.RemoteIP, "/"), Language: i.Language,
					Version: versionText(i.Version), LastSeen: timeOf(i.LastUpdateTimestamp),
				})
			}
		}
	}
	for _, list := range groups {
		sortMembers(list)
	}
	return groups, err
}
