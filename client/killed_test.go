// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// The tests of this file kill the broker in the middle of something, and count every message that it
// had acknowledged once it is back: none may be missing, whatever it was waiting for.

// killable is a cluster of one broker with a topic t of two queues, and a client of it.
type killable struct {
	*clienttest.Cluster
	t *testing.T
	c *client.Client
	p *client.Producer
}

func newKillable(t *testing.T, conf ...string) *killable {
	t.Helper()
	opts := []clienttest.Option{
		clienttest.WithTopic("t", 2), clienttest.WithGroups("g"),
		clienttest.WithBrokerConfig("messageDelayLevel", "1s 1s 1s 1s 1s"),
	}
	for i := 0; i+1 < len(conf); i += 2 {
		opts = append(opts, clienttest.WithBrokerConfig(conf[i], conf[i+1]))
	}
	k := &killable{Cluster: clienttest.Start(t, opts...), t: t}
	k.c = k.Client(t)
	k.p = newProducer(t, k.c)
	return k
}

// kill ends the broker and starts it again.
func (k *killable) kill() {
	k.t.Helper()
	if err := errors.Join(k.Broker(0).Kill(), k.Broker(0).Start()); err != nil {
		k.t.Fatal(err)
	}
}

// send sends n messages that form makes, and returns the bodies of those that were acknowledged.
func (k *killable) send(n int, form func(i int) *client.Message) (bodies []string) {
	k.t.Helper()
	for i := range n {
		m := form(i)
		if _, err := k.p.Send(within(k.t), m); err != nil {
			k.t.Fatal(err)
		}
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

func numberedText(i int) *client.Message { return text(fmt.Sprint(i)) }

func await(t *testing.T, want []string, box *inbox) {
	t.Helper()
	eventually(t, fmt.Sprintf("all of %d messages", len(want)), func() bool { return covers(want, box) })
}

// What failed, or was to be retried, comes again after a death, and what was given up is a dead
// letter.
func TestCrashRetries(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	want := k.send(40, numberedText)
	first, again := newInbox(), newInbox()
	running := consume(t, k.c, "g", func(_ context.Context, m *client.Received) error {
		switch {
		case strings.HasSuffix(string(m.Body), "7"):
			first.add(m)
			return client.DeadLetter(errors.New("never"))
		case m.Attempt == 1:
			first.add(m)
			return client.RetryAfter(time.Second, errors.New("later"))
		}
		again.add(m)
		return nil
	}, all("t"), fromFirst(), client.WithSendBackTimeout(time.Second))
	await(t, want[:20], first)
	k.kill()
	dead := func(body string) bool { return strings.HasSuffix(body, "7") }
	await(t, slices.DeleteFunc(slices.Clone(want), dead), again)
	running.stop()
	var letters []string
	for l, err := range admin.New(k.c).DeadLetters(within(t), admin.DeadLetterQuery{Group: "g"}) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, string(l.Body))
	}
	for _, body := range want {
		if dead(body) != slices.Contains(letters, body) {
			t.Errorf("message %s, dead letters %v", body, letters)
		}
	}
}

