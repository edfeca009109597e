// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// shortLevels are delay levels for tests: the first four take a second, so retries do not take long.
var shortLevels = map[string]string{
	"messageDelayLevel": "1s 1s 1s 1s 15s", "recallMessageEnable": "true",
}

// A listener that always refuses: the message comes once more for each try that the consumer allows,
// with its delay, and then lies in the dead letters, which another consumer reads.
func TestJavaRetryToDeadLetters(t *testing.T) {
	t.Parallel()
	at, jvm := fresh(t, shortLevels), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	first := must[sent](t, jvm, "producer.send", args{
		"handle": p, "topic": topic, "body": "poison", "tags": "red", "keys": "k",
	})
	c := open(t, jvm, "push", args{
		"namesrv": at.NameServer, "group": group, "topic": topic, "failures": 99, "maxReconsume": 2,
	})
	got := awaitPush(t, jvm, c, 3, 60_000)
	if len(got) != 3 {
		t.Fatalf("got %v", bodies(got))
	}
	for i, m := range got {
		if m.Body != "poison" || int(m.ReconsumeTimes) != i || m.Tags != "red" || m.MsgID != first.MsgID {
			t.Errorf("try %d: %+v", i, m)
		}
		if m.Topic != topic { // the client shows where it came from
			t.Errorf("try %d says topic %s", i, m.Topic)
		}
	}
	dead := "%DLQ%" + group
	waitForRoute(t, at.NameServer, dead)
	reader := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG_DLQ"), "topic": dead})
	letters := awaitPush(t, jvm, reader, 1, 30_000)
	if len(letters) != 1 || letters[0].Body != "poison" {
		t.Fatalf("dead letters %v", bodies(letters))
	}
	l := letters[0]
	if l.Properties["RETRY_TOPIC"] != topic || l.Properties["ORIGIN_MESSAGE_ID"] != first.OffsetMsgID ||
		l.Properties["DELAY"] != "0" || l.ReconsumeTimes != 3 {
		t.Errorf("dead letter %+v", l)
	}
	if more := awaitPush(t, jvm, c, 4, 2_000); len(more) != 3 {
		t.Errorf("it came again: %v", bodies(more))
	}
}

// The same with Apache's Go client, which asks for a delay too.
func TestGoRetryToDeadLetters(t *testing.T) {
	t.Parallel()
	at, client := fresh(t, shortLevels), golang(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 1)
	p := producer(t, client, at, nil)
	must[sent](t, client, "producer.send", args{"handle": p, "topic": topic, "body": "poison", "tags": "red"})
	later := name(t, "LATER")
	createTopic(t, at, later, 1)
	began := time.Now().UnixMilli()
	must[sent](t, client, "producer.send", args{"handle": p, "topic": later, "body": "later", "delayLevel": 1})
	if m := delivered(t, at, later, 1, 20*time.Second)[0]; m.Body != "later" || m.StoreTimestamp < began+1000 {
		t.Errorf("%s came after %d ms", m.Body, m.StoreTimestamp-began)
	}
	c := open(t, client, "push", args{
		"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, "C"),
		"failures": 99, "maxReconsume": 2,
	})
	got := awaitPush(t, client, c, 3, 90_000)
	if len(got) != 3 {
		t.Fatalf("got %v", bodies(got))
	}
	for i, m := range got {
		if m.Body != "poison" || int(m.ReconsumeTimes) != i || m.Tags != "red" {
			t.Errorf("try %d: %+v", i, m)
		}
	}
	dead := "%DLQ%" + group
	waitForRoute(t, at.NameServer, dead)
	letters := delivered(t, at, dead, 1, 30*time.Second)
	if letters[0].Body != "poison" || letters[0].Properties["RETRY_TOPIC"] != topic {
		t.Errorf("dead letter %+v", letters[0])
	}
}

// delivered pulls a topic's one queue until it holds count messages.
func delivered(t *testing.T, at target, topic string, count int, limit time.Duration) []received {
	t.Helper()
	var got []received
	eventually(t, limit, func() error {
		if got = pullAll(t, at, topic, 0); len(distinct(bodies(got))) < count {
			return fmt.Errorf("%s holds %v, want %d messages", topic, bodies(got), count)
		}
		return nil
	})
	return got
}

