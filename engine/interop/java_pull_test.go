// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The classic pull consumer around the bounds of a queue, and the offset calls.
func TestJavaPull(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	before := time.Now().Add(-time.Minute).UnixMilli()
	for i := range 5 {
		must[sent](t, jvm, "producer.send", args{
			"handle": p, "topic": topic, "tags": fmt.Sprint("Tag", i%2), "body": fmt.Sprint("m", i),
			"queueId": 0, "broker": at.BrokerName,
		})
	}
	c := open(t, jvm, "pull", args{"namesrv": at.NameServer, "group": name(t, "CG")})
	place := func(queueID int, extra args) args {
		a := args{"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": queueID}
		for k, v := range extra {
			a[k] = v
		}
		return a
	}
	if got := must[[]queue](t, jvm, "pull.queues", args{"handle": c, "topic": topic}); len(got) != 2 {
		t.Errorf("queues %v", got)
	}
	cases := []struct {
		what   string
		queue  int
		args   args
		status string
		next   int64
		bodies []string
	}{
		{"from the start", 0, args{"offset": 0}, "FOUND", 5, numbered("m", 5)},
		{"one from 2", 0, args{"offset": 2, "max": 1}, "FOUND", 3, []string{"m2"}},
		{"a tag of some", 0, args{"offset": 0, "expression": "Tag1"}, "FOUND", 5, []string{"m1", "m3"}},
		{"a tag of none", 0, args{"offset": 0, "expression": "TagNone"}, "NO_MATCHED_MSG", 5, nil},
		{"at the end", 0, args{"offset": 5}, "NO_NEW_MSG", 5, nil},
		{"one past the end", 0, args{"offset": 6}, "OFFSET_ILLEGAL", 5, nil},
		{"far past the end", 0, args{"offset": 5000}, "OFFSET_ILLEGAL", 5, nil},
		{"empty queue from 0", 1, args{"offset": 0}, "NO_NEW_MSG", 0, nil},
		{"empty queue from 7", 1, args{"offset": 7}, "OFFSET_ILLEGAL", 0, nil},
	}
	for _, k := range cases {
		r := must[pulled](t, jvm, "pull.pull", place(k.queue, k.args))
		if r.Status != k.status || r.Next != k.next {
			t.Errorf("%s: %s, next %d, want %s, %d", k.what, r.Status, r.Next, k.status, k.next)
		}
		if diff := cmp.Diff(k.bodies, bodies(r.Messages)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", k.what, diff)
		}
		if k.queue == 0 && (r.Min != 0 || r.Max != 5) {
			t.Errorf("%s: bounds %d to %d", k.what, r.Min, r.Max)
		}
	}
	refused := func(what string, a args, code int) {
		t.Helper()
		err := jvm.do("pull.pull", a, nil)
		var e *driverError
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, want code %d", what, err, code)
		}
	}
	refused("queue id out of range", place(77, args{"offset": 0}), 29)
	refused("missing topic", args{
		"handle": c, "topic": name(t, "T_NONE"), "broker": at.BrokerName, "queueId": 0, "offset": 0,
	}, 17)

	type offsets struct{ Min, Max, Earliest, Search int64 }
	now := time.Now().UnixMilli()
	past := must[offsets](t, jvm, "pull.offsets", place(0, args{"timestamp": before}))
	if past.Min != 0 || past.Max != 5 || past.Search != 0 || past.Earliest < before || past.Earliest > now+60_000 {
		t.Errorf("offsets %+v", past)
	}
	future := must[offsets](t, jvm, "pull.offsets", place(0, args{"timestamp": now + 60_000}))
	if future.Search != 5 {
		t.Errorf("search in the future gave %d, want 5", future.Search)
	}
	// RocketMQ answers 0, not "none", while the queue still has its first message in memory.
	if got := must[int64](t, jvm, "pull.stored", place(0, nil)); got != 0 {
		t.Errorf("a new group has offset %d", got)
	}
	run(t, jvm, "pull.store", place(0, args{"offset": 3}))
	eventually(t, 10*time.Second, func() error {
		if got := must[int64](t, jvm, "pull.stored", place(0, nil)); got != 3 {
			return fmt.Errorf("stored offset %d, want 3", got)
		}
		return nil
	})
}

// A blocking pull is answered when a message arrives.
func TestJavaPullBlocks(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	c := open(t, jvm, "pull", args{"namesrv": at.NameServer, "group": name(t, "CG")})
	p := producer(t, jvm, at, nil)
	result := make(chan pulled, 1)
	failed := make(chan error, 1)
	go func() {
		var r pulled
		err := jvm.do("pull.pull", args{
			"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": 0, "offset": 0, "block": true,
		}, &r)
		if err != nil {
			failed <- err
			return
		}
		result <- r
	}()
	select {
	case r := <-result:
		t.Fatalf("answered before there was anything: %+v", r)
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(time.Second):
	}
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "awaited"})
	select {
	case r := <-result:
		if r.Status != "FOUND" || len(r.Messages) != 1 || r.Messages[0].Body != "awaited" {
			t.Errorf("%+v", r)
		}
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(10 * time.Second):
		t.Fatal("the held pull was not answered within 10 s of the message")
	}
}

// The lite pull consumer: subscription, commit, seek; and queues assigned by hand.
func TestJavaLitePull(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	want := many(t, jvm, p, topic, "lite", 8)
	c := open(t, jvm, "lite", args{"namesrv": at.NameServer, "group": group, "topic": topic})
	poll := func(handle string, count int) []received {
		t.Helper()
		return must[[]received](t, jvm, "lite.poll", args{"handle": handle, "count": count, "timeoutMs": 20_000})
	}
	if err := sameSet(bodies(poll(c, 8)), want); err != nil {
		t.Fatal(err)
	}
	run(t, jvm, "lite.commit", args{"handle": c})
	queues := must[[]queue](t, jvm, "lite.assignment", args{"handle": c})
	if len(queues) != 2 {
		t.Fatalf("assignment %v", queues)
	}
	q := args{"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": 0}
	eventually(t, 10*time.Second, func() error {
		if got := must[int64](t, jvm, "lite.committed", q); got != 4 {
			return fmt.Errorf("committed %d, want 4", got)
		}
		return nil
	})
	search := must[int64](t, jvm, "lite.search", args{
		"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": 0, "timestamp": time.Now().Add(-time.Hour).UnixMilli(),
	})
	if search != 0 {
		t.Errorf("offset of an hour ago is %d", search)
	}
	run(t, jvm, "lite.seek", args{"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": 0, "to": "begin"})
	if got := poll(c, 4); len(got) < 4 || got[0].QueueID != 0 || got[0].QueueOffset != 0 {
		t.Errorf("after seek to the start: %v", bodies(got))
	}
	err := jvm.do("lite.seek", args{"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": 0, "offset": 1000}, nil)
	if err == nil {
		t.Error("seek beyond the end was accepted")
	}
	manual := open(t, jvm, "lite", args{
		"namesrv": at.NameServer, "group": name(t, "CG_ASSIGN"), "topic": topic, "assign": true, "instance": name(t, "manual"),
	})
	if err := sameSet(bodies(poll(manual, 8)), want); err != nil {
		t.Errorf("assigned by hand: %v", err)
	}
}
