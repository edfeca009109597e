// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/client"
)

const (
	timerWait   = 60 * time.Second // of each timer
	retryWait   = 10 * time.Second // RocketMQ's first retry
	levelEvery  = 50 * time.Millisecond
	perClient   = 20 // consumers that share a client, which is one connection
	beginsOnce  = 64 // half messages that are stored at once
	timersEvery = 100 * time.Millisecond
)

// work is what one broker's services have to do. Its counts grow while it lasts.
type work struct {
	b       *broker
	p       *plan
	clients []*client.Client
	cancel  context.CancelFunc
	done    sync.WaitGroup

	retries, checks, timers atomic.Int64

	mu     sync.Mutex
	failed error
	late   map[string][]float64 // ms behind the due moment, by service
}

// startWork fills the broker's services and keeps them busy until stop.
func startWork(ctx context.Context, p *plan, b *broker) (*work, error) {
	w := &work{b: b, p: p, late: map[string][]float64{}}
	inner, cancel := context.WithCancel(ctx)
	w.cancel = cancel
	for _, part := range []func(context.Context) error{w.time, w.delay, w.transact, w.consume} {
		if err := part(inner); err != nil {
			w.stop()
			return nil, err
		}
	}
	return w, nil
}

func (w *work) client() (*client.Client, error) {
	c, err := w.b.client()
	if err == nil {
		w.clients = append(w.clients, c)
	}
	return c, err
}

func (w *work) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil && !errors.Is(err, context.Canceled) {
		w.failed = err
	}
}

func (w *work) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// time keeps plan.timers timers waiting: as many are sent in each moment as come due.
func (w *work) time(ctx context.Context) error {
	c, err := w.client()
	if err != nil {
		return err
	}
	if err := w.b.makeTopic(ctx, c, "timed", 4); err != nil {
		return err
	}
	p, err := c.NewProducer("timed")
	if err != nil {
		return err
	}
	send := func(after time.Duration) error {
		due := time.Now().Add(after)
		m := &client.Message{
			Topic: "timed", DeliverAt: due, Body: strconv.AppendInt(nil, due.UnixMilli(), 10),
		}
		return p.SendAsync(ctx, m, func(_ client.SendResult, err error) {
			if err != nil {
				w.fail(err)
			}
		})
	}
	say("storing %d timers", w.p.timers)
	for i := range w.p.timers {
		if err := send(time.Second + timerWait*time.Duration(i)/time.Duration(w.p.timers)); err != nil {
			return err
		}
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	w.done.Go(func() {
		tick := time.NewTicker(timersEvery)
		defer tick.Stop()
		each := float64(w.p.timers) * float64(timersEvery) / float64(timerWait)
		for owed := 0.0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for owed += each; owed >= 1; owed-- {
				if err := send(timerWait); err != nil {
					w.fail(err)
					return
				}
			}
		}
	})
	return w.read(ctx, c, "timed", func(m *client.Received) (ms int64) {
		w.timers.Add(1)
		ms, _ = strconv.ParseInt(string(m.Body), 10, 64)
		return ms
	})
}

// delay sends twenty messages a second with the first delay level, one second.
func (w *work) delay(ctx context.Context) error {
	c, err := w.client()
	if err != nil {
		return err
	}
	if err := w.b.makeTopic(ctx, c, "levels", 4); err != nil {
		return err
	}
	p, err := c.NewProducer("levels")
	if err != nil {
		return err
	}
	w.done.Go(func() {
		tick := time.NewTicker(levelEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := p.Send(ctx, &client.Message{
				Topic: "levels", DelayLevel: 1, Body: []byte("delayed"),
			}); err != nil {
				w.fail(err)
				return
			}
		}
	})
	return w.read(ctx, c, "levels", func(m *client.Received) int64 {
		return m.BornAt.Add(time.Second).UnixMilli()
	})
}

