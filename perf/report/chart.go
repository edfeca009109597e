// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Chart is a diagram of lines.
type Chart struct {
	ID     string `json:"id"` // set by Page.HTML
	Title  string `json:"title"`
	Hint   string `json:"-"`
	Kind   string `json:"kind"`          // "time": x in seconds; "quantile": x is 1/(1-q), logarithmic
	X      string `json:"x,omitempty"`   // what x is, for "time"
	Unit   string `json:"unit"`          // of y
	Log    bool   `json:"log,omitempty"` // y is logarithmic: what is not above 0 is left out
	Series []Line `json:"series"`
}

// Line is one line of a chart. Points whose y is unknown are gaps.
type Line struct {
	Label  string           `json:"label"`
	Colour int              `json:"colour"` // a number of the page's palette
	Dash   bool             `json:"dash,omitempty"`
	X      []float64        `json:"x"`
	Y      []measure.Millis `json:"y"`
}

// Named is a run with the name it has in a chart; empty where it is the only one.
type Named struct {
	Name string
	Run  *measure.Result
}

const (
	timeKind     = "time"
	quantileKind = "quantile"
	secondsLabel = "seconds"
)

// overTime makes a line of one figure of each second. In logarithmic charts nothing is not drawn.
func overTime(n Named, label string, colour int, of func(s *measure.Second) measure.Millis) Line {
	l := Line{Label: labelled(n.Name, label), Colour: colour}
	for i := range n.Run.Series {
		s := &n.Run.Series[i]
		l.X = append(l.X, s.End)
		l.Y = append(l.Y, of(s))
	}
	return l
}

func labelled(name, label string) string {
	if name == "" {
		return label
	}
	return name + " " + label
}

// pair draws two figures of each run: in two colours, or with several runs in the colour of the
// run; the second one is dashed.
func pair(c *Chart, runs []Named, first, second string,
	of func(s *measure.Second) (first, second measure.Millis), hasFirst func(r *measure.Result) bool,
) {
	for i, n := range runs {
		a, b := i, i
		if len(runs) == 1 {
			b = a + 1
		}
		if hasFirst(n.Run) {
			c.Series = append(c.Series, overTime(n, first, a, func(s *measure.Second) measure.Millis {
				v, _ := of(s)
				return v
			}))
		}
		l := overTime(n, second, b, func(s *measure.Second) measure.Millis {
			_, v := of(s)
			return v
		})
		l.Dash = true
		c.Series = append(c.Series, l)
	}
}

func hasBroker(r *measure.Result) bool { return r.Broker != nil }

func always(*measure.Result) bool { return true }

// above is v, or unknown when a logarithmic axis has no place for it.
func above(v measure.Millis) measure.Millis {
	if v > 0 {
		return v
	}
	return measure.Unknown()
}

// Charts draws runs over each other: rate, latencies over time, the latency curve, CPU, memory,
// what waits and what failed, as far as the runs have them.
func Charts(runs ...Named) []Chart {
	charts := []Chart{rateChart(runs), latencyChart(runs), curveChart(runs), cpuChart(runs)}
	charts = append(charts, memoryChart(runs), waitingChart(runs), failureChart(runs))
	return slices.DeleteFunc(charts, func(c Chart) bool {
		return !slices.ContainsFunc(c.Series, func(l Line) bool {
			return slices.ContainsFunc(l.Y, func(v measure.Millis) bool { return v.Known() && v != 0 })
		})
	})
}

func rateChart(runs []Named) Chart {
	c := Chart{Title: "Rate over time", Kind: timeKind, X: secondsLabel, Unit: "messages a second"}
	for i, n := range runs {
		c.Series = append(c.Series, overTime(n, "msg/s", i,
			func(s *measure.Second) measure.Millis { return measure.Millis(s.PerSecond()) }))
		if n.Run.RateAsked > 0 {
			asked := overTime(n, "asked", i, func(*measure.Second) measure.Millis {
				return measure.Millis(n.Run.RateAsked)
			})
			asked.Dash = true
			c.Series = append(c.Series, asked)
		}
	}
	return c
}

