// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/storage/record"
)

// soonChecked makes a broker ask producers soon.
var soonChecked = map[string]string{"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}

func transactional(t *testing.T, at target, extra args) string {
	t.Helper()
	a := args{"transactional": true, "group": name(t, "PG_TX"), "instance": name(t, "TX")}
	for k, v := range extra {
		a[k] = v
	}
	p := producer(t, java(t), at, a)
	// The client tells a broker of its group only when it knows a route to it.
	must[sent](t, java(t), "producer.send", args{"handle": p, "topic": name(t, "KNOWN"), "body": "here"})
	return p
}

// transact sends count half messages "prefix0", ... whose local transactions and checks end as said.
func transact(t *testing.T, p, topic, prefix string, count int, local, check string) []string {
	t.Helper()
	sends := must[[]sent](t, java(t), "producer.transactions", args{
		"handle": p, "topic": topic, "prefix": prefix, "count": count, "tags": "TagT",
		"properties": args{"local": local, "check": check},
	})
	var out []string
	for _, s := range sends {
		if s.Status != "SEND_OK" || s.TransactionID != s.MsgID {
			t.Fatalf("%+v", s)
		}
		out = append(out, s.Body)
	}
	return out
}

// stored reads all queues of a topic.
func stored(t *testing.T, at target, topic string, queues int) []received {
	t.Helper()
	var out []received
	for q := range queues {
		out = append(out, pullAll(t, at, topic, q)...)
	}
	return out
}

// awaitStored waits until exactly the wanted bodies are in a topic, and fails when others are. Apache's
// broker may have some of them twice.
func awaitStored(t *testing.T, at target, topic string, queues int, want []string) []received {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	var got []received
	eventually(t, 40*time.Second, func() error {
		got = stored(t, at, topic, queues)
		have := bodies(got)
		slices.Sort(have)
		if *against == "apache" {
			have = slices.Compact(have)
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("stored %v, want %v", have, want)
		}
		return nil
	})
	return got
}

// A transaction producer of the real client: commit, rollback, and what it does not know at first.
func TestJavaTransactions(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	at := fresh(t, soonChecked)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "expression": "TagT"})
	p := transactional(t, at, nil)
	want := transact(t, p, topic, "committed", 5, "commit", "commit")
	transact(t, p, topic, "rolledback", 5, "rollback", "rollback")
	want = append(want, transact(t, p, topic, "unknown", 5, "unknown", "commit")...)
	transact(t, p, topic, "throws", 5, "throw", "rollback")
	var got []received
	eventually(t, 40*time.Second, func() error {
		got = awaitPush(t, jvm, c, 0, 1)
		return sameSet(bodies(got), want)
	})
	m := got[0]
	if m.SysFlag&0xc != 8 || m.Properties["TRAN_MSG"] != "true" || m.Properties["PGROUP"] != name(t, "PG_TX") ||
		m.Properties["__transactionId__"] != m.MsgID || m.Properties["REAL_TOPIC"] != "" || m.Tags != "TagT" {
		t.Errorf("consumed %+v", m)
	}
	checks := must[[]received](t, jvm, "producer.checks", args{"handle": p})
	for _, check := range checks {
		if check.Topic != topic || check.Properties["TRANSACTION_CHECK_TIMES"] == "" {
			t.Errorf("checked %+v", check)
		}
	}
	if *against != "skylark" {
		return // an op record that is not written yet lets Apache's broker check and deliver once more
	}
	eventually(t, 10*time.Second, func() error {
		checks = must[[]received](t, jvm, "producer.checks", args{"handle": p})
		if len(checks) != 10 {
			return fmt.Errorf("%d checks, want 10: each is asked about once", len(checks))
		}
		return nil
	})
	awaitStored(t, at, topic, 2, want)
}

// Any member of the group is asked, since the one that sent may be gone; what nobody can decide is given
// up after transactionCheckMax checks.
func TestJavaTransactionGroup(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	at := fresh(t, map[string]string{
		"transactionTimeOut": "5000", "transactionCheckInterval": "2000", "transactionCheckMax": "2",
	})
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	gone := transactional(t, at, nil)
	want := transact(t, gone, topic, "orphan", 3, "unknown", "commit")
	run(t, jvm, "producer.stop", args{"handle": gone})
	other := transactional(t, at, args{"instance": name(t, "other")})
	awaitStored(t, at, topic, 1, want)
	transact(t, other, topic, "undecided", 2, "unknown", "unknown")
	waitForRoute(t, at.NameServer, "TRANS_CHECK_MAX_TIME_TOPIC")
	given := awaitStored(t, at, "TRANS_CHECK_MAX_TIME_TOPIC", 1, numbered("undecided", 2))
	if m := given[0]; m.Properties["REAL_TOPIC"] != topic || m.Properties["TRANSACTION_CHECK_TIMES"] != "2" {
		t.Errorf("given up: %+v", m)
	}
	awaitStored(t, at, topic, 1, want)
}

