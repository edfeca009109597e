// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// placedEach is how many messages a turn sends to each queue of the first topic.
func placedEach() int {
	if *compatFull {
		return 300
	}
	return 60
}

func (l *ledger) group(kind string) string { return "G_" + l.topicOf(kind) }

// producer starts a producer of this turn.
func (l *ledger) producer(kind string, extra args) string {
	a := args{"group": "PG_" + l.topicOf(kind), "instance": fmt.Sprint("P_", l.topicOf(kind), l.turn)}
	for k, v := range extra {
		a[k] = v
	}
	return producer(l.t, l.jvm, l.at, a)
}

// fill does everything that a client can, and notes what it was told. What is to wait for the next turn
// comes last, so that it still does when this one ends.
func (l *ledger) fill() {
	l.fillPlain()
	l.fillDead()
	l.fillPositions()
	l.fillLater()
	if l.timers {
		l.fillPopped()
	}
	l.fillRefused()
	l.fillTransactions()
}

// place notes a message of the first topic.
func (l *ledger) place(s sent, bodies ...string) {
	for i, body := range bodies {
		l.placed[fmt.Sprint(s.QueueID, " ", s.QueueOffset+int64(i))] = hashOf(body)
		l.count["placed"]++
	}
}

// fillPlain sends single messages, batches, compressed and odd ones.
func (l *ledger) fillPlain() {
	p := l.producer("plain", nil)
	topic := l.topicOf("plain")
	for q := range 2 {
		for _, s := range must[[]sent](l.t, l.jvm, "producer.many", args{
			"handle": p, "topic": topic, "prefix": fmt.Sprintf("t%dq%d-", l.turn, q), "count": placedEach(), "tags": "Tag" + fmt.Sprint(q),
			"queueId": q, "broker": l.at.BrokerName,
		}) {
			l.place(s, s.Body)
		}
	}
	send := func(body string, a args) {
		m := args{"handle": p, "topic": topic, "queueId": 0, "broker": l.at.BrokerName, "body": body}
		for k, v := range a {
			m[k] = v
		}
		l.place(must[sent](l.t, l.jvm, "producer.send", m), body)
	}
	for i := range 5 {
		word := fmt.Sprintf("word%d.%d ", l.turn, i)
		send(strings.Repeat(word, 9000/len(word)+1), args{"keys": fmt.Sprintf("zip%d.%d", l.turn, i)}) // is compressed
	}
	for i := range 40 { // fills log files
		send(strings.Repeat("x", 3800)+fmt.Sprint(l.turn, ".", i), nil)
	}
	send("long properties", args{"properties": args{"long": strings.Repeat("p", 30_000), "colour": "green"}})
	send("正文 😀", args{"tags": "标签", "keys": fmt.Sprintf("键%d a%d b%d", l.turn, l.turn, l.turn), "flag": 7})
	send("not waited for", args{"noWait": true})
	var batch []args
	var bodies []string
	for i := range 7 {
		body := fmt.Sprintf("batch%d-%d", l.turn, i)
		bodies = append(bodies, body)
		batch = append(batch, args{"topic": topic, "body": body, "tags": "B", "keys": body})
	}
	l.place(must[sent](l.t, l.jvm, "producer.batch", args{
		"handle": p, "messages": batch, "topic": topic, "queueId": 1, "broker": l.at.BrokerName,
	}), bodies...)
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
}

// fillLater sends messages that are due at once and such that are due in the next turn.
func (l *ledger) fillLater() {
	p := l.producer("later", nil)
	send := func(body string, a args) sent {
		a["handle"], a["topic"], a["body"], a["keys"] = p, l.topicOf("later"), body, body
		return must[sent](l.t, l.jvm, "producer.send", a)
	}
	for i := range 6 {
		soon, late := fmt.Sprintf("soon%d.%d", l.turn, i), fmt.Sprintf("late%d.%d", l.turn, i)
		how := []args{{"delayLevel": 1}, {"delayLevel": 5}}
		if l.timers && i%2 == 1 {
			how = []args{{"delaySeconds": 1}, {"delayMs": 5_000}}
		}
		send(soon, how[0])
		send(late, how[1])
		l.later, l.pending = append(l.later, soon), append(l.pending, late)
		l.count["delayed"] += 2
	}
	if l.newest {
		gone := send(fmt.Sprint("gone", l.turn), args{"delaySeconds": 5})
		must[string](l.t, l.jvm, "producer.recall", args{
			"handle": p, "topic": l.topicOf("later"), "recallHandle": gone.RecallHandle,
		})
		l.count["recalled"]++
	}
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
}

