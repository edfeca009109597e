// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// many sends count messages with bodies prefix0, prefix1, ... and returns the bodies.
func many(t *testing.T, d *driver, producer, topic, prefix string, count int) []string {
	t.Helper()
	must[[]sent](t, d, "producer.many", args{"handle": producer, "topic": topic, "prefix": prefix, "count": count})
	return numbered(prefix, count)
}

// queuesOf lists the queues of a topic that a Java push consumer works on.
func queuesOf(t *testing.T, jvm *driver, consumer, topic string) []int {
	t.Helper()
	var out []int
	for _, q := range must[[]queue](t, jvm, "push.queues", args{"handle": consumer}) {
		if q.Topic == topic {
			out = append(out, q.QueueID)
		}
	}
	slices.Sort(out)
	return out
}

// Two members share the queues; when one leaves, the other takes all. Nothing is lost meanwhile.
func TestJavaPushCluster(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 8)
	p := producer(t, jvm, at, nil)
	member := func(instance string) string {
		return open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, instance),
		})
	}
	want := many(t, jvm, p, topic, "before", 24)
	first := member("first")
	if err := sameSet(bodies(awaitPush(t, jvm, first, 24, 20_000)), want); err != nil {
		t.Fatalf("alone: %v", err)
	}
	second := member("second")
	eventually(t, 30*time.Second, func() error {
		a, b := queuesOf(t, jvm, first, topic), queuesOf(t, jvm, second, topic)
		if len(a) != 4 || len(b) != 4 || len(distinctInts(append(slices.Clone(a), b...))) != 8 {
			return fmt.Errorf("queues %v and %v", a, b)
		}
		return nil
	})
	want = append(want, many(t, jvm, p, topic, "shared", 32)...)
	eventually(t, 20*time.Second, func() error {
		got := append(bodies(awaitPush(t, jvm, first, 1, 10)), bodies(awaitPush(t, jvm, second, 1, 10))...)
		return sameSet(got, want)
	})
	if got := awaitPush(t, jvm, second, 16, 5000); len(got) < 16 {
		t.Errorf("the second member got %d messages of its four queues", len(got))
	}
	secondGot := bodies(awaitPush(t, jvm, second, 1, 10))
	run(t, jvm, "push.stop", args{"handle": second})
	eventually(t, 30*time.Second, func() error {
		if a := queuesOf(t, jvm, first, topic); len(a) != 8 {
			return fmt.Errorf("the remaining member has queues %v", a)
		}
		return nil
	})
	want = append(want, many(t, jvm, p, topic, "after", 16)...)
	eventually(t, 20*time.Second, func() error {
		return sameSet(append(bodies(awaitPush(t, jvm, first, 1, 10)), secondGot...), want)
	})
}

func distinctInts(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}

// A message that arrives during a long poll is delivered at once, not at the poll's end.
func TestJavaLongPoll(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	p := producer(t, jvm, at, nil)
	many(t, jvm, p, topic, "first", 1)
	if got := awaitPush(t, jvm, c, 1, 30_000); len(got) != 1 {
		t.Fatalf("got %d messages", len(got))
	}
	for i := range 5 {
		many(t, jvm, p, topic, fmt.Sprint("late", i, "-"), 1)
		start := time.Now()
		got := awaitPush(t, jvm, c, 2+i, 10_000)
		if len(got) != 2+i {
			t.Fatalf("got %d messages, want %d", len(got), 2+i)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("message %d took %v", i, took)
		}
	}
}

// Tags are filtered; the broker lets pass what has the same hash, the client drops it.
func TestJavaPushTags(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	for _, tag := range []string{"Aa", "BB", "C", "D", "Aa"} {
		must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "tags": tag, "body": tag})
	}
	c := open(t, jvm, "push", args{
		"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "expression": "Aa || D",
	})
	got := awaitPush(t, jvm, c, 3, 20_000)
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "tags": "C", "body": "not wanted"})
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "tags": "D", "body": "last"})
	got = awaitPush(t, jvm, c, len(got)+1, 20_000)
	var list []string
	for _, m := range got {
		list = append(list, m.Body)
	}
	if want := []string{"Aa", "D", "Aa", "last"}; sameSet(list, want) != nil || len(list) != len(want) {
		t.Errorf("got %v, want %v", list, want)
	}
}

