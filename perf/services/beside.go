// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// The two brokers of the first part.
const (
	plain  = "plain"
	worked = "with services"
)

// load is one plain load: arguments of `skylark perf`.
type load struct {
	name, about string
	args        []string
}

// pullers read the backlog that often, so that CPU time is more than a few steps of 10 ms.
const pullers = 8

func (p *plan) loads() []load {
	timed := []string{"--warmup", p.warmup.String(), "--duration", p.duration.String()}
	return []load{
		{
			name: "send", about: "1 KB single sends, 4 connections x 64 in flight",
			args: append([]string{
				"produce", "--topic", "plain", "--size", "1024", "--connections", "4", "--in-flight", "64",
			}, timed...),
		},
		{
			name: "pull", about: "1 KB, a hot backlog, 32 messages a pull",
			args: []string{
				"consume", "--topic", "backlog", "--from", "first", "--until-end", "--connections", "1",
				"--pull-batch", "32", "--groups", strconv.Itoa(pullers), "--warmup", "0s",
			},
		},
		{
			name:  "send and pull at a fixed rate",
			about: fmt.Sprintf("1 KB at %d a second, read as they come", p.rate),
			args: append([]string{
				"latency", "--topic", "fixed", "--size", "1024", "--connections", "4",
				"--rate", strconv.Itoa(p.rate), "--drain", "2s",
			}, timed...),
		},
	}
}

// run is one measured run.
type run struct {
	Load   string          `json:"load"`
	Side   string          `json:"side"`
	Round  int             `json:"round"`
	Result *measure.Result `json:"result"`
}

// measureBeside runs plain loads on a broker without services at work and on one with, in turn.
func (p *plan) measureBeside(ctx context.Context, work string, out *results) error {
	brokers := map[string]*broker{}
	sides := []string{plain, worked}
	if p.rounds == 0 {
		sides = sides[1:]
	}
	for _, side := range sides {
		b, err := newBroker(p.skylark, side, filepath.Join(work, side))
		if err != nil {
			return err
		}
		if err := b.start(ctx); err != nil {
			return err
		}
		defer b.End(syscall.SIGTERM)
		brokers[side] = b
		if p.rounds == 0 {
			say("the broker is process %d", b.PID())
			continue
		}
		if err := p.prepare(ctx, b); err != nil {
			return err
		}
	}
	w, err := startWork(ctx, p, brokers[worked])
	if err != nil {
		return err
	}
	defer w.stop()
	say("waiting until half messages are checked and each consumer has its message again")
	for w.checks.Load() < int64(p.halves) || w.retries.Load() < 2*int64(p.consumers) {
		if err := errors.Join(wait(ctx, 100*time.Millisecond), w.err()); err != nil {
			return err
		}
	}
	w.forget()
	if err := p.alone(ctx, brokers[worked], w, out); err != nil {
		return err
	}
	if p.rounds > 0 {
		w.forget()
	}
	for round := range p.rounds {
		for _, l := range p.loads() {
			for _, side := range sides {
				say("round %d of %d: %s, %s", round+1, p.rounds, l.name, side)
				r, err := p.load(ctx, brokers[side], l)
				if err != nil {
					return err
				}
				out.runs = append(out.runs, run{l.name, side, round, r})
			}
		}
	}
	out.late = map[string]lateness{"timers": w.lateness("timed"), "delay levels": w.lateness("levels")}
	return w.err()
}

// prepare makes the topics of the loads, and the backlog.
func (p *plan) prepare(ctx context.Context, b *broker) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	for _, topic := range []string{"plain", "backlog", "fixed"} {
		if err := b.makeTopic(ctx, c, topic, 8); err != nil {
			return err
		}
	}
	_, err = p.load(ctx, b, load{name: "backlog", args: []string{
		"produce", "--topic", "backlog", "--size", "1024", "--connections", "4", "--in-flight", "64",
		"--count", strconv.Itoa(p.backlog), "--warmup", "0s",
	}})
	return err
}

// own is what the services take while there is no other load.
type own struct {
	Seconds    float64 `json:"seconds"`
	CPUPercent float64 `json:"cpu_percent"` // of a core
	RSSAnon    int64   `json:"rss_anon_bytes"`
	Checks     float64 `json:"checks_per_second"`
	Retries    float64 `json:"retries_per_second"`
	Timers     float64 `json:"timers_per_second"`
}

// alone watches the broker with its services only.
func (p *plan) alone(ctx context.Context, b *broker, w *work, out *results) (err error) {
	say("watching the services alone for %v", p.idle)
	checks, retries, timers := w.checks.Load(), w.retries.Load(), w.timers.Load()
	out.own.Seconds = p.idle.Seconds()
	out.own.CPUPercent, out.own.RSSAnon, err = b.watch(ctx, p.idle)
	out.own.Checks = float64(w.checks.Load()-checks) / p.idle.Seconds()
	out.own.Retries = float64(w.retries.Load()-retries) / p.idle.Seconds()
	out.own.Timers = float64(w.timers.Load()-timers) / p.idle.Seconds()
	return err
}

// load runs `skylark perf` and returns its first result, which has the broker's CPU.
func (p *plan) load(ctx context.Context, b *broker, l load) (*measure.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.warmup+p.duration+2*time.Minute)
	defer cancel()
	args := append([]string{"perf"}, l.args...)
	args = append(args, "-n", b.Names, "--json", "--broker-pid", strconv.Itoa(b.PID()))
	cmd := exec.CommandContext(ctx, p.skylark, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	var first *measure.Result
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		r := &measure.Result{}
		if derr := dec.Decode(r); errors.Is(derr, io.EOF) {
			break
		} else if derr != nil {
			return nil, errors.Join(err, derr)
		}
		if r.Type == "result" && first == nil {
			first = r
		}
	}
	if err == nil && (first == nil || first.Broker == nil) {
		err = errors.New("no result")
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", l.name, b.name, err)
	}
	return first, nil
}
