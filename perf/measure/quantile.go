// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"math"
	"strconv"
)

// SamplesBeyond is how many samples must lie above a quantile before it is told: below that it is a
// story about single requests. So p50 needs 20 samples, p90 100, p99 1000, p99.9 10 000 and p99.99
// 100 000.
const SamplesBeyond = 10

// Millis is a latency in milliseconds. NaN means that there were too few samples to tell; JSON
// shows that as null and text as "-".
type Millis float64

// Unknown is the quantile of too few samples.
func Unknown() Millis { return Millis(math.NaN()) }

// Known reports whether there were samples enough.
func (m Millis) Known() bool { return !math.IsNaN(float64(m)) }

// String renders three decimals, or "-" when unknown.
func (m Millis) String() string {
	if !m.Known() {
		return "-"
	}
	return strconv.FormatFloat(float64(m), 'f', 3, 64)
}

// MarshalJSON writes a number, or null when unknown.
func (m Millis) MarshalJSON() ([]byte, error) {
	if !m.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

// UnmarshalJSON reads a number, or null as unknown.
func (m *Millis) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*m = Unknown()
		return nil
	}
	return json.Unmarshal(text, (*float64)(m))
}

// Quantiles sums up a latency histogram in milliseconds. A quantile with fewer than SamplesBeyond
// samples above it is unknown. Messages that share a request, as in a batch, are one sample.
type Quantiles struct {
	Count   int64   `json:"count"`   // messages
	Samples int64   `json:"samples"` // measured on their own: requests sent, messages received
	Mean    float64 `json:"mean"`
	P50     Millis  `json:"p50"`
	P90     Millis  `json:"p90"`
	P99     Millis  `json:"p99"`
	P999    Millis  `json:"p99.9"`
	P9999   Millis  `json:"p99.99"`
	Max     float64 `json:"max"`
}

// enough reports whether samples suffice for quantile q of 0 to 1.
func enough(samples int64, q float64) bool {
	return float64(samples)*(1-q) >= SamplesBeyond-1e-6 // 1-0.999 is not 0.001 in binary
}

// Point is one point of a latency curve: a share Q of the messages, of 0 to 1, took at most MS
// milliseconds.
type Point struct {
	Q  float64 `json:"q"`
	MS float64 `json:"ms"`
}

// Curve returns points for a chart whose axis is logarithmic in 1/(1-q): ten for each decade, as
// far as samples suffice. Nil when nothing was recorded.
func (h *Histogram) Curve() []Point {
	var points []Point
	for i := 0; ; i++ {
		q := 1 - math.Pow(10, -float64(i)/10)
		if !enough(h.samples, q) {
			return points
		}
		points = append(points, Point{Q: q, MS: ms(h.h.ValueAtQuantile(100 * q))})
	}
}