// The same with Apache's Go client, whose ends have no topic and are no one-way requests.
func TestGoTransactions(t *testing.T) {
	t.Parallel()
	client := golang(t)
	at := fresh(t, soonChecked)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := open(t, client, "transactional", args{
		"namesrv": at.NameServer, "group": name(t, "PG_TX"), "instance": name(t, "TX"),
	})
	var want []string
	for _, c := range []struct {
		local, check string
		delivered    bool
	}{
		{"commit", "commit", true},
		{"rollback", "rollback", false},
		{"unknown", "commit", true},
		{"unknown", "rollback", false},
	} {
		body := c.local + c.check
		must[sent](t, client, "transactional.send", args{
			"handle": p, "topic": topic, "body": body, "properties": args{"local": c.local, "check": c.check},
		})
		if c.delivered {
			want = append(want, body)
		}
	}
	if *against == "skylark" {
		awaitStored(t, at, topic, 1, want)
		return
	}
	eventually(t, 30*time.Second, func() error { return sameSet(bodies(stored(t, at, topic, 1)), want) })
}

// A store with undecided half messages goes from our broker to Apache's and back. Each carries on with
// what the other left: every message that is committed arrives, and none twice.
func TestTransactionsMoveBetweenBrokers(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic := scratch(t), name(t, "T")
	long := map[string]string{"transactionTimeOut": "600000"}
	ours, process := startServer(t, dir, long)
	createTopic(t, ours, topic, 1)
	p := transactional(t, ours, nil)
	want := transact(t, p, topic, "ours-committed", 4, "commit", "rollback")
	transact(t, p, topic, "ours-rolledback", 4, "rollback", "commit")
	left := transact(t, p, topic, "ours-unknown", 4, "unknown", "commit")
	awaitStored(t, ours, topic, 1, want)
	run(t, jvm, "producer.stop", args{"handle": p})
	if err := process.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, process.output())
	}

	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": soonChecked,
	})
	waitForRoute(t, theirs.NameServer, topic)
	p = transactional(t, theirs, nil)
	want = append(want, left...)
	eventually(t, 40*time.Second, func() error {
		err := sameSet(bodies(stored(t, theirs, topic, 1)), want)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, transactionState(t, theirs, name(t, "PG_TX")))
		}
		return err
	})
	run(t, jvm, "broker.stop", args{"handle": broker})

	// Once more, to leave something undecided there.
	broker = open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": long,
	})
	waitForRoute(t, theirs.NameServer, topic)
	count := len(stored(t, theirs, topic, 1))
	committed := transact(t, p, topic, "theirs-committed", 4, "commit", "rollback")
	transact(t, p, topic, "theirs-rolledback", 4, "rollback", "rollback")
	left = transact(t, p, topic, "theirs-unknown", 4, "unknown", "commit")
	want = append(want, committed...)
	eventually(t, 20*time.Second, func() error { return sameSet(bodies(stored(t, theirs, topic, 1)), want) })
	run(t, jvm, "producer.stop", args{"handle": p})
	run(t, jvm, "broker.stop", args{"handle": broker})

	again, process := startServer(t, dir, soonChecked)
	waitForRoute(t, again.NameServer, topic)
	transactional(t, again, nil)
	want = append(want, left...)
	var got []received
	eventually(t, 40*time.Second, func() error {
		got = stored(t, again, topic, 1)
		return sameSet(bodies(got), want)
	})
	if len(got) != count+len(committed)+len(left) {
		t.Errorf("%d messages, want %d: some came twice\n%v\n%s", len(got), count+len(committed)+len(left),
			bodies(got), process.output())
	}
}

