// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
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

	rates      measure.Window
	openedAt   int64
	closedAt   int64
	before     [2]measure.Usage // of broker and generator
	after      [2]measure.Usage
	usageError error
}

// begin is called before the load starts. Without warm-up the window opens here, so that nothing
// escapes it.
func (r *run) begin() error {
	if r.brokerPID != 0 {
		if _, err := measure.ReadUsage(r.brokerPID); err != nil {
			return err
		}
	}
	r.window.open(r.clock.Now() + int64(r.warmup))
	if r.warmup == 0 {
		r.open()
	}
	return nil
}

// drive returns when the measured window is over: after warm-up and duration, when finished is
// closed, or when ctx ends. Reading the CPU of a process must work at both ends of the window.
func (r *run) drive(ctx context.Context, finished <-chan struct{}) error {
	if r.warmup > 0 {
		warm := time.NewTimer(r.warmup)
		defer warm.Stop()
		select {
		case <-warm.C:
		case <-finished:
		case <-ctx.Done():
		}
		r.open()
	}
	r.report(ctx, finished)
	r.close()
	return r.usageError
}

func (r *run) open() {
	r.usage(&r.before)
	r.gate.Set(measure.Measuring)
	r.openedAt = r.clock.Now()
	r.rates.Add(r.openedAt, measure.Totals{})
}

func (r *run) close() {
	r.gate.Set(measure.Done)
	r.closedAt = r.clock.Now()
	r.window.close(r.closedAt)
	r.usage(&r.after)
}

func (r *run) usage(u *[2]measure.Usage) {
	u[1], _ = measure.ReadUsage(os.Getpid()) // zero where there is no /proc
	if r.brokerPID == 0 {
		return
	}
	var err error
	if u[0], err = measure.ReadUsage(r.brokerPID); err != nil {
		r.usageError = err
	}
}

// report takes a snapshot each second and prints at the report interval until the window ends.
func (r *run) report(ctx context.Context, finished <-chan struct{}) {
	var end <-chan time.Time
	if r.duration > 0 {
		t := time.NewTimer(r.duration)
		defer t.Stop()
		end = t.C
	}
	every := r.out.Every
	if every <= 0 {
		every = 10 * time.Second
		if r.out.Live {
			every = time.Second
		}
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	reports := time.NewTicker(every)
	defer reports.Stop()
	for {
		select {
		case <-second.C:
			r.rates.Add(r.clock.Now(), r.totals())
		case <-reports.C:
			r.print(every)
		case <-end:
			return
		case <-finished:
			return
		case <-ctx.Done():
			return
		}
	}
}

// print reports. Like RocketMQ's programs it waits for ten snapshots, unless reports are asked for
// more often than that.
func (r *run) print(every time.Duration) {
	if r.out.Reports == nil || (!r.rates.Full() && every >= 10*time.Second) {
		return
	}
	rates, now := r.rates.Rates(), time.Now()
	switch {
	case r.out.JSON:
		h := r.histogram()
		writeJSON(r.out, report{
			Type: "report", Time: now, Rates: rates, Latency: h.Quantiles(),
		})
	case r.out.Live:
		_, _ = fmt.Fprintf(r.out.Reports, "\r\x1b[K%s", r.line(rates, now))
	default:
		_, _ = fmt.Fprintln(r.out.Reports, r.line(rates, now))
	}
}

// report is the JSON form of a report line. Latency is of the window so far.
type report struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`
	measure.Rates
	Latency measure.Quantiles `json:"latency_ms"`
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

func (r *run) totals() measure.Totals {
	var t measure.Totals
	for _, rec := range r.recorders {
		t.Add(rec.Totals())
	}
	return t
}

func (r *run) histogram() *measure.Histogram {
	h := measure.NewHistogram()
	for _, rec := range r.recorders {
		rec.MergeInto(h)
	}
	return h
}

// result sums the run up.
func (r *run) result(command, latencyFrom string, settings any) *measure.Result {
	t := r.totals()
	ns := r.closedAt - r.openedAt
	rates := measure.RunRates(t, ns)
	res := &measure.Result{
		Type: "result", Command: command, Settings: settings,
		Seconds: float64(ns) / 1e9, Messages: t.Messages, Requests: t.Requests, Bytes: t.Bytes,
		MessagesPerSec: rates.Messages, MBPerSec: rates.Bytes / 1e6,
		SendFailed: t.SendFailed, ResponseFailed: t.ResponseFailed,
		LatencyFrom: latencyFrom, Latency: r.histogram().Quantiles(), BornMean: rates.SecondMean,
		OK: true,
	}
	if r.brokerPID != 0 {
		p := measure.NewProcess(r.brokerPID, r.before[0], r.after[0], t.Messages)
		res.Broker = &p
	}
	if r.after[1] != (measure.Usage{}) {
		p := measure.NewProcess(os.Getpid(), r.before[1], r.after[1], t.Messages)
		res.Generator = &p
	}
	return res
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
	if r.out.Live {
		_, _ = fmt.Fprintln(r.out.Reports)
	}
	res.WriteText(r.out.Reports)
}
