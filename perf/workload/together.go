// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Reader is a reading side of a Together.
type Reader struct {
	Name string `json:"name"` // of its part in the results, unlike any other's
	// Consume is as for RunConsume; NameServers, Topic, Topics, Queues, Warmup, Duration, Count and
	// BrokerPID come from the producing side.
	Consume Consume `json:"consume"`
}

// Together are the settings of a run that sends and reads at once, in one process and by one clock.
type Together struct {
	Command string // latency, mixed or verify: the name in the results
	Produce Produce
	Readers []Reader
	// Drain bounds how long readers go on after the last send, to read what is there.
	Drain Duration
}

func (t *Together) check() error {
	if err := t.Produce.check(); err != nil {
		return err
	}
	seen := map[string]bool{sendPart: true}
	for i := range t.Readers {
		r := &t.Readers[i]
		if r.Name == "" || seen[r.Name] {
			return fmt.Errorf("workload: %w: reader %q has the name of another part", ErrSettings, r.Name)
		}
		seen[r.Name] = true
		c, p := &r.Consume, &t.Produce
		c.NameServers, c.Topic, c.Topics, c.Queues = p.NameServers, p.Topic, p.Topics, p.Queues
		c.Binary, c.Warmup, c.Duration, c.BrokerPID = p.Binary, p.Warmup, p.Duration, p.BrokerPID
		c.Count, c.UntilEnd, c.Credentials = 0, false, p.Credentials
		if c.Verify && c.From != Last {
			return fmt.Errorf("workload: %w: a reader that verifies begins at the end, not at %s: it "+
				"judges this run only", ErrSettings, c.From)
		}
		if (c.EndToEnd || c.Verify) && !t.Produce.Verify {
			return fmt.Errorf("workload: %w: reader %s needs numbered messages", ErrSettings, r.Name)
		}
		if err := c.check(); err != nil {
			return err
		}
	}
	if t.Drain <= 0 {
		return fmt.Errorf("workload: %w: drain must be positive", ErrSettings)
	}
	return nil
}

// sendPart is the part of the producing side.
const sendPart = "send"

// RunTogether makes the topic if it is not there, begins to read, sends, and after the last send
// reads to the end. It returns a result for the sends and then one for each reader. As with
// RunProduce and RunConsume a result's OK is false when that side was not good; an error means
// that the run could not begin, or that its figures are void.
func RunTogether(ctx context.Context, cfg Together, out Output) ([]*measure.Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &cfg.Produce
	if p.Duration == 0 && p.Count == 0 {
		p.Duration = Duration(length(p.Steps))
	}
	ctl := newControl(p.NameServers, p.Credentials)
	defer ctl.close()
	var targets []target
	for _, topic := range p.topics() {
		list, err := ctl.existing(ctx, topic, p.Queues)
		if err != nil {
			return nil, err
		}
		targets = append(targets, list...)
	}
	t, err := gather(ctx, &cfg, ctl, targets)
	if err != nil {
		return nil, err
	}
	printTogetherHeader(&cfg, out)
	r := &run{
		timing: t.producer.timing, warmup: time.Duration(p.Warmup), out: out,
		duration: time.Duration(p.Duration), brokerPID: p.BrokerPID, loads: t.loads(),
	}
	if err := r.measureLead(ctx); err != nil {
		return nil, err
	}
	return t.conclude(ctx, r, ctl, &cfg)
}

// gathering are the sides of one run.
type gathering struct {
	producer  *producer
	consumers []*consumer
}

// gather makes the connections of all sides. Readers ask for offsets before anything is sent.
func gather(
	ctx context.Context, cfg *Together, ctl *control, targets []target,
) (*gathering, error) {
	shared := &timing{clock: measure.NewClock()}
	g := &gathering{}
	discard := func() {
		for _, l := range g.consumers {
			l.discard()
		}
	}
	for i := range cfg.Readers {
		reader := &cfg.Readers[i]
		c, err := newConsumer(ctx, &reader.Consume, shared, ctl)
		if err != nil {
			discard()
			return nil, err
		}
		c.wholeRuns = true
		c.own.name, c.own.command = reader.Name, cfg.Command
		if reader.Consume.EndToEnd {
			c.own.from = "sent"
			if cfg.Produce.paced() {
				c.own.from = "due"
			}
		}
		g.consumers = append(g.consumers, c)
	}
	var err error
	if g.producer, err = newProducer(ctx, &cfg.Produce, shared, targets); err != nil {
		discard()
		return nil, err
	}
	g.producer.own.name, g.producer.own.command = sendPart, cfg.Command
	return g, nil
}

func (g *gathering) loads() []load {
	list := []load{g.producer}
	for _, c := range g.consumers {
		list = append(list, c)
	}
	return list
}

// conclude closes the streams, lets the readers read to the end and sums everything up.
func (g *gathering) conclude(
	ctx context.Context, r *run, ctl *control, cfg *Together,
) ([]*measure.Result, error) {
	sent, err := g.producer.conclude(ctx, ctl)
	if err != nil {
		r.end()
		return nil, err
	}
	late := g.drain(ctx, ctl, time.Duration(cfg.Drain))
	r.end()
	results := []*measure.Result{sent}
	for _, c := range g.consumers {
		res := c.conclude()
		if late != nil && res.OK && (c.cfg.Verify || c.cfg.EndToEnd) {
			res.OK, res.Problem = false, late.Error()
		}
		results = append(results, res)
	}
	for _, res := range results {
		r.out.finish(res)
	}
	return results, nil
}

// drain has the readers go on to where each queue ends now, and waits for those that must see
// everything, for at most limit. An error says what could not be reached.
func (g *gathering) drain(ctx context.Context, ctl *control, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	ends := map[measure.Place]int64{}
	for _, c := range g.consumers {
		if !c.cfg.Verify && !c.cfg.EndToEnd {
			continue // it stops where it is
		}
		for _, p := range c.pullers {
			for _, q := range p.queues {
				end, known := ends[q.place]
				if !known {
					var err error
					if end, err = ctl.endOf(ctx, &q.target); err != nil {
						return fmt.Errorf("the end of queue %s could not be asked for: %w", q.place, err)
					}
					ends[q.place] = end
				}
				q.goal.Store(end)
			}
		}
		c.draining.Store(true)
	}
	for _, c := range g.consumers {
		if !c.draining.Load() {
			continue
		}
		select {
		case <-c.through():
		case <-ctx.Done():
			text := fmt.Sprintf("not everything was read within %s of the last send", limit)
			if err := c.failure(); err != nil {
				text += ": " + err.Error()
			}
			return errors.New(text)
		}
	}
	return nil
}

// endOf asks for the end of a queue until it is told, or ctx ends.
func (c *control) endOf(ctx context.Context, t *target) (int64, error) {
	for {
		end, err := c.offset(ctx, t, "", Last)
		if err == nil {
			return end, nil
		}
		timer := time.NewTimer(redialFirst)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, err
		}
	}
}

// printTogetherHeader says what runs; there is no program of RocketMQ's to take the words from.
func printTogetherHeader(cfg *Together, out Output) {
	if out.Reports == nil || out.JSON {
		return
	}
	printProduceHeader(&cfg.Produce, out)
	for i := range cfg.Readers {
		printConsumeHeader(&cfg.Readers[i].Consume, out)
	}
}
