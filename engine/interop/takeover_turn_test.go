// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// pend uses every feature and leaves something pending of each. What waits for a time comes last, so
// that it still does when the broker ends.
func (k *takeover) pend() {
	k.t.Helper()
	k.sendPlain()
	k.sendPriced("before")
	k.trace()
	k.operate()
	k.ask()
	k.transact()
	k.refuse()
	k.pop()
	k.postpone()
	k.interrupt()
}

// check finds all that the broker before this one left, and uses it.
func (k *takeover) check() {
	k.t.Helper()
	if got := k.stored("plain"); !slices.Equal(got, k.plain) {
		k.t.Errorf("turn %d: plain messages %v, want %v", k.turn, got, k.plain)
	}
	k.checkQueries()
	k.checkOperators()
	k.checkTrace()
	k.checkOrder()
	k.sendPriced("after")
	k.checkPriced()
	k.checkReplies()
	k.checkPopped()
	k.checkRefused()
	k.awaitStored("delayed", k.delayed)
	k.awaitStored("half", k.half)
	if again := repeated(k.stored("delayed")); len(again) > 0 {
		k.t.Logf("turn %d: twice by now: %v", k.turn, again)
	}
}

// send sends one message, as soon as the producer has found the broker.
func (k *takeover) send(kind, body string, more args) (s sent) {
	k.t.Helper()
	a := args{"handle": k.producer, "topic": k.topic(kind), "body": body, "keys": body}
	for name, value := range more {
		a[name] = value
	}
	eventually(k.t, 30*time.Second, func() error { return k.jvm.do("producer.send", a, &s) })
	return s
}

func (k *takeover) sendPlain() {
	k.t.Helper()
	var batch []args
	for i := range 5 {
		body := k.body("batch", i)
		batch = append(batch, args{"topic": k.topic("plain"), "body": body, "keys": body})
		k.plain = append(k.plain, body)
	}
	must[sent](k.t, k.jvm, "producer.batch", args{"handle": k.producer, "messages": batch})
	single := k.body("single", 0)
	k.known = append(k.known, k.send("plain", single, nil))
	k.plain = append(k.plain, single)
}

// sendPriced sends messages of which the SQL92 group wants two.
func (k *takeover) sendPriced(when string) {
	k.t.Helper()
	prefix := fmt.Sprintf("%s%d-", when, k.turn)
	sendPriced(k.t, k.producer, k.topic("priced"), prefix, 10)
	k.priced = append(k.priced, priced(prefix, 10)...)
}

// trace has a message sent that leaves a trace.
func (k *takeover) trace() {
	k.t.Helper()
	m := k.send("traced", k.body("traced", 0), args{"handle": k.tracer})
	k.traced = append(k.traced, m.MsgID)
	k.finds("RMQ_SYS_TRACE_TOPIC", m.MsgID) // it is stored a while after the message
}

// operate does what operators do: each turn has a group that is moved, one that is copied from it, a
// topic that is made, and one that is deleted.
func (k *takeover) operate() {
	k.t.Helper()
	moved, copied := k.group(fmt.Sprint("moved", k.turn)), k.group(fmt.Sprint("copied", k.turn))
	for _, group := range []string{moved, copied} {
		run(k.t, k.jvm, "admin.createGroup", args{
			"handle": k.admin, "address": k.at.Broker, "group": group, "retries": 5 + k.turn,
		})
	}
	run(k.t, k.jvm, "admin.resetQueue", args{
		"handle": k.admin, "address": k.at.Broker, "topic": k.topic("plain"), "group": moved, "queueId": 0,
		"offset": 3,
	})
	const cloneGroupOffset = 314 // RocketMQ's tool wants a group that was online once
	if a := rawCall(k.t, k.at, cloneGroupOffset, map[string]string{
		"srcGroup": moved, "destGroup": copied, "topic": k.topic("plain"), "offline": "true",
	}, nil); a.Code != 0 {
		k.t.Fatalf("clone: %d %s", a.Code, a.Remark)
	}
	k.createTopic(fmt.Sprint("made", k.turn), 3)
	if k.turn > 0 {
		run(k.t, k.jvm, "admin.deleteTopic", args{
			"handle": k.admin, "address": k.at.Broker, "namesrv": k.at.NameServer,
			"topic": k.topic(fmt.Sprint("made", k.turn-1)),
		})
	}
}

// ask makes a request that nobody answers yet.
func (k *takeover) ask() {
	k.t.Helper()
	body, before := k.body("question", 0), k.length(k.topic("asked"), 0)
	answered := make(chan error, 1)
	k.asked = answered
	request := args{"handle": k.producer, "topic": k.topic("asked"), "body": body, "ttlMs": 120_000}
	go func() {
		var got received
		err := k.jvm.do("producer.request", request, &got)
		if err == nil && got.Body != "re: "+body {
			err = fmt.Errorf("%s was answered with %s", body, got.Body)
		}
		answered <- err
	}()
	eventually(k.t, 20*time.Second, func() error {
		if k.length(k.topic("asked"), 0) == before {
			return fmt.Errorf("the request is not stored")
		}
		return nil
	})
}

