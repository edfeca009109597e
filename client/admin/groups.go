// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// PutGroup creates a consumer group at each broker of the target, or replaces its configuration
// there; attributes that are there already are kept unless g has them.
func (a *Admin) PutGroup(ctx context.Context, g GroupConfig, at Target) ([]Done, error) {
	op := "put group " + g.Name
	if err := g.check(op); err != nil {
		return nil, err
	}
	c := g.wire()
	c.Attributes = attributeMap(nil, g.Attributes)
	return a.tell(ctx, op, at, remoting.UpdateAndCreateSubscriptionGroup, nil, protocol.Marshal(c))
}

// attributeMap is attributeChanges for bodies: keys begin with + or -.
func attributeMap(before, after map[string]string) map[string]string {
	changes := map[string]string{}
	for name, value := range after {
		if old, ok := before[name]; !ok || old != value {
			changes["+"+name] = value
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changes["-"+name] = ""
		}
	}
	return changes
}

// PutGroups is PutGroup for several groups with one request to each broker. RocketMQ has it since
// 5.3.
func (a *Admin) PutGroups(ctx context.Context, gs []GroupConfig, at Target) ([]Done, error) {
	op := fmt.Sprintf("put %d groups", len(gs))
	if len(gs) == 0 {
		return nil, invalid(op, "no group given")
	}
	var body protocol.SubscriptionGroupList
	for i := range gs {
		if err := gs[i].check(op); err != nil {
			return nil, err
		}
		c := gs[i].wire()
		c.Attributes = attributeMap(nil, gs[i].Attributes)
		body.GroupConfigList = append(body.GroupConfigList, c)
	}
	return a.tell(ctx, op, at, remoting.UpdateAndCreateSubscriptionGroupList, nil,
		protocol.Marshal(body))
}

// UpdateGroup changes a group at each broker of the target that has it: change gets the broker's
// configuration and edits it; it may be called several times at once. ErrNoGroup when no broker has
// the group.
func (a *Admin) UpdateGroup(
	ctx context.Context, group string, at Target, change func(*GroupConfig),
) ([]Done, error) {
	op := "update group " + group
	answers, err := collect(ctx, a, op, at, func(ctx context.Context, b Broker) (struct{}, error) {
		g, err := a.groupConfig(ctx, op, b, group)
		if err != nil {
			return struct{}{}, err
		}
		before := g.Attributes
		g.Attributes = attributeCopy(before)
		change(&g)
		g.Name = group
		if err := g.check(op); err != nil {
			return struct{}{}, err
		}
		c := g.wire()
		c.Attributes = attributeMap(before, g.Attributes)
		_, err = a.ask(ctx, op, b, remoting.UpdateAndCreateSubscriptionGroup, nil, protocol.Marshal(c))
		return struct{}{}, err
	})
	return except(op, answers, err, ErrNoGroup)
}

func attributeCopy(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// DeleteGroup deletes a consumer group at each broker of the target, with its offsets if so told.
// Its retry and dead-letter topics stay: DeleteTopic takes RetryTopic and DeadLetterTopic. With
// autoCreateSubscriptionGroup a group comes back at the next heartbeat of a member.
func (a *Admin) DeleteGroup(
	ctx context.Context, group string, at Target, offsets bool,
) ([]Done, error) {
	op := "delete group " + group
	if group == "" {
		return nil, invalid(op, "the group has no name")
	}
	return a.tell(ctx, op, at, remoting.DeleteSubscriptionGroup,
		&protocol.DeleteGroupRequest{GroupName: group, CleanOffset: offsets}, nil)
}

// RetryTopic is the topic of messages that a group consumes again.
func RetryTopic(group string) string { return protocol.RetryPrefix + group }

// DeadLetterTopic is the topic of messages that a group has given up.
func DeadLetterTopic(group string) string { return protocol.DLQPrefix + group }

// GroupConfigs returns the groups configured at each broker of the target, sorted by name.
func (a *Admin) GroupConfigs(ctx context.Context, at Target) ([]Answer[[]GroupConfig], error) {
	op := "list group configurations"
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) ([]GroupConfig, error) {
		var w protocol.SubscriptionGroupWrapper
		if err := a.askFor(ctx, op, b, remoting.GetAllSubscriptionGroupConfig, nil, &w); err != nil {
			return nil, err
		}
		var list []GroupConfig
		for _, c := range w.SubscriptionGroupTable {
			if c != nil {
				list = append(list, groupConfigOf(c))
			}
		}
		slices.SortFunc(list, func(a, b GroupConfig) int { return cmp.Compare(a.Name, b.Name) })
		return list, nil
	})
}

