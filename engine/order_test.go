// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// member is a consumer of a group on a connection of its own.
type member struct {
	*rawPeer
	id string
}

func joinGroup(t *testing.T, addr, id, group, topic string) *member {
	t.Helper()
	m := &member{dialRaw(t, addr), id}
	m.request(remoting.HeartBeat, nil, protocol.Marshal(protocol.HeartbeatData{
		ClientID: id, ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: group, ConsumeType: protocol.ConsumePassively,
			MessageModel: protocol.Clustering, ConsumeFromWhere: protocol.ConsumeFromFirstOffset,
			SubscriptionDataSet: []protocol.SubscriptionData{{Topic: topic, SubString: "*", ExpressionType: "TAG"}},
		}},
	}))
	m.awaitResponse(0)
	return m
}

// awaitResponse passes over requests of the broker until the answer comes.
func (m *member) awaitResponse(code int32) *remoting.Command {
	m.t.Helper()
	for {
		cmd, err := m.answer(callWithin)
		if err != nil {
			m.t.Fatal(m.id, err)
		}
		if cmd.IsResponse() {
			if cmd.Code != code {
				m.t.Fatalf("%s: code %d %q", m.id, cmd.Code, cmd.Remark)
			}
			return cmd
		}
	}
}

// awaitChange passes over everything until the broker says that the group has changed.
func (m *member) awaitChange() {
	m.t.Helper()
	for {
		cmd, err := m.answer(callWithin)
		if err != nil {
			m.t.Fatal(m.id, "was not told:", err)
		}
		if cmd.Code == int32(remoting.NotifyConsumerIDsChanged) && !cmd.IsResponse() {
			return
		}
	}
}

// lock asks for queue 0 and returns whether it is granted.
func (m *member) lock(group, topic string) bool {
	m.t.Helper()
	m.request(remoting.LockBatchMQ, nil, protocol.Marshal(protocol.LockBatchRequest{
		ConsumerGroup: group, ClientID: m.id,
		MQSet: []protocol.MessageQueue{{Topic: topic, BrokerName: "broker-a"}},
	}))
	var granted protocol.LockBatchResponse
	if err := protocol.Unmarshal(m.awaitResponse(0).Body, &granted); err != nil {
		m.t.Fatal(err)
	}
	return len(granted.LockOKMQSet) == 1
}

// A queue lock ends when its holder's connection closes or when it unregisters; the member that is told
// of the change can take it at once, where RocketMQ has it wait for up to 60 s.
func TestQueueLockEndsWithHolder(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	for name, leave := range map[string]func(m *member){
		"close": func(m *member) { _ = m.conn.Close() },
		"unregister": func(m *member) {
			m.request(remoting.UnregisterClient, &protocol.UnregisterClientRequest{
				ClientID: m.id, ConsumerGroup: "CG_unregister",
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group, topic := "CG_"+name, "T_"+name
			newPeer(t, c.Broker()).send(topic, 0, "one")
			holder := joinGroup(t, c.Broker(), "holder", group, topic)
			if !holder.lock(group, topic) {
				t.Fatal("a free queue is not granted")
			}
			heir := joinGroup(t, c.Broker(), "heir", group, topic)
			if heir.lock(group, topic) {
				t.Fatal("two members hold one queue")
			}
			leave(holder)
			heir.awaitChange()
			if !heir.lock(group, topic) {
				t.Error("the lock of a member that has left is not free")
			}
		})
	}
}

// A restart takes no queue from its holder, though another one asks first: the holder may be in the middle
// of a message. What nobody held is free.
func TestQueueLockAfterRestart(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	newPeer(t, c.Broker()).send("T", 0, "one")
	if !joinGroup(t, c.Broker(), "holder", "CG", "T").lock("CG", "T") {
		t.Fatal("a free queue is not granted")
	}
	c.Restart()
	first := joinGroup(t, c.Broker(), "other", "CG", "T")
	if first.lock("CG", "T") {
		t.Error("taken from its holder")
	}
	if !first.lock("CG", "Free") {
		t.Error("a queue that nobody held is not granted")
	}
	holder := joinGroup(t, c.Broker(), "holder", "CG", "T")
	if !holder.lock("CG", "T") {
		t.Fatal("not granted after the restart")
	}
	if first.lock("CG", "T") {
		t.Error("granted twice")
	}
}

// A topic that is deleted takes its locks, offsets and queues with it, also across a start: made again it
// begins at zero.
func TestTopicMadeAgain(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	p := newPeer(t, c.Broker())
	for range 5 {
		p.send("T", 0, "old")
	}
	holder := joinGroup(t, c.Broker(), "holder", "CG", "T")
	if !holder.lock("CG", "T") {
		t.Fatal("not granted")
	}
	p.call(remoting.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
		Group: "CG", Topic: "T", HasQueueID: true, CommitOffset: 4, HasOffset: true,
	}, nil)
	if r := p.call(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "T"}, nil); r.Code != 0 {
		t.Fatal(r.Code, r.Remark)
	}
	c.Restart()
	p = newPeer(t, c.Broker())
	if r := p.send("T", 0, "new"); r.QueueOffset != 0 {
		t.Errorf("the first message has offset %d", r.QueueOffset)
	}
	r := p.call(remoting.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
		Group: "CG", Topic: "T",
	}, nil)
	var at protocol.OffsetResponse
	if err := at.Decode(r.Command); r.Code == 0 && (err != nil || at.Offset != 0) {
		t.Errorf("the group is at %d, %v", at.Offset, err)
	}
	c.Restart()
	p = newPeer(t, c.Broker())
	if got := p.bodies("T", 0); len(got) != 1 || got[0] != "new" {
		t.Errorf("after another start: %v", got)
	}
}

// System topics cannot be deleted or changed, whoever asks.
func TestSystemTopicsStay(t *testing.T) {
	t.Parallel()
	c := enginetest.Start(t)
	p := newPeer(t, c.Broker())
	for _, name := range []string{
		protocol.HalfTopic, protocol.OpHalfTopic, protocol.ScheduleTopic, protocol.TransCheckMaxTimeTopic,
		"DefaultCluster_REPLY_TOPIC", protocol.TraceTopic, protocol.TimerTopic, "TBW102", "broker-a",
	} {
		r := p.call(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: name}, nil)
		if r.Code != remoting.InvalidParameter {
			t.Errorf("delete %s: %v %q", name, r.Code, r.Remark)
		}
	}
}
