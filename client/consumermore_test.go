// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestConsumerStart: a stored position wins; without one the option decides, except where the broker
// counts the queue as young and says 0; the retry topic begins with its first message.
func TestConsumerStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		start  client.Start
		stored int64 // -1: none, -2: the broker says 0 for a young queue
		want   int64
	}{
		{"latest", client.Latest, -1, 5},
		{"earliest", client.Earliest, -1, 0},
		{"time", client.At(time.Now().Add(-time.Hour)), -1, 0},
		{"later time", client.At(time.Now().Add(time.Hour)), -1, 5},
		{"stored", client.Earliest, 3, 3},
		{"stored zero", client.Latest, 0, 0},
		{"young", client.Latest, -2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, cl := cluster(t, 1)
			s.SetTopic("t", 1)
			b := s.Brokers[0]
			for i := range 5 {
				b.Put("t", 0, 0, []byte(fmt.Sprint(i)), nil)
				b.Put("%RETRY%g", 0, 0, []byte(fmt.Sprint("retry", i)), nil)
			}
			s.SetTopic("%RETRY%g", 1)
			if c.stored >= 0 {
				b.SetOffset("g", "t", 0, c.stored)
			}
			query := b.Handler(remoting.QueryConsumerOffset)
			b.Handle(remoting.QueryConsumerOffset, func(r *scripttest.Request) *scripttest.Reply {
				var h protocol.QueryConsumerOffsetRequest
				_ = h.Decode(r.Command)
				if h.SetZeroIfNotFound != nil {
					t.Error("the request keeps the broker from its rule for young queues")
				}
				if c.stored == -2 && h.Topic == "t" {
					return &scripttest.Reply{Header: &protocol.OffsetResponse{}}
				}
				return query(r)
			})
			var first atomic.Int64
			first.Store(-1)
			pull := b.Handler(remoting.PullMessage)
			b.Handle(remoting.PullMessage, func(r *scripttest.Request) *scripttest.Reply {
				var h protocol.PullRequest
				_ = h.Decode(r.Command)
				if string(h.Topic) == "t" {
					first.CompareAndSwap(-1, h.QueueOffset)
				}
				return pull(r)
			})
			box := newInbox()
			running := consume(t, cl, "g", box.handle, all("t"), client.WithStart(c.start))
			wanted := 5 - int(c.want)
			if c.start < 0 {
				wanted += 5 // the retry topic's
			}
			box.await(t, wanted)
			eventually(t, "the queue is pulled", func() bool { return first.Load() >= 0 })
			running.stop()
			if first.Load() != c.want || box.count() != wanted {
				t.Errorf("begins at %d with %d messages, want %d and %d",
					first.Load(), box.count(), c.want, wanted)
			}
		})
	}
}

// hookLog implements the hooks of consuming.
type hookLog struct {
	mu    sync.Mutex
	lines []string
}

type hookKey struct{}

func (h *hookLog) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

func (h *hookLog) has(line string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.lines, line)
}

func (h *hookLog) OnReceive(ctx context.Context, m *client.Received) context.Context {
	h.add("receive %s", m.Body)
	return context.WithValue(ctx, hookKey{}, string(m.Body))
}

func (h *hookLog) OnHandled(ctx context.Context, m *client.Received, err error) {
	h.add("handled %s %v %v", m.Body, ctx.Value(hookKey{}), err)
}

func (h *hookLog) OnRebalance(group string, assigned, revoked []client.Queue) {
	h.add("rebalance %s +%v -%v", group, assigned, revoked)
}

func (h *hookLog) OnThrottle(q client.Queue, reason string) { h.add("throttle %s %s", q, reason) }

// TestConsumerHooks: hooks see messages on their way, queues come and go, and why a queue waits; the
// context that one returns reaches the handler, with the values of Run's.
func TestConsumerHooks(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	log := &hookLog{}
	c := newClient(t, s.NameServer.Addr, client.WithHooks(log))
	s.SetTopic("t", 1)
	fill(t, c, 6)
	k, err := c.NewConsumer("g", all("t"), fromFirst(), client.WithPrefetch(2, 1<<20), client.WithConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	type runKey struct{}
	box := newInbox()
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), runKey{}, "run"))
	done := make(chan error, 1)
	go func() {
		done <- k.Run(ctx, func(ctx context.Context, m *client.Received) error {
			if ctx.Value(hookKey{}) != string(m.Body) || ctx.Value(runKey{}) != "run" {
				t.Errorf("values %v, %v", ctx.Value(hookKey{}), ctx.Value(runKey{}))
			}
			if until, ok := ctx.Deadline(); !ok || time.Until(until) < 14*time.Minute {
				t.Errorf("deadline %v, %v", until, ok)
			}
			box.add(m)
			if string(m.Body) == "3" {
				return client.Skip(errors.New("not for us"))
			}
			return nil
		})
	}()
	box.await(t, 6)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"receive 0", "handled 0 0 <nil>", "handled 3 3 client: skip: not for us",
		"rebalance g +[t/broker-0/0] -[]", "rebalance g +[] -[t/broker-0/0]",
		"throttle t/broker-0/0 messages",
	} {
		if !log.has(line) {
			t.Errorf("no hook was told %q", line)
		}
	}
}

