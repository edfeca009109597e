// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

// What operators do most: topics, groups, who consumes how far, finding messages.
func olderAdmin(t *testing.T, o *older) {
	topic, group, a := o.topic(t, 2), name(t, "CG"), o.admin
	m := &client.Message{Topic: topic, Body: []byte("x"), Keys: []string{"key-1"}}
	res, err := o.producer(t).Send(o.ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	g := admin.NewGroup(group)
	g.MaxRetries = 3
	if _, err := a.PutGroup(o.ctx, g, admin.Everywhere()); err != nil {
		t.Fatal(err)
	}
	k := join(t, o.at, group, nil, client.WithSubscription(topic, client.All()))
	eventually(t, 20*time.Second, func() error { return each(counts(k.received()), []string{"x"}, 1) })
	olderTables(t, o, topic, group)
	olderMessages(t, o, topic, res)
	members, err := a.Members(o.ctx, group)
	if err != nil || len(members.Members) != 1 || members.Type != "CONSUME_PASSIVELY" {
		t.Fatalf("members %+v: %v", members, err)
	}
	id := members.Members[0].ClientID
	info, err := a.RunningInfo(o.ctx, group, id, true)
	if err != nil || info.Type != "CONSUME_PASSIVELY" || info.Stacks == "" {
		t.Errorf("running info %+v: %v", info, err)
	}
	held, err := a.HeldOffsets(o.ctx, topic, group, "")
	if err != nil || len(held) != 1 {
		t.Errorf("held offsets %v, %v", held, err)
	}
	eventually(t, 15*time.Second, func() error { // commits come every 5 s
		progress, err := a.Progress(o.ctx, group, topic)
		if err != nil || len(progress.Queues) != 2 || progress.Lag != 0 {
			return fmt.Errorf("progress %+v, %w", progress, err)
		}
		return nil
	})
	stored, err := a.MessageByOffsetID(o.ctx, res.OffsetID)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := a.ConsumeDirectly(o.ctx, group, id, stored); err != nil || !done.OK() {
		t.Errorf("given directly: %+v, %v", done, err)
	}
	k.stop(t)
	if _, err := a.DeleteGroup(o.ctx, group, admin.Everywhere(), true); err != nil {
		t.Error(err)
	}
	if _, err := a.DeleteTopic(o.ctx, topic, ""); err != nil {
		t.Error(err)
	}
	if names, err := a.Topics(o.ctx); err != nil || slices.Contains(names, topic) {
		t.Errorf("topics after the end of one: %v, %v", names, err)
	}
}

// olderTables looks at what the servers list, and changes it.
func olderTables(t *testing.T, o *older, topic, group string) {
	t.Helper()
	a := o.admin
	for what, list := range map[string]func(context.Context) ([]string, error){
		"topics": a.Topics,
		"topics of the cluster": func(ctx context.Context) ([]string, error) {
			return a.ClusterTopics(ctx, "DefaultCluster")
		},
	} {
		if names, err := list(o.ctx); err != nil || !slices.Contains(names, topic) {
			t.Errorf("%s: %v, %v", what, names, err)
		}
	}
	if groups, err := a.Groups(o.ctx); err != nil || !slices.Contains(groups, group) {
		t.Errorf("groups %v, %v", groups, err)
	}
	if groups, err := a.TopicGroups(o.ctx, topic); err != nil || !slices.Contains(groups, group) {
		t.Errorf("groups of the topic %v, %v", groups, err)
	}
	brokers, err := a.Brokers(o.ctx)
	if err != nil || len(brokers) != 1 || brokers[0].Addr != o.at.Broker {
		t.Errorf("brokers %v, %v", brokers, err)
	}
	infos, err := a.RuntimeInfo(o.ctx, admin.Everywhere())
	if err != nil || len(infos) != 1 || infos[0].Value.Version != "V4_9_4" || infos[0].Value.LogMax == 0 {
		t.Errorf("runtime info %+v, %v", infos, err)
	}
	if confs, err := a.BrokerConfig(o.ctx, admin.Everywhere()); err != nil || len(confs) != 1 {
		t.Errorf("broker configuration %v, %v", confs, err)
	}
	if _, err := a.UpdateTopic(o.ctx, topic, admin.Everywhere(), func(c *admin.TopicConfig) {
		c.Perm = admin.PermRead
	}); err != nil {
		t.Errorf("update of the topic: %v", err)
	}
	topics, err := a.TopicConfig(o.ctx, topic)
	if err != nil || len(topics) != 1 || topics[0].Value.ReadQueues != 2 ||
		topics[0].Value.Perm != admin.PermRead {
		t.Errorf("topic configuration %+v, %v", topics, err)
	}
	if _, err := a.UpdateGroup(o.ctx, group, admin.Everywhere(), func(c *admin.GroupConfig) {
		c.RetryQueues = 2
	}); err != nil {
		t.Errorf("update of the group: %v", err)
	}
	groups, err := a.GroupConfig(o.ctx, group)
	if err != nil || len(groups) != 1 || groups[0].Value.MaxRetries != 3 ||
		groups[0].Value.RetryQueues != 2 {
		t.Errorf("group configuration %+v, %v", groups, err)
	}
	if _, err := a.TopicConfig(o.ctx, "nowhere"); !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("configuration of no topic: %v", err)
	}
	if _, err := a.GroupConfig(o.ctx, "nobody"); !errors.Is(err, admin.ErrNoGroup) {
		t.Errorf("configuration of no group: %v", err)
	}
}

