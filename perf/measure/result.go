// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"io"
)

// Process is the CPU and memory of a process over the measured window.
type Process struct {
	PID                  int     `json:"pid"`
	UserSeconds          float64 `json:"user_seconds"`
	SystemSeconds        float64 `json:"system_seconds"`
	CPUSeconds           float64 `json:"cpu_seconds"`
	CPUMicrosPerMessage  float64 `json:"cpu_us_per_message"`
	MessagesPerCPUSecond float64 `json:"messages_per_cpu_second"`
	RSSAnonBytes         int64   `json:"rss_anon_bytes"` // at the end of the window
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

// Result is the outcome of a run, the last JSON object of `skylark perf --json`.
type Result struct {
	Type    string `json:"type"` // "result"
	Command string `json:"command"`
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
	Sent           int64 `json:"sent,omitempty"`
	SendFailed     int64 `json:"send_failed"`
	ResponseFailed int64 `json:"response_failed"`
	// LatencyFrom names the moment latencies count from: "sent", "due" or "stored".
	LatencyFrom string    `json:"latency_from"`
	Latency     Quantiles `json:"latency_ms"`
	BornMean    float64   `json:"born_mean_ms,omitempty"`
	Broker      *Process  `json:"broker,omitempty"`
	Generator   *Process  `json:"generator,omitempty"`
	Verify      *Faults   `json:"verify,omitempty"`
	// OK is false when the run must exit with a failure; Problem says why.
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

// WriteText prints the result for people.
func (r *Result) WriteText(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
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
	p("latency ms  from %s: mean %.3f p50 %.3f p90 %.3f p99 %.3f p99.9 %.3f p99.99 %.3f max %.3f",
		r.LatencyFrom, q.Mean, q.P50, q.P90, q.P99, q.P999, q.P9999, q.Max)
	if r.BornMean > 0 {
		p("            from born: mean %.3f", r.BornMean)
	}
	if r.SendFailed+r.ResponseFailed > 0 {
		p("failed      %d without an answer, %d refused", r.SendFailed, r.ResponseFailed)
	}
	writeProcess(p, "broker cpu ", r.Broker)
	writeProcess(p, "own cpu    ", r.Generator)
	if f := r.Verify; f != nil {
		p("verify      %d numbered messages of %d streams: lost %d, duplicates %d, disordered %d, "+
			"swapped %d, misplaced %d, changed %d, offset gaps %d, streams without end %d",
			f.Messages, f.Streams, f.Lost, f.Duplicates, f.Disordered, f.Swapped, f.Misplaced,
			f.Changed, f.OffsetGaps, f.Unended)
		p("            %d sent and not acknowledged, %d bodies without a number", f.Unacked, f.Foreign)
		for _, e := range f.Examples {
			p("            %s", e)
		}
	}
	if !r.OK {
		p("FAILED      %s", r.Problem)
	}
}

func writeProcess(p func(string, ...any), name string, c *Process) {
	if c == nil {
		return
	}
	p("%s %.2f s (user %.2f, system %.2f): %.3f us per message, %.0f messages per CPU-second, "+
		"RssAnon %.1f MB", name, c.CPUSeconds, c.UserSeconds, c.SystemSeconds,
		c.CPUMicrosPerMessage, c.MessagesPerCPUSecond, float64(c.RSSAnonBytes)/1e6)
}
