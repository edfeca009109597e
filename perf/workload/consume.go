// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// RunConsume pulls until the duration is over, the count is reached, the end of every queue is
// reached (UntilEnd) or ctx ends, prints to out on the way, and returns the figures. With Verify
// and neither duration nor count it reads to the end. The result's OK is false when verification
// found a fault or no message came at all. An error means that the run could not begin, or that its
// figures are void.
func RunConsume(ctx context.Context, cfg Consume, out Output) (*measure.Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Verify && cfg.Duration == 0 && cfg.Count == 0 {
		cfg.UntilEnd = true
	}
	ctl := newControl(cfg.NameServers, cfg.Credentials)
	defer ctl.close()
	ctl.waiting = out.Waiting
	c, err := newConsumer(ctx, &cfg, &timing{clock: measure.NewClock()}, ctl)
	if err != nil {
		return nil, err
	}
	printConsumeHeader(&cfg, out)
	r := &run{
		timing: c.timing, warmup: time.Duration(cfg.Warmup), duration: time.Duration(cfg.Duration),
		brokerPID: cfg.BrokerPID, out: out, loads: []load{c},
	}
	if err := r.measureLead(ctx); err != nil {
		return nil, err
	}
	res := c.conclude()
	out.finish(res)
	return res, nil
}

// newConsumer finds queues and offsets and makes the connections of a reading load.
func newConsumer(
	ctx context.Context, cfg *Consume, t *timing, ctl *control,
) (*consumer, error) {
	c := &consumer{cfg: cfg, timing: t, done: make(chan struct{})}
	cfg.Binary = cfg.Binary || cfg.Credentials != nil
	c.budget.Store(cfg.Count)
	var err error
	if c.pullers, err = c.prepare(ctx, ctl); err != nil {
		return nil, err
	}
	c.own = part{
		command: "consume", from: "stored", settings: cfg, wanted: cfg.Count,
		line: func(r measure.Rates, now time.Time) string {
			var stored, born int64
			for _, p := range c.pullers {
				s, b := p.rec.TakeMax()
				stored, born = max(stored, s), max(born, b)
			}
			return r.ConsumeLine(now, stored, born)
		},
		backlog: func() (n int64) {
			for _, p := range c.pullers {
				n += p.behind.Load()
			}
			return n
		},
	}
	if cfg.EndToEnd {
		c.own.from = "due"
	}
	for _, p := range c.pullers {
		c.own.recorders = append(c.own.recorders, p.rec)
	}
	c.own.threads = len(c.pullers)
	return c, nil
}

// prepare finds queues and offsets and makes one puller for each connection.
func (c *consumer) prepare(ctx context.Context, ctl *control) ([]*puller, error) {
	var targets []target
	for _, topic := range topicNames(c.cfg.Topic, c.cfg.Topics) {
		list, err := ctl.readable(ctx, topic, c.cfg.Queues)
		if err != nil {
			return nil, err
		}
		targets = append(targets, list...)
	}
	var pullers []*puller
	b := &bounds{control: ctl, known: map[bound]int64{}}
	for _, group := range topicNames(c.cfg.Group, c.cfg.Groups) {
		list, err := c.spread(ctx, b, group, targets)
		if err != nil {
			return nil, err
		}
		pullers = append(pullers, list...)
	}
	for i, p := range pullers {
		if err := p.connect(ctx); err != nil {
			for _, made := range pullers[:i] {
				_ = made.conn.Close()
			}
			return nil, err
		}
	}
	return pullers, nil
}

// spread deals the queues of each broker to the connections of one group.
func (c *consumer) spread(
	ctx context.Context, b *bounds, group string, targets []target,
) ([]*puller, error) {
	byAddr := map[string][]*pullQueue{}
	var addrs []string
	for i := range targets {
		t := &targets[i]
		at, err := b.offset(ctx, t, group, c.cfg.From)
		if err != nil {
			return nil, err
		}
		end, err := b.offset(ctx, t, group, Last)
		if err != nil {
			return nil, err
		}
		if byAddr[t.addr] == nil {
			addrs = append(addrs, t.addr)
		}
		byAddr[t.addr] = append(byAddr[t.addr], newPullQueue(t, at, end))
	}
	var pullers []*puller
	for i, addr := range addrs {
		queues := byAddr[addr]
		// Connections are dealt to brokers in turn; each broker has one at least.
		n := c.cfg.Connections / len(addrs)
		if i < c.cfg.Connections%len(addrs) {
			n++
		}
		n = min(max(n, 1), len(queues))
		list := make([]*puller, n)
		for j := range list {
			list[j] = newPuller(c, addr, group)
		}
		for j, q := range queues {
			list[j%n].queues = append(list[j%n].queues, q)
		}
		pullers = append(pullers, list...)
	}
	return pullers, nil
}

func (c *consumer) part() *part { return &c.own }

func (c *consumer) through() <-chan struct{} { return c.done }

func (c *consumer) stop() {
	c.stopped.Store(true)
	c.cancel() // ends reads that wait for a long poll
}

func (c *consumer) discard() {
	for _, p := range c.pullers {
		_ = p.conn.Close()
	}
}

func (c *consumer) start(ctx context.Context) {
	loops, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	var wg sync.WaitGroup
	for _, p := range c.pullers {
		wg.Go(func() { p.loop(loops) })
	}
	go func() {
		wg.Wait()
		cancel()
		close(c.done)
	}()
}

// conclude returns the figures of a load that is through.
func (c *consumer) conclude() *measure.Result {
	res := c.own.result()
	c.judge(res, c.pullers)
	return res
}

// judge joins the checkers and decides whether the run was good.
func (c *consumer) judge(res *measure.Result, pullers []*puller) {
	if c.cfg.Verify {
		whole := c.newChecker()
		drained := true
		for _, p := range pullers {
			whole.Merge(p.checker)
			drained = drained && p.drained()
		}
		f := whole.Faults()
		res.Verify = &f
		switch {
		case f.Any(c.cfg.AllowSwaps, drained):
			res.OK = false
			res.Problem = "verification found faults"
			if !f.Any(true, drained) {
				res.Problem = "messages in flight on one connection were stored in another order " +
					"than they were sent; brokers with several send threads do that: " +
					"pass --allow-swaps, or produce with --in-flight 1"
			}
		case f.Messages == 0:
			res.OK = false
			res.Problem = "there was no numbered message: produce with --verify first"
		case c.cfg.UntilEnd && !drained:
			res.OK = false
			res.Problem = "stopped before the end of every queue was reached"
		}
	}
	if err := c.failure(); err != nil && res.OK && res.Messages == 0 {
		res.OK = false
		res.Problem = "nothing was read: " + err.Error()
	}
}

func (c *consumer) newChecker() *measure.Checker {
	checker := measure.NewChecker(c.wholeRuns || c.cfg.From == First)
	checker.LateAfter(time.Duration(c.cfg.Late))
	return checker
}

// note keeps the last few failures of connections.
func (c *consumer) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const keep = 3
	c.failed = append(c.failed, err)
	c.failed = c.failed[max(len(c.failed)-keep, 0):]
}

// failure returns why connections ended.
func (c *consumer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.failed...)
}