// TestHandleJSON: the value is decoded; a body that is no such value becomes a dead letter.
func TestHandleJSON(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	b := s.Brokers[0]
	b.Put("t", 0, 0, []byte(`{"n":`), nil)
	b.Put("t", 0, 0, []byte(`{"n":7}`), nil)
	got := make(chan int, 2)
	type value struct{ N int }
	running := consume(t, c, "g", client.HandleJSON(
		func(_ context.Context, v value, m *client.Received) error {
			if m.Offset != 1 {
				t.Errorf("offset %d", m.Offset)
			}
			got <- v.N
			return nil
		}), all("t"), fromFirst())
	if n := <-got; n != 7 {
		t.Errorf("got %d", n)
	}
	eventually(t, "the other is a dead letter", func() bool { return len(b.Records("%DLQ%g", 0)) == 1 })
	running.stop()
	if backs := b.Backs(); len(backs) != 1 || backs[0].DelayLevel != -1 {
		t.Errorf("sent back %+v", backs)
	}
}

// TestConsumerRetries: the limit goes to the broker, delays are the next level of its table, and an
// ordered consumer with a limit gives up after it.
func TestConsumerRetries(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	fill(t, c, 5)
	b := s.Brokers[0]
	waits := []time.Duration{0, time.Second, 11 * time.Second, 2 * time.Hour, 5 * time.Hour}
	levels := []int32{1, 1, 4, 18, 18}
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		if m.Attempt == 1 {
			return client.RetryAfter(waits[m.Offset], nil)
		}
		return nil
	}, all("t"), fromFirst(), client.WithConcurrency(1), client.WithMaxRetries(3))
	eventually(t, "all are sent back", func() bool { return len(b.Backs()) == 5 })
	running.stop()
	for i, back := range b.Backs() {
		if back.DelayLevel != levels[i] || back.Retries != 3 {
			t.Errorf("%s: level %d, limit %d", waits[i], back.DelayLevel, back.Retries)
		}
	}
	box := newInbox()
	running = consume(t, c, "o", func(_ context.Context, m *client.Received) error {
		box.add(m)
		if m.Offset == 1 {
			return client.RetryAfter(time.Millisecond, errors.New("never"))
		}
		return nil
	}, all("t"), fromFirst(), client.WithOrdered(false), client.WithMaxRetries(2))
	got := box.await(t, 7)
	running.stop()
	var offsets []int64
	for _, m := range got {
		offsets = append(offsets, m.Offset)
	}
	if !slices.Equal(offsets, []int64{0, 1, 1, 1, 2, 3, 4}) || len(b.Records("%DLQ%o", 0)) != 1 {
		t.Errorf("offsets %v, %d dead letters", offsets, len(b.Records("%DLQ%o", 0)))
	}
}

// TestConsumerTotal: the bound of all queues together holds back those that have room of their own,
// and they go on when others are done.
func TestConsumerTotal(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	log := &hookLog{}
	c := newClient(t, s.NameServer.Addr, client.WithHooks(log))
	const queues = 40
	s.SetTopic("t", queues)
	b := s.Brokers[0]
	put := func() {
		for q := range int32(queues) {
			b.Put("t", q, 0, []byte("x"), nil)
			b.Put("t", q, 0, []byte("x"), nil)
		}
	}
	put()
	entered, release := make(chan struct{}, queues*4), make(chan struct{})
	running := consume(t, c, "g", func(context.Context, *client.Received) error {
		entered <- struct{}{}
		<-release
		return nil
	}, all("t"), fromFirst(), client.WithPrefetch(3, 1<<20), client.WithConcurrency(1000))
	eventually(t, "a queue waits for the others", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return slices.ContainsFunc(log.lines, func(line string) bool {
			return strings.HasPrefix(line, "throttle") && strings.HasSuffix(line, "consumer")
		})
	})
	close(release)
	put()
	for range queues * 4 {
		<-entered
	}
	running.stop()
}