// Groups returns the names of the groups that any broker has, sorted. With an error that is
// partial, those of the other brokers.
func (a *Admin) Groups(ctx context.Context) ([]string, error) {
	answers, err := a.GroupConfigs(ctx, Everywhere())
	var names []string
	for _, x := range answers {
		for _, g := range x.Value {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// GroupConfig returns a group's configuration at each broker that has it. ErrNoGroup when none has.
func (a *Admin) GroupConfig(ctx context.Context, group string) ([]Answer[GroupConfig], error) {
	op := "configuration of group " + group
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) (GroupConfig, error) {
			return a.groupConfig(ctx, op, b, group)
		})
	return except(op, answers, err, ErrNoGroup)
}

func (a *Admin) groupConfig(
	ctx context.Context, op string, b Broker, group string,
) (GroupConfig, error) {
	var c protocol.SubscriptionGroupConfig
	err := a.askFor(ctx, op, b, remoting.GetSubscriptionGroupConfig,
		&protocol.GroupRequest{Group: group}, &c)
	if errors.Is(err, client.ErrUnsupported) {
		return a.listedGroup(ctx, op, b, group)
	}
	if err != nil {
		return GroupConfig{}, err
	}
	g := groupConfigOf(&c)
	g.Name = group
	return g, nil
}

// listedGroup looks for a group among all of a broker: before RocketMQ 5 there is no request for one.
func (a *Admin) listedGroup(
	ctx context.Context, op string, b Broker, group string,
) (GroupConfig, error) {
	var w protocol.SubscriptionGroupWrapper
	if err := a.askFor(ctx, op, b, remoting.GetAllSubscriptionGroupConfig, nil, &w); err != nil {
		return GroupConfig{}, err
	}
	c := w.SubscriptionGroupTable[group]
	if c == nil {
		return GroupConfig{}, explain(op, fmt.Errorf("broker %s: group %s: %w", b, group, ErrNoGroup))
	}
	return groupConfigOf(c), nil
}

// GroupTopics returns the topics that a group has offsets in, at any broker, sorted.
func (a *Admin) GroupTopics(ctx context.Context, group string) ([]string, error) {
	op := "topics of group " + group
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) ([]string, error) {
			var list protocol.TopicList
			err := a.askFor(ctx, op, b, remoting.QueryTopicsByConsumer,
				&protocol.GroupRequest{Group: group}, &list)
			return list.TopicList, err
		})
	return union(answers), err
}

// SetConsumeMode has brokers of the target give the members of a group queues of a topic to pull
// from, or messages to pop; shareQueues is how many queues members share in pop mode, 0 for all.
// Brokers without pop refuse it with client.ErrUnsupported or a *client.BrokerError.
func (a *Admin) SetConsumeMode(
	ctx context.Context, group, topic string, pop bool, shareQueues int, at Target,
) ([]Done, error) {
	op := fmt.Sprintf("set consume mode of group %s in topic %s", group, topic)
	if group == "" || topic == "" || shareQueues < 0 {
		return nil, invalid(op, "group, topic and a number of queues of at least 0 are needed")
	}
	body := protocol.MessageRequestModeBody{
		ConsumerGroup: group, Topic: topic, Mode: protocol.RequestModePull,
		PopShareQueueNum: int32(shareQueues),
	}
	if pop {
		body.Mode = protocol.RequestModePop
	}
	return a.tell(ctx, op, at, remoting.SetMessageRequestMode, nil, protocol.Marshal(&body))
}

// GroupReadable says for each broker of the target whether a group may read a topic.
func (a *Admin) GroupReadable(
	ctx context.Context, group, topic string, at Target,
) ([]Answer[bool], error) {
	return a.groupReadable(ctx, group, topic, nil, at)
}

// SetGroupReadable forbids a group to read a topic, or allows it again, at each broker of the
// target.
func (a *Admin) SetGroupReadable(
	ctx context.Context, group, topic string, readable bool, at Target,
) ([]Answer[bool], error) {
	return a.groupReadable(ctx, group, topic, &readable, at)
}

func (a *Admin) groupReadable(
	ctx context.Context, group, topic string, readable *bool, at Target,
) ([]Answer[bool], error) {
	op := fmt.Sprintf("permission of group %s to read topic %s", group, topic)
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) (bool, error) {
		var f protocol.GroupForbidden
		err := a.askFor(ctx, op, b, remoting.UpdateAndGetGroupForbidden,
			&protocol.GroupForbiddenRequest{Group: group, Topic: topic, Readable: readable}, &f)
		if err == nil && f.Readable == nil {
			err = explain(op, errors.New("the answer does not say"))
		}
		return err == nil && *f.Readable, err
	})
}
