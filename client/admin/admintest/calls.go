// SPDX-License-Identifier: Apache-2.0

package admintest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

func (s *script) topics() {
	n := s.names
	here := admin.AtBroker(s.broker.Name)
	three := admin.TopicConfig{Name: n.Topic, ReadQueues: 3, WriteQueues: 3}
	put, err := s.a.PutTopic(s.ctx, three, here)
	s.must("put topic", err)
	s.note("PutTopic", put, err)
	configs, err := s.a.TopicConfig(s.ctx, n.Topic)
	s.note("TopicConfig", configs, err)
	put, err = s.a.UpdateTopic(s.ctx, n.Topic, admin.Everywhere(), func(c *admin.TopicConfig) {
		c.ReadQueues, c.WriteQueues = 2, 2
		c.Attributes["message.type"] = "NORMAL"
	})
	s.note("UpdateTopic", put, err)
	configs, err = s.a.TopicConfig(s.ctx, n.Topic)
	s.note("TopicConfig after update", configs, err)
	put, err = s.a.PutTopics(s.ctx, []admin.TopicConfig{
		{
			Name: n.Other, ReadQueues: 1, WriteQueues: 1,
			Attributes: map[string]string{"message.type": "FIFO"},
		},
	}, admin.InCluster(s.broker.Cluster))
	s.note("PutTopics", put, err)
	configs, err = s.a.TopicConfig(s.ctx, n.Other)
	s.note("TopicConfig of a list", configs, err)
	route, err := s.a.TopicRoute(s.ctx, n.Topic)
	s.note("TopicRoute", route, err)
	clusters, err := s.a.TopicClusters(s.ctx, n.Topic)
	s.note("TopicClusters", clusters, err)
	all, err := s.a.Topics(s.ctx)
	s.note("Topics has", []bool{slices.Contains(all, n.Topic), slices.Contains(all, n.Other)}, err)
	all, err = s.a.ClusterTopics(s.ctx, s.broker.Cluster)
	s.note("ClusterTopics has", slices.Contains(all, n.Topic), err)
	all, err = s.a.SystemTopics(s.ctx)
	s.note("SystemTopics has", slices.Contains(all, s.broker.Cluster), err)
	tables, err := s.a.TopicConfigs(s.ctx, admin.AtAddr(s.broker.Addr))
	found := false
	for _, x := range tables {
		found = found || slices.ContainsFunc(x.Value, func(c admin.TopicConfig) bool {
			return c.Name == n.Topic && c.ReadQueues == 2
		})
	}
	s.note("TopicConfigs has", found, err)
	status, err := s.a.TopicStatus(s.ctx, n.Topic)
	s.note("TopicStatus of an empty topic", status, err)

	_, err = s.a.PutTopic(s.ctx, admin.TopicConfig{Name: "a b"}, here)
	s.note("PutTopic with a bad name", nil, err)
	_, err = s.a.PutTopic(s.ctx, admin.TopicConfig{Name: "SELF_TEST_TOPIC"}, here)
	s.note("PutTopic of a system topic", nil, err)
	_, err = s.a.PutTopic(s.ctx, admin.TopicConfig{Name: "x"}, admin.AtBroker("absent"))
	s.note("PutTopic nowhere", nil, err)
	_, err = s.a.TopicRoute(s.ctx, "absent")
	s.note("TopicRoute of an absent topic", nil, err)
	_, err = s.a.TopicStatus(s.ctx, "absent")
	s.note("TopicStatus of an absent topic", nil, err)
	_, err = s.a.UpdateTopic(s.ctx, "absent", admin.Everywhere(), func(*admin.TopicConfig) {})
	s.note("UpdateTopic of an absent topic", nil, err)
	_, err = s.a.PutTopic(s.ctx, admin.TopicConfig{
		Name: n.Topic, ReadQueues: 2, WriteQueues: 2, Attributes: map[string]string{"colour": "green"},
	}, here)
	s.note("PutTopic with an unknown attribute", nil, err)
}

// send sends six messages: to the queues in turn, with tags A and B, each with a key of its own and
// one in common.
func (s *script) send() {
	p, err := s.c.NewProducer(s.names.Producers)
	s.must("producer", err)
	for i := range 6 {
		q := s.queue(i % 2)
		res, err := p.Send(s.ctx, &client.Message{
			Topic: s.names.Topic, Body: fmt.Appendf(nil, "body %d", i), Tag: string(rune('A' + i%2)),
			Keys: []string{fmt.Sprint("key", i), "all"}, Queue: &q,
			Properties: map[string]string{"colour": "green"},
		})
		s.must("send", err)
		s.sent = append(s.sent, res)
	}
	// Apache's broker enters messages into queues a moment after it has answered.
	status, err := eventually(s, func() (admin.TopicStatus, error) {
		status, err := s.a.TopicStatus(s.ctx, s.names.Topic)
		for _, q := range status.Queues {
			if err == nil && q.Max < 3 {
				err = fmt.Errorf("queue %s ends at %d", q.Queue, q.Max)
			}
		}
		return status, err
	})
	s.note("TopicStatus", status, err)
}

