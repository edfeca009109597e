// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// load is one row of the table: options of `skylark perf`, and the figure that is compared.
type load struct {
	name  string // also the named workload of `skylark perf` that it begins with
	about string
	pull  bool // reads a backlog, which is made first
	extra bool // only when asked for by name
	// figure reads what is compared out of a run.
	figure func(sample) float64
	unit   string
	lower  bool // the lower the better
}

// sample is the result object that `skylark perf --json` prints last, as far as it is used here.
type sample struct {
	Seconds        float64 `json:"seconds"`
	Messages       int64   `json:"messages"`
	MessagesPerSec float64 `json:"messages_per_second"`
	RateAsked      float64 `json:"rate_asked"`
	SendFailed     int64   `json:"send_failed"`
	ResponseFailed int64   `json:"response_failed"`
	Latency        struct {
		P50  float64 `json:"p50"`
		P99  float64 `json:"p99"`
		P999 float64 `json:"p99.9"`
	} `json:"latency_ms"`
	Broker struct {
		CPUSeconds           float64 `json:"cpu_seconds"`
		MessagesPerCPUSecond float64 `json:"messages_per_cpu_second"`
		RSSAnonBytes         int64   `json:"rss_anon_bytes"`
	} `json:"broker"`
}

// check refuses a run that measured nothing: a broker that has ended must not enter a median as 0.
func (s sample) check() error {
	switch {
	case s.Messages == 0:
		return fmt.Errorf("no message was answered: %d sends failed; is the broker still there?",
			s.SendFailed)
	case s.Broker.CPUSeconds == 0:
		return fmt.Errorf("%d messages cost the broker no CPU: its process was not measured",
			s.Messages)
	}
	return nil
}

func perCPUSecond(s sample) float64 { return s.Broker.MessagesPerCPUSecond }

func allLoads() []load {
	return []load{
		{
			name: "ingest-small", about: "1 KB single sends, 4 connections x 64 in flight",
			figure: perCPUSecond, unit: "messages per broker CPU-second",
		},
		{
			name: "request-reply", about: "1 KB single sends, 64 connections that each wait",
			figure: perCPUSecond, unit: "messages per broker CPU-second",
		},
		{
			name: "catch-up", about: "pulls of a hot backlog, 1 KB, 32 messages a pull", pull: true,
			figure: perCPUSecond, unit: "messages per broker CPU-second",
		},
		{
			name: "fixed-rate", about: "1 KB sends at 10 000 a second, latency from the due moment",
			figure: func(s sample) float64 { return s.Latency.P999 }, unit: "p99.9 in ms", lower: true,
		},
		{
			name: "ingest-batch", about: "1 KB messages in batches of 32, 4 connections x 4 in flight",
			figure: perCPUSecond, unit: "messages per broker CPU-second", extra: true,
		},
	}
}

func loadNames() []string {
	var names []string
	for _, l := range allLoads() {
		names = append(names, l.name)
	}
	return names
}

// backlogReaders read the backlog that often, so that a fast broker's CPU time is more than a few
// of the 10 ms steps it is counted in.
const backlogReaders = 4

// measureLoad takes both sides through one load.
func measureLoad(ctx context.Context, p plan, l load, sides []*side, out *results) error {
	row := &row{load: l, samples: map[string][]sample{}}
	out.rows = append(out.rows, row)
	for _, s := range sides {
		say("%s: starting %s", l.name, s.name)
		if err := s.up(ctx); err != nil {
			return err
		}
		defer s.down()
		out.noteStart(s)
	}
	for _, s := range sides {
		if l.pull {
			say("%s: making a backlog of %d messages for %s", l.name, p.backlog, s.name)
			if err := makeBacklog(ctx, p, s); err != nil {
				return err
			}
		}
		say("%s: warming up %s", l.name, s.name)
		if err := warm(ctx, p, l, s, row); err != nil {
			return err
		}
	}
	if free, err := memoryBytes("MemFree"); err == nil {
		row.memFreeMB = free >> 20
	}
	for round := range p.rounds {
		for i := range sides {
			s := sides[(i+round)%len(sides)] // neither side is always first
			got, err := measureOnce(ctx, p, l, s, p.duration, row)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			row.samples[s.name] = append(row.samples[s.name], got)
			say("%s: round %d, %s: %.4g %s", l.name, round+1, s.name, l.figure(got), l.unit)
		}
	}
	return nil
}

func makeBacklog(ctx context.Context, p plan, s *side) error {
	_, err := output(ctx, p.skylark, "perf", "produce", "-n", s.names, "--topic", "backlog", "--size", "1024",
		"--connections", "4", "--in-flight", "64", "--count", strconv.Itoa(p.backlog), "--json")
	return err
}

// warm runs the load until the warm-up time is over; a reader of a backlog begins again and again.
func warm(ctx context.Context, p plan, l load, s *side, row *row) error {
	end := time.Now().Add(p.warmup)
	for left := p.warmup; left >= time.Second; left = time.Until(end) {
		if _, err := measureOnce(ctx, p, l, s, left, row); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func measureOnce(ctx context.Context, p plan, l load, s *side, duration time.Duration, row *row) (sample, error) {
	args := []string{"perf"}
	if l.pull {
		args = append(args, "consume", "--workload", l.name, "--topic", "backlog", "--until-end",
			"--groups", strconv.Itoa(backlogReaders))
	} else {
		args = append(args, "produce", "--workload", l.name, "--duration", duration.String(),
			"--count", strconv.Itoa(p.maxSent))
	}
	args = append(args, "-n", s.names, "--broker-pid", strconv.Itoa(s.brokerPID()), "--json")
	row.command = append([]string{filepath.Base(p.skylark)}, args...)
	text, err := output(ctx, p.skylark, args...)
	if err != nil {
		return sample{}, err
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var got sample
	if err := json.Unmarshal(lines[len(lines)-1], &got); err != nil {
		return sample{}, fmt.Errorf("result %.300q: %w", lines[len(lines)-1], err)
	}
	if err := got.check(); err != nil {
		return sample{}, err
	}
	row.raw = append(row.raw, rawResult{Side: s.name, Result: json.RawMessage(lines[len(lines)-1])})
	return got, nil
}