// fillRefused has a group refuse messages, which then wait for their next try when the turn ends.
func (l *ledger) fillRefused() {
	p := l.producer("retry", nil)
	bodies := many(l.t, l.jvm, p, l.topicOf("retry"), fmt.Sprintf("refused%d-", l.turn), 4)
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
	c := l.push("retry", args{"failures": 99})
	l.await("retry", c, bodies)
	run(l.t, l.jvm, "push.stop", args{"handle": c})
	l.refused = append(l.refused, bodies...)
	l.count["sent back"] += len(bodies)
}

// fillDead has a group refuse messages until they are dead letters.
func (l *ledger) fillDead() {
	p := l.producer("dead", nil)
	bodies := many(l.t, l.jvm, p, l.topicOf("dead"), fmt.Sprintf("poison%d-", l.turn), 2)
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
	c := l.push("dead", args{"failures": 99, "maxReconsume": 1})
	l.await("dead", c, bodies)
	l.letters += len(bodies)
	l.awaitLetters()
	run(l.t, l.jvm, "push.stop", args{"handle": c})
	l.count["dead letters"] += len(bodies)
}

func (l *ledger) awaitLetters() {
	l.t.Helper()
	eventually(l.t, 30*time.Second, func() error {
		if end := l.end("%DLQ%"+l.group("dead"), 0); end < int64(l.letters) {
			return fmt.Errorf("%d dead letters of %d", end, l.letters)
		}
		return nil
	})
}

// end is the end of a queue.
func (l *ledger) end(topic string, queueID int) int64 {
	const getMaxOffset = 30
	a := rawCall(l.t, l.at, getMaxOffset, map[string]string{"topic": topic, "queueId": fmt.Sprint(queueID)}, nil)
	var n int64
	_, _ = fmt.Sscan(a.ExtFields["offset"], &n)
	return n
}

// fillPopped leaves popped messages out, of which a third is acknowledged.
func (l *ledger) fillPopped() {
	p := l.producer("pop", nil)
	many(l.t, l.jvm, p, l.topicOf("pop"), fmt.Sprintf("popped%d-", l.turn), 9)
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
	seen := 0
	eventually(l.t, 30*time.Second, func() error {
		list, receipts := rawPop(l.t, l.at, l.topicOf("pop"), l.group("pop"), 5*time.Second, time.Second)
		for i, m := range list {
			if seen++; seen%3 == 0 {
				rawAck(l.t, l.at, receipts[i])
				l.acked = append(l.acked, m.Body)
			} else {
				l.popped = append(l.popped, m.Body)
			}
		}
		if seen < 9 {
			return fmt.Errorf("%d of 9 popped", seen)
		}
		return nil
	})
	l.count["popped"] += seen
}

// drainPopped pops and acknowledges until all that was out has come again. What was acknowledged does
// not come, unless Apache's broker was killed, which keeps acknowledgements in memory for a while
// (PopBufferMergeService): that is counted.
func (l *ledger) drainPopped() {
	l.t.Helper()
	var got []string
	eventually(l.t, 60*time.Second, func() error {
		list, receipts := rawPop(l.t, l.at, l.topicOf("pop"), l.group("pop"), time.Minute, 2*time.Second)
		for _, m := range list {
			switch {
			case !slices.Contains(l.acked, m.Body):
				got = append(got, m.Body)
			case l.theirsKilled():
				l.again["pop"]++
			default:
				l.t.Fatalf("%s came, which was acknowledged", m.Body)
			}
		}
		rawAck(l.t, l.at, receipts...)
		return sameSet(got, l.popped)
	})
	l.popped, l.acked = nil, append(l.acked, got...)
}

// theirsKilled tells whether one of Apache's brokers was killed in an earlier turn. What comes again for
// that may take a minute, and so more than one turn.
func (l *ledger) theirsKilled() bool {
	return slices.ContainsFunc(l.turns[:l.turn], func(h hand) bool { return h.kill && h.name != skylarkHolder.name })
}