func (s *script) groups() {
	n := s.names
	g := admin.NewGroup(n.Group)
	g.MaxRetries, g.ConsumeTimeout = 5, 20*time.Minute
	g.RetryPolicy = admin.RetryPolicy{Delays: []time.Duration{time.Second, 5 * time.Second}}
	put, err := s.a.PutGroup(s.ctx, g, admin.Everywhere())
	s.must("put group", err)
	s.note("PutGroup", put, err)
	configs, err := s.a.GroupConfig(s.ctx, n.Group)
	s.note("GroupConfig", configs, err)
	put, err = s.a.UpdateGroup(s.ctx, n.Group, admin.Everywhere(), func(g *admin.GroupConfig) {
		g.Broadcast = false
		g.RetryPolicy = admin.RetryPolicy{Initial: time.Second, Max: time.Minute, Multiplier: 3}
	})
	s.note("UpdateGroup", put, err)
	configs, err = s.a.GroupConfig(s.ctx, n.Group)
	s.note("GroupConfig after update", configs, err)
	if err == nil {
		p := configs[0].Value.RetryPolicy
		s.note("retry policy after update", fmt.Sprint(p.Initial, p.Max, p.Multiplier, p.Delays), nil)
		s.note("consume timeout", fmt.Sprint(configs[0].Value.ConsumeTimeout), nil)
	}
	put, err = s.a.PutGroups(s.ctx, []admin.GroupConfig{admin.NewGroup(n.Clone)}, admin.Everywhere())
	s.note("PutGroups", put, err)
	all, err := s.a.Groups(s.ctx)
	s.note("Groups has", []bool{slices.Contains(all, n.Group), slices.Contains(all, n.Clone)}, err)
	_, err = s.a.GroupConfig(s.ctx, "absent")
	s.note("GroupConfig of an absent group", nil, err)
	_, err = s.a.UpdateGroup(s.ctx, "absent", admin.Everywhere(), func(*admin.GroupConfig) {})
	s.note("UpdateGroup of an absent group", nil, err)
	_, err = s.a.PutGroup(s.ctx, admin.GroupConfig{Name: "a b"}, admin.Everywhere())
	s.note("PutGroup with a bad name", nil, err)
	readable, err := s.a.GroupReadable(s.ctx, n.Group, n.Topic, admin.Everywhere())
	s.note("GroupReadable", readable, err)
	readable, err = s.a.SetGroupReadable(s.ctx, n.Group, n.Topic, false, admin.Everywhere())
	s.note("SetGroupReadable false", readable, err)
	readable, err = s.a.SetGroupReadable(s.ctx, n.Group, n.Topic, true, admin.Everywhere())
	s.note("SetGroupReadable true", readable, err)
}

func (s *script) offsets() {
	n := s.names
	at, err := s.a.Offset(s.ctx, n.Group, s.queue(0))
	s.note("Offset before a commit", at, err)
	s.done("SetOffset", s.a.SetOffset(s.ctx, n.Group, s.queue(0), 1))
	at, err = s.a.Offset(s.ctx, n.Group, s.queue(0))
	s.note("Offset", at, err)
	s.done("SetOffset of a negative one", s.a.SetOffset(s.ctx, n.Group, s.queue(0), -1))
	at, err = s.a.MinOffset(s.ctx, s.queue(0))
	s.note("MinOffset", at, err)
	at, err = s.a.MaxOffset(s.ctx, s.queue(0))
	s.note("MaxOffset", at, err)
	at, err = s.a.OffsetAt(s.ctx, s.queue(0), time.Now().Add(time.Hour))
	s.note("OffsetAt later", at, err)
	at, err = s.a.OffsetAt(s.ctx, s.queue(0), time.Now().Add(-time.Hour))
	s.note("OffsetAt earlier", at, err)
	first, err := s.a.EarliestTime(s.ctx, s.queue(1))
	s.note("EarliestTime", first, err)
	_, err = s.a.MaxOffset(s.ctx, client.Queue{Topic: n.Topic, Broker: "absent"})
	s.note("MaxOffset of an absent broker", nil, err)
	progress, err := s.a.Progress(s.ctx, n.Group)
	s.note("Progress", progress, err)
	progress, err = s.a.Progress(s.ctx, n.Group, n.Topic)
	s.note("Progress of one topic", progress, err)
	progress, err = s.a.Progress(s.ctx, "absent")
	s.note("Progress of an absent group", progress, err)
	every, err := s.a.AllProgress(s.ctx, false, admin.Everywhere())
	found := false
	for _, x := range every {
		found = found || slices.ContainsFunc(x.Value, func(p admin.Progress) bool {
			return p.Group == n.Group && p.Lag == 5 && len(p.Queues) == 2
		})
	}
	s.note("AllProgress has", found, err)
	put, err := s.a.SetConsumeMode(s.ctx, n.Group, n.Topic, false, 0, admin.Everywhere())
	s.note("SetConsumeMode", put, err)
	_, err = s.a.SetConsumeMode(s.ctx, "", n.Topic, false, 0, admin.Everywhere())
	s.note("SetConsumeMode of no group", nil, err)
	spans, err := s.a.TimeSpan(s.ctx, n.Topic, n.Group)
	s.note("TimeSpan", spans, err)
	topics, err := s.a.GroupTopics(s.ctx, n.Group)
	s.note("GroupTopics", topics, err)
	groups, err := s.a.TopicGroups(s.ctx, n.Topic)
	s.note("TopicGroups", groups, err)
	all, err := s.a.CommittedOffsets(s.ctx, n.Group)
	s.note("CommittedOffsets", all, err)
}

