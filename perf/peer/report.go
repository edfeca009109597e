// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// results collects a whole run.
type results struct {
	plan    plan
	started time.Time
	rows    []*row
	rest    []atRest
	starts  map[string][]float64 // seconds from the start of the process to the first message, by side
}

type row struct {
	load      load
	command   []string
	memFreeMB int64               // when the first round began
	samples   map[string][]sample // measured rounds, by side
	raw       []rawResult         // everything, warm-up first
}

type rawResult struct {
	Side   string          `json:"side"`
	Result json.RawMessage `json:"result"`
}

func (r *results) noteStart(s *side) {
	if r.starts == nil {
		r.starts = map[string][]float64{}
	}
	r.starts[s.name] = append(r.starts[s.name], s.startTime.Seconds())
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// write makes the results folder and prints the report.
func (r *results) write(ctx context.Context, sides []*side) error {
	commit := firstLine(ctx, "git", "rev-parse", "--short", "HEAD")
	kind := "peer"
	if r.plan.only != "" {
		kind = strings.Join(append([]string{r.plan.only}, r.plan.loads...), "-")
	}
	dir := filepath.Join(r.plan.results, r.started.Format("2006-01-02-1504")+"-"+kind+"-"+commit)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	report := r.report(sides, commit)
	files := map[string][]byte{
		"env.json":    indented(r.environment(ctx, sides, commit)),
		"raw.json":    indented(r.rawAll()),
		"command.txt": []byte(r.commands()),
		"report.md":   []byte(report),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprint(os.Stdout, report)
	say("results are in %s", dir)
	return nil
}

func indented(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return []byte(err.Error())
	}
	return append(text, '\n')
}

func (r *results) rawAll() any {
	loads := map[string]any{}
	for _, row := range r.rows {
		loads[row.load.name] = row.raw
	}
	return map[string]any{"loads": loads, "at_rest": r.rest, "start_seconds": r.starts}
}

func (r *results) commands() string {
	var out strings.Builder
	fmt.Fprintln(&out, strings.Join(append([]string{"go run ./perf/peer"}, os.Args[1:]...), " "))
	for _, row := range r.rows {
		fmt.Fprintln(&out, strings.Join(row.command, " "))
	}
	return out.String()
}

func (r *results) environment(ctx context.Context, sides []*side, commit string) any {
	settings := map[string]map[string]string{}
	for _, s := range sides {
		settings[s.name] = s.settings
	}
	memory, _ := memoryBytes("MemTotal")
	return map[string]any{
		"date": r.started.Format(time.RFC3339), "commit": commit,
		"cpu": cpuModel(), "cores": runtime.NumCPU(), "memory_bytes": memory,
		"kernel": firstLine(ctx, "uname", "-srm"), "disk": firstLine(ctx, "df", "--output=source,fstype,size", "."),
		"go": runtime.Version(), "java": firstLine(ctx, "java", "--version"),
		"settings": settings, "page_cache_filled": r.plan.fillCache,
	}
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
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

func (r *results) report(sides []*side, commit string) string {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	title := fmt.Sprintf("Skylark %s beside Apache RocketMQ", commit)
	if len(sides) == 1 {
		title = fmt.Sprintf("%s alone, at %s", sides[0].name, commit)
	}
	p("# %s, %s", title, r.started.Format("2006-01-02"))
	p("")
	p("%s, %d cores, %s. Flush mode of both: ASYNC_FLUSH. Medians of %d rounds of %v (at most %d messages), "+
		"sides in turn, each warmed up for %v; page cache filled first: %v. "+
		"The load generator shares the machine; loads without a rate are closed loops.",
		cpuModel(), runtime.NumCPU(), runtime.Version(), r.plan.rounds, r.plan.duration, r.plan.maxSent,
		r.plan.warmup, r.plan.fillCache)
	p("")
	names := make([]string, len(sides))
	for i, s := range sides {
		names[i] = s.name
	}
	header := "| load | figure | " + strings.Join(names, " | ") + " |"
	if len(sides) == 2 {
		header += " ratio |"
	}
	p("%s", header)
	p("%s", strings.Repeat("|---", strings.Count(header, "|")-1)+"|")
	for _, row := range r.rows {
		r.reportRow(p, row, sides)
	}
	p("")
	for _, row := range r.rows {
		p("Free memory when the rounds of %s began: %d MB.", row.load.name, row.memFreeMB)
	}
	p("")
	r.reportRest(p, sides)
	p("Settings: `env.json`; every run: `raw.json`; command lines: `command.txt`.")
	return out.String()
}

func (r *results) reportRow(p func(string, ...any), row *row, sides []*side) {
	figures := []struct {
		name string
		of   func(sample) float64
	}{
		{row.load.unit, row.load.figure},
		{"messages a second", func(s sample) float64 { return s.MessagesPerSec }},
		{"p50 ms", func(s sample) float64 { return s.Latency.P50 }},
		{"p99 ms", func(s sample) float64 { return s.Latency.P99 }},
		{"p99.9 ms", func(s sample) float64 { return s.Latency.P999 }},
		{"failed", func(s sample) float64 { return float64(s.SendFailed + s.ResponseFailed) }},
	}
	for i, f := range figures {
		if i > 0 && f.name == "p99.9 ms" && row.load.lower {
			continue // it is the first figure already
		}
		if row.load.pull && strings.HasSuffix(f.name, " ms") {
			continue // the age of a backlog says nothing about the broker
		}
		line := fmt.Sprintf("| %s | %s |", "", f.name)
		if i == 0 {
			line = fmt.Sprintf("| **%s**: %s | %s |", row.load.name, row.load.about, f.name)
		}
		values := map[string]float64{}
		for _, s := range sides {
			var list []float64
			for _, one := range row.samples[s.name] {
				list = append(list, f.of(one))
			}
			values[s.name] = median(list)
			line += fmt.Sprintf(" %s |", number(values[s.name]))
		}
		if len(sides) == 2 {
			if ours, theirs := values["skylark"], values["apache"]; theirs > 0 && ours > 0 && f.name != "failed" {
				line += fmt.Sprintf(" %.2f |", ours/theirs)
			} else {
				line += " |"
			}
		}
		p("%s", line)
	}
}

func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (r *results) reportRest(p func(string, ...any), sides []*side) {
	var names []string
	for _, s := range sides {
		names = append(names, s.name)
	}
	p("| at rest | %s |", strings.Join(names, " | "))
	p("|---|%s", strings.Repeat("---|", len(names)))
	line := "| start on an empty store until a message is taken, s, median |"
	for _, name := range names {
		line += fmt.Sprintf(" %.3f |", median(r.starts[name]))
	}
	p("%s", line)
	if len(r.rest) > 0 && r.rest[0].IdleSeconds > 0 {
		line, cpu := fmt.Sprintf("| RssAnon after %.0f s idle, MB |", r.rest[0].IdleSeconds), "| CPU meanwhile, % of a core |"
		for _, one := range r.rest {
			line += fmt.Sprintf(" %.1f |", float64(one.IdleRSSAnonBytes)/1e6)
			cpu += fmt.Sprintf(" %.2f |", one.IdleCPUPercent)
		}
		p("%s", line)
		p("%s", cpu)
	}
	if len(r.rest) > 0 && r.rest[0].Clients > 0 {
		line := fmt.Sprintf("| RssAnon with %d idle clients, MB |", r.rest[0].Clients)
		for _, one := range r.rest {
			line += fmt.Sprintf(" %.1f |", float64(one.ClientsRSSAnon)/1e6)
		}
		p("%s", line)
	}
	p("")
}
