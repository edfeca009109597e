// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Better says which direction of a figure is good.
type Better string

// The directions. A figure without one only describes the run.
const (
	Higher Better = "higher"
	Lower  Better = "lower"
)

// figure is one line of a comparison: how to read it out of a run, and out of one of its seconds.
// Both return NaN when it is not there.
type figure struct {
	name   string // as in the JSON form of a result
	unit   string
	better Better
	run    func(r *measure.Result) float64
	second func(s *measure.Second) float64
	rate   bool // no merit of the broker where a fixed rate was asked for
}

// figures are all lines, in their order.
func figures() []figure {
	list := []figure{
		{
			"messages_per_second", "msg/s", Higher,
			func(r *measure.Result) float64 { return r.MessagesPerSec },
			func(s *measure.Second) float64 { return s.PerSecond() }, true,
		},
		{
			"mb_per_second", "MB/s", Higher,
			func(r *measure.Result) float64 { return r.MBPerSec },
			func(s *measure.Second) float64 { return float64(s.Bytes) / s.Length / 1e6 }, true,
		},
	}
	list = append(list, latencyFigures()...)
	return append(list, costFigures()...)
}

func latencyFigures() []figure {
	quantile := func(name string, of func(q *measure.Quantiles) float64) figure {
		return figure{
			"latency_ms." + name, "ms", Lower,
			func(r *measure.Result) float64 { return of(&r.Latency) },
			func(s *measure.Second) float64 { return of(&s.Latency) }, false,
		}
	}
	return []figure{
		quantile("mean", func(q *measure.Quantiles) float64 { return q.Mean }),
		quantile("p50", func(q *measure.Quantiles) float64 { return float64(q.P50) }),
		quantile("p90", func(q *measure.Quantiles) float64 { return float64(q.P90) }),
		quantile("p99", func(q *measure.Quantiles) float64 { return float64(q.P99) }),
		quantile("p99.9", func(q *measure.Quantiles) float64 { return float64(q.P999) }),
		quantile("p99.99", func(q *measure.Quantiles) float64 { return float64(q.P9999) }),
		quantile("max", func(q *measure.Quantiles) float64 { return q.Max }),
	}
}

func costFigures() []figure {
	return []figure{
		{
			"broker.cpu_us_per_message", "us", Lower,
			func(r *measure.Result) float64 {
				return ofProcess(r.Broker, func(p *measure.Process) float64 { return p.CPUMicrosPerMessage })
			},
			func(s *measure.Second) float64 {
				return s.BrokerCPU * s.Length * 1e6 / float64(s.Messages)
			}, false,
		},
		{
			"broker.messages_per_cpu_second", "msg/s", Higher,
			func(r *measure.Result) float64 {
				return ofProcess(r.Broker, func(p *measure.Process) float64 { return p.MessagesPerCPUSecond })
			},
			func(s *measure.Second) float64 { return s.PerSecond() / s.BrokerCPU }, false,
		},
		{
			"broker.rss_anon_most_bytes", "bytes", Lower,
			func(r *measure.Result) float64 {
				return ofProcess(r.Broker, func(p *measure.Process) float64 { return float64(p.RSSAnonMost) })
			},
			func(s *measure.Second) float64 { return float64(s.BrokerRSSAnon) }, false,
		},
		{
			"generator.cpu_us_per_message", "us", "",
			func(r *measure.Result) float64 {
				return ofProcess(r.Generator,
					func(p *measure.Process) float64 { return p.CPUMicrosPerMessage })
			},
			func(s *measure.Second) float64 {
				return s.OwnCPU * s.Length * 1e6 / float64(s.Messages)
			}, false,
		},
		{
			"failed", "messages", Lower,
			func(r *measure.Result) float64 { return float64(r.SendFailed + r.ResponseFailed) },
			func(s *measure.Second) float64 { return float64(s.SendFailed + s.ResponseFailed) }, false,
		},
	}
}

func ofProcess(p *measure.Process, of func(p *measure.Process) float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return of(p)
}

// told reports whether v is a figure.
func told(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
