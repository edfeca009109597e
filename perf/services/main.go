// SPDX-License-Identifier: Apache-2.0

// Command services measures what delayed messages, transactions and retries cost those who do not use
// them, and writes a results folder. `make perf-services` runs it.
//
// Two brokers run side by side. One has nothing to do; the other has timers that come due, half
// messages that are checked, and consumers that give every message back. Plain loads go to each in
// turn. Then brokers are started on stores in which ever more timers and half messages wait, none of
// them due, to see what only being stored costs. perf/README.md says what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// plan is what the command line asks for.
type plan struct {
	skylark   string
	rounds    int
	warmup    time.Duration
	duration  time.Duration
	timers    int
	halves    int
	consumers int
	rate      int
	backlog   int
	idle      time.Duration
	beside    bool
	stored    bool
	results   string
	work      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var p plan
	flag.StringVar(&p.skylark, "skylark", "bin/skylark", "binary to measure")
	flag.IntVar(&p.rounds, "rounds", 5, "measured runs of each load and broker; 0: only the services")
	flag.DurationVar(&p.warmup, "warmup", time.Second, "not counted at the beginning of a run")
	flag.DurationVar(&p.duration, "duration", 4*time.Second, "of a run, without warm-up")
	flag.IntVar(&p.timers, "timers", 10_000, "timers that wait, 60 s each")
	flag.IntVar(&p.halves, "halves", 10_000, "half messages that wait, checked every 30 s")
	flag.IntVar(&p.consumers, "consumers", 1000, "consumers that give a message back every 10 s")
	flag.IntVar(&p.rate, "rate", 10_000, "messages a second of the loads at a fixed rate")
	flag.IntVar(&p.backlog, "backlog", 200_000, "messages of the backlog that is pulled")
	flag.DurationVar(&p.idle, "idle", 20*time.Second, "how long a broker is watched that is left alone")
	flag.BoolVar(&p.beside, "beside", true, "measure plain loads beside services at work")
	flag.BoolVar(&p.stored, "stored", true, "measure what waiting messages cost that are not due")
	flag.StringVar(&p.results, "results", filepath.Join("perf", "results"),
		"folder for the results folder")
	flag.StringVar(&p.work, "work", "", "directory for stores; empty: a temporary one")
	flag.Parse()
	if err := p.run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "services:", err)
		stop()
		os.Exit(1)
	}
}

func (p *plan) run(ctx context.Context) (err error) {
	if p.rounds < 0 || p.timers < 1 || p.halves < 1 || p.consumers < 1 {
		return errors.New("-timers, -halves and -consumers are at least 1, -rounds at least 0")
	}
	work, err := os.MkdirTemp(p.work, "skylark-services-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	out := &results{plan: *p, started: time.Now()}
	if p.beside {
		if err := p.measureBeside(ctx, work, out); err != nil {
			return err
		}
	}
	if p.stored {
		if err := p.measureStored(ctx, work, out); err != nil {
			return err
		}
	}
	return out.write(ctx)
}

func say(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