// transactionState tells where a broker is with its half messages.
func transactionState(t *testing.T, at target, group string) string {
	t.Helper()
	const half, op, checker = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
	c, err := dialRaw(at.Broker)
	if err != nil {
		return err.Error()
	}
	defer c.close()
	ask := func(code int, fields map[string]string) string {
		a, err := c.call(code, fields, nil, 5*time.Second)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(a.Code, " ", a.Remark, a.ExtFields, string(a.Body))
	}
	const maxOffset, producers = 30, 204
	return fmt.Sprintf("half %d of %s, op %d of %s, given up %s, producers %s",
		storedOffset(t, at, half, checker, 0), ask(maxOffset, map[string]string{"topic": half, "queueId": "0"}),
		storedOffset(t, at, op, checker, 0), ask(maxOffset, map[string]string{"topic": op, "queueId": "0"}),
		ask(maxOffset, map[string]string{"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "queueId": "0"}),
		ask(producers, map[string]string{"producerGroup": group}))
}

// Our broker is killed between the half messages of the real client and their ends: after its start the
// client is asked, and each message that it commits is delivered once.
func TestTransactionsSurviveKill(t *testing.T) {
	t.Parallel()
	dir, topic := scratch(t), name(t, "T")
	at, process := startServer(t, dir, soonChecked)
	createTopic(t, at, topic, 1)
	p := transactional(t, at, nil)
	var want []string
	for round := range 3 {
		want = append(want, transact(t, p, topic, fmt.Sprint("committed", round, "-"), 20, "commit", "rollback")...)
		transact(t, p, topic, fmt.Sprint("rolledback", round, "-"), 20, "rollback", "commit")
		want = append(want, transact(t, p, topic, fmt.Sprint("unknown", round, "-"), 20, "unknown", "commit")...)
		awaitMost(t, at, topic, len(want)-20)
		_ = process.cmd.Process.Kill()
		<-process.done
		process = at.start(t, skylark(t), soonChecked)
		eventually(t, 30*time.Second, func() error { // the client finds its broker again
			err := java(t).do("producer.send", args{"handle": p, "topic": "Probe", "body": "x"}, nil)
			var refused *driverError
			if errors.As(err, &refused) {
				return err
			}
			return err
		})
	}
	defer func() { _ = process.stop() }()
	awaitStored(t, at, topic, 1, want)
}

// awaitMost waits until a number of messages is there: ends are one-way, so they may be on their way.
func awaitMost(t *testing.T, at target, topic string, count int) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		if n := len(pullAll(t, at, topic, 0)); n < count {
			return fmt.Errorf("%d messages, want %d", n, count)
		}
		return nil
	})
}

// A request is answered on the connection of the client that made it.
func TestJavaRequestReply(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	c := open(t, jvm, "push", args{
		"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic, "reply": "re: ",
	})
	p := producer(t, jvm, at, nil)
	for i := range 5 {
		body := fmt.Sprint("question", i)
		got := must[received](t, jvm, "producer.request", args{"handle": p, "topic": topic, "body": body, "ttlMs": 15_000})
		if got.Body != "re: "+body || got.Properties["CORRELATION_ID"] == "" || got.Properties["PUSH_REPLY_TIME"] == "" ||
			got.Properties["MSG_TYPE"] != "reply" || got.Topic != "DefaultCluster_REPLY_TOPIC" {
			t.Errorf("reply %+v", got)
		}
	}
	run(t, jvm, "push.stop", args{"handle": c})
	var refused *driverError
	err := jvm.do("producer.request", args{"handle": p, "topic": topic, "body": "nobody", "ttlMs": 1000}, nil)
	if !errors.As(err, &refused) || refused.Kind != "RequestTimeoutException" {
		t.Errorf("a request that nobody answers: %v", err)
	}
	if got := stored(t, at, "DefaultCluster_REPLY_TOPIC", 1); len(got) < 5 {
		t.Errorf("%d replies are stored", len(got))
	}
}

