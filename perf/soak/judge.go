// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// Allowances of the judgement.
const (
	memoryMost  = 1.05    // last third over the first one, in the median second
	memorySlack = 2 << 20 // bytes, for a heap that grows in steps
	driftMost   = 1.25    // the same for p99.9
)

// thirds are the median seconds of the first, middle and last third of a run.
type thirds struct {
	rate, p50, p999, worst, memory, cpu [3]float64
}

// judge sums up the seconds of a run. Each third needs 20 of them.
func judge(series []measure.Second) (*thirds, error) {
	n := len(series) / 3
	if n < 20 {
		return nil, fmt.Errorf("%d seconds are too few to judge", len(series))
	}
	var t thirds
	for i := range t.rate {
		part := series[i*n : (i+1)*n]
		of := func(f func(s *measure.Second) float64) float64 {
			var list []float64
			for k := range part {
				if v := f(&part[k]); !math.IsNaN(v) {
					list = append(list, v)
				}
			}
			if len(list) == 0 {
				return math.NaN()
			}
			slices.Sort(list)
			return list[len(list)/2]
		}
		t.rate[i] = of(func(s *measure.Second) float64 { return s.PerSecond() })
		t.p50[i] = of(func(s *measure.Second) float64 { return float64(s.Latency.P50) })
		t.p999[i] = of(func(s *measure.Second) float64 { return float64(s.Latency.P999) })
		t.memory[i] = of(func(s *measure.Second) float64 { return float64(s.BrokerRSSAnon) })
		t.cpu[i] = of(func(s *measure.Second) float64 { return s.BrokerCPU })
		for k := range part {
			t.worst[i] = max(t.worst[i], part[k].Latency.Max)
		}
	}
	return &t, nil
}

// fault says what drifted; nil: nothing.
func (t *thirds) fault() error {
	var errs []error
	if t.memory[2] > t.memory[0]*memoryMost+memorySlack {
		errs = append(errs, fmt.Errorf("memory grew from %.1f to %.1f MB", t.memory[0]/1e6, t.memory[2]/1e6))
	}
	switch ratio := t.p999[2] / t.p999[0]; {
	case math.IsNaN(ratio):
		errs = append(errs, errors.New("too few messages a second for a p99.9 of each"))
	case ratio > driftMost:
		errs = append(errs, fmt.Errorf("p99.9 drifted from %.2f to %.2f ms", t.p999[0], t.p999[2]))
	}
	return errors.Join(errs...)
}

func (t *thirds) table() string {
	number := func(v float64) string { return report.Number(measure.Millis(v)) }
	table := report.Table{
		Head: []string{"median second of", "first third", "middle", "last third", "last / first"}, Figures: 4,
	}
	for _, line := range []struct {
		name   string
		values [3]float64
		scale  float64
	}{
		{"messages a second", t.rate, 1},
		{"p50 of a send, ms", t.p50, 1},
		{"p99.9 of a send, ms", t.p999, 1},
		{"slowest send of the third, ms", t.worst, 1},
		{"RssAnon of the broker, MB", t.memory, 1e-6},
		{"CPU of the broker, cores", t.cpu, 1},
	} {
		row := []string{line.name}
		for _, v := range line.values {
			row = append(row, number(v*line.scale))
		}
		table.Rows = append(table.Rows, append(row, fmt.Sprintf("%.2f", line.values[2]/line.values[0])))
	}
	verdict := "Memory is flat and p99.9 does not drift"
	if err := t.fault(); err != nil {
		verdict = "FAULT: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return fmt.Sprintf("%s\n\n%s (allowed: memory %.0f %% and 2 MiB, p99.9 %.0f %%).\n", table.Markdown(),
		verdict, 100*(memoryMost-1), 100*(driftMost-1))
}

// commitOf is the short name of the revision at work.
func commitOf(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
