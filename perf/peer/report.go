// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// figure is one line of a row: how to read it out of a run, NaN when it is not there.
type figure struct {
	name  string
	of    func(o *outcome) float64
	goal  float64 // as a ratio to Apache; 0: none
	lower bool    // the lower the better: the goal is an upper bound
	plain bool    // a ratio says nothing
}

// spread is a figure of all rounds of a side.
type spread struct{ low, middle, high float64 }

func spreadOf(values []float64) spread {
	values = slices.DeleteFunc(values, math.IsNaN)
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return spread{slices.Min(values), median(values), slices.Max(values)}
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(list))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// text renders the median, and lowest and highest where they differ from it.
func (s spread) text() string {
	middle := report.Number(measure.Millis(s.middle))
	low, high := report.Number(measure.Millis(s.low)), report.Number(measure.Millis(s.high))
	if low == high {
		return middle
	}
	return fmt.Sprintf("%s (%s-%s)", middle, low, high)
}

// over is the ratio of two figures: of the medians, and the least and most that rounds could give.
func (s spread) over(o spread) spread {
	return spread{s.low / o.high, s.middle / o.middle, s.high / o.low}
}

// figures are the lines of a load, the compared ones first.
func (l *load) figures() []figure {
	broker := func(of func(p *measure.Process) float64) func(o *outcome) float64 {
		return func(o *outcome) float64 {
			if o.Result.Broker == nil {
				return math.NaN()
			}
			return of(o.Result.Broker)
		}
	}
	ms := func(of func(q *measure.Quantiles) measure.Millis) func(o *outcome) float64 {
		return func(o *outcome) float64 { return float64(of(&o.tail(l).Latency)) }
	}
	list := []figure{{
		name: "messages per broker CPU-second", goal: l.perCPU,
		of: broker(func(p *measure.Process) float64 { return p.MessagesPerCPUSecond }),
	}}
	if l.latency {
		list = append(list,
			figure{
				name: "p99.9 ms", goal: l.tail, lower: true,
				of: ms(func(q *measure.Quantiles) measure.Millis { return q.P999 }),
			},
			figure{
				name: "p99 ms", lower: true,
				of: ms(func(q *measure.Quantiles) measure.Millis { return q.P99 }),
			},
			figure{
				name: "p50 ms", lower: true,
				of: ms(func(q *measure.Quantiles) measure.Millis { return q.P50 }),
			},
			figure{
				name: "max ms", lower: true,
				of: ms(func(q *measure.Quantiles) measure.Millis { return measure.Millis(q.Max) }),
			})
	}
	list = append(list, figure{
		name: "messages a second", of: func(o *outcome) float64 { return o.Result.MessagesPerSec },
	})
	if l.endToEnd != nil || l.consume != nil && l.produce != nil {
		list = append(list, figure{name: "read for each one sent", plain: true, of: func(o *outcome) float64 {
			return float64(o.Reader.Messages) / float64(o.Result.Messages)
		}})
	}
	return append(list,
		figure{
			name: "broker user us a message", lower: true,
			of: perMessage(func(r *measure.Result) float64 { return r.Broker.UserSeconds }),
		},
		figure{
			name: "broker system us a message", lower: true,
			of: perMessage(func(r *measure.Result) float64 { return r.Broker.SystemSeconds }),
		},
		figure{name: "kernel threads us a message", of: perMessage(kernelSeconds), lower: true},
		figure{
			name: "broker RssAnon MB", lower: true,
			of: broker(func(p *measure.Process) float64 { return float64(p.RSSAnonMost) / 1e6 }),
		},
		figure{name: "failed", plain: true, of: func(o *outcome) float64 {
			return float64(o.Result.SendFailed + o.Result.ResponseFailed)
		}})
}

func perMessage(of func(r *measure.Result) float64) func(o *outcome) float64 {
	return func(o *outcome) float64 {
		if o.Result.Broker == nil || o.Result.Messages == 0 {
			return math.NaN()
		}
		return of(o.Result) * 1e6 / float64(o.Result.Messages)
	}
}

// kernelSeconds is the CPU of threads that write back, reclaim and journal, on behalf of whoever
// dirtied the pages: in a run with one loaded side that is its broker.
func kernelSeconds(r *measure.Result) float64 {
	sum := 0.0
	for _, seconds := range r.KernelCPU {
		sum += seconds
	}
	return sum
}

// table is one table of all loads, or of one. In brief it has the compared figures only.
func (r *results) table(sides []*side, brief bool, rows ...*row) report.Table {
	t := report.Table{Head: []string{"load", "figure"}, FirstFigure: 2}
	for _, s := range sides {
		t.Head = append(t.Head, s.name)
	}
	t.Figures = len(sides)
	if len(sides) == 2 {
		t.Head = append(t.Head, "ratio", "goal")
		t.Figures++
	}
	limits := slices.ContainsFunc(rows, func(r *row) bool { return len(r.rounds("limit")) > 0 })
	if limits {
		t.Head = append(t.Head, "null handler", "share of it")
	}
	for _, row := range rows {
		first := row.load.name + ": " + row.load.about
		if row.failure != "" {
			t.Rows = append(t.Rows, []string{first, "FAILED, see below"})
			first = ""
		}
		for i, f := range row.load.figures() {
			if brief && i > 0 && f.goal == 0 {
				continue
			}
			if cells := row.cells(f, sides); cells != nil {
				if limits {
					cells = append(cells, row.limitCells(f, sides[0])...)
				}
				t.Rows = append(t.Rows, append([]string{first, f.name}, cells...))
				first = ""
			}
		}
	}
	return t
}