// Apache's Go client makes a request; a hand-made consumer answers it with the code that this client uses
// for replies.
func TestGoRequest(t *testing.T) {
	t.Parallel()
	at, client := servers(t), golang(t)
	topic := name(t, "T")
	p := producer(t, client, at, nil)
	must[sent](t, client, "producer.send", args{"handle": p, "topic": topic, "body": "first"}) // makes the topic
	answered := make(chan error, 1)
	go func() { answered <- replyToAll(at, topic) }()
	got := must[received](t, client, "producer.request", args{"handle": p, "topic": topic, "body": "question"})
	if got.Body != "re: question" {
		t.Errorf("reply %+v", got)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// replyToAll pulls the queues of a topic until a request comes, and answers that.
func replyToAll(at target, topic string) error {
	c, err := dialRaw(at.Broker)
	if err != nil {
		return err
	}
	defer c.close()
	const pullMessage, sendReply = 11, 324
	return repeat(20*time.Second, func() error {
		for q := range 4 {
			a, err := c.call(pullMessage, map[string]string{
				"consumerGroup": "CG_" + topic, "topic": topic, "queueId": fmt.Sprint(q), "queueOffset": "0",
				"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
				"subscription": "*", "subVersion": "0",
			}, nil, 5*time.Second)
			if err != nil {
				return err
			}
			for body := a.Body; len(body) > 0; {
				v, err := record.Parse(body)
				if err != nil {
					return err
				}
				body = body[v.TotalSize():]
				to, ok := record.Property(v.Properties(), "REPLY_TO_CLIENT")
				if !ok {
					continue
				}
				id, _ := record.Property(v.Properties(), "CORRELATION_ID")
				props := record.AppendProperty(nil, "REPLY_TO_CLIENT", to)
				props = record.AppendProperty(props, "CORRELATION_ID", id)
				props = record.AppendProperty(props, "MSG_TYPE", "reply")
				a, err := c.call(sendReply, map[string]string{
					"producerGroup": "PG", "topic": "DefaultCluster_REPLY_TOPIC", "defaultTopic": "TBW102",
					"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "flag": "0",
					"bornTimestamp": fmt.Sprint(time.Now().UnixMilli()), "properties": string(props),
					"reconsumeTimes": "0", "unitMode": "false",
				}, append([]byte("re: "), v.Body()...), 15*time.Second)
				if err != nil {
					return err
				}
				if a.Code != 0 {
					return fmt.Errorf("reply to %s: code %d, %s", to, a.Code, a.Remark)
				}
				return nil
			}
		}
		return errors.New("no request")
	})
}

// Our client's transactions against our broker, which is killed in the middle: what was committed, and what
// the checker commits, is there once; nothing else is.
func TestOurClientTransactions(t *testing.T) {
	t.Parallel()
	dir, topic := scratch(t), name(t, "T")
	at, process := startServer(t, dir, soonChecked)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	commits := func(body []byte) bool { return strings.HasPrefix(string(body), "commit") }
	p, err := c.NewTransactionProducer(name(t, "PG"), func(_ context.Context, m *client.Received) client.TxState {
		if commits(m.Body) {
			return client.TxCommitted
		}
		return client.TxRolledBack
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	refused := errors.New("refused")
	for i := range 150 {
		if i == 50 || i == 100 {
			_ = process.cmd.Process.Kill()
			<-process.done
			process = at.start(t, skylark(t), soonChecked)
		}
		body := fmt.Sprint([]string{"commit", "refuse", "commit-forgotten"}[i%3], i)
		m := &client.Message{Topic: topic, Body: []byte(body)}
		eventually(t, 30*time.Second, func() error {
			if i%3 == 2 {
				_, err := p.Begin(ctx, m) // nobody ends it
				return err
			}
			r, err := p.Transact(ctx, m, func(context.Context, *client.Tx) error {
				if commits(m.Body) {
					return nil
				}
				return refused
			})
			if r.ID != "" || errors.Is(err, refused) {
				return nil // it is stored; if its end was not heard, the checker is asked
			}
			return err
		})
		if commits(m.Body) {
			want = append(want, body)
		}
	}
	defer func() { _ = process.stop() }()
	r, err := c.NewReader("", client.WithSubscription(topic, client.All()), client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(ctx)
	got := map[string]int{}
	read := func(ctx context.Context) error {
		ms, err := r.Poll(ctx, 32)
		for _, m := range ms {
			got[string(m.Body)]++
		}
		return err
	}
	for len(got) < len(want) {
		if err := read(ctx); err != nil {
			t.Fatalf("after %d of %d messages: %v", len(got), len(want), err)
		}
	}
	quiet, done := context.WithTimeout(ctx, 3*time.Second)
	defer done()
	for err := error(nil); err == nil; { // nothing comes after the last
		err = read(quiet)
	}
	for _, body := range want {
		if got[body] != 1 {
			t.Errorf("%s came %d times", body, got[body])
		}
		delete(got, body)
	}
	if len(got) > 0 {
		t.Errorf("not committed, and delivered: %v", got)
	}
}
