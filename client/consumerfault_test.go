// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// The tests of this file stand for groups of faults that users reported of other clients: each
// would fail with the fault. Numbers are those of apache/rocketmq-client-go.

// logText collects what a client logs.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

func (l *logText) option() client.Option {
	return client.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// TestFaultNoSpinning (575, 580, 587): a consumer whose handlers are stuck, whose broker refuses, or
// whose queue is empty at a broker that does not hold pulls, asks seldom.
func TestFaultNoSpinning(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("full", 1)
	s.SetTopic("refused", 1)
	b := s.Brokers[0]
	for i := range 100 {
		b.Put("full", 0, 0, []byte(fmt.Sprint(i)), nil)
	}
	pulls := map[string]*atomic.Int64{"full": {}, "refused": {}, "%RETRY%g": {}}
	pull := b.Handler(remoting.PullMessage)
	var first atomic.Pointer[time.Time] // pull of the empty queue
	b.Handle(remoting.PullMessage, func(r *scripttest.Request) *scripttest.Reply {
		var h protocol.PullRequest
		_ = h.Decode(r.Command)
		if now := time.Now(); string(h.Topic) == "%RETRY%g" {
			first.CompareAndSwap(nil, &now)
		}
		pulls[string(h.Topic)].Add(1)
		switch string(h.Topic) {
		case "refused":
			return refusePull(r)
		case "%RETRY%g":
			return &scripttest.Reply{Code: remoting.PullNotFound, Header: &protocol.PullResponse{
				TopicSysFlag: -1, GroupSysFlag: -1, ForbiddenType: -1,
			}}
		}
		return pull(r)
	})
	s.SetTopic("%RETRY%g", 1)
	entered, release := make(chan struct{}, 200), make(chan struct{})
	running := consume(t, c, "g", func(context.Context, *client.Received) error {
		entered <- struct{}{}
		<-release
		return nil
	}, all("full"), all("refused"), fromFirst(), client.WithPrefetch(8, 1<<20), client.WithConcurrency(2))
	<-entered
	<-entered
	eventually(t, "the empty queue was asked for often enough to judge", func() bool {
		return pulls["%RETRY%g"].Load() >= 10
	})
	n, took := pulls["%RETRY%g"].Load(), time.Since(*first.Load())
	if time.Duration(n-1)*30*time.Millisecond > took { // 50 ms lie between two of them
		t.Errorf("%d pulls of an empty queue in %s", n, took)
	}
	if n := pulls["full"].Load(); n > 2 {
		t.Errorf("%d pulls of a queue whose cache is full", n)
	}
	if n := pulls["refused"].Load(); n > 8 {
		t.Errorf("%d pulls of a queue that the broker refuses", n)
	}
	close(release)
	eventually(t, "everything is handled", func() bool { return len(entered) == 98 })
	running.stop()
}

// TestFaultPanickingHandler (909): a panic is logged with its stack, the message comes again, and
// consumption goes on.
func TestFaultPanickingHandler(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	logs := &logText{}
	c := newClient(t, s.NameServer.Addr, logs.option())
	s.SetTopic("t", 1)
	fill(t, c, 5)
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		if string(m.Body) == "2" && m.Attempt == 1 {
			panic("deliberate")
		}
		return nil
	}, all("t"), fromFirst(), client.WithConcurrency(1))
	box.await(t, 6)
	running.stop()
	if !logs.has("deliberate") || !logs.has("consumerfault_test.go") {
		t.Error("the panic is not logged with its stack")
	}
	if at := s.Brokers[0].Offset("g", "t", 0); at != 5 {
		t.Errorf("position %d, want 5", at)
	}
}

// TestFaultFailedSendBack (1106, 618): while a message cannot be sent back in any way the position
// does not pass it, and it comes again here.
func TestFaultFailedSendBack(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 10)
	b := s.Brokers[0]
	sendBack := b.Handler(remoting.ConsumerSendMsgBack)
	var refuse atomic.Bool
	refuse.Store(true)
	refusal := func(*scripttest.Request) *scripttest.Reply {
		return &scripttest.Reply{Code: remoting.SystemError, Remark: "scripted"}
	}
	b.Handle(remoting.ConsumerSendMsgBack, func(r *scripttest.Request) *scripttest.Reply {
		if refuse.Load() {
			return refusal(r)
		}
		return sendBack(r)
	})
	b.Handle(remoting.SendMessageV2, refusal)
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		if string(m.Body) == "3" && m.Source.Topic == "t" {
			return errors.New("fails here")
		}
		return nil
	}, all("t"), fromFirst(), client.WithLocalRetry(20*time.Millisecond), client.WithCommitEvery(time.Millisecond))
	box.await(t, 15)
	eventually(t, "positions are stored", func() bool { return b.Offset("g", "t", 0) == 3 })
	refuse.Store(false)
	eventually(t, "it is sent back", func() bool { return len(b.Backs()) == 1 })
	eventually(t, "the position moves on", func() bool { return b.Offset("g", "t", 0) == 10 })
	came := func() *client.Received {
		got := box.await(t, 15)
		return got[len(got)-1]
	}
	eventually(t, "it comes from the retry topic", func() bool { return came().Source.Topic == "%RETRY%g" })
	running.stop()
	first := map[string]bool{}
	for _, m := range box.await(t, 16) {
		if first[string(m.Body)] && string(m.Body) != "3" {
			t.Errorf("%s came again", m.Body)
		}
		first[string(m.Body)] = true
	}
}

