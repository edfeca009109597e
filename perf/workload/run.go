// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// window is the measured part of a run on its clock. The zero value holds nothing.
type window struct{ from, to atomic.Int64 }

// open sets the start; everything from then on is in the window until close.
func (w *window) open(from int64) {
	w.to.Store(math.MaxInt64)
	w.from.Store(from)
}

func (w *window) close(to int64) { w.to.Store(to) }

func (w *window) holds(at int64) bool { return at >= w.from.Load() && at < w.to.Load() }

// run drives the phases of a run and reports on the way.
type run struct {
	clock     measure.Clock
	gate      *measure.Gate
	window    *window
	recorders []*measure.Recorder
	warmup    time.Duration
	duration  time.Duration // 0: until finished or the context ends
	brokerPID int
	out       Output
	line      func(r measure.Rates, now time.Time) string
	// For the live view and the result.
	command string
	wanted  int64        // messages of the whole run; 0: no fixed count
	rate    float64      // messages a second asked for; 0: none
	backlog func() int64 // see measure.Second; nil: unknown

	sampler *measure.Sampler
	rates   measure.Window
	second  measure.Second // the newest
	begun   int64          // when the phase began
}

// begin is called before the load starts. Without warm-up the window opens here, so that nothing
// escapes it.
func (r *run) begin() error {
	r.sampler = measure.NewSampler(measure.Sampled{
		Clock: r.clock, Recorders: r.recorders, BrokerPID: r.brokerPID, Backlog: r.backlog,
		HistogramLog: r.out.HistogramLog,
	})
	if err := r.sampler.Check(); err != nil {
		return err
	}
	r.begun = r.clock.Now()
	r.window.open(r.begun + int64(r.warmup))
	if r.warmup == 0 {
		r.open()
	}
	return nil
}

// drive returns when the measured window is over: after warm-up and duration, when finished is
// closed, or when ctx ends. Reading the CPU of a process must work throughout the window.
func (r *run) drive(ctx context.Context, finished <-chan struct{}) error {
	if r.warmup > 0 {
		r.phase(ctx, r.warmup, finished)
		r.open()
	}
	r.phase(ctx, r.duration, finished)
	r.close()
	return r.sampler.Err()
}

func (r *run) open() {
	r.sampler.Open()
	r.gate.Set(measure.Measuring)
	r.begun = r.clock.Now()
	r.rates.Add(r.begun, measure.Totals{})
}

func (r *run) close() {
	r.gate.Set(measure.Done)
	r.sampler.Close()
	_, closedAt := r.sampler.Window()
	r.window.close(closedAt)
	if r.out.View != nil {
		r.out.View.Close()
	}
}

// phase takes a snapshot each second and prints at the report interval until the phase ends.
func (r *run) phase(ctx context.Context, length time.Duration, finished <-chan struct{}) {
	var end <-chan time.Time
	if length > 0 {
		t := time.NewTimer(length)
		defer t.Stop()
		end = t.C
	}
	every := r.out.Every
	if every <= 0 {
		every = 10 * time.Second
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	reports := time.NewTicker(every)
	defer reports.Stop()
	measuring := r.gate.Phase() == measure.Measuring
	for {
		select {
		case <-second.C:
			if measuring {
				r.second = r.sampler.Tick()
				r.rates.Add(r.clock.Now(), r.sampler.Totals())
			}
			r.show(length)
		case <-reports.C:
			if measuring && r.out.View == nil {
				r.print(every)
			}
		case <-end:
			return
		case <-finished:
			return
		case <-ctx.Done():
			return
		}
	}
}

// show feeds the live view.
func (r *run) show(planned time.Duration) {
	if r.out.View == nil {
		return
	}
	r.out.View.Show(measure.Status{
		Command: r.command, Phase: r.gate.Phase(), Planned: planned,
		Elapsed: time.Duration(r.clock.Now() - r.begun), Messages: r.sampler.Totals().Messages,
		Wanted: r.wanted, RateAsked: r.rate, Second: r.second, Latency: r.sampler.Latency(),
		Errors: r.sampler.Errors(),
	})
}

// print reports. Like RocketMQ's programs it waits for ten snapshots, unless reports are asked for
// more often than that.
func (r *run) print(every time.Duration) {
	if r.out.Reports == nil || (!r.rates.Full() && every >= 10*time.Second) {
		return
	}
	rates, now := r.rates.Rates(), time.Now()
	if r.out.JSON {
		writeJSON(r.out, report{
			Type: "report", Time: now, Rates: rates, Latency: r.sampler.Latency(),
			Errors: r.sampler.Errors(), Second: r.second,
		})
		return
	}
	_, _ = fmt.Fprintln(r.out.Reports, r.line(rates, now))
}

// report is the JSON form of a report line. Latency is of the window so far, Second the newest one.
type report struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`
	measure.Rates
	Latency measure.Quantiles `json:"latency_ms"`
	Errors  map[string]int64  `json:"errors,omitempty"`
	Second  measure.Second    `json:"second,omitzero"`
}

func writeJSON(out Output, v any) {
	if out.Reports == nil {
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("workload: a report that cannot be written as JSON: %v", err))
	}
	_, _ = out.Reports.Write(append(text, '\n'))
}

// result sums the run up.
func (r *run) result(latencyFrom string, settings any) *measure.Result {
	return r.sampler.Result(r.command, latencyFrom, settings, r.rate)
}

// runRates are the rates over the whole window.
func (r *run) runRates() measure.Rates {
	openedAt, closedAt := r.sampler.Window()
	return measure.RunRates(r.sampler.Totals(), closedAt-openedAt)
}

// finish prints the result.
func (r *run) finish(res *measure.Result) {
	if r.out.Reports == nil {
		return
	}
	if r.out.JSON {
		writeJSON(r.out, res)
		return
	}
	res.WriteText(r.out.Reports)
}
