// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// groups is what a broker knows of consumer groups: members, queue locks and failed messages.
type groups struct {
	broker *Broker

	mu      sync.Mutex
	members map[string]map[string]net.Conn // group, client id
	extra   map[string][]string            // members that are not there, by group
	locks   map[protocol.MessageQueue]string
	backs   []Back
}

// Back is a message that a consumer sent back.
type Back struct {
	Group      string
	Offset     int64 // of the record in the log
	DelayLevel int32
	Retries    int32 // the limit it named
}

// AddMember has the broker name one more member of a group, which takes its share of queues and
// never reads them.
func (b *Broker) AddMember(group, clientID string) {
	b.groups.mu.Lock()
	b.groups.extra[group] = append(b.groups.extra[group], clientID)
	b.groups.mu.Unlock()
	b.groups.notify(group)
}

// RemoveMember undoes AddMember.
func (b *Broker) RemoveMember(group, clientID string) {
	b.groups.mu.Lock()
	b.groups.extra[group] = slices.DeleteFunc(b.groups.extra[group],
		func(id string) bool { return id == clientID })
	b.groups.mu.Unlock()
	b.groups.notify(group)
}

// Members returns the client ids of a group, sorted.
func (b *Broker) Members(group string) []string { return b.groups.list(group) }

// Lock has somebody else hold the lock of a queue; an empty owner frees it.
func (b *Broker) Lock(topic string, queue int32, owner string) {
	b.groups.mu.Lock()
	defer b.groups.mu.Unlock()
	key := protocol.MessageQueue{BrokerName: b.Name, Topic: topic, QueueID: queue}
	if owner == "" {
		delete(b.groups.locks, key)
		return
	}
	b.groups.locks[key] = owner
}

// Owner returns the client id that holds the lock of a queue.
func (b *Broker) Owner(topic string, queue int32) string {
	b.groups.mu.Lock()
	defer b.groups.mu.Unlock()
	return b.groups.locks[protocol.MessageQueue{BrokerName: b.Name, Topic: topic, QueueID: queue}]
}

// Backs returns what was sent back.
func (b *Broker) Backs() []Back {
	b.groups.mu.Lock()
	defer b.groups.mu.Unlock()
	return slices.Clone(b.groups.backs)
}

// Ask sends a request to the members of a group, as a broker does, and expects no answer.
func (b *Broker) Ask(group string, code remoting.RequestCode, h remoting.Header, body []byte) {
	for _, c := range b.groups.conns(group) {
		push(c, code, h, body)
	}
}

func push(c net.Conn, code remoting.RequestCode, h remoting.Header, body []byte) {
	e := remoting.Begin(nil, remoting.Head{
		Code: int32(code), Flag: remoting.FlagOneway, Version: remoting.ProtocolVersion,
	})
	h.AppendFields(&e)
	_, _ = c.Write(e.End(body))
}

func newGroups(b *Broker) *groups {
	g := &groups{
		broker: b, members: map[string]map[string]net.Conn{}, extra: map[string][]string{},
		locks: map[protocol.MessageQueue]string{},
	}
	b.Handle(remoting.HeartBeat, g.heartbeat)
	b.Handle(remoting.UnregisterClient, g.unregister)
	b.Handle(remoting.GetConsumerListByGroup, g.consumers)
	b.Handle(remoting.LockBatchMQ, g.lock)
	b.Handle(remoting.UnlockBatchMQ, g.unlock)
	b.Handle(remoting.ConsumerSendMsgBack, g.sendBack)
	return g
}

func (g *groups) conns(group string) []net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []net.Conn
	for _, c := range g.members[group] {
		list = append(list, c)
	}
	return list
}

func (g *groups) notify(group string) {
	for _, c := range g.conns(group) {
		push(c, remoting.NotifyConsumerIDsChanged,
			&protocol.NotifyConsumerIDsChangedRequest{Group: group}, nil)
	}
}

