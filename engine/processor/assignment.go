// SPDX-License-Identifier: Apache-2.0

// QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402),
// after RocketMQ's QueryAssignmentProcessor. In mode POP a client shares queues with others.

package processor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Assignments shares queues out on behalf of consumers that do not do it themselves.
type Assignments struct{ *Leaves }

// Register adds the request codes.
func (p *Assignments) Register(t Cold) {
	t[remoting.QueryAssignment] = onBody(func(_ *Caller, r *protocol.QueryAssignmentRequest) Reply {
		return jsonReply(p.Query(r))
	})
	t[remoting.SetMessageRequestMode] = onBody(
		func(_ *Caller, r *protocol.MessageRequestModeBody) Reply { return done(p.SetMode(r)) })
	t[remoting.GetAllMessageRequestMode] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.Marshal(
			protocol.MessageRequestModeWrapper{MessageRequestModeMap: p.Modes.All()})}
	}
}

// Query returns the queues that one client of a group is to pull. An answer without a list means
// that the client keeps what it has, an empty list that it gives up everything.
func (p *Assignments) Query(
	r *protocol.QueryAssignmentRequest,
) (body protocol.QueryAssignmentResponse, err error) {
	err = needed("topic", r.Topic, "consumerGroup", r.ConsumerGroup, "clientId", r.ClientID)
	if err != nil {
		return body, err
	}
	queues, ok := p.readQueues(r.Topic)
	if !ok {
		return body, nil
	}
	mode := p.modeOf(r.Topic, r.ConsumerGroup)
	if r.MessageModel != protocol.Broadcasting {
		clients := slices.Clone(p.Members.ConsumerIDs(r.ConsumerGroup))
		if len(clients) == 0 {
			return body, nil
		}
		slices.Sort(clients)
		slices.SortFunc(queues, func(a, b protocol.MessageQueue) int {
			return cmp.Or(strings.Compare(a.Topic, b.Topic),
				strings.Compare(a.BrokerName, b.BrokerName), cmp.Compare(a.QueueID, b.QueueID))
		})
		if mode.Mode == protocol.RequestModePop {
			queues, ok = sharePop(r.StrategyName, queues, clients, r.ClientID, int(mode.PopShareQueueNum))
		} else {
			queues, ok = share(r.StrategyName, queues, clients, r.ClientID)
		}
		if !ok {
			return body, nil
		}
	}
	assigned := make([]protocol.MessageQueueAssignment, len(queues))
	for i, q := range queues {
		assigned[i] = protocol.MessageQueueAssignment{MessageQueue: &q, Mode: mode.Mode}
	}
	body.MessageQueueAssignments = assigned
	return body, nil
}

// modeOf is how a group reads a topic: as an administrator set it, else by pull for retry topics and
// by the broker's default for others.
func (p *Assignments) modeOf(topic, group string) protocol.MessageRequestModeBody {
	if set, ok := p.Modes.Get(topic, group); ok {
		return set
	}
	if protocol.IsRetryTopic(topic) || p.DefaultMode != protocol.RequestModePop {
		return protocol.MessageRequestModeBody{Mode: protocol.RequestModePull}
	}
	return protocol.MessageRequestModeBody{Mode: p.DefaultMode, PopShareQueueNum: p.DefaultPopShare}
}

// sharePop gives one client its part in mode POP (RocketMQ allocate4Pop). With sharing among all, each
// client has every broker, named by queue -1; else it has its own queues and those of the next clients.
func sharePop(
	strategy string, queues []protocol.MessageQueue, clients []string, client string, others int,
) (part []protocol.MessageQueue, ok bool) {
	at := slices.Index(clients, client)
	switch {
	case strategy != "AVG" && strategy != "AVG_BY_CIRCLE":
		return nil, false
	case others <= 0 || others >= len(clients)-1:
		for _, q := range queues {
			q.QueueID = -1
			part = append(part, q)
		}
	case at < 0 || len(queues) == 0:
		return nil, true
	case len(clients) > len(queues):
		return []protocol.MessageQueue{queues[at%len(queues)]}, true
	default:
		for i := range others + 1 {
			next, _ := share(strategy, queues, clients, clients[(at+i)%len(clients)])
			part = append(part, next...)
		}
	}
	return distinctQueues(part), true
}

// distinctQueues leaves one of each, in order.
func distinctQueues(queues []protocol.MessageQueue) []protocol.MessageQueue {
	seen := make(map[protocol.MessageQueue]bool, len(queues))
	return slices.DeleteFunc(queues, func(q protocol.MessageQueue) bool {
		was := seen[q]
		seen[q] = true
		return was
	})
}

// readQueues lists the readable queues of a topic, on every broker if routes are known.
func (p *Assignments) readQueues(topic string) ([]protocol.MessageQueue, bool) {
	if p.Routes != nil {
		if queues, ok := p.Routes.ReadQueues(topic); ok {
			return slices.Clone(queues), true
		}
	}
	c, ok := p.Topics.Find(topic)
	if !ok {
		return nil, false
	}
	var queues []protocol.MessageQueue
	if c.Perm&protocol.PermRead != 0 {
		for id := range c.ReadQueueNums {
			queues = append(queues, p.queue(topic, id))
		}
	}
	return queues, true
}

// share gives one client its part by RocketMQ's AllocateMessageQueueAveragely or ...ByCircle. Both
// lists are sorted. A client that is not in the list gets nothing; ok is false for a strategy that
// is not known.
func share(
	strategy string, queues []protocol.MessageQueue, clients []string, client string,
) (part []protocol.MessageQueue, ok bool) {
	at := slices.Index(clients, client)
	switch strategy {
	case "AVG":
		if at < 0 {
			return nil, true
		}
		size, rest := len(queues)/len(clients), len(queues)%len(clients)
		first := at*size + min(at, rest)
		if at < rest {
			size++
		}
		return queues[first : first+size], true
	case "AVG_BY_CIRCLE":
		if at < 0 {
			return nil, true
		}
		for i := at; i < len(queues); i += len(clients) {
			part = append(part, queues[i])
		}
		return part, true
	}
	return nil, false
}

// SetMode stores how a group reads a topic.
func (p *Assignments) SetMode(r *protocol.MessageRequestModeBody) error {
	err := needed("topic", r.Topic, "consumerGroup", r.ConsumerGroup, "mode", string(r.Mode))
	if err != nil {
		return err
	}
	if protocol.IsRetryTopic(r.Topic) {
		return remoting.Errorf(remoting.NoPermission, "retry topic is not allowed to set mode")
	}
	if _, err := p.topicConfig(r.Topic); err != nil {
		return err
	}
	_, ok, err := p.Groups.LookupOrCreate(r.ConsumerGroup)
	if err != nil {
		return err
	}
	if !ok {
		return remoting.Errorf(remoting.SubscriptionGroupNotExist,
			"subscription group[%s] not exist", r.ConsumerGroup)
	}
	if r.Mode != protocol.RequestModePull && r.Mode != protocol.RequestModePop {
		return remoting.Errorf(remoting.SystemError, "message request mode %.20q is neither %s nor %s",
			r.Mode, protocol.RequestModePull, protocol.RequestModePop)
	}
	return p.Modes.Set(*r)
}
