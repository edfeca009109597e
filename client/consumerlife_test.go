// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestFaultNamespaces (933, 945, 947): with a namespace, messages and their redeliveries come, under
// the names that the user knows.
func TestFaultNamespaces(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	c := newClient(t, s.NameServer.Addr, client.WithNamespace("ns"))
	b := s.Brokers[0]
	s.SetTopic("ns%t", 2)
	sendAll(t, c, "t", 0, 10)
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		if string(m.Body) == "4" && m.Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	}, all("t"), fromFirst())
	got := box.await(t, 11)
	running.stop()
	for _, m := range got {
		if m.Topic != "t" {
			t.Errorf("topic %s", m.Topic)
		}
	}
	if m := got[10]; m.Source.Topic != "%RETRY%g" || string(m.Body) != "4" {
		t.Errorf("redelivery %s of %s from %s", m.Body, m.Topic, m.Source)
	}
	if len(b.Records("%RETRY%ns%g", 0)) != 1 || b.Offset("ns%g", "%RETRY%ns%g", 0) != 1 {
		t.Error("the redelivery is not where the group's namespace has it")
	}
}

// TestFaultHangs (496, 897, 904, 1085): queues come and go, topics pause, filters change and handlers
// fail, all at once and for a while; then everything is handled and the end is clean.
func TestFaultHangs(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s, c := cluster(t, 2)
	s.SetTopic("t", 8)
	s.SetTopic("u", 2)
	box := newInbox()
	var calls atomic.Int64
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		switch n := calls.Add(1); {
		case n%17 == 0:
			return errors.New("now and then")
		case n%29 == 0:
			panic("now and then")
		}
		box.add(m)
		return nil
	}, all("t"), fromFirst(), client.WithPrefetch(16, 1<<20), client.WithLocalRetry(time.Millisecond),
		client.WithRebalanceEvery(50*time.Millisecond, time.Millisecond),
		client.WithRevokeTimeout(50*time.Millisecond))
	var want []string
	for i := range 400 {
		body := fmt.Sprint(i)
		want = append(want, body)
		s.Brokers[i%2].Put("t", int32(i%8), 0, []byte(body), nil)
		switch random.IntN(8) {
		case 0:
			s.Brokers[0].AddMember("g", "0-other")
			s.Brokers[1].AddMember("g", "0-other")
		case 1:
			s.Brokers[0].RemoveMember("g", "0-other")
			s.Brokers[1].RemoveMember("g", "0-other")
		case 2:
			running.k.Pause("t")
		case 3:
			running.k.Resume()
		case 4:
			if err := running.k.Subscribe("u", client.Tags(body)); err != nil {
				t.Fatal(err)
			}
		case 5:
			if err := running.k.Unsubscribe("u"); err != nil {
				t.Fatal(err)
			}
		case 6:
			s.Brokers[i%2].Drop()
		}
	}
	for _, b := range s.Brokers {
		for slices.Contains(b.Members("g"), "0-other") {
			b.RemoveMember("g", "0-other")
		}
	}
	running.k.Resume()
	eventually(t, "everything is handled", func() bool { return covers(want, box) })
	running.stop()
}

// TestFaultRestarts (534, 672): a consumer that is closed and made anew under load repeats nothing
// and leaves nothing out.
func TestFaultRestarts(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	c := newClient(t, cluster.NameServer())
	want := sendAll(t, c, "t", 0, 300)
	box := newInbox()
	for box.count() < len(want) {
		running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
			box.add(m)
			return nil
		}, all("t"), fromFirst(), client.WithConcurrency(3), client.WithPrefetch(20, 1<<20))
		box.await(t, min(box.count()+50, len(want)))
		running.stop()
	}
	got := box.bodies()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d deliveries of %d messages", len(got), len(want))
	}
}