// TestFaultRetryDoubles (746, 1075): when the answer to a send-back is lost, the message is not also
// sent as a new one; when it is refused, exactly one copy is.
func TestFaultRetryDoubles(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 1)
	b := s.Brokers[0]
	var asked atomic.Int64
	b.Handle(remoting.ConsumerSendMsgBack, func(*scripttest.Request) *scripttest.Reply {
		if asked.Add(1) == 1 {
			return &scripttest.Reply{Code: remoting.SystemError, Remark: "scripted"}
		}
		return &scripttest.Reply{}
	})
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		return errors.New("fails")
	}, all("t"), fromFirst())
	box.await(t, 2)
	eventually(t, "the copy is sent back", func() bool { return asked.Load() >= 2 })
	running.stop()
	copies := b.Records("%RETRY%g", 0)
	for q := int32(1); q < 4; q++ {
		copies = append(copies, b.Records("%RETRY%g", q)...)
	}
	if len(copies) != 1 {
		t.Fatalf("%d copies in the retry topic", len(copies))
	}
	v, err := record.Parse(copies[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": box.await(t, 1)[0].ID, "DELAY": "4"} {
		if got, _ := record.Property(v.Properties(), name); string(got) != want {
			t.Errorf("property %s of the copy is %q, want %q", name, got, want)
		}
	}
	if m := box.await(t, 2)[1]; m.Topic != "t" || string(m.Body) != "0" {
		t.Errorf("the copy came as %+v", m)
	}
}

// TestFaultLostSendBackAnswer (1075): a broker that stores the message and does not answer gets no
// second copy by another way.
func TestFaultLostSendBackAnswer(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 1)
	b := s.Brokers[0]
	sends := b.Count(remoting.SendMessageV2)
	sendBack := b.Handler(remoting.ConsumerSendMsgBack)
	b.Handle(remoting.ConsumerSendMsgBack, func(r *scripttest.Request) *scripttest.Reply {
		if sendBack(r); len(b.Backs()) == 1 {
			return nil
		}
		return &scripttest.Reply{}
	})
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		if m.Source.Topic == "t" {
			return errors.New("fails")
		}
		return nil
	}, all("t"), fromFirst(), client.WithLocalRetry(20*time.Millisecond),
		client.WithSendBackTimeout(200*time.Millisecond))
	eventually(t, "it is settled", func() bool { return len(b.Backs()) >= 2 })
	running.stop()
	if n := b.Count(remoting.SendMessageV2); n != sends {
		t.Errorf("%d sends beside the send-backs", n-sends)
	}
}

// TestFaultOrderedRetryBlocks (1229): a failing message holds its own queue only, in place and in
// order, and with keys its own key only.
func TestFaultOrderedRetryBlocks(t *testing.T) {
	t.Parallel()
	for _, byKey := range []bool{false, true} {
		t.Run(fmt.Sprintf("byKey=%v", byKey), func(t *testing.T) {
			t.Parallel()
			s, c := cluster(t, 1)
			s.SetTopic("t", 2)
			b := s.Brokers[0]
			for i := range 20 {
				for q := range int32(2) {
					key := fmt.Sprint("k", i%4)
					b.Put("t", q, 0, []byte(fmt.Sprint(i)), record.AppendProperty(nil, "__SHARDINGKEY", key))
				}
			}
			box := newInbox()
			var failing atomic.Bool
			failing.Store(true)
			running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
				if m.Source.ID == 0 && string(m.Body) == "4" && failing.Load() {
					return client.RetryAfter(5*time.Millisecond, nil)
				}
				box.add(m)
				return nil
			}, all("t"), fromFirst(), client.WithOrdered(byKey))
			ready := 20 + 4
			if byKey {
				ready = 20 + 16 // all but those of key k0 behind the first
			}
			box.await(t, ready)
			failing.Store(false)
			got := box.await(t, 40)
			running.stop()
			last := map[string]int64{}
			for _, m := range got {
				line := fmt.Sprint(m.Source.ID)
				if byKey {
					line += m.OrderingKey
				}
				if at, ok := last[line]; ok && m.Offset <= at {
					t.Errorf("%s: offset %d after %d", line, m.Offset, at)
				}
				last[line] = m.Offset
				if m.Source.ID == 0 && string(m.Body) == "4" && m.Attempt < 2 {
					t.Errorf("the failed message came with attempt %d", m.Attempt)
				}
			}
			if at := b.Offset("g", "t", 0); at != 20 {
				t.Errorf("position %d", at)
			}
			if len(b.Backs()) != 0 {
				t.Errorf("ordered messages were sent back: %v", b.Backs())
			}
		})
	}
}