// cells are a figure of each side, with ratio and goal where there are two; nil when nobody has it.
func (r *row) cells(f figure, sides []*side) []string {
	var cells []string
	var spreads []spread
	for _, s := range sides {
		var values []float64
		for _, o := range r.rounds(s.name) {
			values = append(values, f.of(&o))
		}
		spreads = append(spreads, spreadOf(values))
		cells = append(cells, spreads[len(spreads)-1].text())
	}
	if !slices.ContainsFunc(spreads, func(s spread) bool { return !math.IsNaN(s.middle) }) {
		return nil
	}
	if len(sides) != 2 {
		return cells
	}
	ratio := spreads[0].over(spreads[1])
	if f.plain || math.IsNaN(ratio.middle) || math.IsInf(ratio.middle, 0) {
		return append(cells, "", "")
	}
	text := ratioText(ratio.middle)
	if ratio.low != ratio.high && !math.IsInf(ratio.high, 0) {
		text += fmt.Sprintf(" (%s-%s)", ratioText(ratio.low), ratioText(ratio.high))
	}
	return append(cells, text, goalText(f, ratio.middle))
}

// limitCells are what a null handler on our event loop gives for a figure, and the share of it that
// the first side reaches. Of times they are there only at a fixed rate: closed loops that run at
// different rates wait for different things.
func (r *row) limitCells(f figure, first *side) []string {
	limit, ours := r.rounds("limit"), r.rounds(first.name)
	atRate := slices.Contains(r.load.produce, "--rate") || slices.Contains(r.load.endToEnd, "--rate")
	timed := f.lower && f.goal != 0 && atRate
	if len(limit) == 0 || len(ours) == 0 || f.plain || f.lower && !timed {
		return []string{"", ""}
	}
	middle := func(list []outcome) float64 {
		var values []float64
		for _, o := range list {
			values = append(values, f.of(&o))
		}
		return median(values)
	}
	best, share := middle(limit), middle(ours)/middle(limit)
	if f.lower {
		share = 1 / share
	}
	return []string{report.Number(measure.Millis(best)), fmt.Sprintf("%.0f %%", 100*share)}
}

