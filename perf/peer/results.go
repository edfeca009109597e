// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// results collects a whole run and owns its folder.
type results struct {
	plan    plan
	dir     string
	commit  string
	started time.Time
	env     environment
	rows    []*row
	rest    []atRest
	others  []otherRun
	starts  map[string][]float64 // seconds from the start of the processes to the first message, by side
}

// environment is env.json.
type environment struct {
	Date            string                       `json:"date"`
	Commit          string                       `json:"commit"`
	Machine         measure.Environment          `json:"machine"`
	Disk            string                       `json:"disk"`
	Java            string                       `json:"java"`
	PageCacheFilled bool                         `json:"page_cache_filled"`
	Rounds          int                          `json:"rounds"`
	Duration        string                       `json:"duration"`
	Warmup          string                       `json:"warmup"`
	Common          map[string]string            `json:"broker_conf_of_both"`
	Own             map[string]map[string]string `json:"own_settings"`
	ByLoad          map[string]map[string]string `json:"broker_conf_of_a_load,omitempty"`
}

// newResults makes the results folder at once, so that a run that is cut short leaves its logs.
func newResults(ctx context.Context, p plan, sides []*side) (*results, error) {
	r := &results{
		plan: p, started: time.Now(), commit: firstLine(ctx, "git", "rev-parse", "--short", "HEAD"),
		starts: map[string][]float64{},
	}
	kind := "peer"
	switch {
	case p.only != "":
		kind = strings.Join(append([]string{p.only}, p.loads...), "-")
	case p.quick:
		kind = "quick"
	}
	r.dir = filepath.Join(p.results, r.started.Format("2006-01-02-1504")+"-"+kind+"-"+r.commit)
	r.env = environment{
		Date: r.started.Format(time.RFC3339), Commit: r.commit, Machine: measure.ReadEnvironment(),
		Disk: firstLine(ctx, "df", "--output=source,fstype,size", "."),
		Java: firstLine(ctx, "java", "--version"), PageCacheFilled: p.fillCache, Rounds: p.rounds,
		Duration: p.duration.String(), Warmup: p.warmup.String(), Common: commonSettings(),
		Own: map[string]map[string]string{}, ByLoad: map[string]map[string]string{},
	}
	for _, s := range sides {
		r.env.Own[s.name] = s.settings
	}
	for _, l := range allLoads() {
		if l.settings != nil {
			r.env.ByLoad[l.name] = l.settings
		}
	}
	return r, os.MkdirAll(r.dir, 0o755)
}

// logs is the folder for the ends of the servers' logs.
func (r *results) logs() string { return filepath.Join(r.dir, "logs") }

func (r *results) noteStart(s *side) {
	r.starts[s.name] = append(r.starts[s.name], s.startTime.Seconds())
}

// write fills the results folder and prints the report.
func (r *results) write(b *bench) error {
	text := r.markdown(b.sides)
	page, err := r.page(b.sides).HTML()
	if err != nil {
		return err
	}
	errs := []error{r.writeRuns()}
	for name, content := range map[string][]byte{
		"env.json":    indented(r.env),
		"raw.json":    indented(r.raw()),
		"command.txt": []byte(r.commands(b)),
		"report.md":   []byte(text),
		"report.html": page,
	} {
		errs = append(errs, os.WriteFile(filepath.Join(r.dir, name), content, 0o644))
	}
	fmt.Fprint(os.Stdout, text)
	say("results are in %s", r.dir)
	return errors.Join(errs...)
}

func indented(v any) []byte {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return []byte(err.Error())
	}
	return append(text, '\n')
}

// raw is every run without what grows with its length; runs.json.gz has that too.
func (r *results) raw() any {
	loads := map[string]any{}
	for _, row := range r.rows {
		var list []outcome
		for _, o := range row.outcomes {
			o.Result, o.Reader = brief(o.Result), brief(o.Reader)
			list = append(list, o)
		}
		loads[row.load.name] = map[string]any{
			"runs": list, "failure": row.failure, "free_memory_mb": row.memFreeMB,
		}
	}
	return map[string]any{"loads": loads, "at_rest": r.rest, "start_seconds": r.starts, "others": r.others}
}

func brief(r *measure.Result) *measure.Result {
	if r == nil {
		return nil
	}
	b := *r
	b.Series, b.Curve, b.Environment = nil, nil, nil
	return &b
}

// writeRuns keeps every run whole, with its seconds.
func (r *results) writeRuns() error {
	f, err := os.Create(filepath.Join(r.dir, report.RoundsName))
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	lines := json.NewEncoder(z)
	for _, row := range r.rows {
		for _, o := range row.outcomes {
			err = errors.Join(err, lines.Encode(map[string]any{"load": row.load.name, "run": o}))
		}
	}
	return errors.Join(err, z.Close(), f.Close())
}

func (r *results) commands(b *bench) string {
	var out strings.Builder
	fmt.Fprintln(&out, strings.Join(append([]string{"go run ./perf/peer"}, os.Args[1:]...), " "))
	for _, row := range r.rows {
		fmt.Fprintf(&out, "%s: %s\n", row.load.name, b.commandLine(row))
	}
	return out.String()
}

func firstLine(ctx context.Context, name string, args ...string) string {
	text, err := output(ctx, name, args...)
	if err != nil {
		return "unknown"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if name == "df" {
		return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
	}
	return lines[0]
}
