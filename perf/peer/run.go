// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// row is one load with what was measured of it.
type row struct {
	load      load
	command   []string
	memFreeMB int64     // the most when a round began
	outcomes  []outcome // warm-up first
	failure   string    // why it ended early; "": it did not
}

// rounds returns the measured runs of one side.
func (r *row) rounds(side string) []outcome {
	var list []outcome
	for _, o := range r.outcomes {
		if o.Side == side && o.Round > 0 {
			list = append(list, o)
		}
	}
	return list
}

// measureLoad takes all sides through one load.
func (b *bench) measureLoad(ctx context.Context, l load) (err error) {
	r := &row{load: l}
	b.out.rows = append(b.out.rows, r)
	defer func() {
		if err != nil {
			r.failure = err.Error()
		}
		if err != nil || !b.plan.quick {
			b.down(l.name)
		}
	}()
	if err := b.up(ctx, l); err != nil {
		return err
	}
	for _, s := range b.sides {
		if err := b.prepare(ctx, r, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for round := range b.plan.rounds {
		for i := range b.sides {
			s := b.sides[(i+round)%len(b.sides)] // neither side is always first
			if l.coldRead {
				say("%s: %s without its store in the page cache", l.name, s.name)
				if err := s.cold(ctx); err != nil {
					return err
				}
			}
			o, err := b.alone(ctx, r, s)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", s.name, round+1, err)
			}
			o.Round = round + 1
			r.outcomes = append(r.outcomes, o)
			say("%s: round %d, %s: %s", l.name, round+1, s.name, shortly(&o, &l))
		}
	}
	return nil
}

// up starts all sides on empty stores. A quick run keeps those that run with the settings of the
// load, stores and all: starting Apache's servers takes longer than loading them.
func (b *bench) up(ctx context.Context, l load) error {
	if b.plan.quick && b.running != nil && maps.Equal(*b.running, l.settings) {
		return nil
	}
	b.down(l.name)
	for _, s := range b.sides {
		say("%s: starting %s", l.name, s.name)
		if err := s.up(ctx, l.settings); err != nil {
			return err
		}
		b.out.noteStart(s)
	}
	b.running = &l.settings
	return nil
}

// down ends all sides and keeps the ends of their logs.
func (b *bench) down(label string) {
	b.running = nil
	for _, s := range b.sides {
		s.down(b.out.logs(), label)
	}
}

func shortly(o *outcome, l *load) string {
	text := fmt.Sprintf("%.0f msg/s", o.Result.MessagesPerSec)
	if o.Result.Broker != nil {
		text += fmt.Sprintf(", %.0f a CPU-second", o.Result.Broker.MessagesPerCPUSecond)
	}
	if l.latency {
		text += fmt.Sprintf(", p99.9 %v ms", o.tail(l).Latency.P999)
	}
	return text
}

// makeBacklog sends what a load reads, if it reads a backlog.
func (b *bench) makeBacklog(ctx context.Context, l *load, s *side) error {
	if l.backlog == nil {
		return nil
	}
	n := l.count
	if n == 0 || n > b.plan.backlog {
		n = b.plan.backlog
	}
	say("%s: making a backlog of %d messages for %s", l.name, n, s.name)
	args := append([]string{"produce"}, l.backlog...)
	_, err := b.perf(ctx, s, append(args, "--count", strconv.Itoa(n))...)
	return err
}

// prepare makes the backlog of a load and warms the side up.
func (b *bench) prepare(ctx context.Context, r *row, s *side) error {
	l := &r.load
	if err := b.makeBacklog(ctx, l, s); err != nil {
		return err
	}
	say("%s: warming up %s", l.name, s.name)
	end := time.Now().Add(b.plan.warmup)
	for left := b.plan.warmup; left >= time.Second; left = time.Until(end) {
		o, err := b.once(ctx, r, s, left)
		if err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		r.outcomes = append(r.outcomes, o)
	}
	return nil
}

// alone runs one round against a side while the servers of the others are stopped: an idle broker
// that is not idle must not take its CPU from the one that is measured.
func (b *bench) alone(ctx context.Context, r *row, s *side) (outcome, error) {
	defer b.pauseOthers(s)()
	// A side that was stopped has timers to catch up with: its name server may have taken the broker
	// for dead, and then knows none until that registers again.
	if err := wait(ctx, settle); err != nil {
		return outcome{}, err
	}
	if err := s.waitFor(ctx, time.Minute, s.ready); err != nil {
		return outcome{}, fmt.Errorf("not served again: %w", err)
	}
	if b.cache != nil {
		if err := b.cache.topUp(ctx); err != nil {
			return outcome{}, err
		}
	}
	free, err := memoryBytes("MemFree")
	if err == nil {
		r.memFreeMB = max(r.memFreeMB, free>>20)
	}
	return b.once(ctx, r, s, b.plan.duration)
}

// pauseOthers stops the servers of all sides but s and returns what lets them go on.
func (b *bench) pauseOthers(s *side) (resume func()) {
	others := slices.DeleteFunc(slices.Clone(b.sides), func(o *side) bool { return o == s })
	for _, o := range others {
		o.pause()
	}
	return func() {
		for _, o := range others {
			o.resume()
		}
	}
}

// settle is between the end of a round and the next.
const settle = 2 * time.Second

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once runs the load against a side. A side that ended meanwhile is an error that says how.
func (b *bench) once(ctx context.Context, r *row, s *side, d time.Duration) (outcome, error) {
	o, err := b.load(ctx, r, s, d)
	if died := s.alive(); died != nil {
		return o, errors.Join(died, err)
	}
	if err == nil {
		err = check(o.Result)
	}
	return o, err
}

// check refuses a run that measured nothing: a broker that has ended must not enter a median as 0.
func check(r *measure.Result) error {
	switch {
	case r.Messages == 0:
		return fmt.Errorf("no message was answered: %d sends failed; is the broker still there?",
			r.SendFailed)
	case r.Broker == nil || r.Broker.CPUSeconds == 0:
		return fmt.Errorf("%d messages cost the broker no CPU: its process was not measured", r.Messages)
	}
	return nil
}

func (b *bench) load(ctx context.Context, r *row, s *side, d time.Duration) (outcome, error) {
	l := &r.load
	o := outcome{Side: s.name}
	var err error
	switch {
	case l.java:
		o.Result, r.command, err = b.javaClient(ctx, s, d)
		return o, err
	case l.endToEnd != nil:
		r.command = append(append([]string{"latency"}, l.endToEnd...), "--duration", d.String())
		parts, err := b.perfParts(ctx, s, r.command...)
		if err == nil && len(parts) != 2 {
			err = fmt.Errorf("perf latency gave %d results, want the sending and the reading part", len(parts))
		}
		if err != nil {
			return o, err
		}
		o.Result, o.Reader = parts[0], parts[1]
		return o, nil
	case l.produce == nil:
		r.command = append([]string{"consume"}, l.consume...)
		o.Result, err = b.perf(ctx, s, r.command...)
		return o, err
	}
	most := l.messages
	if most == 0 {
		most = b.plan.maxSent
	}
	r.command = append(append([]string{"produce"}, l.produce...), "--duration", d.String(),
		"--count", strconv.Itoa(most))
	if l.consume == nil {
		o.Result, err = b.perf(ctx, s, r.command...)
		return o, err
	}
	o.Result, o.Reader, err = b.sendAndRead(ctx, s, l, r.command, d)
	return o, err
}

// sendAndRead runs the reader from a second before the sender to a second after it.
func (b *bench) sendAndRead(
	ctx context.Context, s *side, l *load, send []string, d time.Duration,
) (sender, reader *measure.Result, err error) {
	if err := b.makeTopic(ctx, s, l); err != nil {
		return nil, nil, err
	}
	const around = time.Second
	type read struct {
		r   *measure.Result
		err error
	}
	done := make(chan read, 1)
	args := append(append([]string{"consume"}, l.consume...), "--duration", (d + 2*around).String())
	go func() {
		r, err := b.perf(ctx, s, args...)
		done <- read{r, err}
	}()
	wait := time.NewTimer(around)
	defer wait.Stop()
	select {
	case <-wait.C:
	case early := <-done:
		return nil, nil, fmt.Errorf("the reader ended early: %w", early.err)
	}
	sender, err = b.perf(ctx, s, send...)
	got := <-done
	return sender, got.r, errors.Join(err, got.err)
}

// makeTopic sends one message, so that a reader finds the topic.
func (b *bench) makeTopic(ctx context.Context, s *side, l *load) error {
	args := append([]string{"produce"}, l.produce...)
	_, err := b.perf(ctx, s, append(args, "--count", "1")...)
	return err
}

// perf runs `skylark perf` against a side, measuring its broker, and returns the result.
func (b *bench) perf(ctx context.Context, s *side, args ...string) (*measure.Result, error) {
	runs, err := b.perfParts(ctx, s, args...)
	if err != nil {
		return nil, err
	}
	return runs[len(runs)-1], nil
}

// perfParts returns the results of all parts, at least one.
func (b *bench) perfParts(ctx context.Context, s *side, args ...string) ([]*measure.Result, error) {
	line := append([]string{"perf"}, args...)
	line = append(line, "-n", s.names, "--broker-pid", strconv.Itoa(s.brokerPID()), "--json")
	text, ended := output(ctx, b.plan.skylark, line...)
	runs, err := report.Parse(text)
	if ended != nil && (err != nil || !refused(runs)) {
		return nil, ended
	}
	if err == nil && len(runs) == 0 {
		err = errors.New("no result")
	}
	if err != nil {
		return nil, fmt.Errorf("%s printed %.300q: %w", strings.Join(line, " "), text, err)
	}
	return runs, nil
}

// refused reports whether the broker refused some of what it was sent. The load generator then ends with
// an error; the round counts all the same, and the row "failed" of the report tells how many.
func refused(runs []*measure.Result) bool {
	return slices.ContainsFunc(runs, func(r *measure.Result) bool {
		return r.Messages > 0 && r.SendFailed+r.ResponseFailed > 0
	})
}

// commandLine renders the options of a load as somebody would type them.
func (b *bench) commandLine(r *row) string {
	if r.load.java {
		return strings.Join(r.command, " ")
	}
	text := filepath.Base(b.plan.skylark) + " perf " + strings.Join(r.command, " ")
	if r.load.consume != nil && r.load.produce != nil {
		text += "   # beside: perf consume " + strings.Join(r.load.consume, " ")
	}
	return text
}
