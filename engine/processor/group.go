// SPDX-License-Identifier: Apache-2.0

// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and its list (225), GET_ALL_SUBSCRIPTIONGROUP_CONFIG
// (201), GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204),
// DELETE_SUBSCRIPTIONGROUP (207), GET_ALL_PRODUCER_INFO (328), QUERY_SUBSCRIPTION_BY_CONSUMER
// (345), GET_SUBSCRIPTIONGROUP_CONFIG (352) and UPDATE_AND_GET_GROUP_FORBIDDEN (353), after
// RocketMQ's AdminBrokerProcessor.

package processor

import (
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Groups answers administrators about groups.
type Groups struct{ *Leaves }

// Register adds the request codes.
func (p *Groups) Register(t Cold) {
	t[remoting.UpdateAndCreateSubscriptionGroup] = func(_ *Caller, cmd *remoting.Command) Reply {
		c := protocol.DefaultSubscriptionGroup("")
		if err := unmarshal(cmd.Body, &c); err != nil {
			return Fail(err)
		}
		return done(p.Update([]*protocol.SubscriptionGroupConfig{&c}))
	}
	t[remoting.UpdateAndCreateSubscriptionGroupList] = onBody(
		func(_ *Caller, r *protocol.SubscriptionGroupList) Reply { return done(p.UpdateAll(r)) })
	t[remoting.GetAllSubscriptionGroupConfig] = onHeader(
		func(_ *Caller, r *protocol.PageRequest) Reply {
			total, wrapper := p.Page(r)
			return Reply{
				Header: &protocol.TotalGroupsResponse{TotalGroupNum: total},
				Body:   protocol.Marshal(wrapper),
			}
		})
	t[remoting.GetConsumerConnectionList] = onHeader(
		func(_ *Caller, r *protocol.ConsumerConnectionRequest) Reply {
			return jsonReply(p.Consumers(r.Group))
		})
	t[remoting.GetProducerConnectionList] = onHeader(
		func(_ *Caller, r *protocol.ProducerConnectionRequest) Reply {
			return jsonReply(p.Producers(r.Group))
		})
	t[remoting.DeleteSubscriptionGroup] = onHeader(
		func(_ *Caller, r *protocol.DeleteGroupRequest) Reply { return done(p.Delete(r)) })
	t[remoting.GetAllProducerInfo] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.Marshal(p.AllProducers())}
	}
	t[remoting.QuerySubscriptionByConsumer] = onHeader(
		func(_ *Caller, r *protocol.TopicGroupRequest) Reply {
			return Reply{Body: protocol.Marshal(p.Subscription(r))}
		})
	t[remoting.GetSubscriptionGroupConfig] = onHeader(
		func(_ *Caller, r *protocol.GroupRequest) Reply {
			return jsonReply(p.Config(r.Group))
		})
	t[remoting.UpdateAndGetGroupForbidden] = onHeader(
		func(_ *Caller, r *protocol.GroupForbiddenRequest) Reply { return jsonReply(p.Forbid(r)) })
}

// Update creates or replaces groups with one write of the table; one bad name refuses them all.
func (p *Groups) Update(cs []*protocol.SubscriptionGroupConfig) error {
	for _, c := range cs {
		if err := protocol.ValidGroup([]byte(c.GroupName)); err != nil {
			return err
		}
	}
	return p.Groups.PutAll(cs)
}

// UpdateAll is Update for the body of a list.
func (p *Groups) UpdateAll(r *protocol.SubscriptionGroupList) error {
	if len(r.GroupConfigList) == 0 {
		return remoting.Errorf(remoting.InvalidParameter, "the field groupConfigList is missing")
	}
	for i, c := range r.GroupConfigList {
		if c == nil {
			return remoting.Errorf(remoting.InvalidParameter, "groupConfigList[%d] is null", i)
		}
	}
	return p.Update(r.GroupConfigList)
}

// Page returns a part of the table, as Topics.Page does. What is forbidden comes with each page.
func (p *Groups) Page(
	r *protocol.PageRequest,
) (int32, protocol.SubscriptionGroupWrapper) {
	all, forbidden, version := p.Groups.All()
	table := all
	if r.Paged {
		table = page(all, pageStart(r, version), r.MaxNum)
	}
	return int32(len(all)), protocol.SubscriptionGroupWrapper{
		DataVersion: version, ForbiddenTable: forbidden, SubscriptionGroupTable: table,
	}
}

