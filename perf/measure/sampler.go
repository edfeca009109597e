// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"io"
	"maps"
	"os"
	"time"
)

// secondsMax bounds the series: when it is full, neighbours are joined, so that a run of any length
// keeps between half and all of that many entries.
const secondsMax = 7200

// Second is one entry of the series: what happened in about one second of the measured window.
type Second struct {
	End            float64   `json:"end"`    // seconds since the window opened
	Length         float64   `json:"length"` // in seconds
	Messages       int64     `json:"messages"`
	Requests       int64     `json:"requests"`
	Bytes          int64     `json:"bytes"`
	SendFailed     int64     `json:"send_failed,omitempty"`
	ResponseFailed int64     `json:"response_failed,omitempty"`
	Latency        Quantiles `json:"latency_ms"`
	// Backlog is what waits at the end: requests without an answer, messages due and not sent, or
	// messages stored and not read.
	Backlog int64 `json:"backlog"`
	// CPU is in cores, memory at the end.
	BrokerCPU     float64 `json:"broker_cpu,omitempty"`
	BrokerRSSAnon int64   `json:"broker_rss_anon_bytes,omitempty"`
	OwnCPU        float64 `json:"own_cpu,omitempty"`
	OwnRSSAnon    int64   `json:"own_rss_anon_bytes,omitempty"`
	// SocketUnread are bytes that the kernel had received for this process and this process had not
	// read at the end; SocketUnsent those it had written and the other side had not taken.
	SocketUnread int64 `json:"socket_unread_bytes,omitempty"`
	SocketUnsent int64 `json:"socket_unsent_bytes,omitempty"`
}

// PerSecond returns messages a second.
func (s *Second) PerSecond() float64 {
	if s.Length <= 0 {
		return 0
	}
	return float64(s.Messages) / s.Length
}

// Status is what a live view shows of a run. Nothing in it is shared with the run.
type Status struct {
	Command   string
	Phase     Phase
	Elapsed   time.Duration // of the phase
	Planned   time.Duration // of the phase; 0: no fixed end
	Messages  int64         // counted in the window
	Wanted    int64         // of the whole run; 0: no fixed count
	RateAsked float64       // messages a second; 0: closed loop, or reading
	Second    Second        // the newest
	Latency   Quantiles     // of the window so far
	Errors    map[string]int64
	// Others are further parts of the run, as the readers beside a sender.
	Others []PartStatus
}

// PartStatus is what a live view shows of a further part.
type PartStatus struct {
	Name    string
	Second  Second
	Latency Quantiles
	Errors  map[string]int64
}

// Sampled is what a Sampler watches.
type Sampled struct {
	Clock     Clock
	Recorders []*Recorder
	BrokerPID int          // 0: none
	Threads   int          // processors that the run's goroutines can use at most; 0: all
	Backlog   func() int64 // see Second.Backlog; nil: always 0
	// HistogramLog gets an HdrHistogram log with an interval for each second; nil: none.
	HistogramLog io.Writer
}

// Sampler takes the series of a run, and everything that is measured at both ends of its window.
// One goroutine uses it: Open, Tick about once a second, Close, and Result once all answers are
// there.
type Sampler struct {
	of    Sampled
	own   int // pid
	total *Histogram
	spare *Histogram
	part  *Histogram // scratch: of the second
	log   *histogramLog

	openedAt, closedAt, lastAt int64
	last                       Totals
	lastUse                    [2]Usage // broker, own
	series                     []Second
	perEntry                   int // ticks that one entry of the series joins
	pending                    int // ticks in the newest entry
	errors                     map[string]int64

	before, after reading
	steps         clockSteps
	err           error
}

// reading is what is read at both ends of the window.
type reading struct {
	use     [2]Usage
	machine machineCPU
	kernel  KernelThreads
}

// NewSampler returns a sampler of a run that has not opened its window.
func NewSampler(of Sampled) *Sampler {
	s := &Sampler{
		of: of, own: os.Getpid(), total: NewHistogram(), spare: NewHistogram(),
		part: NewHistogram(), perEntry: 1, errors: map[string]int64{},
	}
	if of.Backlog == nil {
		s.of.Backlog = func() int64 { return 0 }
	}
	if of.HistogramLog != nil {
		s.log = newHistogramLog(of.HistogramLog)
	}
	return s
}

// Check fails when the broker's process cannot be read, so that a run need not begin.
func (s *Sampler) Check() error {
	if s.of.BrokerPID == 0 {
		return nil
	}
	_, err := ReadUsage(s.of.BrokerPID)
	return err
}

// Open begins the window.
func (s *Sampler) Open() {
	s.Ready()
	s.OpenAt(s.of.Clock.Now())
}

// Ready reads what is measured at both ends of the window, which takes a while; OpenAt follows at
// once. Runs of several parts open them all at one moment.
func (s *Sampler) Ready() { s.before = s.read() }

// OpenAt begins the window at a moment that has just passed.
func (s *Sampler) OpenAt(at int64) {
	s.openedAt = at
	s.lastAt, s.lastUse = s.openedAt, s.before.use
	s.last = s.Totals()
	s.steps.start(s.of.Clock.wallStep())
	if s.log != nil {
		s.log.start(s.of.Clock.Wall(s.openedAt))
	}
}

// Tick takes the second that ends now.
func (s *Sampler) Tick() Second {
	now := s.of.Clock.Now()
	sec := s.second(now, s.Totals(), s.usage())
	s.steps.look(s.of.Clock.wallStep())
	s.add(sec)
	return sec
}