// read notes by how much messages came late into their topic. due is when one was to be there.
func (w *work) read(
	ctx context.Context, c *client.Client, topic string, due func(*client.Received) int64,
) error {
	r, err := c.NewReader("", client.WithSubscription(topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		return err
	}
	w.done.Go(func() {
		for {
			ms, err := r.Poll(ctx, 1000)
			if err != nil {
				w.fail(err)
				return
			}
			w.mu.Lock()
			for _, m := range ms {
				w.late[topic] = append(w.late[topic], float64(m.StoredAt.UnixMilli()-due(m)))
			}
			w.mu.Unlock()
		}
	})
	return nil
}

// transact leaves plan.halves half messages undecided. Their producer answers every check with
// "not decided yet".
func (w *work) transact(ctx context.Context) error {
	c, err := w.client()
	if err != nil {
		return err
	}
	if err := w.b.makeTopic(ctx, c, "halves", 4); err != nil {
		return err
	}
	p, err := c.NewTransactionProducer("halves",
		func(context.Context, *client.Received) client.TxState {
			w.checks.Add(1)
			return client.TxUnknown
		})
	if err != nil {
		return err
	}
	say("storing %d half messages", w.p.halves)
	var left atomic.Int64
	left.Store(int64(w.p.halves))
	var group sync.WaitGroup
	for range beginsOnce {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				_, err := p.Begin(ctx, &client.Message{Topic: "halves", Body: make([]byte, 1024)})
				if err != nil {
					w.fail(err)
					return
				}
			}
		})
	}
	group.Wait()
	return w.err()
}

// consume starts plan.consumers groups of one member that give the one message of their topic back,
// again and again.
func (w *work) consume(ctx context.Context) error {
	say("starting %d consumers", w.p.consumers)
	var c *client.Client
	for i := range w.p.consumers {
		if i%perClient == 0 {
			var err error
			if c, err = w.client(); err != nil {
				return err
			}
			if i == 0 {
				if err := w.begin(ctx, c); err != nil {
					return err
				}
			}
		}
		k, err := c.NewConsumer(fmt.Sprint("retrying-", i), client.WithConcurrency(1),
			client.WithSubscription("retried", client.All()), client.WithStart(client.Earliest),
			client.WithMaxRetries(1_000_000))
		if err != nil {
			return err
		}
		w.done.Go(func() {
			// They do not all fail in one moment.
			first := time.Duration(rand.Int64N(int64(retryWait)))
			err := k.Run(ctx, func(_ context.Context, m *client.Received) error {
				w.retries.Add(1)
				if m.Attempt == 1 {
					if err := wait(ctx, first); err != nil {
						return err
					}
				}
				return client.RetryAfter(retryWait, errors.New("again"))
			})
			if err != nil && ctx.Err() == nil {
				w.fail(err)
			}
		})
	}
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for w.retries.Load() < int64(w.p.consumers) {
		if err := wait(limit, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d consumers have the message: %w", w.retries.Load(),
				w.p.consumers, err)
		}
	}
	return nil
}

func (w *work) begin(ctx context.Context, c *client.Client) error {
	if err := w.b.makeTopic(ctx, c, "retried", 1); err != nil {
		return err
	}
	p, err := c.NewProducer("retried")
	if err == nil {
		_, err = p.Send(ctx, &client.Message{Topic: "retried", Body: make([]byte, 1024)})
	}
	return err
}

// stop ends all of it.
func (w *work) stop() {
	w.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.clients {
		_ = c.Close(ctx)
	}
	w.done.Wait()
}

// forget drops what was noted so far about late messages.
func (w *work) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.late)
}

// lateness is how late messages of one service came, in milliseconds.
type lateness struct {
	Messages int     `json:"messages"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	Max      float64 `json:"max_ms"`
	Early    int     `json:"early"` // before the millisecond they were due in
}

func (w *work) lateness(topic string) lateness {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.late[topic])
	if len(list) == 0 {
		return lateness{}
	}
	slices.Sort(list)
	at := func(q float64) float64 { return list[min(int(q*float64(len(list))), len(list)-1)] }
	early, _ := slices.BinarySearch(list, 0)
	return lateness{len(list), at(0.5), at(0.99), at(0.999), list[len(list)-1], early}
}