func ratioText(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func goalText(f figure, ratio float64) string {
	if f.goal == 0 {
		return ""
	}
	sign, met := "at least", ratio >= f.goal
	if f.lower {
		sign, met = "at most", ratio <= f.goal
	}
	word := "missed"
	if met {
		word = "met"
	}
	return fmt.Sprintf("%s %.3g: %s", sign, f.goal, word)
}

// settingsTable shows what both sides run with.
func (r *results) settingsTable(sides []*side) report.Table {
	t := report.Table{Head: []string{"setting"}}
	keys := map[string]bool{}
	for _, s := range sides {
		t.Head = append(t.Head, s.name)
		for key := range s.settings {
			keys[key] = true
		}
	}
	add := func(key string, of func(s *side) string) {
		cells := []string{key}
		for _, s := range sides {
			cells = append(cells, of(s))
		}
		t.Rows = append(t.Rows, cells)
	}
	for _, key := range slices.Sorted(maps.Keys(r.env.Common)) {
		add(key, func(*side) string { return r.env.Common[key] })
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		add(key, func(s *side) string { return s.settings[key] })
	}
	return t
}

func (r *results) restTable(sides []*side) report.Table {
	t := report.Table{Head: []string{"at rest"}, Figures: len(sides)}
	add := func(name, format string, of func(i int) float64) {
		cells := []string{name}
		for i := range sides {
			cells = append(cells, fmt.Sprintf(format, of(i)))
		}
		t.Rows = append(t.Rows, cells)
	}
	for _, s := range sides {
		t.Head = append(t.Head, s.name)
	}
	add("start of both servers on an empty store until a message is taken, s, median", "%.3f",
		func(i int) float64 { return median(r.starts[sides[i].name]) })
	if len(r.rest) > 0 && r.rest[0].IdleSeconds > 0 {
		seconds := r.rest[0].IdleSeconds
		add(fmt.Sprintf("RssAnon of the broker after %.0f s idle, MB", seconds), "%.1f",
			func(i int) float64 { return float64(r.rest[i].IdleRSSAnonBytes) / 1e6 })
		add("CPU meanwhile, % of a core", "%.2f", func(i int) float64 { return r.rest[i].IdleCPUPercent })
	}
	add("RssAnon of the broker, the most in any of these loads, MB", "%.1f", func(i int) float64 {
		most := 0.0
		for _, row := range r.rows {
			for _, o := range row.rounds(sides[i].name) {
				if o.Result.Broker != nil {
					most = max(most, float64(o.Result.Broker.RSSAnonMost)/1e6)
				}
			}
		}
		return most
	})
	if len(r.rest) > 0 && r.rest[0].Clients > 0 {
		add(fmt.Sprintf("RssAnon with %d idle clients, MB", r.rest[0].Clients), "%.1f",
			func(i int) float64 { return float64(r.rest[i].ClientsRSSAnon) / 1e6 })
	}
	return t
}

func (r *results) title(sides []*side) string {
	if len(sides) == 1 {
		return fmt.Sprintf("%s alone, at %s, %s", sides[0].name, r.commit, r.started.Format("2006-01-02"))
	}
	return fmt.Sprintf("Skylark %s beside Apache RocketMQ, %s", r.commit,
		r.started.Format("2006-01-02"))
}

func (r *results) lead() []string {
	m := r.env.Machine
	lead := []string{
		fmt.Sprintf("%s, %d cores, governor %s, %d MB, %s %s, %s, %s.", m.CPU, m.Cores, m.Governor,
			m.MemoryBytes>>20, m.OS, m.Kernel, m.Go, r.env.Java),
		fmt.Sprintf("Medians of %d rounds of %v (at most %d messages), in brackets the lowest and the "+
			"highest; sides in turn, the others' servers stopped meanwhile, each warmed up for %v; page "+
			"cache filled first and before each round: %v, most of the memory taken: %v. The load "+
			"generator shares the machine; loads without a rate are closed loops. CPU is of the broker's "+
			"process, user and system; kernel threads are those that write back, reclaim and journal. A "+
			"null handler decodes and answers on our event loop, and stores nothing; readers get the last "+
			"messages from memory.",
			r.plan.rounds, r.plan.duration, r.plan.maxSent, r.plan.warmup, r.plan.fillCache,
			r.plan.ballast),
	}
	if r.plan.rounds < 5 {
		lead = append(lead, "Fewer than 5 rounds: for a look, not for a claim.")
	}
	return lead
}

// notes are failures and doubts, by load.
func (r *results) notes() []report.Notice {
	var list []report.Notice
	for _, row := range r.rows {
		if row.failure != "" {
			list = append(list, report.Notice{Code: row.load.name + " failed", Text: row.failure})
		}
		for _, code := range row.doubts() {
			list = append(list, report.Notice{Code: row.load.name, Text: code})
		}
	}
	return list
}

// doubts are the warnings of measured runs, each once for each side. On a machine that the load
// generator shares, a busy machine is the rule and said above.
func (r *row) doubts() []string {
	var list []string
	told := map[string]bool{}
	for _, o := range r.outcomes {
		if o.Round == 0 {
			continue
		}
		for _, w := range o.Result.Warnings {
			key := o.Side + " " + w.Code
			if w.Code != "machine-busy" && w.Code != "short-window" && !told[key] {
				told[key] = true
				list = append(list, o.Side+": "+w.Text)
			}
		}
	}
	return list
}

func (r *results) markdown(sides []*side) string {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n\n", args...) }
	p("# %s", r.title(sides))
	for _, text := range r.lead() {
		p("%s", text)
	}
	p("%s", r.table(sides, false, r.rows...).Markdown())
	var free []string
	for _, row := range r.rows {
		free = append(free, fmt.Sprintf("%s %d", row.load.name, row.memFreeMB))
	}
	p("Most free memory in MB when a round began: %s.", strings.Join(free, ", "))
	if t, ok := r.othersTable(); ok {
		p("Brokers of other kinds, each with its own protocol and client, a warm-up and %d rounds:", r.plan.rounds)
		p("%s", t.Markdown())
	}
	p("%s", r.restTable(sides).Markdown())
	p("%s", r.settingsTable(sides).Markdown())
	for _, n := range r.notes() {
		p("%s: %s", n.Code, n.Text)
	}
	p("Charts: `report.html`; settings: `env.json`; every run: `raw.json`, with its seconds " +
		"`runs.json.gz`; command lines: `command.txt`; ends of the servers' logs: `logs/`.")
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func (r *results) page(sides []*side) *report.Page {
	p := &report.Page{Title: r.title(sides), Lead: r.lead(), Notices: r.notes()}
	p.Sections = append(p.Sections, report.Section{
		Title: "Compared figures", Tables: []report.Table{r.table(sides, true, r.rows...)},
	}, report.Section{
		Title: "Settings and rest", Tables: []report.Table{r.settingsTable(sides), r.restTable(sides)},
	})
	for _, row := range r.rows {
		section := report.Section{
			Title:  row.load.name + ": " + row.load.about,
			Tables: []report.Table{r.table(sides, false, row)},
		}
		var named []report.Named
		for _, s := range sides {
			var runs []*measure.Result
			for _, o := range row.rounds(s.name) {
				runs = append(runs, o.Result)
			}
			if len(runs) > 0 {
				named = append(named, report.Named{Name: s.name, Run: report.MedianRun(runs)})
			}
		}
		if len(named) > 0 {
			section.Charts = report.Charts(named...)
			section.Text = []string{"Charts are of the round with the median rate of each side."}
		}
		p.Sections = append(p.Sections, section)
	}
	return p
}
