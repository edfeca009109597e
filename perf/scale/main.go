// SPDX-License-Identifier: Apache-2.0

// Command scale measures how what a broker costs grows with what it serves, and writes a results
// folder. `make perf-scale` runs it.
//
// Each dimension (connections, queues, groups, segments of the log, held pulls, bytes of
// properties) has levels. At each level a broker starts on an empty store, is given that many of
// them, and then memory, open files, start times and the CPU of a message are read. A figure is
// judged by its growth: what serves all of them may grow linearly, what one message costs may not
// grow at all. The exit code is 1 when a figure grows worse than that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// plan is what the command line asks for.
type plan struct {
	skylark  string   // the binary under test, which is also the load generator
	only     []string // names of dimensions; empty: all
	quick    bool     // the levels below the highest, fewer messages
	repeats  int      // runs of each load; the cheapest counts
	messages int      // of one run
	work     string   // stores live here
	results  string   // folder that gets the results folder
	into     string   // results folder that gets the rows; empty: a new one
	profile  bool     // CPU profiles of the dimension groups as well
	folder   string   // the results folder
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	if err := run(ctx, p); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (plan, error) {
	var p plan
	var only string
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.StringVar(&p.skylark, "skylark", "bin/skylark", "binary under test and load generator")
	f.StringVar(&only, "only", "", "dimensions by name, separated by commas; all without it")
	f.BoolVar(&p.quick, "quick", false, "leave the highest level out: a look, not a result")
	f.IntVar(&p.repeats, "repeats", 5, "runs of each load, 1 to 100; the cheapest counts, since others' work on the machine only adds")
	f.IntVar(&p.messages, "messages", 300_000, "messages of one run, at least 1000")
	f.StringVar(&p.work, "work", "", "folder for the stores; a temporary one without it")
	f.StringVar(&p.results, "results", filepath.Join("perf", "results"), "folder for the results folder")
	f.StringVar(&p.into, "into", "", "results folder of an earlier run, whose rows stay but for the dimensions measured now")
	f.BoolVar(&p.profile, "profile", false, "groups: put a CPU profile of the broker that delivers a backlog into the results folder, as text")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if p.repeats < 1 || p.repeats > 100 || p.messages < 1000 {
		return p, fmt.Errorf("-repeats %d or -messages %d is out of range", p.repeats, p.messages)
	}
	if only != "" {
		p.only = strings.Split(only, ",")
	}
	for _, name := range p.only {
		known := func(d dimension) bool { return d.name == name }
		if !slices.ContainsFunc(dimensions(), known) {
			var names []string
			for _, d := range dimensions() {
				names = append(names, d.name)
			}
			return p, fmt.Errorf("no dimension %q; there are %v", name, names)
		}
	}
	return p, nil
}

func run(ctx context.Context, p plan) error {
	var err error
	if p.skylark, err = filepath.Abs(p.skylark); err != nil {
		return err
	}
	if p.work == "" {
		if p.work, err = os.MkdirTemp("", "skylark-scale-*"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(p.work) }()
	}
	out, err := newResults(ctx, p)
	if err != nil {
		return err
	}
	p.folder = out.dir
	var failed []error
	for _, d := range dimensions() {
		if ctx.Err() != nil || len(p.only) > 0 && !slices.Contains(p.only, d.name) {
			continue
		}
		if p.quick && len(d.levels) > 2 {
			d.levels = d.levels[:len(d.levels)-1]
		}
		g := &growth{dimension: d, commit: out.commit, at: time.Now().Format("15:04")}
		for _, level := range d.levels {
			values, err := measureLevel(ctx, p, d, level)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, %d: %w", d.name, level, err))
				break
			}
			g.add(level, values)
		}
		out.add(g)
		failed = append(failed, g.worse()...)
	}
	return errors.Join(append(failed, out.write(), ctx.Err())...)
}

// measureLevel takes a broker on an empty store through one level.
func measureLevel(ctx context.Context, p plan, d dimension, level int) (readings, error) {
	l, err := newLab(ctx, p, d.settings)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := d.measure(ctx, l, level); err != nil {
		return nil, err
	}
	say("%s %d: %v", d.name, level, l.readings) // before the store is removed, which takes its time
	return l.readings, nil
}

// say tells the person who waits what happens.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
