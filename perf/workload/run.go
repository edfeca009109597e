// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
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

// timing is what all loads of a run share.
type timing struct {
	clock  measure.Clock
	gate   measure.Gate
	window window
}

// wallNS is the wall-clock time, in nanoseconds since 1970, of a moment of the run's clock.
func (t *timing) wallNS(at int64) int64 { return t.clock.Wall(0).UnixNano() + at }

// fromWall is the inverse of wallNS.
func (t *timing) fromWall(ns int64) int64 { return ns - t.clock.Wall(0).UnixNano() }

// load is one side of a run: it sends or reads until it is through or told to stop.
type load interface {
	// part is what is measured of it. It is always the same one.
	part() *part
	// start begins to make load; it does not block.
	start(ctx context.Context)
	// through is closed when the load has ended, by itself or after stop, and every answer that
	// counts is there.
	through() <-chan struct{}
	// stop ends the load soon.
	stop()
	// discard closes the connections of a load that never started.
	discard()
}

// part is what is measured of one load.
type part struct {
	name      string // empty when the run has one part only
	command   string
	from      string // the moment latencies count from
	settings  any
	recorders []*measure.Recorder
	line      func(r measure.Rates, now time.Time) string
	wanted    int64        // messages of the whole run; 0: no fixed count
	rate      float64      // messages a second asked for; 0: none
	threads   int          // goroutines that carry it, apart from those that wait; 0: many
	backlog   func() int64 // see measure.Second; nil: unknown
	tick      func()       // called once a second of the window; nil: nothing

	sampler *measure.Sampler
	rates   measure.Window
	second  measure.Second // the newest
}

// run drives the phases of a run and reports on the way.
type run struct {
	*timing
	warmup    time.Duration
	duration  time.Duration // 0: until finished or the context ends
	brokerPID int
	out       Output
	loads     []load // the first one's end is the run's

	begun int64 // when the phase began
}

// begin is called before the load starts. Without warm-up the window opens here, so that nothing
// escapes it.
func (r *run) begin() error {
	threads := r.threads()
	for _, l := range r.loads {
		p := l.part()
		log, err := r.out.histogramLog(p.name)
		if err != nil {
			return err
		}
		p.sampler = measure.NewSampler(measure.Sampled{
			Clock: r.clock, Recorders: p.recorders, BrokerPID: r.brokerPID, Backlog: p.backlog,
			HistogramLog: log, Threads: threads,
		})
		if err := p.sampler.Check(); err != nil {
			return err
		}
	}
	r.begun = r.clock.Now()
	r.window.open(r.begun + int64(r.warmup))
	if r.warmup == 0 {
		r.open()
	}
	return nil
}

// threads is how many processors the loads can use at most, since CPU is that of the process; 0: all.
func (r *run) threads() (n int) {
	for _, l := range r.loads {
		if l.part().threads == 0 {
			return 0
		}
		n += l.part().threads
	}
	return n
}

// measureLead starts all loads and returns when the measured window is over and the first load has
// ended. When it fails nothing is left running.
func (r *run) measureLead(ctx context.Context) error {
	if err := r.begin(); err != nil {
		for _, l := range r.loads {
			l.discard()
		}
		return err
	}
	for _, l := range slices.Backward(r.loads) { // readers before writers
		l.start(ctx)
	}
	err := r.drive(ctx, r.loads[0].through())
	r.loads[0].stop()
	<-r.loads[0].through()
	if err != nil {
		r.end()
	}
	return err
}

// end stops what still runs.
func (r *run) end() {
	for _, l := range r.loads {
		l.stop()
	}
	for _, l := range r.loads {
		<-l.through()
	}
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
	for _, l := range r.loads {
		if err := l.part().sampler.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) open() {
	for _, l := range r.loads {
		l.part().sampler.Ready()
	}
	r.gate.Set(measure.Measuring)
	r.begun = r.clock.Now()
	for _, l := range r.loads {
		l.part().sampler.OpenAt(r.begun)
		l.part().rates.Add(r.begun, measure.Totals{})
	}
}

func (r *run) close() {
	r.gate.Set(measure.Done)
	now := r.clock.Now()
	r.window.close(now)
	for _, l := range r.loads {
		l.part().sampler.CloseAt(now)
	}
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
				r.tick()
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

func (r *run) tick() {
	for _, l := range r.loads {
		p := l.part()
		p.second = p.sampler.Tick()
		p.rates.Add(r.clock.Now(), p.sampler.Totals())
		if p.tick != nil {
			p.tick()
		}
	}
}

// show feeds the live view with the first part.
func (r *run) show(planned time.Duration) {
	if r.out.View == nil {
		return
	}
	p := r.loads[0].part()
	var others []measure.PartStatus
	for _, l := range r.loads[1:] {
		o := l.part()
		others = append(others, measure.PartStatus{
			Name: o.name, Second: o.second, Latency: o.sampler.Latency(), Errors: o.sampler.Errors(),
		})
	}
	r.out.View.Show(measure.Status{
		Command: p.command, Phase: r.gate.Phase(), Planned: planned,
		Elapsed: time.Duration(r.clock.Now() - r.begun), Messages: p.sampler.Totals().Messages,
		Wanted: p.wanted, RateAsked: p.rate, Second: p.second, Latency: p.sampler.Latency(),
		Errors: p.sampler.Errors(), Others: others,
	})
}

// print reports. Like RocketMQ's programs it waits for ten snapshots, unless reports are asked for
// more often than that.
func (r *run) print(every time.Duration) {
	if r.out.Reports == nil {
		return
	}
	now := time.Now()
	for _, l := range r.loads {
		p := l.part()
		if !p.rates.Full() && (every >= 10*time.Second || r.out.Classic != nil) {
			return
		}
		rates := p.rates.Rates()
		if r.out.JSON {
			writeJSON(r.out, report{
				Type: "report", Part: p.name, Time: now, Rates: rates, Latency: p.sampler.Latency(),
				Errors: p.sampler.Errors(), Second: p.second,
			})
			continue
		}
		_, _ = fmt.Fprintln(r.out.Reports, p.line(rates, now))
	}
}

// report is the JSON form of a report line. Latency is of the window so far, Second the newest one.
type report struct {
	Type string    `json:"type"`
	Part string    `json:"part,omitempty"`
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

// result sums the part up. Call it once, after the load is through.
func (p *part) result() *measure.Result {
	res := p.sampler.Result(p.command, p.from, p.settings, p.rate)
	res.Part = p.name
	return res
}

// runRates are the rates over the whole window.
func (p *part) runRates() measure.Rates {
	openedAt, closedAt := p.sampler.Window()
	return measure.RunRates(p.sampler.Totals(), closedAt-openedAt)
}

// finish prints a result.
func (o Output) finish(res *measure.Result) {
	if o.Reports == nil {
		return
	}
	if o.JSON {
		writeJSON(o, res)
		return
	}
	if o.Classic == nil {
		res.WriteText(o.Reports)
	}
}

// histogramLog is where the latencies of a part go; nil: nowhere.
func (o Output) histogramLog(part string) (io.Writer, error) {
	if o.HistogramLog == nil {
		return nil, nil
	}
	return o.HistogramLog(part)
}
