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
	kind := "scale"
	if p.quick {
		kind = "scale-quick"
	}
	r.dir = filepath.Join(p.results, r.started.Format("2006-01-02-1504")+"-"+kind+"-"+r.commit)
	return r, os.MkdirAll(r.dir, 0o755)
}

// write fills the folder and prints the report.
func (r *results) write() error {
	text := r.markdown()
	var errs []error
	for name, content := range map[string][]byte{
		"env.json":    indented(r.environment()),
		"raw.json":    indented(r.raw()),
		"command.txt": []byte(strings.Join(append([]string{"go run ./perf/scale"}, os.Args[1:]...), " ") + "\n"),
		"report.md":   []byte(text),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(r.dir, name), content, 0o644))
	}
	_, _ = fmt.Fprint(os.Stdout, text)
	say("results are in %s", r.dir)
	return errors.Join(errs...)
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
	type line struct {
		Figure  string     `json:"figure"`
		Values  []*float64 `json:"values"` // null where a figure was not read
		Verdict verdict    `json:"verdict"`
	}
	all := map[string]any{}
	for _, g := range r.all {
		var lines []line
		for _, f := range g.dimension.figures {
			values := g.of(f)
			one := line{Figure: f.name, Verdict: f.judge(g.levels, values)}
			for _, v := range values {
				if math.IsNaN(v) {
					one.Values = append(one.Values, nil)
					continue
				}
				one.Values = append(one.Values, &v)
			}
			lines = append(lines, one)
		}
		all[g.dimension.name] = map[string]any{
			"levels": g.levels, "broker_conf": g.dimension.settings, "figures": lines,
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
		fmt.Fprintf(&out, "## %s\n\n%s.\n\n%s\n\n", strings.ToUpper(d.name[:1])+d.name[1:],
			strings.ToUpper(d.about[:1])+d.about[1:], t.Markdown())
	}
	return out.String()
}