func olderMessages(t *testing.T, o *older, topic string, res client.SendResult) {
	t.Helper()
	byKey, err := o.admin.MessagesByKey(o.ctx, topic, "key-1", admin.KeyQuery{})
	if err != nil || len(byKey) != 1 || byKey[0].ID != res.ID {
		t.Errorf("by key: %+v, %v", byKey, err)
	}
	byID, err := o.admin.MessageByID(o.ctx, topic, res.ID)
	if err != nil || byID.OffsetID != res.OffsetID {
		t.Errorf("by id: %+v, %v", byID, err)
	}
	at, err := o.admin.MessageAt(o.ctx, res.Queue, res.Offset)
	if err != nil || at.ID != res.ID {
		t.Errorf("by place: %+v, %v", at, err)
	}
	status, err := o.admin.TopicStatus(o.ctx, topic)
	if err != nil || len(status.Queues) != 2 {
		t.Errorf("topic status %+v, %v", status, err)
	}
}

// A reset moves members that run. This release cannot move single queues of theirs: that is refused,
// and moves nothing; without members the client moves them itself.
func olderResets(t *testing.T, o *older) {
	topic, group, a := o.topic(t, 2), name(t, "CG"), o.admin
	var queues []client.Queue
	p := o.producer(t)
	for id := range 2 {
		q := client.Queue{Topic: topic, Broker: o.at.BrokerName, ID: id}
		queues = append(queues, q)
		for i := range 5 {
			m := &client.Message{Topic: topic, Body: fmt.Append(nil, id, "-", i), Queue: &q}
			if _, err := p.Send(o.ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	k := join(t, o.at, group, nil, client.WithSubscription(topic, client.All()))
	received := func(n int) func() error {
		return func() error {
			if got := len(k.received()); got != n {
				return fmt.Errorf("%d deliveries, want %d", got, n)
			}
			return nil
		}
	}
	eventually(t, 20*time.Second, received(10))
	one := admin.Reset{Group: group, Topic: topic, Queue: &queues[1], To: admin.AtOffset(2)}
	if moved, err := a.ResetOffsets(o.ctx, one); !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("reset of one queue of a running member: %v, %v", moved, err)
	}
	eventually(t, 15*time.Second, func() error { // it resets nothing of a group that has no offsets yet
		progress, err := a.Progress(o.ctx, group, topic)
		if err != nil || progress.Lag != 0 {
			return fmt.Errorf("progress %+v, %w", progress, err)
		}
		return nil
	})
	all := admin.Reset{Group: group, Topic: topic, To: admin.AtStart()}
	if moved, err := a.ResetOffsets(o.ctx, all); err != nil || len(moved) != 2 {
		t.Errorf("reset of all: %v, %v", moved, err)
	}
	eventually(t, 20*time.Second, received(20))
	k.stop(t)
	if moved, err := a.ResetOffsets(o.ctx, one); err != nil || len(moved) != 1 || moved[0].Offset != 2 {
		t.Errorf("reset of one queue: %v, %v", moved, err)
	}
	for i, want := range []int64{5, 2} {
		if at, err := a.Offset(o.ctx, group, queues[i]); err != nil || at != want {
			t.Errorf("queue %d is at %d, %v, want %d", i, at, err, want)
		}
	}
	if moved, err := a.ResetOffsets(o.ctx, all); err != nil || len(moved) != 2 {
		t.Errorf("reset without members: %v, %v", moved, err)
	}
	if at, err := a.Offset(o.ctx, group, queues[0]); err != nil || at != 0 {
		t.Errorf("queue 0 is at %d, %v, want 0", at, err)
	}
}

// What came with RocketMQ 5 is refused with a reason.
func olderLacks(t *testing.T, o *older) {
	topic, p := o.topic(t, 1), o.producer(t)
	o.send(t, p, topic, "x")
	k, err := o.c.NewConsumer(name(t, "CG"), client.WithSubscription(topic, client.All()),
		client.WithPop(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.ctx, 10*time.Second)
	defer cancel()
	err = k.Run(ctx, func(context.Context, *client.Received) error { return nil })
	if !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("pop: %v", err)
	}
}
