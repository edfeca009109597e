// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// heartbeat registers a push consumer, as clients do before anything else.
func (p *peer) heartbeat(id, group string, subs ...protocol.SubscriptionData) {
	p.t.Helper()
	p.beat(protocol.Marshal(&protocol.HeartbeatData{
		ClientID: id,
		ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: group, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
			SubscriptionDataSet: subs,
		}},
	}))
}

func (p *peer) beat(body []byte) {
	p.t.Helper()
	if r := p.call(remoting.HeartBeat, nil, body); r.Code != remoting.Success {
		p.t.Fatalf("heartbeat %.200s: %v %s", body, r.Code, r.Remark)
	}
}

func tags(topic, expression string) protocol.SubscriptionData {
	s, err := protocol.ParseSubscription(topic, expression, "TAG")
	if err != nil {
		panic(err)
	}
	s.SubVersion = time.Now().UnixMilli()
	return s
}

func (p *peer) commit(group, topic string, queue int32, offset int64) {
	p.t.Helper()
	r := p.call(remoting.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
		Group: group, Topic: topic, QueueID: queue, HasQueueID: true, CommitOffset: offset, HasOffset: true,
	}, nil)
	if r.Code != remoting.Success {
		p.t.Fatalf("commit: %v %s", r.Code, r.Remark)
	}
}

// committed is the group's stored offset, or -1.
func (p *peer) committed(group, topic string, queue int32) int64 {
	p.t.Helper()
	no := false
	r := p.call(remoting.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
		Group: group, Topic: topic, QueueID: queue, SetZeroIfNotFound: &no,
	}, nil)
	var out protocol.OffsetResponse
	if r.Code != remoting.Success || out.Decode(r.Command) != nil {
		return -1
	}
	return out.Offset
}

// lag is what is left to consume, over all queues of a topic.
func (p *peer) lag(group, topic string) (sum, least int64) {
	p.t.Helper()
	r := p.call(remoting.GetConsumeStats, &protocol.ConsumeStatsRequest{Group: group, Topic: topic}, nil)
	var stats protocol.ConsumeStats
	if err := protocol.Unmarshal(r.Body, &stats); err != nil {
		p.t.Fatalf("consume stats: %v %v %s", err, r.Code, r.Remark)
	}
	for _, q := range stats.OffsetTable {
		sum += q.BrokerOffset - q.ConsumerOffset
		least = min(least, q.BrokerOffset-q.ConsumerOffset)
	}
	return sum, least
}

// TestFaultTopicMadeAnew: a group whose offset is beyond the end of a topic that was deleted and
// made anew gets every message of the new one.
func TestFaultTopicMadeAnew(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.heartbeat("c1", "consumers", tags("anew", "*"))
	for i := range 100 {
		p.send("anew", 0, fmt.Sprint("old", i))
	}
	p.commit("consumers", "anew", 0, 100)
	if r := p.call(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "anew"}, nil); r.Code != remoting.Success {
		t.Fatalf("delete: %v %s", r.Code, r.Remark)
	}
	if d := p.pull(pullRequest("anew", 0, 0, "*", 0)); d.code != remoting.TopicNotExist {
		t.Errorf("pull of the deleted topic: %v %s", d.code, d.remark)
	}
	for i := range 10 {
		if got := p.send("anew", 0, fmt.Sprint("m", i)); got.QueueOffset != int64(i) {
			t.Errorf("message %d has offset %d", i, got.QueueOffset)
		}
	}
	if at := p.committed("consumers", "anew", 0); at > 0 {
		t.Errorf("the offset %d of the deleted topic is still there", at)
	}
	if _, least := p.lag("consumers", "anew"); least < 0 {
		t.Errorf("lag %d", least)
	}
	// A consumer that was away still asks from where it stopped.
	d := p.pull(pullRequest("anew", 0, 100, "*", 0))
	if d.code != remoting.PullOffsetMoved || d.head.NextOffset != 10 {
		t.Errorf("pull from the old offset: %v %s, next %d", d.code, d.remark, d.head.NextOffset)
	}
	if d := p.pull(pullRequest("anew", 0, 0, "*", 0)); len(d.views) != 10 {
		t.Errorf("%d messages of 10", len(d.views))
	}
}