// fillPositions moves a group's position, and has an operator move another one's.
func (l *ledger) fillPositions() {
	l.offset += 3
	storeOffset(l.t, l.at, l.topicOf("plain"), l.group("plain"), 0, l.offset)
	l.reset = l.offset * 2
	if !l.newest {
		storeOffset(l.t, l.at, l.topicOf("plain"), l.group("reset"), 0, l.reset)
		return
	}
	storeOffset(l.t, l.at, l.topicOf("plain"), l.group("reset"), 0, 1)
	admin := open(l.t, l.jvm, "admin", args{"namesrv": l.at.NameServer})
	run(l.t, l.jvm, "admin.resetQueue", args{
		"handle": admin, "address": l.at.Broker, "group": l.group("reset"), "topic": l.topicOf("plain"), "queueId": 0,
		"offset": l.reset,
	})
	run(l.t, l.jvm, "admin.stop", args{"handle": admin})
}

// fillTransactions leaves some half messages undecided.
func (l *ledger) fillTransactions() {
	p := l.transactional()
	l.tx = append(l.tx, l.transact(p, "commit", "commit", "rollback")...)
	l.transact(p, "rollback", "rollback", "rollback")
	l.awaitTransactions() // ends are one-way: they may be on their way still
	undecided := l.transact(p, "unknown", "unknown", "commit")
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
	l.tx = append(l.tx, undecided...)
}

// transact sends half messages whose local transactions and checks end as said.
func (l *ledger) transact(p, prefix, local, check string) []string {
	l.t.Helper()
	var bodies []string
	for _, s := range must[[]sent](l.t, l.jvm, "producer.transactions", args{
		"handle": p, "topic": l.topicOf("tx"), "prefix": fmt.Sprintf("%s%d-", prefix, l.turn), "count": 3,
		"properties": args{"local": local, "check": check},
	}) {
		if s.Status != "SEND_OK" {
			l.t.Fatalf("half message: %+v", s)
		}
		bodies = append(bodies, s.Body)
	}
	l.count["half messages"] += len(bodies)
	return bodies
}

// transactional starts the one group of producers that can be asked.
func (l *ledger) transactional() string {
	p := l.producer("tx", args{"transactional": true})
	// The client tells a broker of its group only when it knows a route to it.
	must[sent](l.t, l.jvm, "producer.send", args{"handle": p, "topic": "KNOWN", "body": "here"})
	return p
}

func (l *ledger) awaitTransactions() {
	l.t.Helper()
	eventually(l.t, 60*time.Second, func() error { return l.exactly("tx", l.tx) })
}

// push starts the consumer of a kind's group and topic.
func (l *ledger) push(kind string, extra args) string {
	a := args{
		"namesrv": l.at.NameServer, "group": l.group(kind), "topic": l.topicOf(kind),
		"instance": fmt.Sprint("C_", l.topicOf(kind), l.turn, len(extra)),
	}
	for k, v := range extra {
		a[k] = v
	}
	return open(l.t, l.jvm, "push", a)
}

