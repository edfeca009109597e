// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/admin/admintest"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// adminNames are new to both clusters.
func adminNames() admintest.Names {
	return admintest.Names{
		Topic: "T-orders", Other: "T-second", Group: "G-billing", Clone: "G-audit", Producers: "P-shop",
	}
}

// Package admin gets the same from a cluster of Apache RocketMQ as from ours, call by call.
func TestAdminClientAgainstBoth(t *testing.T) {
	t.Parallel()
	// With it, Apache's broker creates groups that are only asked about.
	at := startApache(t, scratch(t), map[string]string{"autoCreateSubscriptionGroup": "false"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	theirs := admintest.Run(ctx, t, c, adminNames())
	cluster := clienttest.Start(t, clienttest.WithBrokerConfig("autoCreateSubscriptionGroup", "false"))
	ours := admintest.Run(ctx, t, cluster.Client(t), adminNames())
	if diff := cmp.Diff(strings.Split(theirs, "\n"), strings.Split(ours, "\n")); diff != "" {
		t.Errorf("answers differ (-Apache +Skylark):\n%s", diff)
	}
}

// A Java consumer answers package admin: what it holds, a message given to it, a reset while it runs.
func TestAdminClientAndJavaConsumer(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	sentIDs := must[[]sent](t, jvm, "producer.many", args{
		"handle": producer(t, jvm, at, nil), "topic": topic, "prefix": "m", "count": 4,
	})
	consumer := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic})
	if got := awaitPush(t, jvm, consumer, 4, 20_000); len(got) != 4 {
		t.Fatalf("got %v", bodies(got))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	a := admin.New(c)
	members, err := a.Members(ctx, group)
	if err != nil || len(members.Members) != 1 {
		t.Fatalf("members %+v: %v", members, err)
	}
	m := members.Members[0]
	if m.Language != "JAVA" || m.Version != "V5_5_0" || members.Type != "CONSUME_PASSIVELY" ||
		!slices.ContainsFunc(members.Topics, func(s admin.Subscription) bool { return s.Topic == topic }) {
		t.Errorf("members %+v", members)
	}
	queues := []client.Queue{{Topic: topic, Broker: at.BrokerName}, {Topic: topic, Broker: at.BrokerName, ID: 1}}
	eventually(t, 20*time.Second, func() error { // its queues, once what it got is committed
		info, err := a.RunningInfo(ctx, group, m.ClientID, false)
		if err != nil {
			return err
		}
		held, err := a.HeldOffsets(ctx, topic, group, m.ClientID)
		if err != nil {
			return err
		}
		for _, q := range queues {
			i := slices.IndexFunc(info.Queues, func(x admin.QueueInfo) bool { return x.Queue == q })
			if i < 0 || held[m.ClientID][q] != 2 {
				return fmt.Errorf("running info %+v, held %v", info, held)
			}
		}
		if info.Type != "CONSUME_PASSIVELY" || info.StartedAt.IsZero() || info.Workers == 0 {
			return fmt.Errorf("running info %+v", info)
		}
		return nil
	})
	stored, err := a.MessageByOffsetID(ctx, sentIDs[0].OffsetMsgID)
	if err != nil {
		t.Fatal(err)
	}
	done, err := a.ConsumeDirectly(ctx, group, m.ClientID, stored)
	if err != nil || done.Result != "CR_SUCCESS" || !done.OK() {
		t.Errorf("given directly: %+v, %v", done, err)
	}
	got := awaitPush(t, jvm, consumer, 5, 20_000)
	if len(got) != 5 || got[4].MsgID != sentIDs[0].MsgID {
		t.Errorf("after a message given directly: %v", bodies(got))
	}
	moved, err := a.ResetOffsets(ctx, admin.Reset{Group: group, Topic: topic, To: admin.AtStart()})
	if err != nil || len(moved) != 2 {
		t.Errorf("reset %v: %v", moved, err)
	}
	if got := awaitPush(t, jvm, consumer, 9, 40_000); len(got) != 9 {
		t.Errorf("after the reset: %v", bodies(got))
	}
}
