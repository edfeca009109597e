// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// results collects a whole run.
type results struct {
	plan    plan
	started time.Time
	runs    []run
	own     own
	late    map[string]lateness
	pending []pending
}

// figure is one number of a run.
type figure struct {
	name, unit string
	of         func(*measure.Result) float64
	digits     int
}

func figures() []figure {
	perCPU := func(r *measure.Result) float64 { return r.Broker.MessagesPerCPUSecond }
	return []figure{
		{"messages a second", "", func(r *measure.Result) float64 { return r.MessagesPerSec }, 0},
		{"messages per broker CPU-second", "", perCPU, 0},
		{"p50", " ms", func(r *measure.Result) float64 { return value(r.Latency.P50) }, 3},
		{"p99", " ms", func(r *measure.Result) float64 { return value(r.Latency.P99) }, 3},
	}
}

// values are a figure's values of one load and side, one for each round.
func (r *results) values(load, side string, f figure) (list []float64) {
	for _, x := range r.runs {
		if x.Load == load && x.Side == side {
			list = append(list, f.of(x.Result))
		}
	}
	return list
}

func median(list []float64) float64 {
	list = slices.Clone(list)
	slices.Sort(list)
	n := len(list)
	if n == 0 {
		return 0
	}
	return (list[(n-1)/2] + list[n/2]) / 2
}

// write makes the results folder and prints the report.
func (r *results) write(ctx context.Context) error {
	commit := firstLine(ctx, "git", "rev-parse", "--short", "HEAD")
	dir := filepath.Join(r.plan.results, r.started.Format("2006-01-02-1504")+"-services-"+commit)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range r.runs { // raw.json has what a reader compares
		r.runs[i].Result.Series, r.runs[i].Result.Curve = nil, nil
		r.runs[i].Result.Environment = nil
	}
	text := r.markdown(commit)
	errs := []error{}
	for name, content := range map[string][]byte{
		"env.json": indented(map[string]any{
			"date": r.started.Format(time.RFC3339), "commit": commit, "machine": measure.ReadEnvironment(),
			"disk":   firstLine(ctx, "df", "--output=source,fstype,size", "."),
			"broker": "skylark server, ASYNC_FLUSH, everything else default",
		}),
		"raw.json": indented(map[string]any{
			"runs": r.runs, "services_alone": r.own, "late": r.late, "pending": r.pending,
		}),
		"command.txt": []byte("go run ./perf/services " + strings.Join(os.Args[1:], " ") + "\n"),
		"report.md":   []byte(text),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	_, err := fmt.Fprint(os.Stdout, text)
	say("results are in %s", dir)
	return errors.Join(append(errs, err)...)
}

func indented(v any) []byte {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return []byte(err.Error())
	}
	return append(text, '\n')
}

func (r *results) markdown(commit string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# What timers, transactions and retries cost others\n\nSkylark %s, %s. "+
		"perf/README.md says how this is measured; raw.json has every run.\n", commit,
		r.started.UTC().Format("2006-01-02 15:04 MST"))
	if r.plan.beside {
		r.besideTable(&out)
	}
	if len(r.pending) > 0 {
		r.pendingTable(&out)
	}
	return out.String()
}

func (r *results) besideTable(out *strings.Builder) {
	p := &r.plan
	title, how := "Plain loads beside services at work", fmt.Sprintf(" Medians of %d rounds, in turn on "+
		"two brokers; the share is of the medians, its spread that of the rounds.", p.rounds)
	if p.rounds == 0 {
		title, how = "Services at work", ""
	}
	fmt.Fprintf(out, "\n## %s\n\n%d timers of 60 s, %d half messages that are checked every 30 s and stay "+
		"undecided, %d consumers that each give a message back every 10 s, %d messages a second with delay "+
		"level 1.%s\n", title, p.timers, p.halves, p.consumers, time.Second/levelEvery, how)
	if p.rounds > 0 {
		r.loadTable(out)
	}
	o := &r.own
	fmt.Fprintf(out, "\nThe services alone, without another load: %.1f %% of a core, %.1f MB of anonymous "+
		"memory, %.0f checks, %.0f retries and %.0f timers a second.\n", o.CPUPercent,
		float64(o.RSSAnon)/1e6, o.Checks, o.Retries, o.Timers)
	fmt.Fprint(out, "\nHow late messages were stored in their topic meanwhile:\n\n"+
		"| | messages | p50 | p99 | p99.9 | max | early |\n|---|---|---|---|---|---|---|\n")
	for _, name := range []string{"timers", "delay levels"} {
		l := r.late[name]
		fmt.Fprintf(out, "| %s | %d | %.0f ms | %.0f ms | %.0f ms | %.0f ms | %d |\n", name, l.Messages,
			l.P50, l.P99, l.P999, l.Max, l.Early)
	}
}

func (r *results) loadTable(out *strings.Builder) {
	fmt.Fprintf(out, "\n| load | figure | %s | %s | share | spread |\n|---|---|---|---|---|---|\n", plain,
		worked)
	for _, l := range r.plan.loads() {
		for _, f := range figures() {
			a, b := r.values(l.name, plain, f), r.values(l.name, worked, f)
			if median(a) == 0 || l.name == "pull" && f.unit != "" {
				continue // the age of a backlog says nothing
			}
			var shares []float64
			for i := range min(len(a), len(b)) {
				shares = append(shares, b[i]/a[i])
			}
			fmt.Fprintf(out, "| %s: %s | %s | %.*f%s | %.*f%s | %.3f | %.3f-%.3f |\n", l.name, l.about, f.name,
				f.digits, median(a), f.unit, f.digits, median(b), f.unit, median(b)/median(a),
				slices.Min(shares), slices.Max(shares))
		}
	}
}

func (r *results) pendingTable(out *strings.Builder) {
	fmt.Fprintf(out, "\n## Messages that wait and are not due\n\nTimers are due in one to 47 hours; half "+
		"messages are of a producer that went away. The broker that stored them was killed; the figures "+
		"are of its successor, left alone for %v.\n\n", r.plan.idle)
	fmt.Fprint(out, "| waiting | | start | CPU of the start | anonymous memory | CPU while idle |\n"+
		"|---|---|---|---|---|---|\n")
	for _, x := range r.pending {
		fmt.Fprintf(out, "| %s | %d | %.2f s | %.2f s | %.1f MB | %.2f %% of a core |\n", x.What, x.Messages,
			x.Start, x.StartCPU, float64(x.RSSAnon)/1e6, x.IdleCPU)
	}
}

// value is 0 where a quantile has too few samples.
func value(v measure.Millis) float64 {
	if f := float64(v); !math.IsNaN(f) {
		return f
	}
	return 0
}

func firstLine(ctx context.Context, name string, args ...string) string {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if name == "df" {
		return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
	}
	return lines[0]
}