func latencyChart(runs []Named) Chart {
	c := Chart{
		Title: "Latency over time", Kind: timeKind, X: secondsLabel, Unit: "ms", Log: true,
		Hint: fmt.Sprintf("of each second, from %s; a quantile needs %d samples above it in that second",
			cmp.Or(runs[0].Run.LatencyFrom, "sent"), measure.SamplesBeyond),
	}
	type quantile struct {
		label string
		of    func(q *measure.Quantiles) measure.Millis
	}
	all := []quantile{
		{"p50", func(q *measure.Quantiles) measure.Millis { return q.P50 }},
		{"p99", func(q *measure.Quantiles) measure.Millis { return q.P99 }},
		{"p99.9", func(q *measure.Quantiles) measure.Millis { return q.P999 }},
		{"max", func(q *measure.Quantiles) measure.Millis { return measure.Millis(q.Max) }},
	}
	if len(runs) > 1 {
		all = all[:3] // of several runs, the maximum of each hides the rest
	}
	for i, n := range runs {
		for j, q := range all {
			l := overTime(n, q.label, j,
				func(s *measure.Second) measure.Millis { return above(q.of(&s.Latency)) })
			l.Dash = i > 0
			if known(l) {
				c.Series = append(c.Series, l)
			}
		}
	}
	return c
}

func known(l Line) bool { return slices.ContainsFunc(l.Y, measure.Millis.Known) }

func curveChart(runs []Named) Chart {
	c := Chart{
		Title: "Latency by percentile", Kind: quantileKind, Unit: "ms", Log: true,
		Hint: "of the whole window, as far as samples suffice",
	}
	for i, n := range runs {
		l := Line{Label: cmp.Or(n.Name, "latency"), Colour: i}
		for _, p := range n.Run.Curve {
			l.X = append(l.X, 1/(1-p.Q))
			l.Y = append(l.Y, above(measure.Millis(p.MS)))
		}
		c.Series = append(c.Series, l)
	}
	return c
}

func cpuChart(runs []Named) Chart {
	c := Chart{Title: "CPU over time", Kind: timeKind, X: secondsLabel, Unit: "cores"}
	pair(&c, runs, "broker", "load generator", func(s *measure.Second) (first, second measure.Millis) {
		return measure.Millis(s.BrokerCPU), measure.Millis(s.OwnCPU)
	}, hasBroker)
	return c
}

func memoryChart(runs []Named) Chart {
	c := Chart{
		Title: "Anonymous memory over time", Kind: timeKind, X: secondsLabel, Unit: "MB",
		Hint: "RssAnon: heap and stacks, without file mappings",
	}
	pair(&c, runs, "broker", "load generator", func(s *measure.Second) (first, second measure.Millis) {
		return measure.Millis(float64(s.BrokerRSSAnon) / 1e6), measure.Millis(float64(s.OwnRSSAnon) / 1e6)
	}, hasBroker)
	return c
}

func waitingChart(runs []Named) Chart {
	c := Chart{
		Title: "Waiting at the end of each second", Kind: timeKind, X: secondsLabel,
		Unit: "messages, KiB",
		Hint: "backlog in messages; unread: KiB of answers in the load generator's sockets",
	}
	pair(&c, runs, "backlog", "unread", func(s *measure.Second) (first, second measure.Millis) {
		return measure.Millis(s.Backlog), measure.Millis(s.SocketUnread >> 10)
	}, always)
	return c
}

func failureChart(runs []Named) Chart {
	c := Chart{Title: "Failed over time", Kind: timeKind, X: secondsLabel, Unit: "messages"}
	pair(&c, runs, "no answer", "refused", func(s *measure.Second) (first, second measure.Millis) {
		return measure.Millis(s.SendFailed), measure.Millis(s.ResponseFailed)
	}, always)
	return c
}