// TestFaultStoreWiped: the messages are lost and the offsets are not. A consumer is sent back to the
// queue's end, and commits of a place that does not exist harm nobody.
func TestFaultStoreWiped(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 50 {
		p.send("wiped", 0, fmt.Sprint(i))
	}
	p.pull(pullRequest("wiped", 0, 0, "*", 0))
	p.commit("consumers", "wiped", 0, 50)
	cluster.Restart(func(*engine.Config) {
		for _, name := range []string{"commitlog", "consumequeue", "index", "checkpoint"} {
			if err := os.RemoveAll(filepath.Join(cluster.Dir(), name)); err != nil {
				t.Error(err)
			}
		}
	})
	if at := p.committed("consumers", "wiped", 0); at != 50 {
		t.Errorf("committed offset %d after the wipe", at)
	}
	d := p.pull(pullRequest("wiped", 0, 50, "*", time.Second))
	if d.code != remoting.PullOffsetMoved || d.head.NextOffset != 0 {
		t.Errorf("pull from the old offset of an empty queue: %v %s, next %d", d.code, d.remark, d.head.NextOffset)
	}
	p.send("wiped", 0, "first of the new")
	d = p.pull(pullRequest("wiped", 0, 50, "*", time.Second))
	if d.code != remoting.PullOffsetMoved || d.head.NextOffset > 1 {
		t.Errorf("pull from the old offset: %v %s, next %d", d.code, d.remark, d.head.NextOffset)
	}
	if d := p.pull(pullRequest("wiped", 0, 0, "*", 0)); d.bodies() != "first of the new" {
		t.Errorf("pulled %q", d.bodies())
	}
	if _, least := p.lag("consumers", "wiped"); least < -49 {
		t.Errorf("lag %d", least)
	}
}

// TestFaultOffsetBelowMinimum: the oldest log files are gone. A consumer that asks from the start is
// told the lowest offset that is there, and the next pull from it works.
func TestFaultOffsetBelowMinimum(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(c *engine.Config) {
		c.CommitLogFileSize, c.MaxMessageSize = 1<<16, 1<<14
	})
	p := newPeer(t, cluster.Broker())
	for i := range 200 {
		p.send("low", 0, fmt.Sprint(i, strings.Repeat(" ", 1000)))
	}
	cluster.Restart(func(*engine.Config) {
		if err := os.Remove(filepath.Join(cluster.Dir(), "commitlog", strings.Repeat("0", 20))); err != nil {
			t.Error(err)
		}
	})
	d := p.pull(pullRequest("low", 0, 0, "*", 0))
	low := d.head.NextOffset
	if d.code != remoting.PullOffsetMoved || low < 10 || low != d.head.MinOffset {
		t.Fatalf("pull from 0: %v %s %+v", d.code, d.remark, d.head)
	}
	d = p.pull(pullRequest("low", 0, low, "*", 0))
	if d.code != remoting.Success || !strings.HasPrefix(d.bodies(), fmt.Sprint(low, " ")) {
		t.Errorf("pull from %d: %v %.20q", low, d.code, d.bodies())
	}
}

// TestFaultSubscribedBeforeTheTopic: a group subscribes a topic that does not exist; a producer
// creates it; the group gets the message without another heartbeat.
func TestFaultSubscribedBeforeTheTopic(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	sub := tags("early", "*")
	p.heartbeat("c1", "eager", sub)
	names := newPeer(t, cluster.NameServer())
	route := func() remoting.ResponseCode {
		return names.call(remoting.GetRouteInfoByTopic, &protocol.RouteRequest{Topic: "early"}, nil).Code
	}
	if code := route(); code != remoting.TopicNotExist {
		t.Errorf("route before the topic: %v", code)
	}
	pull := pullRequest("early", 0, 0, "", 0)
	pull.Group, pull.SysFlag, pull.SubVersion = []byte("eager"), 0, sub.SubVersion
	if d := p.pull(pull); d.code != remoting.TopicNotExist {
		t.Errorf("pull before the topic: %v %s", d.code, d.remark)
	}
	p.send("early", 0, "at once")
	if code := route(); code != remoting.Success {
		t.Errorf("route right after the first send: %v", code)
	}
	if d := p.pull(pull); d.bodies() != "at once" {
		t.Errorf("pulled %v %s %q", d.code, d.remark, d.bodies())
	}
}

// TestFaultDifferentSubscriptions: two members of a group that subscribe differently are named in one
// warning, and so are two clients that use the same id.
func TestFaultDifferentSubscriptions(t *testing.T) {
	t.Parallel()
	var log journal
	cluster := enginetest.Start(t, logTo(&log))
	a, b := newPeer(t, cluster.Broker()), newPeer(t, cluster.Broker())
	for range 3 {
		a.heartbeat("client-a", "torn", tags("news", "tag1"))
		b.heartbeat("client-b", "torn", tags("news", "tag2"))
	}
	warned := log.lines("level=WARN", "torn", "client-a", "client-b", "tag1", "tag2")
	if len(warned) != 1 {
		t.Errorf("%d warnings: %q", len(warned), log.lines("torn"))
	}
	// Two connections with one id may be one client that connected anew; two that go on are not.
	eventually(t, func() bool {
		a.heartbeat("10.0.0.1@1", "twins", tags("news", "*"))
		b.heartbeat("10.0.0.1@1", "twins", tags("news", "*"))
		return len(log.lines("level=WARN", "twins", "10.0.0.1@1")) == 1
	})
	r := a.call(remoting.GetConsumerListByGroup, &protocol.ConsumerListRequest{Group: "torn"}, nil)
	var list protocol.ConsumerList
	if err := protocol.Unmarshal(r.Body, &list); err != nil || !slices.Equal(list.ConsumerIDList, []string{"client-a", "client-b"}) {
		t.Errorf("members: %v %v", list, err)
	}
}