// Close ends the window: what was counted since the last Tick is its last, shorter entry.
func (s *Sampler) Close() { s.CloseAt(s.of.Clock.Now()) }

// CloseAt is Close for a window that ended at a moment that has just passed.
func (s *Sampler) CloseAt(at int64) {
	s.closedAt = at
	s.after = s.read()
	s.steps.look(s.of.Clock.wallStep())
	if left := s.closedAt - s.lastAt; left >= int64(100*time.Millisecond) || len(s.series) == 0 {
		s.add(s.second(s.closedAt, s.Totals(), s.after.use))
	}
}

// Err returns the first failure to read the broker's process, or to write the histogram log.
func (s *Sampler) Err() error {
	if s.err == nil && s.log != nil {
		s.err = s.log.err
	}
	return s.err
}

// Totals are the counters of all recorders.
func (s *Sampler) Totals() Totals {
	var t Totals
	for _, rec := range s.of.Recorders {
		t.Add(rec.Totals())
	}
	return t
}

// Latency sums up the window so far, up to the last Tick.
func (s *Sampler) Latency() Quantiles { return s.total.Quantiles() }

// Errors returns what failed up to the last Tick, by cause.
func (s *Sampler) Errors() map[string]int64 { return maps.Clone(s.errors) }

// Window returns the moments of the window's ends.
func (s *Sampler) Window() (openedAt, closedAt int64) { return s.openedAt, s.closedAt }

// take moves what the recorders hold into the total, and leaves it in part too.
func (s *Sampler) take() {
	s.part.Reset()
	for _, rec := range s.of.Recorders {
		full := rec.swap(s.spare, s.errors)
		s.part.Merge(full)
		full.Reset()
		s.spare = full
	}
	s.total.Merge(s.part)
}

func (s *Sampler) second(now int64, t Totals, use [2]Usage) Second {
	s.take()
	length := float64(now-s.lastAt) / 1e9
	sec := Second{
		End: float64(now-s.openedAt) / 1e9, Length: length,
		Messages: t.Messages - s.last.Messages, Requests: t.Requests - s.last.Requests,
		Bytes: t.Bytes - s.last.Bytes, SendFailed: t.SendFailed - s.last.SendFailed,
		ResponseFailed: t.ResponseFailed - s.last.ResponseFailed,
		Latency:        s.part.Quantiles(), Backlog: s.of.Backlog(),
		BrokerRSSAnon: use[0].RSSAnonBytes, OwnRSSAnon: use[1].RSSAnonBytes,
	}
	if length > 0 {
		sec.BrokerCPU = (use[0].CPUSeconds() - s.lastUse[0].CPUSeconds()) / length
		sec.OwnCPU = (use[1].CPUSeconds() - s.lastUse[1].CPUSeconds()) / length
	}
	sec.SocketUnread, sec.SocketUnsent = socketQueues("/proc/self")
	if s.log != nil {
		s.log.interval(s.part, s.of.Clock.Wall(s.lastAt), s.of.Clock.Wall(now))
	}
	s.lastAt, s.last, s.lastUse = now, t, use
	return sec
}

// add appends an entry, or joins it to the newest one.
func (s *Sampler) add(sec Second) {
	if n := len(s.series); s.pending > 0 && s.pending < s.perEntry {
		s.series[n-1] = join(s.series[n-1], sec)
		s.pending++
		return
	}
	if len(s.series) == secondsMax {
		half := s.series[:0]
		for i := 0; i+1 < secondsMax; i += 2 {
			half = append(half, join(s.series[i], s.series[i+1]))
		}
		s.series = half
		s.perEntry *= 2
	}
	s.series = append(s.series, sec)
	s.pending = 1
}

// join makes one entry of two. A quantile of both together is not known from theirs: the worse one
// stands for it.
func join(a, b Second) Second {
	worse := func(x, y Millis) Millis {
		if !x.Known() || !y.Known() {
			return Unknown()
		}
		return max(x, y)
	}
	sum := b
	sum.Length += a.Length
	sum.Messages += a.Messages
	sum.Requests += a.Requests
	sum.Bytes += a.Bytes
	sum.SendFailed += a.SendFailed
	sum.ResponseFailed += a.ResponseFailed
	l, m := a.Latency, b.Latency
	sum.Latency = Quantiles{
		Count: l.Count + m.Count, Samples: l.Samples + m.Samples,
		P50: worse(l.P50, m.P50), P90: worse(l.P90, m.P90), P99: worse(l.P99, m.P99),
		P999: worse(l.P999, m.P999), P9999: worse(l.P9999, m.P9999), Max: max(l.Max, m.Max),
	}
	if n := sum.Latency.Count; n > 0 {
		sum.Latency.Mean = (l.Mean*float64(l.Count) + m.Mean*float64(m.Count)) / float64(n)
	}
	if sum.Length > 0 {
		sum.BrokerCPU = (a.BrokerCPU*a.Length + b.BrokerCPU*b.Length) / sum.Length
		sum.OwnCPU = (a.OwnCPU*a.Length + b.OwnCPU*b.Length) / sum.Length
	}
	return sum
}

func (s *Sampler) usage() (u [2]Usage) {
	u[1], _ = ReadUsage(s.own) // zero where there is no /proc
	if s.of.BrokerPID == 0 {
		return u
	}
	var err error
	if u[0], err = ReadUsage(s.of.BrokerPID); err != nil && s.err == nil {
		s.err = err
	}
	return u
}

func (s *Sampler) read() reading {
	r := reading{use: s.usage(), machine: readMachineCPU("/proc")}
	if s.of.BrokerPID != 0 {
		r.kernel = KernelCPU()
	}
	return r
}