// transact leaves transactions undecided.
func (k *takeover) transact() {
	k.t.Helper()
	prefix := func(kind string) string { return fmt.Sprintf("%s-%d-", kind, k.turn) }
	k.half = append(k.half, transact(k.t, k.tx, k.topic("half"), prefix("commit"), 3, "unknown", "commit")...)
	transact(k.t, k.tx, k.topic("half"), prefix("rollback"), 2, "unknown", "rollback")
}

// refuse has messages given back, which then wait in the third delay level.
func (k *takeover) refuse() {
	k.t.Helper()
	for i := range 3 {
		body := k.body("refused", i)
		k.send("refused", body, nil)
		k.refused = append(k.refused, body)
	}
	k.scheduled += 3
	eventually(k.t, 30*time.Second, func() error {
		if n := k.length("SCHEDULE_TOPIC_XXXX", 2); n < k.scheduled {
			return fmt.Errorf("%d of %d messages wait in level 3", n, k.scheduled)
		}
		return nil
	})
}

// pop leaves popped messages out, of which a third is acknowledged.
func (k *takeover) pop() {
	k.t.Helper()
	own := map[string]bool{}
	for i := range 6 {
		body := k.body("popped", i)
		k.send("popped", body, nil)
		own[body] = true
	}
	k.out = nil
	popped := 0
	eventually(k.t, 30*time.Second, func() error {
		list, receipts := rawPop(k.t, k.at, k.topic("popped"), k.group("popping"), takeoverWait, time.Second)
		for i, m := range list {
			if own[m.Body] {
				popped++
			}
			if !own[m.Body] || popped%3 == 0 {
				rawAck(k.t, k.at, receipts[i])
			} else {
				k.out = append(k.out, m.Body)
			}
		}
		if popped < len(own) {
			return fmt.Errorf("%d of %d popped", popped, len(own))
		}
		return nil
	})
}

// postpone sends messages with a delay level and timers, and recalls one of these.
func (k *takeover) postpone() {
	k.t.Helper()
	for i := range 6 {
		how := args{"delayLevel": 3}
		if i%2 == 1 {
			how = args{"delaySeconds": int(takeoverWait.Seconds())}
		} else {
			k.scheduled++
		}
		body := k.body("later", i)
		k.send("delayed", body, how)
		k.delayed = append(k.delayed, body)
	}
	gone := k.send("delayed", k.body("gone", 0), args{"delaySeconds": int(takeoverWait.Seconds())})
	must[string](k.t, k.jvm, "producer.recall", args{
		"handle": k.producer, "topic": k.topic("delayed"), "recallHandle": gone.RecallHandle,
	})
}

// interrupt sends messages in order and returns when some of them are consumed.
func (k *takeover) interrupt() {
	k.t.Helper()
	for i := range 10 {
		for queue := range 2 {
			body := k.body(fmt.Sprint("key", queue), i)
			k.send("order", body, args{"queueId": queue, "broker": k.at.BrokerName})
			k.order = append(k.order, body)
		}
	}
	eventually(k.t, 30*time.Second, func() error {
		here := 0
		for _, m := range k.got(k.orderly) {
			if _, turn := parted(m.Body); turn == k.turn {
				here++
			}
		}
		if here < 4 {
			return fmt.Errorf("%d of the messages in order have come", here)
		}
		return nil
	})
}

func (k *takeover) checkQueries() {
	k.t.Helper()
	for turn, m := range k.known {
		body := fmt.Sprintf("single-%d-00", turn)
		k.finds(k.topic("plain"), body)
		var f found
		eventually(k.t, 20*time.Second, func() error {
			return k.jvm.do("admin.byUniqueKey", args{"handle": k.admin, "topic": k.topic("plain"), "key": m.MsgID}, &f)
		})
		if len(f.Messages) != 1 || f.Messages[0].Body != body {
			k.t.Errorf("turn %d: unique key %s finds %v", k.turn, m.MsgID, bodies(f.Messages))
		}
		by := must[received](k.t, k.jvm, "admin.byId", args{
			"handle": k.admin, "topic": k.topic("plain"), "id": m.OffsetMsgID,
		})
		if by.Body != body {
			k.t.Errorf("turn %d: id %s finds %s", k.turn, m.OffsetMsgID, by.Body)
		}
	}
}

