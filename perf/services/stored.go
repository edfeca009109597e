// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// timerSteps and halfSteps are the numbers of waiting messages of the second part.
func timerSteps() []int { return []int{0, 1000, 100_000, 1_000_000} }

func halfSteps() []int { return []int{1000, 100_000} }

// pending is what a broker needs on whose store messages wait, none of them due.
type pending struct {
	What     string  `json:"what"`
	Messages int     `json:"messages"`
	Start    float64 `json:"start_seconds"`     // of a killed broker's successor, until it serves
	StartCPU float64 `json:"start_cpu_seconds"` // user and system time until then
	RSSAnon  int64   `json:"rss_anon_bytes"`
	IdleCPU  float64 `json:"idle_cpu_percent"` // of a core
}

// measureStored fills stores, kills their brokers, and watches the next ones.
func (p *plan) measureStored(ctx context.Context, work string, out *results) error {
	for _, n := range timerSteps() {
		if err := p.pending(ctx, work, out, "timers", n, fillTimers); err != nil {
			return err
		}
	}
	for _, n := range halfSteps() {
		if err := p.pending(ctx, work, out, "half messages", n, fillHalves); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) pending(
	ctx context.Context, work string, out *results, what string, n int,
	fill func(ctx context.Context, b *broker, n int) error,
) error {
	b, err := newBroker(p.skylark, what, filepath.Join(work, fmt.Sprint(what, n)))
	if err != nil {
		return err
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	defer b.End(syscall.SIGTERM)
	say("storing %d %s", n, what)
	if n > 0 {
		if err := fill(ctx, b, n); err != nil {
			return err
		}
	}
	if err := wait(ctx, 2*time.Second); err != nil { // what was stored last is filed
		return err
	}
	b.End(syscall.SIGKILL)
	if err := b.start(ctx); err != nil {
		return err
	}
	row := pending{What: what, Messages: n, Start: b.startedIn.Seconds()}
	u, err := b.Usage()
	if err != nil {
		return err
	}
	row.StartCPU = u.CPUSeconds()
	// The kernel's write-back and the collector have calmed down after this.
	if err := wait(ctx, 3*time.Second); err != nil {
		return err
	}
	say("watching a broker with %d %s for %v, started in %v", n, what, p.idle, b.startedIn)
	if row.IdleCPU, row.RSSAnon, err = b.watch(ctx, p.idle); err != nil {
		return err
	}
	out.pending = append(out.pending, row)
	return nil
}

// fillTimers stores timers that are due evenly over two days, from an hour on.
func fillTimers(ctx context.Context, b *broker, n int) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := b.makeTopic(ctx, c, "timed", 4); err != nil {
		return err
	}
	p, err := c.NewProducer("timed")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	for i := range n {
		after := time.Hour + 46*time.Hour/time.Duration(n)*time.Duration(i)
		m := &client.Message{Topic: "timed", Delay: after, Body: strconv.AppendInt(nil, int64(i), 10)}
		err := p.SendAsync(ctx, m, func(_ client.SendResult, err error) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
		if err != nil {
			return err
		}
	}
	err = p.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(err, failed)
}

// fillHalves stores half messages whose producer goes away then: they wait until it comes back.
func fillHalves(ctx context.Context, b *broker, n int) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := b.makeTopic(ctx, c, "halves", 4); err != nil {
		return err
	}
	p, err := c.NewTransactionProducer("halves",
		func(context.Context, *client.Received) client.TxState { return client.TxUnknown })
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	failed := make(chan error, beginsOnce)
	for range beginsOnce {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				_, err := p.Begin(ctx, &client.Message{Topic: "halves", Body: make([]byte, 128)})
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed
}
