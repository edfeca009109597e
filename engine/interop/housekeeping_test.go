// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// keeper is a broker whose tables and warnings are looked at, with clients of both kinds.
type keeper struct {
	t            *testing.T
	jvm          *driver
	at           target
	p            *process
	topic, admin string
}

type connected struct {
	ClientID, ClientAddr, Language string
}

// members are the connections of a consumer group as RocketMQ's tool sees them.
func (k *keeper) members(group string) ([]connected, error) {
	var out struct{ ConnectionSet []connected }
	err := k.jvm.do("admin.consumerConnection", args{"handle": k.admin, "group": group}, &out)
	return out.ConnectionSet, err
}

// awaitMembers waits until a group has so many.
func (k *keeper) awaitMembers(group string, n int) (list []connected) {
	k.t.Helper()
	eventually(k.t, 40*time.Second, func() (err error) {
		if list, err = k.members(group); err == nil && len(list) != n {
			err = fmt.Errorf("%s has the members %+v, want %d", group, list, n)
		}
		return err
	})
	return list
}

// push starts a member of a group, whose name is made of kind.
func (k *keeper) push(kind, instance string, extra args) string {
	a := args{
		"namesrv": k.at.NameServer, "group": name(k.t, kind), "topic": k.topic, "instance": instance,
	}
	for key, value := range extra {
		a[key] = value
	}
	return open(k.t, k.jvm, "push", a)
}

// logged waits for a line of the broker's log that has all of these words, and fails when there are more.
func (k *keeper) logged(words ...string) {
	k.t.Helper()
	eventually(k.t, 30*time.Second, func() error {
		n := 0
	lines:
		for line := range strings.SplitSeq(k.p.output(), "\n") {
			for _, word := range words {
				if !strings.Contains(line, word) {
					continue lines
				}
			}
			n++
		}
		if n != 1 {
			return fmt.Errorf("%d lines of the log have %q", n, words)
		}
		return nil
	})
}

// The broker knows who is connected, Apache's clients and ours; it names members that subscribe
// differently, consumers that stand still, and two clients that use one id, with both addresses. After its
// death all of them are known again, and a reset that it was told just before holds for members that are
// at work.
func TestJavaHousekeeping(t *testing.T) {
	t.Parallel()
	if *against != "skylark" {
		t.Skip("the warnings are of our broker")
	}
	conf := map[string]string{"consumerStuckMillis": "2000"}
	at, p := startServer(t, scratch(t), conf)
	k := &keeper{t: t, jvm: java(t), at: at, p: p, topic: name(t, "T")}
	createTopic(t, at, k.topic, 1)
	k.admin = open(t, k.jvm, "admin", args{"namesrv": at.NameServer})
	maker := producer(t, k.jvm, at, nil)
	first := many(t, k.jvm, maker, k.topic, "m", 6)
	plain := k.push("CG", "plain", nil)
	if err := sameSet(bodies(awaitPush(t, k.jvm, plain, 6, 30_000)), first); err != nil {
		t.Fatal(err)
	}
	k.twins()
	k.push("MIXED", "one", args{"expression": "TagA"})
	k.push("MIXED", "two", args{"expression": "TagB"})
	k.awaitMembers(name(t, "MIXED"), 2)
	k.logged("members of a group subscribe differently", name(t, "MIXED"), "@one", "@two", "TagA", "TagB")
	k.stuck(maker)

	run(t, k.jvm, "admin.resetByTime", args{"handle": k.admin, "topic": k.topic, "group": name(t, "CG"), "timestamp": 0})
	before := len(awaitPush(t, k.jvm, plain, 0, 1))
	_ = p.cmd.Process.Kill()
	<-p.done
	k.p = at.start(t, skylark(t), conf)
	t.Cleanup(func() { _ = k.p.stop() })
	k.awaitMembers(name(t, "CG"), 1)
	k.awaitMembers(name(t, "MIXED"), 2)
	k.awaitMembers(name(t, "TWINS"), 2)
	k.awaitMaker()
	eventually(t, 60*time.Second, func() error {
		return covered(bodies(awaitPush(t, k.jvm, plain, 0, 1)[before:]), first)
	})
}

// covered tells which of want are missing.
func covered(got, want []string) error {
	have := map[string]bool{}
	for _, body := range got {
		have[body] = true
	}
	for _, body := range want {
		if !have[body] {
			return fmt.Errorf("%s has not come again, but %v", body, got)
		}
	}
	return nil
}

// twins has a Java consumer and one of ours use the same id.
func (k *keeper) twins() {
	t := k.t
	t.Helper()
	group := name(t, "TWINS")
	ours, err := client.New([]string{k.at.NameServer}, client.WithInstanceName("twin"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(context.Background()) })
	host, _, _ := strings.Cut(ours.ID(), "@")
	k.push("TWINS", "twin", args{"clientIP": host})
	if list := k.awaitMembers(group, 1); list[0].ClientID != ours.ID() || list[0].Language != "JAVA" {
		t.Errorf("the Java member is %+v, want the id %s", list[0], ours.ID())
	}
	c, err := ours.NewConsumer(group, client.WithSubscription(k.topic, client.All()))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Run(context.Background(), func(context.Context, *client.Received) error { return nil }) }()
	list := k.awaitMembers(group, 2)
	if list[0].ClientID != list[1].ClientID || list[0].Language == list[1].Language {
		t.Errorf("members %+v", list)
	}
	k.logged("two clients use one client id", group, ours.ID(), list[0].ClientAddr, list[1].ClientAddr)
}

// stuck has a member refuse one message for ever, in order, while others come in.
func (k *keeper) stuck(maker string) {
	t := k.t
	t.Helper()
	group := name(t, "STUCK")
	c := k.push("STUCK", "stuck", args{"orderly": true, "failures": 1_000_000})
	if got := awaitPush(t, k.jvm, c, 1, 30_000); len(got) == 0 {
		t.Fatal("nothing came")
	}
	const updateConsumerOffset = 15 // it begins to be watched with its first position
	a := rawCall(t, k.at, updateConsumerOffset, map[string]string{
		"consumerGroup": group, "topic": k.topic, "queueId": "0", "commitOffset": "0",
	}, nil)
	if a.Code != 0 {
		t.Fatalf("commit: %d %s", a.Code, a.Remark)
	}
	eventually(t, 30*time.Second, func() error {
		must[sent](t, k.jvm, "producer.send", args{"handle": maker, "topic": k.topic, "body": "more"})
		table := must[map[string]string](t, k.jvm, "admin.runtime", args{"handle": k.admin, "address": k.at.Broker})
		if !strings.Contains(table["stuckConsumers"], group+" on "+k.topic) ||
			!strings.Contains(table["mixedSubscriptions"], name(t, "MIXED")) {
			return fmt.Errorf("stuck are %q, mixed %q", table["stuckConsumers"], table["mixedSubscriptions"])
		}
		return nil
	})
	k.logged("consumers are stuck", group, k.topic, "@stuck 127.0.0.1:")
}

// awaitMaker waits until the producer is in the broker's table.
func (k *keeper) awaitMaker() {
	k.t.Helper()
	eventually(k.t, 40*time.Second, func() error {
		var out struct{ ConnectionSet []connected }
		err := k.jvm.do("admin.producerConnection", args{
			"handle": k.admin, "group": name(k.t, "PG"), "topic": k.topic,
		}, &out)
		if err == nil && (len(out.ConnectionSet) != 1 || out.ConnectionSet[0].Language != "JAVA") {
			err = fmt.Errorf("producers %+v", out.ConnectionSet)
		}
		return err
	})
}