// Every member of a broadcasting group gets every message, and the broker keeps no offset for it.
func TestJavaBroadcast(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 4)
	p := producer(t, jvm, at, nil)
	want := many(t, jvm, p, topic, "m", 12)
	for _, instance := range []string{"first", "second"} {
		c := open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "broadcast": true, "instance": name(t, instance),
		})
		if err := sameSet(bodies(awaitPush(t, jvm, c, 12, 20_000)), want); err != nil {
			t.Errorf("%s member: %v", instance, err)
		}
	}
	r, err := dialRaw(at.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	const getAllConsumerOffset = 43
	all, err := r.call(getAllConsumerOffset, nil, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// Apache keeps where the group pulled, in a table of its own and under group@broadcast.
	_, table, _ := strings.Cut(string(all.Body), `"offsetTable"`)
	table, _, _ = strings.Cut(table, `"pullOffsetTable"`)
	if all.Code != 0 || table == "" || strings.Contains(table, `"`+topic+"@"+group+`"`) {
		t.Errorf("code %d; the broker keeps offsets for a broadcasting group: %s", all.Code, all.Body)
	}
}

// Orderly consumption: each queue in its order, also when a message is refused at first, and queues
// change hands through the broker's locks.
func TestJavaOrderly(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 4)
	p := producer(t, jvm, at, nil)
	const perKey = 10
	want := map[string][]string{}
	for i := range perKey {
		for k := range 6 {
			key := fmt.Sprint("key", k)
			body := fmt.Sprint(key, "-", i)
			want[key] = append(want[key], body)
			must[sent](t, jvm, "producer.send", args{
				"handle": p, "topic": topic, "body": body, "keys": key, "orderKey": key,
			})
		}
	}
	member := func(instance string) string {
		return open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "orderly": true, "failures": 1,
			"instance": name(t, instance),
		})
	}
	first := member("first")
	got := awaitPush(t, jvm, first, 2*6*perKey, 60_000)
	for key, bodies := range want {
		var seen []string
		for _, m := range got {
			if m.Keys == key && !slices.Contains(seen, m.Body) {
				seen = append(seen, m.Body)
			}
		}
		if !slices.Equal(seen, bodies) {
			t.Errorf("%s came as %v", key, seen)
		}
	}
	// A second member gets its share only when the first has let go of the locks.
	second := member("second")
	eventually(t, 60*time.Second, func() error {
		if a, b := queuesOf(t, jvm, first, topic), queuesOf(t, jvm, second, topic); len(a) != 2 || len(b) != 2 {
			return fmt.Errorf("queues %v and %v", a, b)
		}
		return nil
	})
	later := many(t, jvm, p, topic, "later", 8)
	eventually(t, 40*time.Second, func() error {
		all := append(awaitPush(t, jvm, first, 1, 10), awaitPush(t, jvm, second, 1, 10)...)
		var list []string
		for _, m := range all {
			if slices.Contains(later, m.Body) {
				list = append(list, m.Body)
			}
		}
		return sameSet(list, later)
	})
}

// A group that subscribed before the topic existed gets the topic's first message.
func TestJavaSubscribeBeforeTopic(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	p := producer(t, jvm, at, nil)
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "first"})
	if got := awaitPush(t, jvm, c, 1, 30_000); len(got) != 1 || got[0].Body != "first" {
		t.Errorf("got %v", bodies(got))
	}
}

// A message that the listener refuses goes back to the broker and comes through the retry topic.
func TestJavaRetry(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "difficult"})
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic, "failures": 1})
	got := awaitPush(t, jvm, c, 2, 45_000)
	if len(got) != 2 || got[0].Body != "difficult" || got[1].Body != "difficult" {
		t.Fatalf("got %v", bodies(got))
	}
	if got[0].ReconsumeTimes != 0 || got[1].ReconsumeTimes != 1 {
		t.Errorf("reconsume times %d and %d", got[0].ReconsumeTimes, got[1].ReconsumeTimes)
	}
}

// Heartbeats in their second version: a fingerprint instead of subscriptions, and a change of one.
func TestJavaHeartbeatV2(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, args{"heartbeatV2": true, "heartbeatMs": 1000})
	c := open(t, jvm, "push", args{
		"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "expression": "TagA",
		"heartbeatV2": true, "heartbeatMs": 1000,
	})
	send := func(tag, body string) {
		must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "tags": tag, "body": body})
	}
	send("TagA", "a1")
	if got := awaitPush(t, jvm, c, 1, 20_000); len(got) != 1 {
		t.Fatalf("got %v", bodies(got))
	}
	run(t, jvm, "push.subscribe", args{"handle": c, "topic": topic, "expression": "TagA || TagB"})
	eventually(t, 30*time.Second, func() error {
		send("TagB", "b")
		if got := bodies(awaitPush(t, jvm, c, 2, 500)); !slices.Contains(got, "b") {
			return fmt.Errorf("got %v after the subscription changed", got)
		}
		return nil
	})
}