func (k *takeover) checkOperators() {
	k.t.Helper()
	const getTopicConfig, getGroupConfig = 351, 352
	for turn := range k.turn {
		for _, kind := range []string{"moved", "copied"} {
			group := k.group(fmt.Sprint(kind, turn))
			if got := storedOffset(k.t, k.at, k.topic("plain"), group, 0); got != 3 {
				k.t.Errorf("turn %d: group %s is at %d, want 3", k.turn, group, got)
			}
			a := rawCall(k.t, k.at, getGroupConfig, map[string]string{"group": group}, nil)
			if want := fmt.Sprintf(`"retryMaxTimes":%d`, 5+turn); !strings.Contains(string(a.Body), want) {
				k.t.Errorf("turn %d: group %s: %d %s, want %s", k.turn, group, a.Code, a.Body, want)
			}
		}
		topic := k.topic(fmt.Sprint("made", turn))
		a := rawCall(k.t, k.at, getTopicConfig, map[string]string{"topic": topic}, nil)
		if here := strings.Contains(string(a.Body), `"readQueueNums":3`); here != (turn == k.turn-1) {
			k.t.Errorf("turn %d: topic %s: %d %s", k.turn, topic, a.Code, a.Body)
		}
	}
}

func (k *takeover) checkTrace() {
	k.t.Helper()
	for _, id := range k.traced {
		k.finds("RMQ_SYS_TRACE_TOPIC", id)
	}
}

// checkOrder waits for all messages in order. What comes again after a death does so in order.
func (k *takeover) checkOrder() {
	k.t.Helper()
	eventually(k.t, 60*time.Second, func() error { return sameSet(bodies(k.got(k.orderly)), k.order) })
	seen := map[string][]string{}
	for _, m := range k.got(k.orderly) {
		key, _ := parted(m.Body)
		seen[key] = append(seen[key], m.Body)
	}
	for key, list := range seen {
		if inverted(list) {
			k.t.Errorf("turn %d: %s came as %v", k.turn, key, list)
		}
	}
}

func (k *takeover) checkPriced() {
	k.t.Helper()
	eventually(k.t, 60*time.Second, func() error { return sameSet(bodies(k.got(k.filtering)), k.priced) })
}

// checkReplies answers the request that the broker before this one had, and another one.
func (k *takeover) checkReplies() {
	k.t.Helper()
	const getProducers = 204
	eventually(k.t, 30*time.Second, func() error { // a reply goes to a connection that is known
		a := rawCall(k.t, k.at, getProducers, map[string]string{"producerGroup": name(k.t, "PG")}, nil)
		if a.Code != 0 {
			return fmt.Errorf("the requester has not come back: %d %s", a.Code, a.Remark)
		}
		return nil
	})
	c := open(k.t, k.jvm, "push", args{
		"namesrv": k.at.NameServer, "group": k.group("asked"), "topic": k.topic("asked"), "reply": "re: ",
		"instance": k.group(fmt.Sprint("replier", k.turn)),
	})
	select {
	case err := <-k.asked:
		if err != nil {
			k.t.Errorf("turn %d: a request from before: %v", k.turn, err)
		}
	case <-time.After(60 * time.Second):
		k.t.Errorf("turn %d: a request from before is not answered", k.turn)
	}
	got := must[received](k.t, k.jvm, "producer.request", args{
		"handle": k.producer, "topic": k.topic("asked"), "body": "now", "ttlMs": 30_000,
	})
	if got.Body != "re: now" {
		k.t.Errorf("turn %d: answer %+v", k.turn, got)
	}
	run(k.t, k.jvm, "push.stop", args{"handle": c})
	k.replies += 2
	if n := len(k.pull("DefaultCluster_REPLY_TOPIC", 0)); n < k.replies {
		k.t.Errorf("turn %d: %d replies are stored, want %d", k.turn, n, k.replies)
	}
}

// checkPopped pops what was out. What was acknowledged may come again: the group's position is up to 5 s
// behind at a death, and RocketMQ pops from there. What was not acknowledged must come.
func (k *takeover) checkPopped() {
	k.t.Helper()
	var popped []string
	eventually(k.t, 60*time.Second, func() error {
		list, receipts := rawPop(k.t, k.at, k.topic("popped"), k.group("popping"), time.Minute, 2*time.Second)
		for _, m := range list {
			popped = append(popped, m.Body)
		}
		rawAck(k.t, k.at, receipts...)
		for _, body := range k.out {
			if !slices.Contains(popped, body) {
				return fmt.Errorf("turn %d: popped %v, not %s", k.turn, popped, body)
			}
		}
		return nil
	})
}

// checkRefused waits until all that was given back came once more.
func (k *takeover) checkRefused() {
	k.t.Helper()
	eventually(k.t, 60*time.Second, func() error {
		var got []string
		for _, m := range k.got(k.retrying) {
			if m.ReconsumeTimes > 0 { // the first delivery may come again: a commit is behind at a death
				got = append(got, m.Body)
			}
		}
		if err := sameSet(got, k.refused); err != nil {
			return fmt.Errorf("turn %d, given back: %w", k.turn, err)
		}
		return nil
	})
}
