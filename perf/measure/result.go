// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Process is the CPU and memory of a process over the measured window.
type Process struct {
	PID                  int     `json:"pid"`
	UserSeconds          float64 `json:"user_seconds"`
	SystemSeconds        float64 `json:"system_seconds"`
	CPUSeconds           float64 `json:"cpu_seconds"`
	CPUMicrosPerMessage  float64 `json:"cpu_us_per_message"`
	MessagesPerCPUSecond float64 `json:"messages_per_cpu_second"`
	RSSAnonBytes         int64   `json:"rss_anon_bytes"`      // at the end of the window
	RSSAnonMost          int64   `json:"rss_anon_most_bytes"` // at the end of a second, the most
}

// NewProcess compares two readings of a process around a window that carried that many messages.
// Without a message or without CPU time the ratios are zero.
func NewProcess(pid int, before, after Usage, messages int64) Process {
	p := Process{
		PID:           pid,
		UserSeconds:   after.UserSeconds - before.UserSeconds,
		SystemSeconds: after.SystemSeconds - before.SystemSeconds,
		CPUSeconds:    after.CPUSeconds() - before.CPUSeconds(),
		RSSAnonBytes:  after.RSSAnonBytes,
	}
	if messages > 0 {
		p.CPUMicrosPerMessage = p.CPUSeconds * 1e6 / float64(messages)
	}
	if p.CPUSeconds > 0 {
		p.MessagesPerCPUSecond = float64(messages) / p.CPUSeconds
	}
	return p
}

// SchemaVersion is the number of the JSON form of Result. Fields may be added under one number;
// removed or changed ones make a new number.
const SchemaVersion = 1