// TestFaultLockRenewal (491, 1080): a handler that takes longer than the lock's period costs no
// lock, a lock that somebody else got ends the queue, and a clean end frees it at once.
func TestFaultLockRenewal(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 4)
	b := s.Brokers[0]
	entered, release := make(chan string, 10), make(chan struct{})
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		entered <- string(m.Body)
		if string(m.Body) == "0" {
			<-release
		}
		return nil
	}, all("t"), fromFirst(), client.WithOrdered(false), client.WithLockEvery(5*time.Millisecond),
		client.WithRevokeTimeout(20*time.Millisecond))
	<-entered
	before := b.Count(remoting.LockBatchMQ)
	eventually(t, "locks are renewed while a handler works", func() bool {
		return b.Count(remoting.LockBatchMQ) > before+3
	})
	b.Lock("t", 0, "somebody else")
	eventually(t, "the queue is given up", func() bool { return b.Count(remoting.UnlockBatchMQ) > 0 })
	close(release)
	if len(entered) != 0 {
		t.Error("a message was handed out without the lock")
	}
	b.Lock("t", 0, "")
	if body := <-entered; body != "0" {
		t.Errorf("goes on with %s, want the message that was not done when the lock was lost", body)
	}
	for range 3 {
		<-entered
	}
	running.stop()
	if owner := b.Owner("t", 0); owner != "" {
		t.Errorf("%s holds the lock after the end", owner)
	}
}

// TestFaultNewQueues (1056, 1057): queues that a topic gets while the consumer runs are consumed from
// their first message on, long before the next round is due, and so is a topic that comes later.
func TestFaultNewQueues(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	c := newClient(t, s.NameServer.Addr, client.WithRouteEvery(10*time.Millisecond))
	s.SetTopic("t", 1)
	s.SetTopic("%RETRY%g", 1) // with a topic missing, rounds would follow each other soon
	b := s.Brokers[0]
	box, later := newInbox(), newInbox()
	running := consume(t, c, "g", box.handle, all("t"), client.WithRebalanceEvery(time.Hour, time.Millisecond))
	waiting := consume(t, c, "h", later.handle, all("later"))
	eventually(t, "the queues are pulled", func() bool { return b.Count(remoting.PullMessage) > 1 })
	b.Put("t", 1, 0, []byte("new queue"), nil)
	s.SetTopic("t", 2)
	if got := box.await(t, 1); string(got[0].Body) != "new queue" {
		t.Errorf("got %s", got[0].Body)
	}
	b.Put("later", 0, 0, []byte("new topic"), nil)
	s.SetTopic("later", 1)
	if got := later.await(t, 1); string(got[0].Body) != "new topic" {
		t.Errorf("got %s", got[0].Body)
	}
	running.stop()
	waiting.stop()
}

// TestFaultIllegalOffset (832, 571): an offset that the queue does not have is corrected to the one
// that the broker gives and stored at once; an error when asking for the position is not offset 0.
func TestFaultIllegalOffset(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 10)
	b := s.Brokers[0]
	b.SetOffset("g", "t", 0, 1000)
	query := b.Handler(remoting.QueryConsumerOffset)
	var failures atomic.Int64
	b.Handle(remoting.QueryConsumerOffset, func(r *scripttest.Request) *scripttest.Reply {
		if failures.Add(1) <= 2 {
			return &scripttest.Reply{Code: remoting.SystemBusy, Remark: "scripted"}
		}
		return query(r)
	})
	box := newInbox()
	running := consume(t, c, "g", box.handle, all("t"), fromFirst())
	eventually(t, "the correction is stored", func() bool { return b.Offset("g", "t", 0) == 10 })
	fill(t, c, 1)
	box.await(t, 1)
	running.stop()
	if n := box.count(); n != 1 {
		t.Errorf("%d messages came, the queue was taken for a new one", n)
	}
	if at := b.Offset("g", "t", 0); at != 11 {
		t.Errorf("position %d", at)
	}
}