// Consumers lists the connections of a consumer group and what it subscribes.
func (p *Groups) Consumers(name string) (protocol.ConsumerConnection, error) {
	view, ok := p.Members.View([]byte(name))
	if !ok {
		return protocol.ConsumerConnection{}, remoting.Errorf(remoting.ConsumerNotOnline,
			"the consumer group[%s] not online", name)
	}
	list := protocol.ConsumerConnection{
		ConnectionSet: connections(p.Members.Consumers(name)), ConsumeType: view.Type,
		MessageModel: view.Model, ConsumeFromWhere: view.From,
		SubscriptionTable: map[string]*protocol.SubscriptionData{},
	}
	for topic, s := range view.Subs {
		list.SubscriptionTable[topic] = &s.Data
	}
	return list, nil
}

func connections(list []group.Connection) []protocol.Connection {
	out := make([]protocol.Connection, len(list))
	for i, c := range list {
		out[i] = protocol.Connection{
			ClientAddr: c.Channel.RemoteAddr(), ClientID: c.ID, Language: c.Language.String(),
			Version: c.Version,
		}
	}
	return out
}

// Producers lists the connections of a producer group.
func (p *Groups) Producers(name string) (protocol.ProducerConnection, error) {
	list, ok := p.Members.Producers(name)
	if !ok {
		return protocol.ProducerConnection{}, remoting.Errorf(remoting.SystemError,
			"the producer group[%s] not exist", name)
	}
	return protocol.ProducerConnection{ConnectionSet: connections(list)}, nil
}

// AllProducers lists the connections of every producer group.
func (p *Groups) AllProducers() protocol.ProducerTableInfo {
	info := protocol.ProducerTableInfo{Data: map[string][]protocol.ProducerInfo{}}
	for name, list := range p.Members.AllProducers() {
		for _, c := range list {
			info.Data[name] = append(info.Data[name], protocol.ProducerInfo{
				ClientID: c.ID, Language: c.Language.String(), LastUpdateTimestamp: c.LastMS,
				RemoteIP: "/" + c.Channel.RemoteAddr(), Version: c.Version,
			})
		}
	}
	return info
}

// Delete removes a group's configuration and queue locks, and its offsets if the request says so. A group that is
// online comes back with its next heartbeat when groups are created automatically.
func (p *Groups) Delete(r *protocol.DeleteGroupRequest) error {
	if err := p.Groups.Delete(r.GroupName); err != nil {
		return err
	}
	if r.CleanOffset {
		p.Offsets.RemoveGroup(r.GroupName)
		// A death must not bring back what an operator was told is gone.
		if err := p.Offsets.Persist(); err != nil {
			return err
		}
	}
	p.Locks.RemoveGroup(r.GroupName)
	p.Stats.RemoveGroup(r.GroupName)
	return nil
}

// Subscription returns what a group reads of a topic now.
func (p *Groups) Subscription(r *protocol.TopicGroupRequest) protocol.SubscriptionByConsumer {
	body := protocol.SubscriptionByConsumer{Group: r.Group, Topic: r.Topic}
	if s, ok := p.Members.Find(r.Group, r.Topic); ok {
		body.SubscriptionData = &s.Data
	}
	return body
}

// Config returns one group's configuration. As in RocketMQ a group that may be created is.
func (p *Groups) Config(name string) (*protocol.SubscriptionGroupConfig, error) {
	c, ok, err := p.Groups.LookupOrCreate(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, remoting.Errorf(remoting.SubscriptionGroupNotExist, "No group in this broker")
	}
	return c, nil
}

// Forbid sets, if the request says so, and returns whether a group may read a topic. Neither need
// exist.
func (p *Groups) Forbid(r *protocol.GroupForbiddenRequest) (protocol.GroupForbidden, error) {
	if r.Readable != nil {
		err := p.Groups.SetForbidden(r.Group, r.Topic, group.ForbidRead, !*r.Readable)
		if err != nil {
			return protocol.GroupForbidden{}, err
		}
	}
	mask := p.Groups.Forbidden([]byte(r.Group), []byte(r.Topic))
	readable := mask&group.ForbidRead == 0
	return protocol.GroupForbidden{Group: r.Group, Topic: r.Topic, Readable: &readable}, nil
}
