// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// PutTopic creates a topic at each broker of the target, or replaces its configuration there.
// Attributes that are there already are kept unless c has them.
func (a *Admin) PutTopic(ctx context.Context, c TopicConfig, at Target) ([]Done, error) {
	op := "put topic " + c.Name
	c.setDefaults()
	if err := c.check(op); err != nil {
		return nil, err
	}
	return a.tell(ctx, op, at, remoting.UpdateAndCreateTopic, c.request(nil), nil)
}

// PutTopics is PutTopic for several topics with one request to each broker, which takes all or
// none. RocketMQ has it since 5.3.
func (a *Admin) PutTopics(ctx context.Context, cs []TopicConfig, at Target) ([]Done, error) {
	op := fmt.Sprintf("put %d topics", len(cs))
	if len(cs) == 0 {
		return nil, invalid(op, "no topic given")
	}
	var body protocol.TopicConfigList
	for _, c := range cs {
		c.setDefaults()
		if err := c.check(op); err != nil {
			return nil, err
		}
		changes := map[string]string{}
		for name, value := range c.Attributes {
			changes["+"+name] = value
		}
		body.TopicConfigList = append(body.TopicConfigList, &protocol.TopicConfig{
			TopicName: c.Name, ReadQueueNums: int32(c.ReadQueues),
			WriteQueueNums: int32(c.WriteQueues), Perm: int32(c.Perm), Order: c.Order,
			TopicFilterType: c.filterType(), TopicSysFlag: int32(c.SysFlag), Attributes: changes,
		})
	}
	return a.tell(ctx, op, at, remoting.UpdateAndCreateTopicList, nil, protocol.Marshal(body))
}

// UpdateTopic changes a topic at each broker of the target that has it: change gets the broker's
// configuration and edits it; it may be called several times at once. client.ErrNoRoute when no
// broker has the topic.
func (a *Admin) UpdateTopic(
	ctx context.Context, topic string, at Target, change func(*TopicConfig),
) ([]Done, error) {
	op := "update topic " + topic
	answers, err := collect(ctx, a, op, at, func(ctx context.Context, b Broker) (struct{}, error) {
		c, err := a.topicConfig(ctx, op, b, topic)
		if err != nil {
			return struct{}{}, err
		}
		before := maps.Clone(c.Attributes)
		change(&c)
		c.Name = topic
		if err := c.check(op); err != nil {
			return struct{}{}, err
		}
		_, err = a.ask(ctx, op, b, remoting.UpdateAndCreateTopic, c.request(before), nil)
		return struct{}{}, err
	})
	return except(op, answers, err, client.ErrNoRoute)
}

// DeleteTopic deletes a topic with its messages and offsets: from the masters of a cluster, or of
// all clusters when it is empty, then from every name server, with its order configuration.
func (a *Admin) DeleteTopic(ctx context.Context, topic, cluster string) ([]Done, error) {
	op := "delete topic " + topic
	if err := protocol.ValidTopic([]byte(topic)); err != nil {
		return nil, invalid(op, "topic %q: %w", topic, err)
	}
	brokers, err := a.tell(ctx, op, InCluster(cluster), remoting.DeleteTopicInBroker,
		&protocol.DeleteTopicRequest{Topic: topic}, nil)
	if err != nil {
		return brokers, err // a name server that forgets it first would hide what is left
	}
	names, err := a.tellNames(ctx, op, remoting.DeleteTopicInNamesrv,
		&protocol.DeleteTopicInNamesrvRequest{Topic: topic, ClusterName: cluster}, nil)
	if err != nil {
		return append(brokers, names...), err
	}
	if _, err := a.DeleteOrderConfig(ctx, topic); err != nil && !errors.Is(err, ErrNotFound) {
		return append(brokers, names...), err
	}
	return append(brokers, names...), nil
}

// Topics returns the names of all topics that the name servers know, sorted.
func (a *Admin) Topics(ctx context.Context) ([]string, error) {
	var list protocol.TopicList
	err := a.askName(ctx, "list topics", remoting.GetAllTopicListFromNameServer, nil, &list)
	slices.Sort(list.TopicList)
	return list.TopicList, err
}

// ClusterTopics returns the names of the topics of one cluster, sorted.
func (a *Admin) ClusterTopics(ctx context.Context, cluster string) ([]string, error) {
	var list protocol.TopicList
	err := a.askName(ctx, "list topics of cluster "+cluster, remoting.GetTopicsByCluster,
		&protocol.ClusterTopicsRequest{Cluster: cluster}, &list)
	slices.Sort(list.TopicList)
	return list.TopicList, err
}

