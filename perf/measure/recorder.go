// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock returns nanoseconds that only grow, from one process-wide start. Differences are what
// counts; it never follows a change of the wall clock.
type Clock struct{ start time.Time }

// NewClock starts a clock at zero.
func NewClock() Clock { return Clock{start: time.Now()} }

// Now returns the nanoseconds since NewClock.
func (c Clock) Now() int64 { return int64(time.Since(c.start)) }

// Wall returns the wall-clock time of a reading of c.
func (c Clock) Wall(ns int64) time.Time { return c.start.Add(time.Duration(ns)) }

// Phase says whether what happens now belongs to the measured window.
type Phase int32

// The phases of a run, in their order.
const (
	Warming   Phase = iota // before the window: answers are not counted
	Measuring              // inside it
	Done                   // after it: late answers are not counted
)

// Gate is the phase shared by all recorders of a run. The zero value is Warming.
// Any goroutine may read it; one goroutine moves it on.
type Gate struct{ phase atomic.Int32 }

// Set moves the run to p.
func (g *Gate) Set(p Phase) { g.phase.Store(int32(p)) }

// Phase returns the phase of the run.
func (g *Gate) Phase() Phase { return Phase(g.phase.Load()) }

// Totals are counters since the start of the measured window. Latencies are in nanoseconds.
type Totals struct {
	Messages       int64 // answered with success, or received
	Requests       int64 // answered sends, or answered pulls
	Bytes          int64 // of bodies sent, or of records received
	SendFailed     int64 // messages that got no answer: connection lost, time out
	ResponseFailed int64 // messages refused by a broker
	LatencySum     int64 // over messages
	LatencyMax     int64
	SecondSum      int64 // second latency: consumers count born-to-receive here
	SecondMax      int64
}

// Add sums two totals; maxima are kept.
func (t *Totals) Add(o Totals) {
	t.Messages += o.Messages
	t.Requests += o.Requests
	t.Bytes += o.Bytes
	t.SendFailed += o.SendFailed
	t.ResponseFailed += o.ResponseFailed
	t.LatencySum += o.LatencySum
	t.SecondSum += o.SecondSum
	t.LatencyMax = max(t.LatencyMax, o.LatencyMax)
	t.SecondMax = max(t.SecondMax, o.SecondMax)
}

// Recorder counts what one connection saw. The connection writes in batches between Begin and End,
// so that one lock covers all answers of a read; a reporter may take a snapshot at any time.
type Recorder struct {
	gate *Gate

	mu        sync.Mutex
	totals    Totals
	histogram *Histogram       // since the last swap
	errors    map[string]int64 // messages by cause; nil without any
	windowMax [2]int64         // maxima of both latencies since the last TakeMax
}

// NewRecorder returns a recorder that counts while gate says Measuring.
func NewRecorder(gate *Gate) *Recorder {
	return &Recorder{gate: gate, histogram: NewHistogram()}
}

// Begin locks the recorder and reports whether the window is open. End must follow in any case.
func (r *Recorder) Begin() (open bool) {
	r.mu.Lock()
	return r.gate.Phase() == Measuring
}

// End closes what Begin opened.
func (r *Recorder) End() { r.mu.Unlock() }

// AnsweredLocked counts a request answered with success, its messages sharing one latency.
func (r *Recorder) AnsweredLocked(messages, bytes, latencyNS int64) {
	r.CountedLocked(messages, bytes)
	r.LatencyLocked(messages, latencyNS)
}

// CountedLocked counts a request answered with success, without its latency.
func (r *Recorder) CountedLocked(messages, bytes int64) {
	r.totals.Requests++
	r.totals.Messages += messages
	r.totals.Bytes += bytes
}

// LatencyLocked records the latency of messages that CountedLocked counts, or has counted.
func (r *Recorder) LatencyLocked(messages, latencyNS int64) {
	r.totals.LatencySum += latencyNS * messages
	r.totals.LatencyMax = max(r.totals.LatencyMax, latencyNS)
	r.windowMax[0] = max(r.windowMax[0], latencyNS)
	r.histogram.Record(latencyNS, messages)
}

// ReceivedLocked counts one received message: store-to-here goes into the histogram,
// born-to-here into the second sum.
func (r *Recorder) ReceivedLocked(bytes, storedNS, bornNS int64) {
	r.totals.Messages++
	r.totals.Bytes += bytes
	r.totals.LatencySum += storedNS
	r.totals.LatencyMax = max(r.totals.LatencyMax, storedNS)
	r.totals.SecondSum += bornNS
	r.totals.SecondMax = max(r.totals.SecondMax, bornNS)
	r.windowMax[0] = max(r.windowMax[0], storedNS)
	r.windowMax[1] = max(r.windowMax[1], bornNS)
	r.histogram.Record(storedNS, 1)
}

// PulledLocked counts one answered pull.
func (r *Recorder) PulledLocked() { r.totals.Requests++ }

// UnansweredLocked counts messages that got no answer. cause is one of a few short texts.
func (r *Recorder) UnansweredLocked(cause string, messages int64) {
	r.totals.SendFailed += messages
	r.causeLocked(cause, messages)
}

// RefusedLocked counts messages that a broker refused. cause is the name of the response code.
func (r *Recorder) RefusedLocked(cause string, messages int64) {
	r.totals.ResponseFailed += messages
	r.causeLocked(cause, messages)
}

func (r *Recorder) causeLocked(cause string, messages int64) {
	if messages == 0 {
		return
	}
	if r.errors == nil {
		r.errors = map[string]int64{}
	}
	r.errors[cause] += messages
}

// Totals returns the counters of the window so far.
func (r *Recorder) Totals() Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.totals
}

// TakeMax returns both maxima since the last TakeMax and starts anew.
func (r *Recorder) TakeMax() (first, second int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, second = r.windowMax[0], r.windowMax[1]
	r.windowMax = [2]int64{}
	return first, second
}

// swap puts an empty histogram in the place of the one that was filled since the last swap, and
// adds what failed to causes.
func (r *Recorder) swap(empty *Histogram, causes map[string]int64) *Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	full := r.histogram
	r.histogram = empty
	for cause, n := range r.errors {
		causes[cause] += n
	}
	clear(r.errors)
	return full
}
