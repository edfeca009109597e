// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"math"
	"time"
)

// snapshotsMax is how many one-second snapshots RocketMQ's benchmark programs keep: rates are those
// between the oldest and the newest.
const snapshotsMax = 10

// timeLayout is the time stamp of RocketMQ's report lines, in local time.
const timeLayout = "2006-01-02 15:04:05,000"

type snapshot struct {
	at     int64 // nanoseconds of the run's clock
	totals Totals
}

// Window keeps the last ten snapshots of a run. It is not safe for concurrent use.
type Window struct{ snaps []snapshot }

// Add takes the snapshot of one second. at is in nanoseconds.
func (w *Window) Add(at int64, t Totals) {
	if len(w.snaps) == snapshotsMax {
		w.snaps = append(w.snaps[:0], w.snaps[1:]...)
	}
	w.snaps = append(w.snaps, snapshot{at: at, totals: t})
}

// Full reports whether ten snapshots exist; RocketMQ's programs print nothing before that.
func (w *Window) Full() bool { return len(w.snaps) == snapshotsMax }

// Len returns how many snapshots there are.
func (w *Window) Len() int { return len(w.snaps) }

// Rates are per second over a window, latencies in milliseconds.
type Rates struct {
	Requests       float64 `json:"requests_per_second"`
	Messages       float64 `json:"messages_per_second"`
	Bytes          float64 `json:"bytes_per_second"`
	RequestMean    float64 `json:"mean_ms"`         // mean latency of a message's request
	SecondMean     float64 `json:"born_mean_ms"`    // consumers: born to here
	Max            float64 `json:"max_ms"`          // since the start of the run
	SendFailed     int64   `json:"send_failed"`     // since the start of the run
	ResponseFailed int64   `json:"response_failed"` // since the start of the run
	failedInWindow int64
}

// Rates compares the oldest and the newest snapshot. All zero with fewer than two.
func (w *Window) Rates() Rates {
	if len(w.snaps) < 2 {
		return Rates{}
	}
	first, last := w.snaps[0], w.snaps[len(w.snaps)-1]
	return rates(first, last)
}

func rates(first, last snapshot) Rates {
	seconds := float64(last.at-first.at) / 1e9
	a, b := first.totals, last.totals
	r := Rates{
		Max:        ms(b.LatencyMax),
		SendFailed: b.SendFailed, ResponseFailed: b.ResponseFailed,
		failedInWindow: b.SendFailed + b.ResponseFailed - a.SendFailed - a.ResponseFailed,
	}
	if seconds > 0 {
		r.Requests = float64(b.Requests-a.Requests) / seconds
		r.Messages = float64(b.Messages-a.Messages) / seconds
		r.Bytes = float64(b.Bytes-a.Bytes) / seconds
	}
	if n := b.Messages - a.Messages; n > 0 {
		r.RequestMean = ms(b.LatencySum-a.LatencySum) / float64(n)
		r.SecondMean = ms(b.SecondSum-a.SecondSum) / float64(n)
	}
	return r
}

// RunRates are the rates over a whole window of that many nanoseconds.
func RunRates(t Totals, ns int64) Rates {
	return rates(snapshot{}, snapshot{at: ns, totals: t})
}

// ProduceLine renders the line of RocketMQ's benchmark producer, or with batch above 1 that of its
// batch producer.
func (r Rates) ProduceLine(now time.Time, batch int) string {
	return "Current Time: " + now.Format(timeLayout) + " | " + r.produceFields(batch)
}

// FinalProduceLine is the closing line of the benchmark producer.
func (r Rates) FinalProduceLine(total int64, batch int) string {
	return fmt.Sprintf("[Complete] Send Total: %d | %s", total, r.produceFields(batch))
}

// orNaN is how Java prints a mean of no values.
func (r Rates) orNaN(mean float64) float64 {
	if r.Messages == 0 {
		return math.NaN()
	}
	return mean
}

func (r Rates) produceFields(batch int) string {
	mean := r.orNaN(r.RequestMean)
	if batch > 1 {
		return fmt.Sprintf("Send TPS: %d | Send MPS: %d | Max RT(ms): %d | Average RT(ms): %7.3f | "+
			"Average Message RT(ms): %7.3f | Send Failed: %d | Send Message Failed: %d",
			int64(r.Requests), int64(r.Messages), int64(r.Max), mean,
			mean/float64(batch), (r.SendFailed+r.ResponseFailed)/int64(batch),
			r.SendFailed+r.ResponseFailed)
	}
	return fmt.Sprintf("Send TPS: %d | Max RT(ms): %d | Average RT(ms): %7.3f | "+
		"Send Failed: %d | Response Failed: %d",
		int64(r.Messages), int64(r.Max), mean, r.SendFailed, r.ResponseFailed)
}

// ConsumeLine renders the line of RocketMQ's benchmark consumer. The maxima are those since the
// last report, in nanoseconds; the mean from born to here is B2C, from stored to here S2C.
func (r Rates) ConsumeLine(now time.Time, storedMaxNS, bornMaxNS int64) string {
	return fmt.Sprintf("Current Time: %s | Consume TPS: %d | AVG(B2C) RT(ms): %7.3f | "+
		"AVG(S2C) RT(ms): %7.3f | MAX(B2C) RT(ms): %d | MAX(S2C) RT(ms): %d | Consume Fail: %d",
		now.Format(timeLayout), int64(r.Messages), r.orNaN(r.SecondMean), r.orNaN(r.RequestMean),
		bornMaxNS/1e6, storedMaxNS/1e6, r.failedInWindow)
}
