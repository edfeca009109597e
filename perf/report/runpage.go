// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// RunPage is the page of one run, of one part or several (such as the producing and the consuming
// part of a mixed run).
func RunPage(command []string, parts ...*measure.Result) *Page {
	p := &Page{Title: "skylark perf"}
	if len(parts) == 0 {
		return p
	}
	p.Title = fmt.Sprintf("skylark perf %s, %s", parts[0].Command,
		parts[0].Started.Format("2006-01-02 15:04:05 MST"))
	p.Lead = append(p.Lead, strings.Join(command, " "))
	for _, r := range parts {
		name := r.Part
		if !r.OK {
			p.Notices = append(p.Notices, Notice{"failed", labelled(name, r.Problem)})
		}
		for _, w := range r.Warnings {
			p.Notices = append(p.Notices, Notice{w.Code, labelled(name, w.Text)})
		}
		p.Sections = append(p.Sections, Section{
			Title:  "Result" + partOf(name),
			Tables: resultTables(r),
			Charts: Charts(Named{Run: r}),
		})
	}
	for _, r := range parts {
		p.Sections = append(p.Sections, Section{
			Title:  "Settings" + partOf(r.Part),
			Tables: []Table{{Rows: textRows(flat(r.Settings))}},
		})
	}
	p.Sections = append(p.Sections, Section{
		Title: "Environment", Tables: []Table{{Rows: textRows(flat(parts[0].Environment))}},
	})
	return p
}

func partOf(name string) string {
	if name == "" {
		return ""
	}
	return " of the part " + name
}

func resultTables(r *measure.Result) []Table {
	rate := fmt.Sprintf("%.0f msg/s, %.2f MB/s", r.MessagesPerSec, r.MBPerSec)
	if r.RateAsked > 0 {
		rate += fmt.Sprintf(", of %.0f msg/s asked", r.RateAsked)
	}
	sum := Table{Rows: [][]string{
		{"window", fmt.Sprintf("%.2f s, %d messages in %d requests, %d bytes", r.Seconds, r.Messages,
			r.Requests, r.Bytes)},
		{"rate", rate},
	}}
	row := func(name, format string, args ...any) {
		sum.Rows = append(sum.Rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if failed := r.SendFailed + r.ResponseFailed; failed > 0 {
		row("failed", "%d without an answer, %d refused: %s", r.SendFailed, r.ResponseFailed,
			measure.Causes(r.Errors))
	} else {
		row("failed", "none")
	}
	for _, one := range []struct {
		name string
		p    *measure.Process
	}{{"broker", r.Broker}, {"load generator", r.Generator}} {
		if one.p != nil {
			row(one.name, "%.2f s of CPU (user %.2f, system %.2f), %.3f us a message, %.0f messages a "+
				"CPU-second, RssAnon %.1f MB, at most %.1f MB", one.p.CPUSeconds, one.p.UserSeconds,
				one.p.SystemSeconds, one.p.CPUMicrosPerMessage, one.p.MessagesPerCPUSecond,
				float64(one.p.RSSAnonBytes)/1e6, float64(one.p.RSSAnonMost)/1e6)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(r.KernelCPU)) {
		row("kernel threads: "+kind, "%.2f s of CPU", r.KernelCPU[kind])
	}
	if m := r.Machine; m != nil {
		row("machine", "%.1f %% idle, %.1f %% taken by other guests", 100*m.IdleShare, 100*m.StolenShare)
	}
	if f := r.Verify; f != nil {
		row("verification", "%d messages of %d streams: lost %d, duplicates %d, disordered %d, swapped "+
			"%d, misplaced %d, changed %d, offset gaps %d, late %d, streams without end %d",
			f.Messages, f.Streams,
			f.Lost, f.Duplicates, f.Disordered, f.Swapped, f.Misplaced, f.Changed, f.OffsetGaps, f.Late,
			f.Unended)
	}
	return []Table{sum, latencyTable(r)}
}

func latencyTable(r *measure.Result) Table {
	q := r.Latency
	return Table{
		Caption: fmt.Sprintf("Latency in ms from %s, %d samples; - means fewer than %d samples above it",
			r.LatencyFrom, q.Samples, measure.SamplesBeyond),
		Head: []string{"", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"}, Figures: 7,
		Rows: [][]string{{
			"", fmt.Sprintf("%.3f", q.Mean), q.P50.String(), q.P90.String(), q.P99.String(),
			q.P999.String(), q.P9999.String(), fmt.Sprintf("%.3f", q.Max),
		}},
	}
}

func textRows(fields map[string]string) [][]string {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		rows = append(rows, []string{name, fields[name]})
	}
	return rows
}

// ComparisonPage is the page of comparisons of all parts, with the runs of both sides drawn over
// each other. A side of several runs is drawn by the one with the median rate.
func ComparisonPage(list []*Comparison, a, b Side) *Page {
	p := &Page{
		Title: fmt.Sprintf("%s and %s", a.Name, b.Name),
		Lead:  []string{"B to A. " + howJudged()},
	}
	for _, c := range list {
		for _, side := range c.sides() {
			p.Lead = append(p.Lead, fmt.Sprintf("%s: %s, %d runs of %s%s", side.label, side.note.Name,
				side.note.Runs, side.note.Command, partOf(c.Part)))
			for _, w := range side.note.Warnings {
				p.Notices = append(p.Notices, Notice{side.label + " " + w.Code, w.Text})
			}
		}
		section := Section{Title: "Figures" + partOf(c.Part), Tables: []Table{c.Table()}}
		if len(c.Different) > 0 {
			section.Tables = append(section.Tables, c.DifferentTable())
		}
		section.Charts = Charts(Named{"A", MedianRun(a.Part(c.Part).Runs)},
			Named{"B", MedianRun(b.Part(c.Part).Runs)})
		p.Sections = append(p.Sections, section)
	}
	return p
}

// MedianRun returns the run in the middle by rate. There is at least one.
func MedianRun(runs []*measure.Result) *measure.Result {
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b *measure.Result) int {
		return cmp.Compare(a.MessagesPerSec, b.MessagesPerSec)
	})
	return sorted[len(sorted)/2]
}

// Length returns the measured time of all runs.
func (s Side) Length() time.Duration {
	sum := 0.0
	for _, r := range s.Runs {
		sum += r.Seconds
	}
	return time.Duration(sum * float64(time.Second))
}