// await waits until a consumer of a kind's topic has had all of these.
func (l *ledger) await(kind, consumer string, want []string) {
	l.t.Helper()
	err := repeat(60*time.Second, func() error {
		got := distinct(bodies(awaitPush(l.t, l.jvm, consumer, len(want), 500)))
		for _, body := range want {
			if !slices.Contains(got, body) {
				return fmt.Errorf("%s did not come, but %v", body, got)
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatalf("%v\n%s", err, l.places(kind, consumer, want))
	}
}

// places says where copies of a group's messages lie, what positions it has and which queues its
// consumer: whether a message that does not come is lost, waits, or was passed over.
func (l *ledger) places(kind, consumer string, want []string) string {
	var text strings.Builder
	group := l.group(kind)
	topics := map[string][]int{
		l.topicOf(kind): {0}, "%RETRY%" + group: {0}, "%DLQ%" + group: {0},
		"SCHEDULE_TOPIC_XXXX": {0, 1, 2, 3, 4},
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		for _, q := range topics[topic] {
			end := l.end(topic, q)
			fmt.Fprintf(&text, "%s/%d ends at %d, the group is at %d:", topic, q, end,
				storedOffset(l.t, l.at, topic, group, q))
			var held []received
			if end > 0 {
				held = pullAll(l.t, l.at, topic, q)
			}
			for _, m := range held {
				if slices.Contains(want, m.Body) {
					fmt.Fprintf(&text, " %d %s, try %d;", m.QueueOffset, m.Body, m.ReconsumeTimes)
				}
			}
			text.WriteByte('\n')
		}
	}
	var queues []queue
	err := l.jvm.do("push.queues", args{"handle": consumer}, &queues)
	fmt.Fprintf(&text, "the consumer has %v %v", queues, err)
	return text.String()
}

// check finds everything that the turns before this one left.
func (l *ledger) check() {
	l.t.Helper()
	if l.turn == 0 {
		return
	}
	l.checkPlaced()
	l.checkPositions()
	for _, key := range []string{fmt.Sprintf("zip%d.3", l.turn-1), fmt.Sprintf("a%d", l.turn-1), "zip0.4"} {
		l.checkKey(key)
	}
	p := l.transactional() // is asked about what is undecided
	c := l.push("retry", nil)
	l.await("retry", c, l.refused)
	l.refused = nil
	run(l.t, l.jvm, "push.stop", args{"handle": c})
	l.awaitLetters()
	if l.timers {
		l.drainPopped()
	}
	l.awaitTransactions()
	run(l.t, l.jvm, "producer.stop", args{"handle": p})
	l.checkLater()
}

// checkPlaced reads the first topic as a client does: every message at its place, and no other.
func (l *ledger) checkPlaced() {
	l.t.Helper()
	found, faults := 0, 0
	for q := range 2 {
		for i, m := range pullAll(l.t, l.at, l.topicOf("plain"), q) {
			place := fmt.Sprint(q, " ", i)
			if m.QueueOffset == int64(i) && l.placed[place] == m.BodySHA256 {
				found++
			} else if faults++; faults < 5 {
				l.t.Errorf("queue and offset %s: offset %d, %.80q of %d bytes", place, m.QueueOffset, m.Body, m.BodySize)
			}
		}
	}
	if found != len(l.placed) {
		l.t.Errorf("%d messages are in their places, %d were acknowledged", found, len(l.placed))
	}
}

// checkPositions compares the positions of groups. A kill may cost ours what was committed in the last 5 s,
// and theirs as well; an operator's change is no different there.
func (l *ledger) checkPositions() {
	l.t.Helper()
	for kind, want := range map[string]int64{"plain": l.offset, "reset": l.reset} {
		got := storedOffset(l.t, l.at, l.topicOf("plain"), l.group(kind), 0)
		if got != want && (!l.killed || got > want) {
			l.t.Errorf("group %s is at %d, want %d", kind, got, want)
		}
	}
}

func (l *ledger) checkKey(key string) {
	l.t.Helper()
	admin := open(l.t, l.jvm, "admin", args{"namesrv": l.at.NameServer})
	eventually(l.t, 20*time.Second, func() error {
		var f found
		err := l.jvm.do("admin.byKey", args{"handle": admin, "topic": l.topicOf("plain"), "key": key}, &f)
		if err == nil && len(f.Messages) != 1 {
			err = fmt.Errorf("%d messages", len(f.Messages))
		}
		if err != nil {
			err = fmt.Errorf("key %s: %w", key, err)
		}
		return err
	})
	run(l.t, l.jvm, "admin.stop", args{"handle": admin})
}

// checkLater waits for what was due in the last turn and in this one.
func (l *ledger) checkLater() {
	l.t.Helper()
	l.later = append(l.later, l.pending...)
	l.pending = nil
	eventually(l.t, 60*time.Second, func() error { return l.exactly("later", l.later) })
}

// exactly compares a topic of one queue with what has to be there. What a broker delivered and did not
// note before it was killed may be there twice. So may what Apache's broker committed, which it notes 3 s
// later: a check that comes before that, there or in the next turn, has it committed again. What Skylark
// committed is there once, whoever looks at its op records. The others are counted.
func (l *ledger) exactly(kind string, want []string) error {
	got := bodies(pullAll(l.t, l.at, l.topicOf(kind), 0))
	if err := sameSet(got, want); err != nil {
		return fmt.Errorf("topic %s: %w", kind, err)
	}
	times := map[string]int{}
	for _, body := range got {
		times[body]++
	}
	for body, n := range times {
		if n > 1 && (kind == "later" && !l.everKilled || l.byUs(body)) {
			return fmt.Errorf("topic %s: %s is there %d times", kind, body, n)
		}
	}
	l.again[kind] = len(got) - len(want)
	return nil
}

// byUs tells whether a message is of a transaction that Skylark committed.
func (l *ledger) byUs(body string) bool {
	var turn int
	_, err := fmt.Sscanf(body, "commit%d-", &turn)
	return err == nil && l.turns[turn].name == skylarkHolder.name
}