// SystemTopics returns the names of the topics that RocketMQ itself uses, sorted.
func (a *Admin) SystemTopics(ctx context.Context) ([]string, error) {
	var list protocol.TopicList
	err := a.askName(ctx, "list system topics", remoting.GetSystemTopicListFromNS, nil, &list)
	slices.Sort(list.TopicList)
	return list.TopicList, err
}

// TopicConfigs returns the topics of each broker of the target, sorted by name.
func (a *Admin) TopicConfigs(ctx context.Context, at Target) ([]Answer[[]TopicConfig], error) {
	op := "list topic configurations"
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) ([]TopicConfig, error) {
		var w protocol.TopicConfigWrapper
		if err := a.askFor(ctx, op, b, remoting.GetAllTopicConfig, nil, &w); err != nil {
			return nil, err
		}
		var list []TopicConfig
		for _, c := range w.TopicConfigTable {
			if c != nil {
				list = append(list, topicConfigOf(c))
			}
		}
		slices.SortFunc(list, func(a, b TopicConfig) int { return cmp.Compare(a.Name, b.Name) })
		return list, nil
	})
}

// TopicConfig returns a topic's configuration at each broker of its route. client.ErrNoRoute when
// it does not exist.
func (a *Admin) TopicConfig(ctx context.Context, topic string) ([]Answer[TopicConfig], error) {
	op := "configuration of topic " + topic
	list, err := a.brokersOf(ctx, op, topic)
	if err != nil {
		return nil, err
	}
	return each(ctx, op, list, func(ctx context.Context, b Broker) (TopicConfig, error) {
		return a.topicConfig(ctx, op, b, topic)
	})
}

func (a *Admin) topicConfig(
	ctx context.Context, op string, b Broker, topic string,
) (TopicConfig, error) {
	var c protocol.TopicConfigAndMapping
	err := a.askFor(ctx, op, b, remoting.GetTopicConfig,
		&protocol.TopicConfigRequest{Topic: topic}, &c)
	if errors.Is(err, client.ErrUnsupported) {
		return a.listedTopic(ctx, op, b, topic)
	}
	return topicConfigOf(&protocol.TopicConfig{
		TopicName: topic, ReadQueueNums: c.ReadQueueNums, WriteQueueNums: c.WriteQueueNums,
		Perm: c.Perm, Order: c.Order, TopicFilterType: c.TopicFilterType,
		TopicSysFlag: c.TopicSysFlag, Attributes: c.Attributes,
	}), err
}

// listedTopic looks for a topic among all of a broker: before RocketMQ 5 there is no request for one.
func (a *Admin) listedTopic(
	ctx context.Context, op string, b Broker, topic string,
) (TopicConfig, error) {
	var w protocol.TopicConfigWrapper
	if err := a.askFor(ctx, op, b, remoting.GetAllTopicConfig, nil, &w); err != nil {
		return TopicConfig{}, err
	}
	c := w.TopicConfigTable[topic]
	if c == nil {
		return TopicConfig{}, explain(op, fmt.Errorf("broker %s: topic %s: %w", b, topic, client.ErrNoRoute))
	}
	return topicConfigOf(c), nil
}

// TopicGroups returns the consumer groups that subscribe to a topic or have offsets in it, at any
// broker of its route, sorted.
func (a *Admin) TopicGroups(ctx context.Context, topic string) ([]string, error) {
	op := "groups of topic " + topic
	list, err := a.brokersOf(ctx, op, topic)
	if err != nil {
		return nil, err
	}
	answers, err := each(ctx, op, list, func(ctx context.Context, b Broker) ([]string, error) {
		var g protocol.GroupList
		err := a.askFor(ctx, op, b, remoting.QueryTopicConsumeByWho,
			&protocol.TopicRequest{Topic: topic}, &g)
		return g.GroupList, err
	})
	return union(answers), err
}

// union is what any broker named, sorted.
func union(answers []Answer[[]string]) []string {
	var all []string
	for _, x := range answers {
		all = append(all, x.Value...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// CleanUnusedTopics has brokers delete the queue files of topics that are not configured any more.
func (a *Admin) CleanUnusedTopics(ctx context.Context, at Target) ([]Done, error) {
	return a.tell(ctx, "clean unused topics", at, remoting.CleanUnusedTopic, nil, nil)
}
