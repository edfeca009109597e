// SPDX-License-Identifier: Apache-2.0

// HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38) and CHECK_CLIENT_CONFIG
// (46), after RocketMQ's ClientManageProcessor and ConsumerManageProcessor.

package processor

import (
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Clients answers what clients say about themselves.
type Clients struct{ *Leaves }

// Register adds the request codes.
func (p *Clients) Register(t Cold) {
	t[remoting.HeartBeat] = func(c *Caller, cmd *remoting.Command) Reply {
		var data protocol.HeartbeatData
		if err := unmarshal(cmd.Body, &data); err != nil {
			return Fail(err)
		}
		result := p.Heartbeat(c, &data)
		if result.Refused != nil {
			return Fail(result.Refused)
		}
		return Reply{Header: &protocol.HeartbeatResponse{
			SupportV2: true, SubChanged: result.SubChanged,
		}}
	}
	t[remoting.UnregisterClient] = onHeader(
		func(c *Caller, r *protocol.UnregisterClientRequest) Reply {
			p.Unregister(c, r)
			return Reply{Header: emptyFields{}}
		})
	t[remoting.GetConsumerListByGroup] = onHeader(
		func(_ *Caller, r *protocol.ConsumerListRequest) Reply {
			list, err := p.Consumers(r)
			return withEmptyFields(jsonReply(list, err))
		})
	t[remoting.CheckClientConfig] = onBody(
		func(_ *Caller, r *protocol.CheckClientRequest) Reply { return done(p.Check(r)) })
}

// Heartbeat registers a client's groups. It may create groups and retry topics, which blocks on
// files. Members that must rebalance are told before it returns.
func (p *Clients) Heartbeat(c *Caller, data *protocol.HeartbeatData) group.HeartbeatResult {
	client := group.ClientInfo{ID: data.ClientID, Language: c.Language, Version: c.Version}
	return p.Members.Heartbeat(c.Channel, client, data)
}

// Unregister takes the caller's connection out of the named groups, and its client's queue locks from
// it before the others are told. A group that does not exist is no error; as in RocketMQ it is made, if
// groups are made at all.
func (p *Clients) Unregister(c *Caller, r *protocol.UnregisterClientRequest) {
	if r.ConsumerGroup != "" {
		p.Locks.ReleaseClient(r.ConsumerGroup, r.ClientID)
	}
	notify := true
	if r.ConsumerGroup != "" {
		if cfg, ok, err := p.Groups.LookupOrCreate(r.ConsumerGroup); err == nil && ok {
			notify = cfg.NotifyConsumerIDsChangedEnable
		}
	}
	p.Members.Unregister(c.Channel, r.ProducerGroup, r.ConsumerGroup, notify)
}

// Consumers lists the client ids of a group, which clients sort and share the queues out by.
func (p *Clients) Consumers(r *protocol.ConsumerListRequest) (protocol.ConsumerList, error) {
	ids := p.Members.ConsumerIDs(r.Group)
	if len(ids) == 0 {
		return protocol.ConsumerList{}, remoting.Errorf(remoting.SystemError,
			"no consumer for this group, %s", r.Group)
	}
	return protocol.ConsumerList{ConsumerIDList: ids}, nil
}

// consumersLight is Consumers on an event loop: not while the table is busy, nor for a list that takes
// long to write.
func (p *Clients) consumersLight(cmd *remoting.Command) (Reply, bool) {
	var r protocol.ConsumerListRequest
	if err := r.Decode(cmd); err != nil {
		return Fail(err), true
	}
	ids, ok := p.Members.TryConsumerIDs(r.Group)
	if !ok || len(ids) == 0 || len(ids) > lightList {
		return Reply{}, false
	}
	return withEmptyFields(jsonReply(protocol.ConsumerList{ConsumerIDList: ids}, nil)), true
}

// lightList is how many ids an event loop writes.
const lightList = 256

// Check says whether this broker can filter by a subscription.
func (p *Clients) Check(r *protocol.CheckClientRequest) error {
	if r.SubscriptionData == nil {
		return remoting.Errorf(remoting.SystemError, "the field subscriptionData is missing")
	}
	if r.SubscriptionData.IsTag() {
		return nil
	}
	if p.PropertyFilter == nil {
		return remoting.Errorf(remoting.SystemError,
			"The broker does not support consumer to filter message by %s",
			r.SubscriptionData.ExpressionType)
	}
	if kind := r.SubscriptionData.ExpressionType; kind != protocol.ExpressionSQL92 {
		return remoting.Errorf(remoting.SubscriptionParseFailed, "no filter of type %s", kind)
	}
	if err := p.PropertyFilter(r.SubscriptionData.SubString); err != nil {
		return remoting.Errorf(remoting.SubscriptionParseFailed, "%v", err)
	}
	return nil
}

// Admission returns the check that group.MembersConfig.Admit wants: the group's configuration must
// exist or be creatable, and its retry topic is created. A retry topic that cannot be written does
// not keep the group out; the next heartbeat tries again.
func Admission(
	topics *topic.Table, groups *group.Configs, notice func(msg string, kv ...any),
) func(c *protocol.ConsumerData) (notify, ok bool) {
	return func(c *protocol.ConsumerData) (notify, ok bool) {
		cfg, ok, err := groups.LookupOrCreate(c.GroupName)
		if err != nil {
			notice("group could not be created", "group", c.GroupName, "err", err)
		}
		if !ok {
			return false, false
		}
		ordered := false
		for i := range c.SubscriptionDataSet {
			t, found := topics.Find(c.SubscriptionDataSet[i].Topic)
			ordered = ordered || found && t.Order
		}
		const readWrite = protocol.PermRead | protocol.PermWrite
		_, err = topics.CreateRetry(
			protocol.RetryPrefix+c.GroupName, cfg.RetryQueueNums, readWrite, ordered, c.UnitMode)
		if err != nil {
			notice("retry topic could not be created", "group", c.GroupName, "err", err)
		}
		return cfg.NotifyConsumerIDsChangedEnable, true
	}
}

// NotifyChange returns what group.MembersConfig.NotifyChange wants: every member gets a one-way
// NOTIFY_CONSUMER_IDS_CHANGED (40).
func NotifyChange(clients ClientCaller) func(group string, chs []group.Channel) {
	return func(name string, chs []group.Channel) {
		header := &protocol.NotifyConsumerIDsChangedRequest{Group: name}
		for _, ch := range chs {
			clients.Oneway(ch, remoting.NotifyConsumerIDsChanged, header, nil)
		}
	}
}