// The four ways in which a Java producer asks for a later delivery, and the way to take one back.
func TestJavaDelayed(t *testing.T) {
	t.Parallel()
	at, jvm := fresh(t, shortLevels), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	send := func(body string, more args) sent {
		t.Helper()
		a := args{"handle": p, "topic": topic, "body": body, "keys": body}
		maps.Copy(a, more)
		return must[sent](t, jvm, "producer.send", a)
	}
	deliver := time.Now().Add(4300 * time.Millisecond).UnixMilli()
	asked := map[string]args{
		"level": {"delayLevel": 1}, "seconds": {"delaySeconds": 2}, "ms": {"delayMs": 2700},
		"time": {"deliverMs": deliver},
	}
	due := map[string]int64{}
	for body, how := range asked {
		begin := time.Now().UnixMilli()
		r := send(body, how)
		if (r.RecallHandle != "") != (body != "level") {
			t.Errorf("%s: handle %q", body, r.RecallHandle)
		}
		due[body] = begin + map[string]int64{"level": 1000, "seconds": 2000, "ms": 2700}[body]
	}
	due["time"] = deliver
	gone := send("gone", args{"deliverMs": deliver})
	if id := must[string](t, jvm, "producer.recall", args{
		"handle": p, "topic": topic, "recallHandle": gone.RecallHandle,
	}); id != gone.MsgID {
		t.Errorf("recalled %s, want %s", id, gone.MsgID)
	}
	send("now", nil)
	got := delivered(t, at, topic, 5, 30*time.Second)
	slack := int64(4000) // Apache's, on a busy machine
	if *against == "skylark" {
		slack = 500 // and ours, with what sending took
	}
	for _, m := range got {
		late := m.StoreTimestamp - due[m.Body]
		if m.Body != "now" && (late < -1 || late > slack) {
			t.Errorf("%s came %d ms after it was due", m.Body, late)
		}
	}
	slices.SortFunc(got, func(a, b received) int { return int(a.QueueOffset - b.QueueOffset) })
	if err := sameSet(bodies(got), []string{"now", "level", "seconds", "ms", "time"}); err != nil {
		t.Error(err)
	}
	send("later", args{"delayMs": 1500})
	for _, m := range delivered(t, at, topic, 6, 30*time.Second) {
		if m.Body == "gone" {
			t.Error("the recalled message came")
		}
	}
}

// Package client asks for later deliveries, against our broker and against Apache's.
func TestOurClientDelayed(t *testing.T) {
	t.Parallel()
	for kind, at := range map[string]target{
		"ours": fresh(t, shortLevels), "apache": startApache(t, scratch(t), shortLevels),
	} {
		topic := name(t, "T") + kind
		createTopic(t, at, topic, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := client.New([]string{at.NameServer})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(ctx)
		p, err := c.NewProducer(name(t, "PG"))
		if err != nil {
			t.Fatal(err)
		}
		for body, m := range map[string]client.Message{
			"level": {DelayLevel: 1}, "delay": {Delay: 2 * time.Second},
			"at": {DeliverAt: time.Now().Add(2500 * time.Millisecond)},
		} {
			m.Topic, m.Body = topic, []byte(body)
			if _, err := p.Send(ctx, &m); err != nil {
				t.Fatalf("%s: %s: %v", kind, body, err)
			}
		}
		got := delivered(t, at, topic, 3, 30*time.Second)
		if err := sameSet(bodies(got), []string{"level", "delay", "at"}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A store with messages that wait goes from our broker to Apache's and back: each comes once, from
// whichever broker has the store when it is due.
func TestTimerDelayedMovesBetweenBrokers(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic := scratch(t), name(t, "T")
	conf := map[string]string{"mappedFileSizeCommitLog": "8388608", "mappedFileSizeTimerLog": "1048576"}
	maps.Copy(conf, shortLevels)
	var want []string
	fill := func(at target, prefix string) {
		t.Helper()
		p := producer(t, jvm, at, args{"group": name(t, "PG") + prefix, "instance": name(t, "P") + prefix})
		for i := range 12 {
			how := []args{
				{"delayLevel": 1}, {"delayLevel": 5}, {"delaySeconds": 1}, {"delaySeconds": 15},
			}[i%4]
			body := fmt.Sprint(prefix, i)
			a := args{"handle": p, "topic": topic, "body": body, "keys": body}
			maps.Copy(a, how)
			must[sent](t, jvm, "producer.send", a)
			want = append(want, body)
		}
		gone := must[sent](t, jvm, "producer.send", args{
			"handle": p, "topic": topic, "body": "gone" + prefix, "delaySeconds": 15,
		})
		must[string](t, jvm, "producer.recall", args{
			"handle": p, "topic": topic, "recallHandle": gone.RecallHandle,
		})
		run(t, jvm, "producer.stop", args{"handle": p})
		// The early ones come before the store moves on.
		delivered(t, at, topic, len(want)-6, 20*time.Second)
	}
	check := func(at target) {
		t.Helper()
		got := bodies(delivered(t, at, topic, len(want), 40*time.Second))
		if err := sameSet(got, want); err != nil {
			t.Error(err)
		}
		if len(got) != len(want) {
			t.Errorf("%d came, want %d: %v", len(got), len(want), got)
		}
	}

	ours, p := startServer(t, dir, conf)
	createTopic(t, ours, topic, 1)
	fill(ours, "ours")
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}
	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	waitForRoute(t, theirs.NameServer, topic)
	check(theirs)
	fill(theirs, "theirs")
	run(t, jvm, "broker.stop", args{"handle": broker})
	again, p := startServer(t, dir, conf)
	waitForRoute(t, again.NameServer, topic)
	check(again)
	fill(again, "again")
	_ = p.cmd.Process.Kill()
	<-p.done
	last := again.start(t, skylark(t), conf)
	defer func() { _ = last.stop() }()
	check(again)
	if t.Failed() {
		t.Log(p.output(), last.output())
	}
}