// Delayed messages and timers come after a death, not before their time, and a recalled one does not.
func TestCrashDelays(t *testing.T) {
	t.Parallel()
	k := newKillable(t, "recallMessageEnable", "true")
	due := map[string]time.Time{}
	want := k.send(40, func(i int) *client.Message {
		m := numberedText(i)
		due[fmt.Sprint(i)] = time.Now().Add(time.Second)
		if i%2 == 0 {
			m.DelayLevel = 1
		} else {
			m.DeliverAt = due[fmt.Sprint(i)]
		}
		return m
	})
	gone := text("gone")
	gone.Delay = time.Second
	res, err := k.p.Send(within(t), gone)
	if err == nil {
		_, err = k.p.Recall(within(t), "t", res.RecallHandle)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.kill()
	box := newInbox()
	running := consume(t, k.c, "g", box.handle, all("t"), fromFirst())
	await(t, want, box)
	running.stop()
	for _, m := range box.await(t, len(want)) {
		at, ok := due[string(m.Body)]
		if !ok || m.StoredAt.Before(at.Truncate(time.Millisecond)) {
			t.Errorf("message %q is there since %v, due at %v", m.Body, m.StoredAt, at)
		}
	}
}

// Half messages that were not ended are asked about after a death, each committed one comes once, and
// no other.
func TestCrashTransactionsAsked(t *testing.T) {
	t.Parallel()
	k := newKillable(t, "transactionTimeOut", "500", "transactionCheckInterval", "500")
	tp, err := k.c.NewTransactionProducer("tx", func(_ context.Context, m *client.Received) client.TxState {
		if strings.HasPrefix(string(m.Body), "yes") {
			return client.TxCommitted
		}
		return client.TxRolledBack
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 30 {
		body := fmt.Sprint([]string{"yes", "no", "yes-ended", "no-ended"}[i%4], i)
		tx, err := tp.Begin(within(t), text(body))
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 2:
			err = tx.Commit(within(t))
		case 3:
			err = tx.Rollback(within(t))
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(body, "yes") {
			want = append(want, body)
		}
	}
	k.kill()
	box := newInbox()
	running := consume(t, k.c, "g", box.handle, all("t"), fromFirst())
	await(t, want, box)
	running.stop()
	got := box.bodies()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("consumed %v, want each of %v once", got, want)
	}
}

// Each key keeps its order over a death: a stretch may come again, in order.
func TestCrashOrder(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	const keys = 4
	keyed := func(from int) func(i int) *client.Message {
		return func(i int) *client.Message {
			m := text(fmt.Sprintf("%d-%03d", i%keys, from+i/keys))
			m.OrderingKey = fmt.Sprint(i % keys)
			return m
		}
	}
	want := k.send(30*keys, keyed(0))
	box := newInbox()
	running := consume(t, k.c, "g", box.handle, all("t"), fromFirst(), client.WithOrdered(true),
		client.WithLockEvery(100*time.Millisecond), client.WithCommitEvery(50*time.Millisecond))
	await(t, want[:40], box)
	k.kill()
	want = append(want, k.send(30*keys, keyed(30))...)
	await(t, want, box)
	running.stop()
	for key := range keys {
		highest := ""
		seen := map[string]bool{}
		for _, body := range box.bodies() {
			if !strings.HasPrefix(body, fmt.Sprint(key, "-")) {
				continue
			}
			if !seen[body] && body < highest {
				t.Errorf("key %d: %s came for the first time after %s", key, body, highest)
			}
			seen[body], highest = true, max(highest, body)
		}
	}
}

// A filter is the broker's again once its members are back: what does not pass comes neither before
// nor after a death, and what passes comes.
func TestCrashFilter(t *testing.T) {
	t.Parallel()
	k := newKillable(t, "enablePropertyFilter", "true")
	priced := func(from int) func(i int) *client.Message {
		return func(i int) *client.Message {
			m := text(fmt.Sprint(from + i))
			m.Properties = map[string]string{"price": fmt.Sprint((from + i) % 10)}
			return m
		}
	}
	passes := func(all []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(body string) bool {
			return body[len(body)-1] < '7'
		})
	}
	want := passes(k.send(50, priced(0)))
	box := newInbox()
	running := consume(t, k.c, "g", box.handle, fromFirst(),
		client.WithSubscription("t", client.SQL("price BETWEEN 7 AND 9")))
	await(t, want, box)
	k.kill()
	want = append(want, passes(k.send(50, priced(50)))...)
	await(t, want, box)
	running.stop()
	for _, body := range box.bodies() {
		if !slices.Contains(want, body) {
			t.Errorf("%s does not pass the filter", body)
		}
	}
}

// Batches and compressed bodies that were acknowledged are there after a death, unchanged, and can be
// found by id and by key.
func TestCrashBatchesAndQueries(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	var want []string
	var ids []string
	for i := range 10 {
		var batch []*client.Message
		for j := range 5 {
			m := text(fmt.Sprint(i, "/", j))
			m.Keys = []string{fmt.Sprint("key", i, "-", j)}
			batch = append(batch, m)
			want = append(want, string(m.Body))
		}
		results, errs := k.p.SendBatch(within(t), batch...)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, results[4].ID)
	}
	long := strings.Repeat("compressible ", 2000)
	want = append(want, k.send(1, func(int) *client.Message { return text(long) })...)
	k.kill()
	box := newInbox()
	running := consume(t, k.c, "g", box.handle, all("t"), fromFirst())
	await(t, want, box)
	running.stop()
	a := admin.New(k.c)
	for i, id := range ids {
		body := fmt.Sprint(i, "/4")
		eventually(t, "message "+body+" is found", func() bool {
			byID, err := a.MessageByID(within(t), "t", id)
			byKey, kerr := a.MessagesByKey(within(t), "t", fmt.Sprint("key", i, "-4"), admin.KeyQuery{})
			return err == nil && kerr == nil && string(byID.Body) == body && len(byKey) == 1 &&
				string(byKey[0].Body) == body
		})
	}
}

