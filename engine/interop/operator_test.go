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

// An operator moves the positions of groups that are online and of groups that are not: by time, by
// offset on one queue, and to those of another group.
func TestJavaResetAndClone(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	first := many(t, jvm, p, topic, "m", 10)
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	start := func(group, instance string) string {
		return open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, instance),
		})
	}
	committed := func(group string, want ...int64) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			for q, offset := range want {
				if got := storedOffset(t, at, topic, group, q); got != offset {
					return fmt.Errorf("%s is at offset %d of queue %d, want %d", group, got, q, offset)
				}
			}
			return nil
		})
	}
	c := start(group, "online")
	if err := sameSet(bodies(awaitPush(t, jvm, c, 10, 20_000)), first); err != nil {
		t.Fatal(err)
	}
	committed(group, 5, 5)

	// Online: everything comes once more.
	run(t, jvm, "admin.resetByTime", args{"handle": admin, "topic": topic, "group": group, "timestamp": 0})
	got := bodies(awaitPush(t, jvm, c, 20, 30_000))
	if len(got) < 20 || sameSet(got[10:], first) != nil {
		t.Fatalf("after the reset of an online group: %v", got)
	}
	committed(group, 5, 5)
	run(t, jvm, "push.stop", args{"handle": c})

	// Offline, one queue, by offset.
	run(t, jvm, "admin.resetQueue", args{
		"handle": admin, "address": at.Broker, "topic": topic, "group": group, "queueId": 1, "offset": 3,
	})
	var want []string
	for _, m := range pullAll(t, at, topic, 1)[3:] {
		want = append(want, m.Body)
	}
	c = start(group, "offline")
	if err := sameSet(bodies(awaitPush(t, jvm, c, 2, 20_000)), want); err != nil {
		t.Errorf("after the reset of queue 1: %v", err)
	}
	committed(group, 5, 5) // before the stop: one that comes while the last message is finished stores less
	run(t, jvm, "push.stop", args{"handle": c})

	// A clone begins where the other group is.
	clone := name(t, "CLONE")
	run(t, jvm, "admin.resetQueue", args{
		"handle": admin, "address": at.Broker, "topic": topic, "group": group, "queueId": 0, "offset": 4,
	})
	run(t, jvm, "admin.createGroup", args{"handle": admin, "address": at.Broker, "group": clone})
	run(t, jvm, "admin.clone", args{"handle": admin, "from": group, "to": clone, "topic": topic, "offline": true})
	committed(clone, 4, 5)
	c = start(clone, "clone")
	if got := bodies(awaitPush(t, jvm, c, 1, 20_000)); len(got) != 1 {
		t.Errorf("the clone got %v", got)
	}
	run(t, jvm, "push.stop", args{"handle": c})
}

// A topic that is deleted and made again begins at its start, for queues and for groups; a group that is
// deleted with its offsets begins anew; system topics stay.
func TestJavaDelete(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	many(t, jvm, p, topic, "old", 6)
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic})
	awaitPush(t, jvm, c, 6, 20_000)
	// Before the stop: one that comes while the last message is being finished stores less.
	eventually(t, 20*time.Second, func() error {
		if got := storedOffset(t, at, topic, group, 0); got != 6 {
			return fmt.Errorf("offset %d", got)
		}
		return nil
	})
	run(t, jvm, "push.stop", args{"handle": c})
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	run(t, jvm, "admin.deleteTopic", args{
		"handle": admin, "address": at.Broker, "namesrv": at.NameServer, "topic": topic,
	})
	createTopic(t, at, topic, 1)
	var r sent
	eventually(t, 20*time.Second, func() error {
		return jvm.do("producer.send", args{"handle": p, "topic": topic, "body": "new0"}, &r)
	})
	if r.QueueOffset != 0 {
		t.Errorf("the first message of the new topic has offset %d", r.QueueOffset)
	}
	c = open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, "again")})
	if diff := cmp.Diff([]string{"new0"}, bodies(awaitPush(t, jvm, c, 1, 20_000))); diff != "" {
		t.Errorf("the new topic (-want +got):\n%s", diff)
	}
	run(t, jvm, "push.stop", args{"handle": c})
	run(t, jvm, "admin.deleteGroup", args{"handle": admin, "address": at.Broker, "group": group})
	if got := storedOffset(t, at, topic, group, 0); got > 0 {
		t.Errorf("offset %d of a deleted group", got)
	}
	for _, system := range []string{"RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "DefaultCluster_REPLY_TOPIC"} {
		if err := jvm.do("admin.deleteTopic", args{
			"handle": admin, "address": at.Broker, "namesrv": at.NameServer, "topic": system,
		}, nil); err == nil {
			t.Errorf("the system topic %s was deleted", system)
		}
	}
}

