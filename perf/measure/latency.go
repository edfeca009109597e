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

// Histogram counts latencies in nanoseconds. It is not safe for concurrent use.
type Histogram struct {
	h       *hdrhistogram.Histogram
	samples int64 // calls of Record
	below   int64 // messages with a latency under zero: two clocks that differ
}

// NewHistogram returns an empty histogram from 1 microsecond to 2 minutes.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(latencyMinNS, latencyMaxNS, digits)}
}

// Record counts one latency for n messages, as one sample. Below zero it counts as zero, and is
// remembered.
func (h *Histogram) Record(latencyNS, n int64) {
	if latencyNS < 0 {
		h.below += n
	}
	h.samples++
	latencyNS = min(max(latencyNS, 0), latencyMaxNS)
	_ = h.h.RecordValues(latencyNS, n) // in bounds by the line above
}

// Merge adds what other holds.
func (h *Histogram) Merge(other *Histogram) {
	h.samples += other.samples
	h.below += other.below
	if other.samples > 0 {
		h.h.Merge(other.h)
	}
}

// Reset forgets everything.
func (h *Histogram) Reset() {
	if h.samples > 0 {
		h.h.Reset()
	}
	h.samples, h.below = 0, 0
}

// Quantiles sums the histogram up.
func (h *Histogram) Quantiles() Quantiles {
	at := func(q float64) Millis {
		if !enough(h.samples, q) {
			return Unknown()
		}
		return Millis(ms(h.h.ValueAtQuantile(100 * q)))
	}
	s := Quantiles{
		Count: h.h.TotalCount(), Samples: h.samples,
		P50: at(0.50), P90: at(0.90), P99: at(0.99), P999: at(0.999), P9999: at(0.9999),
	}
	if s.Count > 0 {
		s.Mean = h.h.Mean() / 1e6
		s.Max = ms(h.h.Max())
	}
	return s
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