// TestFaultBroadcast (977, 1058): every member gets every message, failures included; positions
// advance in a file that survives a restart under the same name, and one of the Java client is
// taken over.
func TestFaultBroadcast(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 10)
	dir := t.TempDir()
	broadcast := client.WithBroadcast("", client.NewFileOffsets(dir))
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		return errors.New("broadcasting has no redelivery")
	}, all("t"), fromFirst(), broadcast)
	box.await(t, 10)
	running.stop()
	b := s.Brokers[0]
	if b.Offset("g", "t", 0) != -1 || b.Count(remoting.ConsumerSendMsgBack) != 0 {
		t.Error("a broadcasting group stored a position at the broker or sent back")
	}
	file := filepath.Join(dir, "g", "offsets.json")
	data, err := os.ReadFile(file)
	if want := `{"offsetTable":{{"brokerName":"broker-0","queueId":0,"topic":"t"}:10}}`; err != nil ||
		string(data) != want {
		t.Errorf("file %s, want %s (%v)", data, want, err)
	}
	fill(t, c, 2)
	second := newInbox()
	running = consume(t, c, "g", second.handle, all("t"), fromFirst(),
		client.WithBroadcast("", client.NewFileOffsets(dir)))
	got := second.await(t, 2) // of two handlers at once
	if first := min(got[0].Offset, got[1].Offset); first != 10 {
		t.Errorf("goes on at %d, want 10", first)
	}
	running.stop()
	// As Java and as the Go client write it; a crash may have left the new file torn.
	for _, text := range []string{
		"{\n\t\"offsetTable\":{{\n\t\t\t\"brokerName\":\"broker-0\",\n\t\t\t\"queueId\":0,\n\t\t\t\"topic\":\"t\"\n\t\t}:7\n\t}\n}",
		`{"offsetTable":{"{\"topic\":\"t\",\"brokerName\":\"broker-0\",\"queueId\":0}":7}}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "g", "offsets.json")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text[:len(text)/2]), 0o644); err != nil {
			t.Fatal(err)
		}
		q := client.Queue{Topic: "t", Broker: "broker-0"}
		if _, _, err := client.NewFileOffsets(dir).Load(within(t), "g", q); err == nil {
			t.Error("a torn file without a copy counts as a new group")
		}
		if err := os.WriteFile(path+".bak", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		at, found, err := client.NewFileOffsets(dir).Load(within(t), "g", q)
		if err != nil || !found || at != 7 {
			t.Errorf("%d, %v, %v of %s", at, found, err, text)
		}
	}
}

// TestFaultAbsentTopics (194, 280, 558): a consumer starts though neither its topic nor its retry
// topic exists, and takes the message when they do; a reset pushed by the broker moves it.
func TestFaultAbsentTopics(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	b := s.Brokers[0]
	box := newInbox()
	running := consume(t, c, "g", box.handle, all("absent"))
	eventually(t, "the topic was looked for", func() bool {
		return s.NameServer.Count(remoting.GetRouteInfoByTopic) >= 2
	})
	for i := range 5 {
		b.Put("absent", 0, 0, []byte(fmt.Sprint(i)), nil)
	}
	s.SetTopic("absent", 1)
	box.await(t, 5)
	b.Ask("g", remoting.ResetConsumerClientOffset, &protocol.ResetOffsetRequest{
		Topic: "absent", Group: "g", QueueID: -1, Offset: -1,
	}, protocol.Marshal(&protocol.ResetOffsetBody{OffsetTable: map[protocol.MessageQueue]int64{
		{Topic: "absent", BrokerName: b.Name}: 2,
	}}))
	got := box.await(t, 8)
	running.stop()
	var again []string
	for _, m := range got[5:] {
		again = append(again, string(m.Body))
	}
	slices.Sort(again)
	if !slices.Equal(again, []string{"2", "3", "4"}) {
		t.Errorf("after a reset to 2 came %v", again)
	}
	if at := b.Offset("g", "absent", 0); at != 5 {
		t.Errorf("position %d", at)
	}
}

// TestFaultLeaks (285, 519, 614, 741, 754): consumers and readers that are made and closed again and
// again, with topics that do not exist, without name server or with refused filters, leave nothing;
// the leak check of the package would find it.
func TestFaultLeaks(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	s.SetTopic("t", 4)
	s.Brokers[0].Handle(remoting.CheckClientConfig, func(*scripttest.Request) *scripttest.Reply {
		return &scripttest.Reply{Code: remoting.SubscriptionParseFailed, Remark: "scripted"}
	})
	for _, nameServer := range []string{s.NameServer.Addr, "127.0.0.1:1"} {
		for range 5 {
			c := newClient(t, nameServer)
			box := newInbox()
			running := consume(t, c, "g", box.handle, all("t"), all("absent"))
			refused, err := c.NewConsumer("sql", client.WithSubscription("t", client.SQL("a =")))
			if err != nil {
				t.Fatal(err)
			}
			r := newReader(t, c, "r", all("t"))
			ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
			if _, err := r.Poll(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("poll: %v", err)
			}
			cancel()
			ctx, cancel = context.WithTimeout(within(t), 200*time.Millisecond)
			err = refused.Run(ctx, box.handle)
			if nameServer == s.NameServer.Addr && (err == nil || !containsText(err, "scripted")) {
				t.Errorf("a refused filter: %v", err)
			}
			cancel()
			running.stop()
			if err := c.Close(within(t)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestFaultSlowReader (1134, 1176): a message that comes during a long poll is handed out at once,
// and positions are those of what the loop has finished.
func TestFaultSlowReader(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	r := newReader(t, c, "g", all("t"), fromFirst())
	eventually(t, "the reader polls", func() bool { return s.Brokers[0].Count(remoting.LitePullMessage) > 0 })
	for i := range 5 {
		from := time.Now()
		fill(t, c, 1)
		if m := poll(t, r, 1)[0]; m.Offset != int64(i) || time.Since(from) > 10*time.Second {
			t.Errorf("offset %d after %s", m.Offset, time.Since(from))
		}
	}
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if at := s.Brokers[0].Offset("g", "t", 0); at != 4 {
		t.Errorf("position %d: the last message was not finished", at)
	}
}

// TestHandlerTimeout: the context ends in time; a handler that returns goes on to a redelivery, one
// that does not has its message sent back, and the position moves on.
func TestHandlerTimeout(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 3)
	b := s.Brokers[0]
	release := make(chan struct{})
	box := newInbox()
	running := consume(t, c, "g", func(ctx context.Context, m *client.Received) error {
		box.add(m)
		if m.Attempt > 1 {
			return nil
		}
		switch string(m.Body) {
		case "0":
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("context ended with %v", ctx.Err())
			}
			return ctx.Err()
		case "1":
			<-release
		}
		return nil
	}, all("t"), fromFirst(), client.WithHandlerTimeout(20*time.Millisecond),
		client.WithRevokeTimeout(20*time.Millisecond), client.WithCommitEvery(5*time.Millisecond))
	eventually(t, "the position moves on", func() bool { return b.Offset("g", "t", 0) == 3 })
	if n := len(b.Backs()); n != 2 {
		t.Errorf("%d messages were sent back", n)
	}
	close(release)
	box.await(t, 5)
	running.stop()
	if n := len(b.Backs()); n != 2 {
		t.Errorf("%d messages were sent back in the end", n)
	}
}

// TestRevoke: a queue that goes to another member is stored behind the messages whose handlers end
// in time; the contexts of the others end, and what they return does not count.
func TestRevoke(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 2)
	b := s.Brokers[0]
	for q := range int32(2) {
		for i := range 4 {
			b.Put("t", q, 0, []byte(fmt.Sprint(i)), nil)
		}
	}
	var events atomic.Value
	events.Store("")
	note := func(what string) func(context.Context, []client.Queue) {
		return func(_ context.Context, qs []client.Queue) {
			for _, q := range qs {
				if q.Topic == "t" {
					events.Store(fmt.Sprint(events.Load(), what, q.ID, "@", b.Offset("g", "t", int32(q.ID)), " "))
				}
			}
		}
	}
	entered, release, ended := make(chan struct{}, 8), make(chan struct{}), make(chan error, 8)
	running := consume(t, c, "g", func(ctx context.Context, m *client.Received) error {
		if m.Source.ID == 0 || m.Offset >= 2 { // what comes again, or is not of the queue that goes
			return nil
		}
		entered <- struct{}{}
		if m.Offset == 0 {
			<-release
			return nil
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return errors.New("too late to count")
	}, all("t"), fromFirst(), client.WithConcurrency(8), client.WithRevokeTimeout(time.Second),
		client.WithRebalanceEvents(note("+"), note("-")))
	<-entered
	<-entered
	lists := b.Count(remoting.GetConsumerListByGroup)
	b.AddMember("g", "zzz") // takes queue 1
	eventually(t, "members are asked for", func() bool {
		return b.Count(remoting.GetConsumerListByGroup) > lists
	})
	close(release)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("context ended with %v", err)
	}
	eventually(t, "the position is stored", func() bool { return b.Offset("g", "t", 1) == 1 })
	running.stop()
	if len(b.Backs()) != 0 {
		t.Error("what a handler said after its queue was lost counted")
	}
	if log := fmt.Sprint(events.Load()); !strings.Contains(log, "-1@-1") || !strings.HasPrefix(log, "+") {
		t.Errorf("events %q: the callback must run before the position is stored", log)
	}
}

// TestCloseBesideStuckHandler: Close returns when its context ends, ends the handlers' contexts, and
// tells of those that do not return.
func TestCloseBesideStuckHandler(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 2)
	entered, release := make(chan struct{}, 2), make(chan struct{})
	k, err := c.NewConsumer("g", all("t"), fromFirst(), client.WithRevokeTimeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- k.Run(context.Background(), func(context.Context, *client.Received) error {
			entered <- struct{}{}
			<-release
			return nil
		})
	}()
	<-entered
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	from := time.Now()
	if err := k.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !containsText(err, "2 handlers") {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(from); took > 5*time.Second {
		t.Errorf("close took %s", took)
	}
	if err := <-done; err == nil {
		t.Error("run returned nil")
	}
	if at := s.Brokers[0].Offset("g", "t", 0); at > 0 {
		t.Errorf("position %d passes messages in work", at)
	}
	close(release)
}

// TestReadersShareQueues: two readers of a group divide the queues, the positions of what was read
// go with a queue, and one takes over when the other leaves.
func TestReadersShareQueues(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	c1, c2 := newClient(t, cluster.NameServer()), newClient(t, cluster.NameServer())
	sendAll(t, c1, "t", 0, 40)
	one := newReader(t, c1, "g", all("t"), fromFirst())
	for _, m := range poll(t, one, 40) {
		_ = m
	}
	if err := one.Commit(within(t)); err != nil {
		t.Fatal(err)
	}
	two := newReader(t, c2, "g", all("t"), fromFirst())
	mine := map[int]bool{}
	next := 40
	eventually(t, "both readers get something", func() bool {
		sendAll(t, c1, "t", next, 8)
		next += 8
		ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
		defer cancel()
		if ms, err := two.Poll(ctx, 100); err == nil {
			for _, m := range ms {
				mine[m.Source.ID] = true
			}
		}
		_, _ = one.Poll(ctx, 100)
		return len(mine) >= 2
	})
	if err := one.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one that stays reads all queues", func() bool {
		sendAll(t, c2, "t", next, 8)
		next += 8
		ctx, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
		defer cancel()
		if ms, err := two.Poll(ctx, 100); err == nil {
			for _, m := range ms {
				mine[m.Source.ID] = true
			}
		}
		return len(mine) == 4
	})
}

// TestReaderPause: a paused queue hands nothing out and keeps its place.
func TestReaderPause(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 2)
	b := s.Brokers[0]
	for i := range 5 {
		b.Put("t", 0, 0, []byte(fmt.Sprint("a", i)), nil)
		b.Put("t", 1, 0, []byte(fmt.Sprint("b", i)), nil)
	}
	r := newReader(t, c, "", fromFirst())
	q0, q1 := client.Queue{Topic: "t", Broker: b.Name}, client.Queue{Topic: "t", Broker: b.Name, ID: 1}
	r.Pause(q0)
	if err := r.Assign(q0, q1); err != nil {
		t.Fatal(err)
	}
	for _, m := range poll(t, r, 5) {
		if m.Source != q1 {
			t.Errorf("%s came from a paused queue", m.Body)
		}
	}
	r.Resume(q0)
	r.Pause(q1)
	b.Put("t", 1, 0, []byte("held"), nil)
	for i, m := range poll(t, r, 5) {
		if m.Source != q0 || m.Offset != int64(i) {
			t.Errorf("%s at %d after resume", m.Body, m.Offset)
		}
	}
	r.Resume()
	if m := poll(t, r, 1)[0]; string(m.Body) != "held" {
		t.Errorf("got %s", m.Body)
	}
}
