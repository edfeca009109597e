// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	"github.com/skylarkmq/skylark/perf/report"
)

// growth is one dimension with what was read at its levels.
type growth struct {
	dimension dimension
	levels    []int
	values    []readings
	commit    string
	at        string // time of the day at which it began
}

func (g *growth) add(level int, values readings) {
	g.levels, g.values = append(g.levels, level), append(g.values, values)
}

// of returns the values of a figure, NaN where it was not read.
func (g *growth) of(f figure) []float64 {
	var list []float64
	for _, r := range g.values {
		v, ok := r[f.name]
		if !ok {
			v = math.NaN()
		}
		list = append(list, v)
	}
	return list
}

// worse names the figures that grow as they must not.
func (g *growth) worse() []error {
	var list []error
	for _, f := range g.dimension.figures {
		if v := f.judge(g.levels, g.of(f)); v.Bad {
			list = append(list, fmt.Errorf("%s, %s: %s", g.dimension.name, f.name, v.Text))
		}
	}
	return list
}

// results owns the folder of a run.
type results struct {
	plan    plan
	dir     string
	commit  string
	machine measure.Environment
	started time.Time
	all     []*growth
}

func newResults(ctx context.Context, p plan) (*results, error) {
	r := &results{plan: p, started: time.Now(), machine: measure.ReadEnvironment(), commit: "unknown"}
	if text, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		r.commit = strings.TrimSpace(string(text))
	}
	if p.into != "" {
		r.dir = p.into
		return r, r.takeOver()
	}
	kind := "scale"
	if p.quick {
		kind = "scale-quick"
	}
	r.dir = filepath.Join(p.results, r.started.Format("2006-01-02-1504")+"-"+kind+"-"+r.commit)
	return r, os.MkdirAll(r.dir, 0o755)
}

// add puts a dimension in its place, in that of an earlier run if there is one.
func (r *results) add(g *growth) {
	r.all = slices.DeleteFunc(r.all, func(o *growth) bool { return o.dimension.name == g.dimension.name })
	r.all = append(r.all, g)
	place := func(g *growth) int {
		return slices.IndexFunc(dimensions(), func(d dimension) bool { return d.name == g.dimension.name })
	}
	slices.SortFunc(r.all, func(a, b *growth) int { return place(a) - place(b) })
}

// savedFigure and savedGrowth are the form of raw.json.
type savedFigure struct {
	Figure  string     `json:"figure"`
	Values  []*float64 `json:"values"` // null where a figure was not read
	Verdict verdict    `json:"verdict"`
}

type savedGrowth struct {
	Commit   string            `json:"commit"`
	At       string            `json:"at"`
	Levels   []int             `json:"levels"`
	Settings map[string]string `json:"broker_conf"`
	Figures  []savedFigure     `json:"figures"`
}

// takeOver reads what an earlier run has left in the folder.
func (r *results) takeOver() error {
	text, err := os.ReadFile(filepath.Join(r.dir, "raw.json"))
	if err != nil {
		return err
	}
	var all map[string]savedGrowth
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%s: %w", r.dir, err)
	}
	for _, d := range dimensions() {
		saved, ok := all[d.name]
		if !ok {
			continue
		}
		g := &growth{dimension: d, levels: saved.Levels, commit: saved.Commit, at: saved.At}
		for i := range saved.Levels {
			values := readings{}
			for _, f := range saved.Figures {
				if i < len(f.Values) && f.Values[i] != nil {
					values[f.Figure] = *f.Values[i]
				}
			}
			g.values = append(g.values, values)
		}
		r.add(g)
	}
	return nil
}

// write fills the folder and prints the report.
func (r *results) write() error {
	text := r.markdown()
	var errs []error
	for name, content := range map[string][]byte{
		"env.json":    indented(r.environment()),
		"raw.json":    indented(r.raw()),
		"command.txt": r.command(),
		"report.md":   []byte(text),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(r.dir, name), content, 0o644))
	}
	_, _ = fmt.Fprint(os.Stdout, text)
	say("results are in %s", r.dir)
	return errors.Join(errs...)
}

// command is the command line, behind those of earlier runs into this folder.
func (r *results) command() []byte {
	var before []byte
	if r.plan.into != "" {
		before, _ = os.ReadFile(filepath.Join(r.dir, "command.txt"))
	}
	return fmt.Appendf(before, "%s\n", strings.Join(append([]string{"go run ./perf/scale"}, os.Args[1:]...), " "))
}

func (r *results) environment() any {
	return map[string]any{
		"date": r.started.Format(time.RFC3339), "commit": r.commit, "machine": r.machine,
		"repeats": r.plan.repeats, "messages": r.plan.messages, "broker_conf": commonSettings(),
	}
}

func indented(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return []byte(err.Error())
	}
	return out.Bytes()
}

// raw is every figure at every level with its verdict.
func (r *results) raw() any {
	all := map[string]savedGrowth{}
	for _, g := range r.all {
		var lines []savedFigure
		for _, f := range g.dimension.figures {
			values := g.of(f)
			one := savedFigure{Figure: f.name, Verdict: f.judge(g.levels, values)}
			for _, v := range values {
				if math.IsNaN(v) {
					one.Values = append(one.Values, nil)
					continue
				}
				one.Values = append(one.Values, &v)
			}
			lines = append(lines, one)
		}
		all[g.dimension.name] = savedGrowth{
			Commit: g.commit, At: g.at, Levels: g.levels, Settings: g.dimension.settings, Figures: lines,
		}
	}
	return all
}

func (r *results) markdown() string {
	var out strings.Builder
	m := r.machine
	fmt.Fprintf(&out, "# How cost grows: Skylark %s, %s\n\n%s, %d cores, %s, %s.\n\n", r.commit,
		r.started.Format("2006-01-02"), m.CPU, m.Cores, m.Kernel, m.Go)
	fmt.Fprintf(&out, "Each level on an empty store, with asynchronous flush. CPU is of the server's "+
		"process, user and system, which is broker and name server; a load of %d messages, the cheapest of "+
		"%d runs, unless said otherwise; the load generator shares the machine. What serves all may grow "+
		"linearly, what one message costs may not grow (%.0f %% is allowed for noise).\n\n",
		r.plan.messages, r.plan.repeats, 100*(flatMost-1))
	for _, g := range r.all {
		d := g.dimension
		t := report.Table{Head: []string{d.name}, Figures: len(g.levels) + 1}
		for _, level := range g.levels {
			t.Head = append(t.Head, fmt.Sprint(level))
		}
		t.Head = append(t.Head, "each "+d.one+" more", "verdict")
		for _, f := range d.figures {
			values := g.of(f)
			v := f.judge(g.levels, values)
			row := []string{f.name}
			for _, value := range values {
				row = append(row, report.Number(measure.Millis(value)))
			}
			each := ""
			if v.Each != 0 {
				each = fmt.Sprintf("%.3g", v.Each)
			}
			t.Rows = append(t.Rows, append(row, each, v.Text))
		}
		fmt.Fprintf(&out, "## %s\n\n%s. (%s, at %s.)\n\n%s\n\n", strings.ToUpper(d.name[:1])+d.name[1:],
			strings.ToUpper(d.about[:1])+d.about[1:], g.commit, g.at, t.Markdown())
	}
	return out.String()
}
