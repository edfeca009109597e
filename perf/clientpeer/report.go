// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figures is what one run of a load program prints.
type figures struct {
	Messages    int64   `json:"messages"`
	Errors      int64   `json:"errors"`
	WallSeconds float64 `json:"wall_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	MaxRSSBytes int64   `json:"max_rss_bytes"`
	FirstError  string  `json:"first_error,omitempty"`
}

func (f figures) perCPU() float64    { return float64(f.Messages) / f.CPUSeconds }
func (f figures) perSecond() float64 { return float64(f.Messages) / f.WallSeconds }

// row is one load with all its runs by side.
type row struct {
	load     load
	figures  map[string][]figures
	commands [][]string
}

func (r *row) median(side string, of func(figures) float64) float64 {
	var list []float64
	for _, f := range r.figures[side] {
		list = append(list, of(f))
	}
	slices.Sort(list)
	if n := len(list); n%2 == 0 {
		return (list[n/2-1] + list[n/2]) / 2
	}
	return list[len(list)/2]
}

func (r *row) errors(side string) (n int64) {
	for _, f := range r.figures[side] {
		n += f.Errors
	}
	return n
}

// results collects a whole run.
type results struct {
	plan    plan
	started time.Time
	rows    []*row
}

// write makes the results folder and prints the report.
func (r *results) write(ctx context.Context) error {
	commit := firstLine(ctx, "git", "rev-parse", "--short", "HEAD")
	dir := filepath.Join(r.plan.results, r.started.Format("2006-01-02-1504")+"-client-"+commit)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	env := map[string]any{
		"date": r.started.Format(time.RFC3339), "commit": commit, "cores": runtime.NumCPU(),
		"go": runtime.Version(), "kernel": firstLine(ctx, "uname", "-srm"),
		"cpu":          firstLine(ctx, "sh", "-c", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo"),
		"memory":       firstLine(ctx, "sh", "-c", "grep MemTotal /proc/meminfo"),
		"their_client": firstLine(ctx, "sh", "-c", "grep -o 'rocketmq-client-go/v2 .*' perf/clientpeer/theirs/go.mod"),
		"broker":       "skylark server, ASYNC_FLUSH, everything else default",
	}
	raw := map[string]any{}
	var commands strings.Builder
	fmt.Fprintln(&commands, strings.Join(append([]string{"go run ./perf/clientpeer"}, os.Args[1:]...), " "))
	for _, row := range r.rows {
		raw[row.load.title] = row.figures
		for _, c := range row.commands {
			fmt.Fprintln(&commands, strings.Join(c, " "))
		}
	}
	report := r.report(commit)
	files := map[string][]byte{
		"report.md": []byte(report), "command.txt": []byte(commands.String()),
	}
	for name, v := range map[string]any{"env.json": env, "raw.json": raw} {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		files[name] = append(text, '\n')
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprint(os.Stdout, report)
	fmt.Fprintln(os.Stderr, "results are in", dir)
	return nil
}

func (r *results) report(commit string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Package client and rocketmq-client-go/v2, %s, commit %s\n\n",
		r.started.Format("2006-01-02 15:04"), commit)
	fmt.Fprintf(&b, "One Skylark broker (asynchronous flush) on the same machine, %d cores; each load in a "+
		"process of its\nown, the clients in turn, medians of %d rounds of %v after %v of warm-up; bodies of "+
		"%d bytes, zeroes,\nuncompressed. CPU is user and system time of the client's process. The backlog has "+
		"%d messages.\n\n", runtime.NumCPU(), r.plan.rounds, r.plan.duration, r.plan.warmup, r.plan.size,
		r.plan.count)
	b.WriteString("| messages for each CPU-second of the client | ours | client-go v2 | ratio |\n|---|---|---|---|\n")
	for _, row := range r.rows {
		o, t := row.median("ours", figures.perCPU), row.median("theirs", figures.perCPU)
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.1f |\n", row.load.title, o, t, o/t)
	}
	b.WriteString("\n| messages a second, and errors of all rounds | ours | client-go v2 |\n|---|---|---|\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %.0f, %d | %.0f, %d |\n", row.load.title,
			row.median("ours", figures.perSecond), row.errors("ours"),
			row.median("theirs", figures.perSecond), row.errors("theirs"))
	}
	b.WriteString("\n| memory of the client at most, MB | ours | client-go v2 |\n|---|---|---|\n")
	rss := func(f figures) float64 { return float64(f.MaxRSSBytes) / 1e6 }
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %.0f | %.0f |\n", row.load.title, row.median("ours", rss),
			row.median("theirs", rss))
	}
	b.WriteString("\nMessages a second are those of a machine on which broker and client share the cores. The " +
		"load with\nlinger compares what each client does with a stream of asynchronous sends: ours batches it, " +
		"Apache's\nsends each message in a request of its own and leaves batches to the caller, which the " +
		"fourth row has.\nApache's client sends batches without unique ids.\n")
	return b.String()
}

func firstLine(ctx context.Context, name string, args ...string) string {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}