// A request that a death interrupts fails, or is answered once the broker is back; the next one is
// answered. Nobody hangs.
func TestCrashRequest(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	running := consume(t, k.c, "g", func(ctx context.Context, m *client.Received) error {
		return k.p.Reply(ctx, m, append([]byte("re "), m.Body...))
	}, all("t"), fromFirst())
	ask := func(body string) error {
		ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
		defer cancel()
		answer, err := k.p.Request(ctx, text(body))
		if err == nil && string(answer.Body) != "re "+body {
			t.Errorf("%s was answered with %q", body, answer.Body)
		}
		return err
	}
	eventually(t, "a request is answered", func() bool { return ask("before") == nil })
	interrupted := make(chan error, 1)
	go func() { interrupted <- ask("meanwhile") }()
	k.kill()
	<-interrupted
	eventually(t, "a request is answered again", func() bool { return ask("after") == nil })
	running.stop()
}

// A member of a broadcasting group goes on behind what it has handled, and every member gets all.
func TestCrashBroadcast(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	store := client.NewFileOffsets(t.TempDir())
	member := func(box *inbox) *consuming {
		return consume(t, k.c, "everyone", box.handle, all("t"), fromFirst(),
			client.WithBroadcast("member", store), client.WithCommitEvery(20*time.Millisecond))
	}
	want := k.send(40, numberedText)
	box := newInbox()
	running := member(box)
	await(t, want, box)
	k.kill()
	later := k.send(10, func(i int) *client.Message { return text(fmt.Sprint("later", i)) })
	await(t, later, box)
	running.stop()
	after := newInbox()
	last := k.send(5, func(i int) *client.Message { return text(fmt.Sprint("last", i)) })
	running = member(after)
	await(t, last, after)
	running.stop()
	if n := after.count(); n != len(last) {
		t.Errorf("the member began with %d messages, want the %d new ones: %v", n, len(last), after.bodies())
	}
}

// What was popped and not acknowledged comes again after a death; what was acknowledged does not.
func TestCrashPopConsumer(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	want := k.send(60, numberedText)
	box := newInbox()
	hold := make(chan struct{})
	running := consume(t, k.c, "g", func(ctx context.Context, m *client.Received) error {
		box.add(m)
		if box.count() > 20 { // those that are in hand when the broker dies
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}, all("t"), fromFirst(), client.WithPop(5*time.Second), client.WithConcurrency(8))
	box.await(t, 24)
	k.kill()
	close(hold)
	await(t, want, box)
	running.stop()
}

// A reset that was answered counts after a death.
func TestCrashReset(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	want := k.send(20, numberedText)
	box := newInbox()
	running := consume(t, k.c, "g", box.handle, all("t"), fromFirst())
	await(t, want, box)
	running.stop()
	_, err := admin.New(k.c).ResetOffsets(within(t), admin.Reset{Group: "g", Topic: "t", To: admin.AtStart()})
	if err != nil {
		t.Fatal(err)
	}
	k.kill()
	again := newInbox()
	running = consume(t, k.c, "g", again.handle, all("t"))
	await(t, want, again)
	running.stop()
}

// The trace of what was acknowledged is there after a death: what was stored before, what waited in the
// client meanwhile, and what came after it, each once.
func TestCrashTrace(t *testing.T) {
	t.Parallel()
	k := newKillable(t, "traceTopicEnable", "true")
	var err error
	if k.p, err = k.c.NewProducer("traced", client.WithTrace("")); err != nil {
		t.Fatal(err)
	}
	r, err := k.c.NewReader("", client.WithSubscription("RMQ_SYS_TRACE_TOPIC", client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{} // by body length of the message, which its trace has
	traced := func(n int) {
		t.Helper()
		for len(times) < n {
			ms, err := r.Poll(within(t), 100)
			if err != nil {
				t.Fatalf("%d of %d messages have a trace: %v", len(times), n, err)
			}
			for _, m := range ms {
				for line := range strings.SplitSeq(strings.TrimSuffix(string(m.Body), "\x02"), "\x02") {
					if f := strings.Split(line, "\x01"); f[0] == "Pub" {
						times[f[9]]++
					}
				}
			}
		}
	}
	long := func(from int) func(i int) *client.Message {
		return func(i int) *client.Message { return text(strings.Repeat("x", from+i)) }
	}
	k.send(25, long(1)) // ten traces go together: five wait
	traced(20)
	k.kill()
	k.send(25, long(26))
	if err := k.p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	traced(50)
	for length, n := range times {
		if n != 1 {
			t.Errorf("the message of %s bytes has %d traces", length, n)
		}
	}
}
