// SPDX-License-Identifier: Apache-2.0

// INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), GET_CONSUMER_RUNNING_INFO (307) and
// CONSUME_MESSAGE_DIRECTLY (309): questions that the broker passes on to clients, after RocketMQ's
// AdminBrokerProcessor and Broker2Client.

package processor

import (
	"context"
	"errors"
	"time"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	statusTimeout = 5 * time.Second
	relayTimeout  = 10 * time.Second

	// versionRelay is V3_1_8_SNAPSHOT, the first that answers 307 and 309.
	versionRelay = 62
)

// Relays passes questions on to clients.
type Relays struct{ *Leaves }

// Register adds the request codes.
func (p *Relays) Register(t Cold) {
	t[remoting.InvokeBrokerToGetConsumerStatus] = onHeader(
		func(_ *Caller, r *protocol.ConsumerStatusRequest) Reply {
			reply := jsonReply(p.Status(r))
			if reply.Code == remoting.Success {
				reply.Remark = notSet
			}
			return reply
		})
	t[remoting.GetConsumerRunningInfo] = onHeader(
		func(_ *Caller, r *protocol.ConsumerRunningInfoRequest) Reply {
			return p.relay(remoting.GetConsumerRunningInfo, r.Group, r.ClientID, r, nil)
		})
	t[remoting.ConsumeMessageDirectly] = onHeader(
		func(_ *Caller, r *protocol.ConsumeDirectlyRequest) Reply { return p.Consume(r) })
}

// Status asks the clients of a group, or one of them, for the offsets they hold of a topic. Clients
// that do not answer are left out.
func (p *Relays) Status(
	r *protocol.ConsumerStatusRequest,
) (body protocol.ConsumerStatusBody, err error) {
	clients := p.Members.Consumers(r.Group)
	if len(clients) == 0 {
		return body, remoting.Errorf(remoting.ConsumerNotOnline,
			"No Any Consumer online in the consumer group: [%s]", r.Group)
	}
	body.ConsumerTable = map[string]map[protocol.MessageQueue]int64{}
	body.MessageQueueTable = map[protocol.MessageQueue]int64{}
	header := &protocol.TopicGroupRequest{Topic: r.Topic, Group: r.Group}
	for _, c := range clients {
		if c.Version < versionResetable {
			return protocol.ConsumerStatusBody{}, remoting.Errorf(remoting.SystemError,
				"the client does not support this feature. version=%d", c.Version)
		}
		if r.ClientAddr != "" && r.ClientAddr != c.ID {
			continue
		}
		answer, err := p.Clients.Call(
			c.Channel, remoting.GetConsumerStatusFromClient, header, nil, statusTimeout)
		if err != nil || answer.Code != int32(remoting.Success) {
			continue
		}
		var one protocol.ConsumerStatusBody
		if protocol.Unmarshal(answer.Body, &one) == nil && one.MessageQueueTable != nil {
			body.ConsumerTable[c.ID] = one.MessageQueueTable
		}
	}
	return body, nil
}

// Consume gives one stored message to one client and returns what the client made of it.
func (p *Relays) Consume(r *protocol.ConsumeDirectlyRequest) Reply {
	if err := needed("clientId", r.ClientID, "msgId", r.MsgID); err != nil {
		return Fail(err)
	}
	_, at, err := record.ParseOffsetID(r.MsgID)
	if err != nil {
		return Fail(remoting.Errorf(remoting.SystemError, "the field msgId is no offset id: %v", err))
	}
	region, err := p.Store.RecordAt(at)
	if err != nil {
		return Fail(remoting.Errorf(remoting.SystemError,
			"look message by offset failed, %d", int64(at)))
	}
	defer region.Release()
	relayed := *r
	relayed.BrokerName = p.BrokerName
	if relayed.Topic == "" {
		if v, err := record.Parse(region.Mem); err == nil {
			relayed.Topic = string(v.Topic())
		}
	}
	if c, ok := p.Topics.Find(relayed.Topic); ok {
		relayed.TopicSysFlag = c.TopicSysFlag
	}
	if c, ok, err := p.Groups.LookupOrCreate(r.Group); err == nil && ok {
		relayed.GroupSysFlag = c.GroupSysFlag
	}
	return p.relay(remoting.ConsumeMessageDirectly, r.Group, r.ClientID, &relayed, region.Mem)
}

// relay asks one client and passes its answer on.
func (p *Relays) relay(
	code remoting.RequestCode, name, clientID string, header remoting.Header, body []byte,
) Reply {
	client, err := p.consumer(name, clientID)
	if err != nil {
		return Fail(err)
	}
	answer, err := p.Clients.Call(client.Channel, code, header, body, relayTimeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Fail(remoting.Errorf(remoting.ConsumeMsgTimeout,
			"consumer <%s> <%s> Timeout: %v", name, clientID, err))
	case err != nil:
		return Fail(remoting.Errorf(remoting.SystemError,
			"invoke consumer <%s> <%s> failed: %v", name, clientID, err))
	}
	return Reply{
		Code: remoting.ResponseCode(answer.Code), Remark: string(answer.Remark), Body: answer.Body,
	}
}

func (p *Relays) consumer(name, clientID string) (group.Connection, error) {
	client, ok := p.Members.Consumer(name, clientID)
	if !ok {
		return client, remoting.Errorf(remoting.SystemError,
			"The Consumer <%s> <%s> not online", name, clientID)
	}
	if client.Version < versionRelay {
		return client, remoting.Errorf(remoting.SystemError,
			"The Consumer <%s> Version <%d> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
			clientID, client.Version)
	}
	return client, nil
}