// TestE2ESQL: consumers and readers filter by conditions that the broker evaluates.
func TestE2ESQL(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(c *engine.Config) { c.PropertyFilter = true })
	c := newClient(t, cluster.NameServer())
	p := newProducer(t, c)
	for i := range 10 {
		if _, err := p.Send(within(t), &client.Message{
			Topic: "t", Body: []byte(fmt.Sprint(i)), Properties: map[string]string{"n": fmt.Sprint(i)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	condition := client.WithSubscription("t", client.SQL("n BETWEEN 3 AND 5"))
	box := newInbox()
	running := consume(t, c, "g", box.handle, condition, fromFirst())
	r := newReader(t, c, "r", condition, fromFirst())
	var read []string
	for _, m := range poll(t, r, 3) {
		read = append(read, string(m.Body))
	}
	box.await(t, 3)
	running.stop()
	got := box.bodies()
	slices.Sort(got)
	slices.Sort(read)
	if want := []string{"3", "4", "5"}; !slices.Equal(got, want) || !slices.Equal(read, want) {
		t.Errorf("consumer got %v, reader %v", got, read)
	}
}

// TestConsumerTrace: each call of a handler leaves two records that belong together.
func TestConsumerTrace(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	s.SetTopic("traces", 1)
	fill(t, c, 2)
	b := s.Brokers[0]
	box := newInbox()
	running := consume(t, c, "g", func(_ context.Context, m *client.Received) error {
		box.add(m)
		if m.Offset == 1 && m.Attempt == 1 {
			panic("deliberate")
		}
		return nil
	}, all("t"), fromFirst(), client.WithConsumerTrace("traces"), client.WithConcurrency(1))
	box.await(t, 3)
	running.stop()
	var kinds []string
	requests := map[string]int{}
	for _, rec := range b.Records("traces", 0) {
		v, err := record.Parse(rec)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(v.Body()), "\x02"), "\x02") {
			f := strings.Split(line, "\x01")
			switch f[0] {
			case "SubBefore":
				requests[f[4]]++
				kinds = append(kinds, "before "+f[6])
			case "SubAfter":
				requests[f[1]]++
				kinds = append(kinds, "after "+f[4]+" "+f[6])
			}
		}
	}
	want := []string{
		"before 0", "after true 0", "before 0", "after false 2", "before 1", "after true 0",
	}
	if !slices.Equal(kinds, want) || len(requests) != 3 {
		t.Errorf("records %q, %d calls", kinds, len(requests))
	}
}

// TestE2EConsumeAcrossRestart: the broker restarts under two members, one group in order and one
// not. Everything comes, in order where that was asked for, and nothing is lost.
func TestE2EConsumeAcrossRestart(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	c := newClient(t, cluster.NameServer())
	want := sendAll(t, c, "t", 0, 100)
	plain, ordered := newInbox(), newInbox()
	first := consume(t, c, "plain", plain.handle, all("t"), fromFirst())
	second := consume(t, c, "ordered", ordered.handle, all("t"), fromFirst(), client.WithOrdered(false))
	plain.await(t, 20)
	cluster.Restart()
	eventually(t, "sends go on", func() bool {
		p, err := c.NewProducer("after")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(within(t))
		_, err = p.Send(within(t), &client.Message{Topic: "t", Body: []byte("100")})
		return err == nil
	})
	want = append(want, "100")
	want = append(want, sendAll(t, c, "t", 101, 100)...)
	eventually(t, "all came to both groups", func() bool {
		return covers(want, plain) && covers(want, ordered)
	})
	first.stop()
	second.stop()
	last := map[int]int64{}
	for _, m := range ordered.await(t, len(want)) {
		if at, ok := last[m.Source.ID]; ok && m.Offset != at+1 {
			t.Errorf("queue %d: offset %d after %d", m.Source.ID, m.Offset, at)
		}
		last[m.Source.ID] = m.Offset
	}
}

// TestBroadcastDefaultFile: without a store positions are below the home directory, under the name,
// or under the host's without one, so that another process of the member goes on with them. It is
// not parallel: it sets an environment variable.
func TestBroadcastDefaultFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, folder := range map[string]string{"member-1": "member-1", "": host} {
		s, c := cluster(t, 1)
		s.SetTopic("t", 1)
		fill(t, c, 3)
		box := newInbox()
		running := consume(t, c, "g", box.handle, all("t"), fromFirst(), client.WithBroadcast(name, nil))
		box.await(t, 3)
		running.stop()
		files, err := filepath.Glob(filepath.Join(home, ".rocketmq_offsets", folder, "g", "offsets.json"))
		if err != nil || len(files) != 1 {
			t.Errorf("%q: files %v, %v", name, files, err)
		}
		again := newClient(t, s.NameServer.Addr) // with another client id, as after a restart
		r := newReader(t, again, "g", all("t"), fromFirst(), client.WithBroadcast(name, nil))
		fill(t, c, 1)
		if m := poll(t, r, 1)[0]; m.Offset != 3 {
			t.Errorf("%q: a reader of the same name begins at %d", name, m.Offset)
		}
		if err := r.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReceivedClone: a clone equals its message and shares nothing with it.
func TestReceivedClone(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	p := newProducer(t, c)
	if _, err := p.Send(within(t), &client.Message{
		Topic: "t", Tag: "tag", Keys: []string{"k"}, OrderingKey: "o", Body: []byte("body"),
		Properties: map[string]string{"a": "b"},
	}); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, c, "", all("t"), fromFirst())
	m := poll(t, r, 1)[0]
	clone := m.Clone()
	if diff := cmp.Diff(m, clone, cmpopts.IgnoreUnexported(client.Received{})); diff != "" {
		t.Errorf("clone differs: %s", diff)
	}
	clone.Body[0], clone.Properties["a"], clone.Keys[0] = 'X', "c", "x"
	if string(m.Body) != "body" || m.Properties["a"] != "b" || m.Keys[0] != "k" {
		t.Error("the clone shares memory with its message")
	}
}