// TestFaultSlaveHint (843): the next pull goes to the broker that the last answer named, without the
// position, and back to the master when that one is gone.
func TestFaultSlaveHint(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	master, slave := s.Brokers[0], s.Brokers[1]
	s.SetTopic("t", 1)
	s.MakeSlave(0, 1)
	for i := range 3 {
		slave.Put("t", 0, 0, []byte(fmt.Sprint(i)), nil)
		master.Put("t", 0, 0, []byte(fmt.Sprint(i)), nil)
	}
	pull := master.Handler(remoting.PullMessage)
	master.Handle(remoting.PullMessage, func(r *scripttest.Request) *scripttest.Reply {
		reply := pull(r)
		if h, ok := reply.Header.(*protocol.PullResponse); ok {
			h.SuggestBrokerID = 1
		}
		return reply
	})
	var committed, served atomic.Int64
	slavePull := slave.Handler(remoting.PullMessage)
	slave.Handle(remoting.PullMessage, func(r *scripttest.Request) *scripttest.Reply {
		var h protocol.PullRequest
		_ = h.Decode(r.Command)
		if h.SysFlag&protocol.PullCommitOffset != 0 {
			committed.Add(1)
		}
		served.Add(1)
		return slavePull(r)
	})
	box := newInbox()
	running := consume(t, c, "g", box.handle, all("t"), fromFirst(), client.WithPrefetch(1, 1<<20))
	box.await(t, 3)
	eventually(t, "the slave is asked", func() bool { return served.Load() > 0 })
	if committed.Load() != 0 {
		t.Error("a slave was told a position")
	}
	slave.Close()
	master.Put("t", 0, 0, []byte("after"), nil)
	got := box.await(t, 4)
	running.stop()
	if string(got[3].Body) != "after" {
		t.Errorf("got %s after the slave went away", got[3].Body)
	}
}

// TestFaultTagsLeak (484, 931): a tag that only shares the hash is not delivered, nor is one of the
// old filter after the filter changed.
func TestFaultTagsLeak(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := s.Brokers[0]
	put := func(tag string) {
		b.Put("t", 0, 0, []byte(tag), record.AppendProperty(nil, "TAGS", tag))
	}
	for _, tag := range []string{"Aa", "BB", "C", "Aa"} { // Aa and BB have one hash
		put(tag)
	}
	box := newInbox()
	running := consume(t, c, "g", box.handle, client.WithSubscription("t", client.Tags("Aa")), fromFirst())
	box.await(t, 2)
	running.k.Pause()
	if err := running.k.Subscribe("t", client.Tags("BB")); err != nil {
		t.Fatal(err)
	}
	put("Aa")
	put("BB")
	running.k.Resume()
	got := box.await(t, 3)
	running.stop()
	var tags []string
	for _, m := range got {
		tags = append(tags, m.Tag)
	}
	if want := []string{"Aa", "Aa", "BB"}; !slices.Equal(tags, want) {
		t.Errorf("tags %v, want %v", tags, want)
	}
}

// TestFaultUnsubscribe (537, 711): no message of a topic is handled after Unsubscribe has returned,
// and its queues are free for others at once.
func TestFaultUnsubscribe(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("gone", 1)
	s.SetTopic("kept", 1)
	b := s.Brokers[0]
	for i := range 200 {
		b.Put("gone", 0, 0, []byte(fmt.Sprint(i)), nil)
	}
	var over atomic.Bool
	var late atomic.Int64
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		if m.Topic == "gone" && over.Load() {
			late.Add(1)
		}
		box.add(m)
		return nil
	}, all("gone"), all("kept"), fromFirst(), client.WithConcurrency(1), client.WithOrdered(false))
	box.await(t, 5)
	if err := running.k.Unsubscribe("gone"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the queue is unlocked", func() bool { return b.Owner("gone", 0) == "" })
	over.Store(true)
	seen := box.count()
	b.Put("kept", 0, 0, []byte("kept"), nil)
	got := box.await(t, seen+1)
	running.stop()
	if late.Load() != 0 {
		t.Errorf("%d messages of the topic came after Unsubscribe", late.Load())
	}
	if m := got[len(got)-1]; m.Topic != "kept" {
		t.Errorf("the last message is of topic %s", m.Topic)
	}
}