// TestFaultDifferentSubscriptionsRefused: with refuseDifferentSubscriptions the second one is answered
// with both names and gets no share of the queues, and nothing is missed.
func TestFaultDifferentSubscriptionsRefused(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(cfg *engine.Config) { cfg.RefuseDifferent = true })
	a, b := newPeer(t, cluster.Broker()), newPeer(t, cluster.Broker())
	a.heartbeat("client-a", "torn", tags("news", "tag1"))
	r := b.call(remoting.HeartBeat, nil, protocol.Marshal(&protocol.HeartbeatData{
		ClientID: "client-b",
		ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: "torn", ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
			SubscriptionDataSet: []protocol.SubscriptionData{tags("news", "tag2")},
		}},
	}))
	if r.Code != remoting.NoPermission || !strings.Contains(r.Remark, "client-a") ||
		!strings.Contains(r.Remark, "client-b") {
		t.Errorf("heartbeat: %v %q", r.Code, r.Remark)
	}
	r = a.call(remoting.GetConsumerListByGroup, &protocol.ConsumerListRequest{Group: "torn"}, nil)
	var list protocol.ConsumerList
	if err := protocol.Unmarshal(r.Body, &list); err != nil || !slices.Equal(list.ConsumerIDList, []string{"client-a"}) {
		t.Errorf("members: %v %v", list, err)
	}
}

// TestFaultConsumeFromLastStrict: a new group on a young topic is told to begin at 0, as RocketMQ does,
// unless consumeFromLastStrict lets the consumer decide.
func TestFaultConsumeFromLastStrict(t *testing.T) {
	t.Parallel()
	for strict, want := range map[bool]remoting.ResponseCode{
		false: remoting.Success, true: remoting.QueryNotFound,
	} {
		cluster := enginetest.Start(t, func(cfg *engine.Config) { cfg.FromLastStrict = strict })
		p := newPeer(t, cluster.Broker())
		p.send("young", 0, "first")
		r := p.call(remoting.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
			Group: "new", Topic: "young",
		}, nil)
		if r.Code != want {
			t.Errorf("strict %v: %v %q, want %v", strict, r.Code, r.Remark, want)
		}
	}
}

// TestFaultBrokenHeartbeats: of a heartbeat with broken parts the rest counts, and nothing is created
// for what has no name.
func TestFaultBrokenHeartbeats(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	before := topicsOf(p)
	good := `{"groupName":"fine","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",` +
		`"subscriptionDataSet":[{"topic":"t","subString":"*","subVersion":1}]}`
	for i, body := range []string{
		`{"clientID":null,"consumerDataSet":[` + good + `]}`,
		`{"clientID":" ","consumerDataSet":[` + good + `]}`,
		`{"clientID":"x"}`,
		`{"clientID":"x","consumerDataSet":null,"producerDataSet":null}`,
		`{"clientID":"x","consumerDataSet":[null,{},{"groupName":null},{"groupName":""},{"groupName":"  "}]}`,
		`{"clientID":"x","consumerDataSet":[{"groupName":"a/b"},{"groupName":"../../x"},{"groupName":"a b"}]}`,
		`{"clientID":"x","producerDataSet":[null,{},{"groupName":""}]}`,
	} {
		r := p.call(remoting.HeartBeat, nil, []byte(body))
		if r.Code != remoting.Success && r.Code != remoting.InvalidParameter {
			t.Errorf("heartbeat %d: %v %s", i, r.Code, r.Remark)
		}
	}
	if after := topicsOf(p); len(after) != len(before) {
		t.Errorf("topics %v became %v", before, after)
	}
	many := strings.Repeat(`{"topic":"x","subString":"*"},{"topic":" "},null,{"codeSet":null},`, 2500)
	p.beat([]byte(`{"clientID":"x","consumerDataSet":[{"groupName":""},{"groupName":"none",` +
		`"subscriptionDataSet":null},` + good + `,{"groupName":"many","subscriptionDataSet":[` + many + `null]}]}`))
	r := p.call(remoting.GetConsumerListByGroup, &protocol.ConsumerListRequest{Group: "fine"}, nil)
	if !strings.Contains(string(r.Body), `"x"`) {
		t.Errorf("the good group of a heartbeat with broken ones: %v %s", r.Code, r.Body)
	}
	for name := range topicsOf(p) {
		if !before[name] && !slices.Contains([]string{"%RETRY%fine", "%RETRY%none", "%RETRY%many"}, name) {
			t.Errorf("topic %q came into being", name)
		}
	}
}
