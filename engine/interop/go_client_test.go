// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Apache's Go client sends in every way it has; the Java client reads what came.
func TestGoSend(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, client, at, nil)
	send := func(a args) sent {
		t.Helper()
		a["handle"], a["topic"] = p, topic
		return must[sent](t, client, "producer.send", a)
	}
	if r := send(args{"body": "sync"}); r.Status != "SEND_OK" || r.QueueOffset != 0 || r.Broker != at.BrokerName {
		t.Errorf("sync send: %+v", r)
	}
	send(args{"body": "rich", "tags": "TagB", "keys": "k1 k2", "properties": args{"colour": "green"}})
	send(args{"body": "async", "mode": "async"})
	big := strings.Repeat("compressible text ", 400)
	send(args{"fill": "compressible text ", "size": len(big)})
	run(t, client, "producer.send", args{"handle": p, "topic": topic, "body": "oneway", "mode": "oneway"})
	var got []received
	eventually(t, 10*time.Second, func() error {
		if got = pullAll(t, at, topic, 0); len(got) < 5 {
			return fmt.Errorf("%d messages", len(got))
		}
		return nil
	})
	if diff := cmp.Diff([]string{"sync", "rich", "async", "", "oneway"}, bodies(got)); diff != "" {
		t.Fatalf("bodies (-want +got):\n%s", diff)
	}
	if m := got[1]; m.Tags != "TagB" || m.Keys != "k1 k2" || m.Properties["colour"] != "green" {
		t.Errorf("rich message: %+v", m)
	}
	if m := got[3]; m.BodySHA256 != hashOf(big) || m.StoreSize > len(big)/4 {
		t.Errorf("compressed message: %d bytes stored in %d", m.BodySize, m.StoreSize)
	}
}

// The first send makes the topic; a batch is stored as single messages.
func TestGoBatchCreatesTopic(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	p := producer(t, client, at, nil)
	var batch []args
	for i := range 3 {
		batch = append(batch, args{"topic": topic, "body": fmt.Sprint("b", i), "tags": fmt.Sprint("Tag", i)})
	}
	r := must[sent](t, client, "producer.batch", args{"handle": p, "messages": batch})
	if r.Status != "SEND_OK" {
		t.Fatalf("%+v", r)
	}
	got := pullAll(t, at, topic, r.QueueID)
	if diff := cmp.Diff(numbered("b", 3), bodies(got)); diff != "" {
		t.Fatalf("bodies (-want +got):\n%s", diff)
	}
	for i, m := range got {
		if m.Tags != fmt.Sprint("Tag", i) {
			t.Errorf("message %d has tag %s", i, m.Tags)
		}
	}
}

// Two members of one group, one leaving; the Go client learns of it through notifications.
func TestGoPushCluster(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 8)
	p := producer(t, client, at, nil)
	member := func(instance string) string {
		return open(t, client, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, instance),
		})
	}
	want := many(t, client, p, topic, "before", 24)
	first := member("first")
	if err := sameSet(bodies(awaitPush(t, client, first, 24, 30_000)), want); err != nil {
		t.Fatalf("alone: %v", err)
	}
	second := member("second")
	all := func() []string {
		return append(bodies(awaitPush(t, client, first, 1, 10)), bodies(awaitPush(t, client, second, 1, 10))...)
	}
	// The second has its share when it gets messages of a round.
	eventually(t, 50*time.Second, func() error {
		round := many(t, client, p, topic, fmt.Sprint("shared", len(want), "-"), 8)
		want = append(want, round...)
		if err := repeat(3*time.Second, func() error { return sameSet(all(), want) }); err != nil {
			return err
		}
		if got := awaitPush(t, client, second, 1, 10); len(got) == 0 {
			return fmt.Errorf("the second member got nothing of %d", len(want))
		}
		return nil
	})
	secondGot := bodies(awaitPush(t, client, second, 1, 10))
	run(t, client, "push.stop", args{"handle": second})
	want = append(want, many(t, client, p, topic, "after", 16)...)
	eventually(t, 50*time.Second, func() error {
		return sameSet(append(bodies(awaitPush(t, client, first, 1, 10)), secondGot...), want)
	})
}