func (s *script) resets() {
	n := s.names
	q := s.queue(1)
	to := func(p admin.Position) admin.Reset {
		return admin.Reset{Group: n.Group, Topic: n.Topic, To: p}
	}
	only := func(p admin.Position, q *client.Queue, back bool) admin.Reset {
		return admin.Reset{Group: n.Group, Topic: n.Topic, To: p, Queue: q, BackOnly: back}
	}
	for _, k := range []struct {
		name  string
		reset admin.Reset
	}{
		{"the end", to(admin.AtEnd())},
		{"an earlier time", to(admin.AtTime(time.Now().Add(-time.Hour)))},
		{"a later time", to(admin.AtTime(time.Now().Add(time.Hour)))},
		{"the start", to(admin.AtStart())},
		{"an offset", only(admin.AtOffset(2), &q, false)},
		{"an offset far out", only(admin.AtOffset(99), &q, false)},
		{"an offset of no queue", to(admin.AtOffset(2))},
		{"the end, back only", only(admin.AtEnd(), nil, true)},
		{"the start, back only", only(admin.AtStart(), nil, true)},
		{"the end, absent group", admin.Reset{Group: "absent", Topic: n.Topic, To: admin.AtEnd()}},
		{"the end, absent topic", admin.Reset{Group: n.Group, Topic: "absent", To: admin.AtEnd()}},
	} {
		moved, err := s.a.ResetOffsets(s.ctx, k.reset)
		s.note("ResetOffsets to "+k.name, moved, err)
		all, err := s.a.CommittedOffsets(s.ctx, n.Group)
		s.note("offsets after it", all, err)
	}
	s.done("SetOffset before clone", s.a.SetOffset(s.ctx, n.Group, s.queue(0), 3))
	done, err := s.a.CloneOffsets(s.ctx, n.Group, n.Clone, n.Topic, true)
	s.note("CloneOffsets", done, err)
	at, err := s.a.Offset(s.ctx, n.Clone, s.queue(0))
	s.note("Offset of the clone", at, err)
	_, err = s.a.CloneOffsets(s.ctx, n.Group, n.Group, n.Topic, true)
	s.note("CloneOffsets to itself", nil, err)
}

func (s *script) servers() {
	n := s.names
	put, err := s.a.PutKV(s.ctx, "SKYLARK_TEST", "key", "value")
	s.note("PutKV", put, err)
	value, err := s.a.KV(s.ctx, "SKYLARK_TEST", "key")
	s.note("KV", value, err)
	all, err := s.a.KVs(s.ctx, "SKYLARK_TEST")
	s.note("KVs", all, err)
	put, err = s.a.DeleteKV(s.ctx, "SKYLARK_TEST", "key")
	s.note("DeleteKV", put, err)
	value, err = s.a.KV(s.ctx, "SKYLARK_TEST", "key")
	s.note("KV after delete", value, err)
	_, err = s.a.KVs(s.ctx, "absent")
	s.note("KVs of an absent namespace", nil, err)
	put, err = s.a.PutOrderConfig(s.ctx, n.Other, s.broker.Name+":1")
	s.note("PutOrderConfig", put, err)
	value, err = s.a.OrderConfig(s.ctx, n.Other)
	s.note("OrderConfig", value, err)
	_, err = s.a.DeleteOrderConfig(s.ctx, n.Other)
	s.done("DeleteOrderConfig", err)
	config, err := s.a.NameServerConfig(s.ctx)
	if err == nil {
		s.note("NameServerConfig has", config[0].Value["listenPort"] != "", nil)
	}
	s.note("NameServerConfig", len(config), err)
	put, err = s.a.UpdateNameServerConfig(s.ctx, map[string]string{"orderMessageEnable": "true"})
	s.note("UpdateNameServerConfig", put, err)
	config, err = s.a.NameServerConfig(s.ctx)
	if err == nil {
		s.note("orderMessageEnable", config[0].Value["orderMessageEnable"], nil)
	}
	_, err = s.a.UpdateNameServerConfig(s.ctx, map[string]string{"kvConfigPath": "/nowhere"})
	s.note("UpdateNameServerConfig of a path", nil, err)
	_, err = s.a.UpdateNameServerConfig(s.ctx, map[string]string{"a=b": "c"})
	s.note("UpdateNameServerConfig of a bad key", nil, err)
}

