// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// outcomes collects results by body.
type outcomes struct {
	mu      sync.Mutex
	results map[string]client.SendResult
	errs    map[string]error
	calls   int
}

func newOutcomes() *outcomes {
	return &outcomes{results: map[string]client.SendResult{}, errs: map[string]error{}}
}

func (o *outcomes) of(body string) func(client.SendResult, error) {
	return func(r client.SendResult, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls++
		o.results[body], o.errs[body] = r, err
	}
}

func requests(s *scripttest.Cluster, codes ...remoting.RequestCode) int {
	n := 0
	for _, b := range s.Brokers {
		for _, code := range codes {
			n += b.Count(code)
		}
	}
	return n
}

// TestLinger: many messages share few requests, and each has the result that is its own.
func TestLinger(t *testing.T) {
	t.Parallel()
	for _, linger := range []time.Duration{0, 5 * time.Millisecond, time.Minute} {
		t.Run(linger.String(), func(t *testing.T) {
			t.Parallel()
			s, c := cluster(t, 2)
			s.SetTopic("t", 4)
			p := newProducer(t, c, client.WithLinger(linger, 8<<10))
			got := newOutcomes()
			const n = 2000
			for i := range n {
				body := fmt.Sprint(i)
				m := &client.Message{
					Topic: "t", Tag: "tag", Body: []byte(body), Properties: map[string]string{"n": body},
				}
				if err := p.SendAsync(within(t), m, got.of(body)); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
			if got.calls != n {
				t.Fatalf("%d callbacks after Flush, want %d", got.calls, n)
			}
			most := n / 10
			if linger == 0 {
				most = n / 2 // a broker that answers at once leaves little to gather
			}
			if r := requests(s, remoting.SendBatchMessage, remoting.SendMessageV2); r > most {
				t.Errorf("%d messages took %d requests", n, r)
			}
			r := newReader(t, c, "", client.WithSubscription("t", client.All()),
				client.WithStart(client.Earliest))
			for _, m := range poll(t, r, n) {
				res, body := got.results[string(m.Body)], string(m.Body)
				if got.errs[body] != nil || res.Status != client.Stored || res.ID != m.ID ||
					res.OffsetID != m.OffsetID || res.Queue != m.Source || res.Offset != m.Offset ||
					m.Tag != "tag" || m.Properties["n"] != body {
					t.Fatalf("message %s: result %+v, %v, received %+v", body, res, got.errs[body], m)
				}
			}
		})
	}
}

// TestLingerKeepsOrder: messages with one key stay in order across batches, messages that go alone
// for their size, and a Send between them.
func TestLingerKeepsOrder(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.SetTopic("t", 4)
	p := newProducer(t, c, client.WithLinger(time.Millisecond, 2<<10))
	const n = 600
	for i := range n {
		m := &client.Message{Topic: "t", Body: fmt.Appendf(nil, "%d ", i), OrderingKey: "one"}
		if i%50 == 49 {
			m.Body = append(m.Body, bytes.Repeat([]byte("x"), 5000)...)
		}
		var err error
		if i%97 == 0 {
			_, err = p.Send(within(t), m)
		} else {
			err = p.SendAsync(within(t), m, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, c, "", client.WithSubscription("t", client.All()),
		client.WithStart(client.Earliest))
	for i, m := range poll(t, r, n) {
		if !strings.HasPrefix(string(m.Body), fmt.Sprintf("%d ", i)) {
			t.Fatalf("message %d is %.10s", i, m.Body)
		}
	}
}

// TestLingerConcurrentSends: Sends that wait at the same time share requests.
func TestLingerConcurrentSends(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	p := newProducer(t, c, client.WithLinger(10*time.Millisecond, 64<<10))
	ctx := within(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for g := range 64 {
		wg.Go(func() {
			for i := range 5 {
				res, err := p.Send(ctx, text(fmt.Sprintf("%d-%d", g, i)))
				if err != nil || res.Status != client.Stored {
					t.Errorf("send: %+v, %v", res, err)
				}
				mu.Lock()
				ids[res.ID] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ids) != 64*5 {
		t.Errorf("%d different ids, want %d", len(ids), 64*5)
	}
	if r := requests(s, remoting.SendBatchMessage, remoting.SendMessageV2); r > 160 {
		t.Errorf("320 concurrent sends took %d requests", r)
	}
}

// TestLingerRetries: a refused batch goes to the other broker; no message is told twice.
func TestLingerRetries(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 2)
	s.SetTopic("t", 2)
	for _, b := range s.Brokers {
		b.Refuse(remoting.SystemBusy, 1)
	}
	p := newProducer(t, c, client.WithLinger(time.Millisecond, 1<<10))
	got := newOutcomes()
	for i := range 100 {
		if err := p.SendAsync(within(t), text(fmt.Sprint(i)), got.of(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	for body, err := range got.errs {
		if err != nil {
			t.Errorf("message %s: %v", body, err)
		}
	}
	if got.calls != 100 {
		t.Errorf("%d callbacks, want 100", got.calls)
	}
}

// TestLingerSplits: when a broker refuses a batch for its content, each message is judged alone.
func TestLingerSplits(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	s.Brokers[0].Refuse(remoting.MessageIllegal, 2) // the batch, then its first message
	p := newProducer(t, c, client.WithLinger(time.Minute, 64<<10))
	got := newOutcomes()
	for i := range 10 {
		if err := p.SendAsync(within(t), text(fmt.Sprint(i)), got.of(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		err := got.errs[fmt.Sprint(i)]
		if i == 0 && !errors.Is(err, client.ErrInvalidMessage) || i > 0 && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if err := p.TrySendAsync(within(t), text("room again"), nil); err != nil {
		t.Error(err)
	}
}

// TestLingerEnds: Close sends what lingers; a Send whose context ends says that it may be stored.
func TestLingerEnds(t *testing.T) {
	t.Parallel()
	s, c := cluster(t, 1)
	s.SetTopic("t", 1)
	p := newProducer(t, c, client.WithLinger(time.Minute, 64<<10))
	got := newOutcomes()
	if err := p.SendAsync(within(t), text("lingers"), got.of("lingers")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	_, err := p.Send(ctx, text("given up"))
	var se *client.SendError
	if !errors.As(err, &se) || !se.MaybeStored || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	if err := p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if got.calls != 1 || got.errs["lingers"] != nil {
		t.Errorf("after Close: %d calls, %v", got.calls, got.errs)
	}
	if n := len(s.Brokers[0].Records("t", 0)); n != 2 {
		t.Errorf("%d messages stored, want 2", n)
	}
	if err := p.SendAsync(within(t), text("late"), nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestLingerOptions(t *testing.T) {
	t.Parallel()
	_, c := cluster(t, 1)
	for _, o := range []client.ProducerOption{
		client.WithLinger(-1, 1), client.WithLinger(time.Hour, 1), client.WithLinger(1, 0),
		client.WithLinger(1, 5<<20),
	} {
		if _, err := c.NewProducer("pg", o); err == nil || !strings.Contains(err.Error(), "linger") {
			t.Errorf("got %v", err)
		}
	}
}