// Result is the outcome of a run, the last JSON object of `skylark perf --json`.
// perf/docs/result.md describes its JSON form.
type Result struct {
	Type    string `json:"type"` // "result"
	Schema  int    `json:"schema"`
	Command string `json:"command"`
	// Part names what is measured when a command has several results: "send", "end-to-end".
	Part    string    `json:"part,omitempty"`
	Started time.Time `json:"started"` // when the measured window opened
	// Settings holds the workload as it ran.
	Settings any `json:"settings"`
	// Seconds is the length of the measured window.
	Seconds        float64 `json:"seconds"`
	Messages       int64   `json:"messages"`
	Requests       int64   `json:"requests"`
	Bytes          int64   `json:"bytes"`
	MessagesPerSec float64 `json:"messages_per_second"`
	MBPerSec       float64 `json:"mb_per_second"`
	// RateAsked is the fixed rate in messages a second, 0 for a closed loop.
	RateAsked float64 `json:"rate_asked,omitempty"`
	// Sent counts messages of the whole run, warm-up included.
	Sent int64 `json:"sent,omitempty"`
	// Retried counts messages sent again after no answer or a refusal, each time.
	Retried        int64 `json:"retried,omitempty"`
	SendFailed     int64 `json:"send_failed"`
	ResponseFailed int64 `json:"response_failed"`
	// Errors has the failed messages by cause: names of response codes, or why there was no answer.
	Errors map[string]int64 `json:"errors,omitempty"`
	// LatencyFrom names the moment latencies count from: "sent", "due" or "stored". They count to the
	// answer, or in a part that receives to the receipt.
	LatencyFrom string    `json:"latency_from"`
	Latency     Quantiles `json:"latency_ms"`
	Curve       []Point   `json:"latency_curve,omitempty"`
	BornMean    float64   `json:"born_mean_ms,omitempty"`
	Broker      *Process  `json:"broker,omitempty"`
	Generator   *Process  `json:"generator,omitempty"`
	Machine     *Machine  `json:"machine,omitempty"`
	// KernelCPU are CPU seconds of kernel threads by kind, see KernelUsed; with a broker pid only.
	KernelCPU   map[string]float64 `json:"kernel_cpu_seconds,omitempty"`
	Environment *Environment       `json:"environment,omitempty"`
	// Series has an entry for each second of the window; the entries of a very long run are longer.
	Series   []Second  `json:"series,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	Verify   *Faults   `json:"verify,omitempty"`
	// OK is false when the run must exit with a failure; Problem says why.
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

// Result returns what was measured, once the window is closed and every answer that counts is
// there. Command, latencyFrom, settings and rateAsked stand in it as they are given; the caller
// adds Sent, Verify, OK and Problem. Call it once.
func (s *Sampler) Result(command, latencyFrom string, settings any, rateAsked float64) *Result {
	s.finish()
	t, ns := s.Totals(), s.closedAt-s.openedAt
	rates := RunRates(t, ns)
	env := ReadEnvironment()
	r := &Result{
		Type: "result", Schema: SchemaVersion, Command: command, Settings: settings,
		Started: s.of.Clock.Wall(s.openedAt).Round(0).UTC(),
		Seconds: float64(ns) / 1e9, Messages: t.Messages, Requests: t.Requests, Bytes: t.Bytes,
		MessagesPerSec: rates.Messages, MBPerSec: rates.Bytes / 1e6, RateAsked: rateAsked,
		SendFailed: t.SendFailed, ResponseFailed: t.ResponseFailed, Errors: s.errors,
		LatencyFrom: latencyFrom, Latency: s.total.Quantiles(), Curve: s.total.Curve(),
		BornMean: rates.SecondMean, Machine: newMachine(s.before.machine, s.after.machine),
		Environment: &env, Series: s.series, OK: true,
	}
	if s.of.BrokerPID != 0 {
		p := NewProcess(s.of.BrokerPID, s.before.use[0], s.after.use[0], t.Messages)
		r.Broker = &p
		r.KernelCPU = KernelUsed(s.before.kernel, s.after.kernel)
	}
	if s.after.use[1] != (Usage{}) {
		p := NewProcess(s.own, s.before.use[1], s.after.use[1], t.Messages)
		r.Generator = &p
	}
	for i := range s.series {
		sec := &s.series[i]
		if r.Broker != nil {
			r.Broker.RSSAnonMost = max(r.Broker.RSSAnonMost, sec.BrokerRSSAnon)
		}
		if r.Generator != nil {
			r.Generator.RSSAnonMost = max(r.Generator.RSSAnonMost, sec.OwnRSSAnon)
		}
	}
	s.warn(r)
	return r
}

// finish takes what came after the window closed: latencies of messages that were due in it.
func (s *Sampler) finish() {
	s.take()
	if s.log != nil && s.part.samples > 0 {
		s.log.interval(s.part, s.of.Clock.Wall(s.closedAt), s.of.Clock.Wall(s.of.Clock.Now()))
	}
}

// WriteText prints the result for people.
func (r *Result) WriteText(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	if r.Part != "" {
		p("part        %s", r.Part)
	}
	p("window      %.2f s, %d messages in %d requests", r.Seconds, r.Messages, r.Requests)
	switch {
	case r.RateAsked > 0:
		p("rate        %.0f msg/s of %.0f asked, %.2f MB/s", r.MessagesPerSec, r.RateAsked, r.MBPerSec)
	case r.LatencyFrom == "sent":
		p("rate        %.0f msg/s, %.2f MB/s (closed loop)", r.MessagesPerSec, r.MBPerSec)
	default:
		p("rate        %.0f msg/s, %.2f MB/s", r.MessagesPerSec, r.MBPerSec)
	}
	q := r.Latency
	p("latency ms  from %s: mean %.3f p50 %v p90 %v p99 %v p99.9 %v p99.99 %v max %.3f",
		r.LatencyFrom, q.Mean, q.P50, q.P90, q.P99, q.P999, q.P9999, q.Max)
	if r.BornMean > 0 {
		p("            from born: mean %.3f", r.BornMean)
	}
	if r.SendFailed+r.ResponseFailed > 0 {
		p("failed      %d without an answer, %d refused: %s", r.SendFailed, r.ResponseFailed,
			Causes(r.Errors))
	}
	if r.Retried > 0 {
		p("sent again  %d after no answer or a refusal", r.Retried)
	}
	writeProcess(p, "broker cpu ", r.Broker)
	if len(r.KernelCPU) > 0 {
		text := ""
		for _, kind := range slices.Sorted(maps.Keys(r.KernelCPU)) {
			text += fmt.Sprintf(", %s %.2f s", kind, r.KernelCPU[kind])
		}
		p("kernel cpu  %s", text[2:])
	}
	writeProcess(p, "own cpu    ", r.Generator)
	r.writeVerdict(p)
}

func (r *Result) writeVerdict(p func(string, ...any)) {
	if f := r.Verify; f != nil {
		p("verify      %d numbered messages of %d streams: lost %d, duplicates %d, disordered %d, "+
			"swapped %d, misplaced %d, changed %d, offset gaps %d, late %d, streams without end %d",
			f.Messages, f.Streams, f.Lost, f.Duplicates, f.Disordered, f.Swapped, f.Misplaced,
			f.Changed, f.OffsetGaps, f.Late, f.Unended)
		p("            %d sent and not acknowledged, %d stored twice since an answer was lost, "+
			"%d bodies without a number", f.Unacked, f.Resent, f.Foreign)
		for _, e := range f.Examples {
			p("            %s", e)
		}
	}
	for _, w := range r.Warnings {
		p("warning     %s: %s", w.Code, w.Text)
	}
	if !r.OK {
		p("FAILED      %s", r.Problem)
	}
}

// Causes renders counts by cause, the most frequent first.
func Causes(errors map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(errors[b], errors[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %d", name, errors[name])
	}
	return strings.Join(parts, ", ")
}

func writeProcess(p func(string, ...any), name string, c *Process) {
	if c == nil {
		return
	}
	p("%s %.2f s (user %.2f, system %.2f): %.3f us per message, %.0f messages per CPU-second, "+
		"RssAnon %.1f MB", name, c.CPUSeconds, c.UserSeconds, c.SystemSeconds,
		c.CPUMicrosPerMessage, c.MessagesPerCPUSecond, float64(c.RSSAnonBytes)/1e6)
}