func TestGoPushTags(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, client, at, nil)
	for i, tag := range []string{"TagA", "TagB", "TagC", "TagA"} {
		must[sent](t, client, "producer.send", args{"handle": p, "topic": topic, "tags": tag, "body": fmt.Sprint(tag, i)})
	}
	c := open(t, client, "push", args{
		"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "expression": "TagA || TagC", "instance": name(t, "C"),
	})
	got := bodies(awaitPush(t, client, c, 3, 30_000))
	if want := []string{"TagA0", "TagC2", "TagA3"}; sameSet(got, want) != nil {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGoBroadcast(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 4)
	p := producer(t, client, at, nil)
	want := many(t, client, p, topic, "m", 8)
	for _, instance := range []string{"first", "second"} {
		c := open(t, client, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "broadcast": true, "instance": name(t, instance),
		})
		if err := sameSet(bodies(awaitPush(t, client, c, 8, 30_000)), want); err != nil {
			t.Errorf("%s member: %v", instance, err)
		}
	}
}

func TestGoOrderly(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	p := producer(t, client, at, nil)
	want := many(t, client, p, topic, "m", 12)
	c := open(t, client, "push", args{
		"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "orderly": true, "instance": name(t, "C"),
	})
	got := awaitPush(t, client, c, 12, 45_000)
	if err := sameSet(bodies(got), want); err != nil {
		t.Fatal(err)
	}
	next := map[int]int64{}
	for _, m := range got {
		if m.QueueOffset != next[m.QueueID] {
			t.Errorf("queue %d gave offset %d, want %d", m.QueueID, m.QueueOffset, next[m.QueueID])
		}
		next[m.QueueID] = m.QueueOffset + 1
	}
}

// The Go client's pull consumer: polling a subscription, and one queue from an offset.
func TestGoPull(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	p := producer(t, client, at, nil)
	want := many(t, client, p, topic, "m", 8)
	c := open(t, client, "pull", args{
		"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "instance": name(t, "C"),
	})
	got := must[[]received](t, client, "pull.poll", args{"handle": c, "count": 8, "timeoutMs": 45_000})
	if err := sameSet(bodies(got), want); err != nil {
		t.Errorf("polled: %v", err)
	}
	from := must[[]received](t, client, "pull.from", args{
		"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": 0, "offset": 2, "count": 2,
	})
	if len(from) != 2 || from[0].QueueOffset != 2 {
		t.Errorf("from offset 2: %+v", from)
	}
}

func TestGoAdmin(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	with := args{"namesrv": at.NameServer, "address": at.Broker, "topic": topic, "queues": 3}
	run(t, client, "admin.createTopic", with)
	waitForRoute(t, at.NameServer, topic)
	if list := must[[]string](t, client, "admin.topicList", with); !slices.Contains(list, topic) {
		t.Errorf("topic list lacks %s: %v", topic, list)
	}
	if groups := must[[]string](t, client, "admin.groups", with); len(groups) == 0 {
		t.Error("no groups, not even the system's")
	}
	run(t, client, "admin.deleteTopic", with)
	if list := must[[]string](t, client, "admin.topicList", with); slices.Contains(list, topic) {
		t.Error("the deleted topic is still listed")
	}
}

// A message of each client reaches the other's consumer unchanged.
func TestGoAndJavaTogether(t *testing.T) {
	t.Parallel()
	at := servers(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	clients := map[string]*driver{"java": java(t), "go": golang(t)}
	var want []string
	for kind, client := range clients {
		p := producer(t, client, at, args{"group": name(t, "PG_"+kind), "instance": name(t, "P_"+kind)})
		want = append(want, many(t, client, p, topic, kind, 5)...)
	}
	for kind, client := range clients {
		c := open(t, client, "push", args{
			"namesrv": at.NameServer, "group": name(t, "CG_"+kind), "topic": topic, "instance": name(t, "C_"+kind),
		})
		if err := sameSet(bodies(awaitPush(t, client, c, 10, 30_000)), want); err != nil {
			t.Errorf("%s consumer: %v", kind, err)
		}
	}
}
