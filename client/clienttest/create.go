// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"context"
	"fmt"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// create makes the topics and groups of the options, one request of each kind for each broker. A
// broker answers when the name server knows the topics.
func (c *Cluster) create() error {
	if len(c.cfg.topics)+len(c.cfg.groups) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	pool := invoke.NewPool(invoke.Config{Language: remoting.LanguageGo})
	defer pool.Close()
	topics, groups := c.tables()
	for _, b := range c.brokers {
		if len(c.cfg.topics) > 0 {
			r := &invoke.Request{Code: remoting.UpdateAndCreateTopicList, Body: protocol.Marshal(topics)}
			if err := ask(ctx, pool, b.Addr(), r); err != nil {
				return fmt.Errorf("clienttest: creating topics at %s: %w", b.name, err)
			}
		}
		if len(c.cfg.groups) > 0 {
			r := &invoke.Request{
				Code: remoting.UpdateAndCreateSubscriptionGroupList, Body: protocol.Marshal(groups),
			}
			if err := ask(ctx, pool, b.Addr(), r); err != nil {
				return fmt.Errorf("clienttest: creating groups at %s: %w", b.name, err)
			}
		}
	}
	return nil
}

// tables are the bodies of the two requests.
func (c *Cluster) tables() (protocol.TopicConfigList, protocol.SubscriptionGroupList) {
	var topics protocol.TopicConfigList
	for _, t := range c.cfg.topics {
		topics.TopicConfigList = append(topics.TopicConfigList, &protocol.TopicConfig{
			TopicName: t.name, ReadQueueNums: int32(t.queues), WriteQueueNums: int32(t.queues),
			Perm: protocol.PermRead | protocol.PermWrite, TopicFilterType: protocol.SingleTag,
		})
	}
	var groups protocol.SubscriptionGroupList
	for _, name := range c.cfg.groups {
		g := protocol.DefaultSubscriptionGroup(name)
		groups.GroupConfigList = append(groups.GroupConfigList, &g)
	}
	return topics, groups
}

func ask(ctx context.Context, pool *invoke.Pool, addr string, r *invoke.Request) error {
	res, err := pool.Call(ctx, addr, r)
	if err != nil {
		return err
	}
	return res.Err()
}