func (g *groups) heartbeat(r *Request) *Reply {
	var data protocol.HeartbeatData
	if err := protocol.Unmarshal(r.Body, &data); err != nil {
		return failed(err)
	}
	var changed []string
	g.mu.Lock()
	for _, c := range data.ConsumerDataSet {
		m := g.members[c.GroupName]
		if m == nil {
			m = map[string]net.Conn{}
			g.members[c.GroupName] = m
		}
		if m[data.ClientID] == nil {
			changed = append(changed, c.GroupName)
		}
		m[data.ClientID] = r.Conn
	}
	g.mu.Unlock()
	for _, group := range changed {
		g.notify(group)
	}
	return &Reply{}
}

func (g *groups) unregister(r *Request) *Reply {
	var h protocol.UnregisterClientRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	g.mu.Lock()
	delete(g.members[h.ConsumerGroup], h.ClientID)
	g.mu.Unlock()
	if h.ConsumerGroup != "" {
		g.notify(h.ConsumerGroup)
	}
	return &Reply{}
}

func (g *groups) list(group string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := slices.Clone(g.extra[group])
	for id := range g.members[group] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (g *groups) consumers(r *Request) *Reply {
	var h protocol.ConsumerListRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	return &Reply{Body: protocol.Marshal(&protocol.ConsumerList{ConsumerIDList: g.list(h.Group)})}
}

func (g *groups) lock(r *Request) *Reply {
	var req protocol.LockBatchRequest
	if err := protocol.Unmarshal(r.Body, &req); err != nil {
		return failed(err)
	}
	res := protocol.LockBatchResponse{LockOKMQSet: []protocol.MessageQueue{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range req.MQSet {
		if owner := g.locks[q]; owner == "" || owner == req.ClientID {
			g.locks[q] = req.ClientID
			res.LockOKMQSet = append(res.LockOKMQSet, q)
		}
	}
	return &Reply{Body: protocol.Marshal(&res)}
}

func (g *groups) unlock(r *Request) *Reply {
	var req protocol.UnlockBatchRequest
	if err := protocol.Unmarshal(r.Body, &req); err != nil {
		return failed(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range req.MQSet {
		if g.locks[q] == req.ClientID {
			delete(g.locks, q)
		}
	}
	return &Reply{}
}

// sendBack stores the message in the retry topic at once, whatever the delay, or in the dead-letter
// topic when it was tried often enough.
func (g *groups) sendBack(r *Request) *Reply {
	var h protocol.ConsumerSendBackRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	b := g.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.atLocked(h.Offset)
	if rec == nil {
		return &Reply{Code: remoting.SystemError, Remark: "look message by offset failed, " +
			strconv.FormatInt(h.Offset, 10)}
	}
	g.mu.Lock()
	g.backs = append(g.backs, Back{
		Group: h.Group, Offset: h.Offset, DelayLevel: h.DelayLevel, Retries: h.MaxReconsumeTimes,
	})
	g.mu.Unlock()
	v, err := record.Parse(rec)
	if err != nil {
		return failed(err)
	}
	d := v.Draft()
	limit := h.MaxReconsumeTimes
	if limit < 0 {
		limit = 16
	}
	topic := protocol.RetryPrefix + h.Group
	if h.DelayLevel < 0 || d.ReconsumeTimes >= limit {
		topic = protocol.DLQPrefix + h.Group
	}
	if _, again := record.Property(d.Properties, "RETRY_TOPIC"); !again {
		d.Properties = record.AppendProperty(slices.Clone(d.Properties), "RETRY_TOPIC", h.OriginTopic)
	}
	d.ReconsumeTimes++
	d.Topic, d.QueueID = []byte(topic), 0
	b.topics[topic] = true
	b.storeLocked(queueKey{topic, 0}, d)
	return &Reply{}
}

// SetOffset stores a position of a group.
func (b *Broker) SetOffset(group, topic string, queue int32, offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offsets[offsetKey(group, topic, queue)] = offset
}

// MakeSlave makes broker number slave a slave, id 1, of broker number master: it serves reads of
// the same queues and has none of its own.
func (c *Cluster) MakeSlave(master, slave int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slaves[c.Brokers[slave]] = c.Brokers[master]
}