func (s *script) settings() {
	here := admin.AtAddr(s.broker.Addr)
	config, err := s.a.BrokerConfig(s.ctx, here)
	if err == nil {
		v := config[0].Value.Values
		s.note("BrokerConfig", []string{v["brokerName"], v["brokerClusterName"]}, nil)
	}
	put, err := s.a.UpdateBrokerConfig(s.ctx, map[string]string{"shortPollingTimeMills": "1234"}, here)
	s.note("UpdateBrokerConfig", put, err)
	config, err = s.a.BrokerConfig(s.ctx, here)
	if err == nil {
		s.note("BrokerConfig after update", config[0].Value.Values["shortPollingTimeMills"], nil)
	}
	_, err = s.a.UpdateBrokerConfig(s.ctx, map[string]string{"configBlackList": "x"}, here)
	s.note("UpdateBrokerConfig of a fixed key", nil, err)
	_, err = s.a.UpdateBrokerConfig(s.ctx, nil, here)
	s.note("UpdateBrokerConfig of nothing", nil, err)
	info, err := s.a.RuntimeInfo(s.ctx, here)
	if err == nil {
		i := info[0].Value
		s.note("RuntimeInfo", []bool{
			strings.HasPrefix(i.Version, "V"), i.Active, !i.StartedAt.IsZero(), i.PutToday >= 6,
			i.LogMax > 0, !i.Earliest.IsZero(), i.DiskRatio > 0, i.Table["bootTimestamp"] != "",
		}, nil)
	}
	stats, err := s.a.Stats(s.ctx, "TOPIC_PUT_NUMS", s.names.Topic, here)
	s.note("Stats", len(stats), err)
	_, err = s.a.Stats(s.ctx, "TOPIC_PUT_NUMS", "absent", here)
	s.note("Stats of an absent topic", nil, err)
	replicas, err := s.a.Replication(s.ctx, here)
	if err == nil {
		s.note("Replication", []any{replicas[0].Value.Master, len(replicas[0].Value.Replicas)}, nil)
	}
	done, err := s.a.CleanUnusedTopics(s.ctx, here)
	s.note("CleanUnusedTopics", done, err)
	done, err = s.a.CleanExpiredQueues(s.ctx, here)
	s.note("CleanExpiredQueues", done, err)
	done, err = s.a.DeleteExpiredLogs(s.ctx, here)
	s.note("DeleteExpiredLogs", done, err)
}

func (s *script) permissions() {
	perm := func() string {
		r, err := s.a.TopicRoute(s.ctx, s.names.Topic)
		s.must("route", err)
		return r.Queues[0].Perm.String()
	}
	wiped, err := s.a.WipeWritePerm(s.ctx, s.broker.Name)
	s.note("WipeWritePerm", len(wiped), err)
	s.note("permission", perm(), nil)
	added, err := s.a.AddWritePerm(s.ctx, s.broker.Name)
	s.note("AddWritePerm", len(added), err)
	if err == nil {
		s.note("as many", wiped[0].Value == added[0].Value && added[0].Value > 0, nil)
	}
	s.note("permission", perm(), nil)
	wiped, err = s.a.WipeWritePerm(s.ctx, "absent")
	s.note("WipeWritePerm of an absent broker", wiped, err)
}

func (s *script) deletions() {
	n := s.names
	done, err := s.a.DeleteGroup(s.ctx, n.Clone, admin.Everywhere(), true)
	s.note("DeleteGroup", done, err)
	_, err = s.a.GroupConfig(s.ctx, n.Clone)
	s.note("GroupConfig after delete", nil, err)
	at, err := s.a.Offset(s.ctx, n.Clone, s.queue(0))
	s.note("Offset after delete", at, err)
	done, err = s.a.DeleteTopic(s.ctx, n.Topic, s.broker.Cluster)
	s.note("DeleteTopic", done, err)
	_, err = s.a.TopicRoute(s.ctx, n.Topic)
	s.note("TopicRoute after delete", nil, err)
	_, err = s.a.DeleteTopic(s.ctx, "a b", "")
	s.note("DeleteTopic with a bad name", nil, err)
	done, err = s.a.DeleteTopic(s.ctx, n.Other, "")
	s.note("DeleteTopic everywhere", done, err)
}