// Clients that trace write to the trace topic as to any other, Apache's Go client too, and what they wrote
// can be read.
func TestJavaTrace(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	at := fresh(t, map[string]string{"traceTopicEnable": "true", "transactionTimeOut": "600000"})
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, args{"trace": true})
	m := must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "traced", "keys": "tk"})
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "trace": true})
	awaitPush(t, jvm, c, 1, 20_000)
	tx := transactional(t, at, args{"trace": true})
	transact(t, tx, topic, "tx", 1, "commit", "commit")
	want := []string{"EndTransaction", "Pub", "SubAfter", "SubBefore"}
	eventually(t, 40*time.Second, func() error {
		kinds := map[string]bool{}
		keyed := false
		for _, trace := range stored(t, at, "RMQ_SYS_TRACE_TOPIC", 1) {
			for record := range strings.SplitSeq(trace.Body, "\x02") {
				kind, _, _ := strings.Cut(record, "\x01")
				kinds[kind] = true
			}
			keyed = keyed || slices.Contains(strings.Fields(trace.Keys), m.MsgID)
		}
		for _, kind := range want {
			if !kinds[kind] {
				return fmt.Errorf("no trace of kind %s in %v", kind, kinds)
			}
		}
		if !keyed {
			return fmt.Errorf("no trace has the key %s", m.MsgID)
		}
		return nil
	})
	checkKeyIn(t, at, "RMQ_SYS_TRACE_TOPIC", m.MsgID)
	g := producer(t, golang(t), at, args{"group": name(t, "PG_GO"), "instance": name(t, "GO"), "trace": true})
	m = must[sent](t, golang(t), "producer.send", args{"handle": g, "topic": topic, "body": "traced by Go"})
	checkKeyIn(t, at, "RMQ_SYS_TRACE_TOPIC", m.MsgID)
}

// checkKeyIn finds a message by a key, as RocketMQ's tool does that shows traces.
func checkKeyIn(t *testing.T, at target, topic, key string) {
	t.Helper()
	jvm := java(t)
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	eventually(t, 20*time.Second, func() error {
		var f found
		err := jvm.do("admin.byKey", args{"handle": admin, "topic": topic, "key": key}, &f)
		if err == nil && len(f.Messages) == 0 {
			err = fmt.Errorf("key %s finds nothing", key)
		}
		return err
	})
}

// Orderly consumption keeps the order of each queue over a kill of the broker and over the leave of a
// member, whose queues another takes over at once.
func TestJavaOrderAcrossRestart(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	topic, group := name(t, "T"), name(t, "CG")
	at, process := startServer(t, scratch(t), nil)
	createTopic(t, at, topic, 4)
	p := producer(t, jvm, at, nil)
	consume := func(instance string) string {
		return open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "orderly": true, "instance": name(t, instance),
		})
	}
	consumers := []string{consume("one"), consume("two")}
	send := func(from, count int) {
		t.Helper()
		for i := from; i < from+count; i++ {
			for key := range 4 {
				eventually(t, 30*time.Second, func() error { // the producer finds its broker again
					return jvm.do("producer.send", args{
						"handle": p, "topic": topic, "body": fmt.Sprintf("%d-%03d", key, i), "queueId": key,
						"broker": at.BrokerName,
					}, nil)
				})
			}
		}
	}
	collect := func() map[string][]string { // by key and consumer, in the order of the listener
		seen := map[string][]string{}
		for _, c := range consumers {
			for _, body := range bodies(awaitPush(t, jvm, c, 0, 1)) {
				key, _, _ := strings.Cut(body, "-")
				seen[key+c] = append(seen[key+c], body)
			}
		}
		return seen
	}
	complete := func(count int) {
		t.Helper()
		eventually(t, 60*time.Second, func() error {
			all := map[string]bool{}
			for _, list := range collect() {
				for _, body := range list {
					all[body] = true
				}
			}
			if len(all) != 4*count {
				return fmt.Errorf("%d of %d messages", len(all), 4*count)
			}
			return nil
		})
	}
	send(0, 10)
	complete(10)
	_ = process.cmd.Process.Kill()
	<-process.done
	process = at.start(t, skylark(t), nil)
	defer func() { _ = process.stop() }()
	send(10, 10)
	complete(20)
	run(t, jvm, "push.stop", args{"handle": consumers[0]})
	consumers = consumers[1:]
	send(20, 10)
	eventually(t, 30*time.Second, func() error { // the one that stays takes over at once, not after 60 s
		last := 0
		for _, list := range collect() {
			if slices.ContainsFunc(list, func(body string) bool { return strings.HasSuffix(body, "-029") }) {
				last++
			}
		}
		if last != 4 {
			return fmt.Errorf("%d of 4 queues are consumed to their end", last)
		}
		return nil
	})
	for who, list := range collect() {
		if inverted(list) {
			t.Errorf("%s saw %v", who, list)
		}
	}
}

// inverted tells whether a message comes before an earlier one for the first time: after a kill a
// stretch may come again, in order.
func inverted(list []string) bool {
	highest := ""
	seen := map[string]bool{}
	for _, body := range list {
		if !seen[body] && body < highest {
			return true
		}
		seen[body] = true
		highest = max(highest, body)
	}
	return false
}
