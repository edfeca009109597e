// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of a histogram in nanoseconds: values outside are counted at the bound. Three significant
// digits cost about 200 KB a histogram and 0.1 % of accuracy.
const (
	latencyMinNS = 1_000
	latencyMaxNS = int64(120 * time.Second)
	digits       = 3
)

// Quantiles sums up a latency histogram in milliseconds. All zero when nothing was recorded.
type Quantiles struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99.9"`
	P9999 float64 `json:"p99.99"`
	Max   float64 `json:"max"`
}

// Histogram counts latencies in nanoseconds. It is not safe for concurrent use.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty histogram from 1 microsecond to 2 minutes.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(latencyMinNS, latencyMaxNS, digits)}
}

// Record counts one latency n times.
func (h *Histogram) Record(latencyNS, n int64) {
	latencyNS = min(max(latencyNS, 0), latencyMaxNS)
	_ = h.h.RecordValues(latencyNS, n) // in bounds by the line above
}

// Merge adds what other holds.
func (h *Histogram) Merge(other *Histogram) { h.h.Merge(other.h) }

// Reset forgets everything.
func (h *Histogram) Reset() { h.h.Reset() }

// Quantiles sums the histogram up.
func (h *Histogram) Quantiles() Quantiles {
	if h.h.TotalCount() == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return ms(h.h.ValueAtQuantile(q)) }
	return Quantiles{
		Count: h.h.TotalCount(),
		Mean:  h.h.Mean() / 1e6,
		P50:   at(50),
		P90:   at(90),
		P99:   at(99),
		P999:  at(99.9),
		P9999: at(99.99),
		Max:   ms(h.h.Max()),
	}
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
