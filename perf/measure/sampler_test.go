// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"encoding/json"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQuantilesTold: a quantile needs ten samples above it, and messages of one request are one.
func TestQuantilesTold(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		samples, each int64
		told          [5]bool // p50, p90, p99, p99.9, p99.99
	}{
		{19, 1, [5]bool{}},
		{20, 1, [5]bool{true}},
		{100, 1, [5]bool{true, true}},
		{999, 1, [5]bool{true, true}},
		{1000, 1, [5]bool{true, true, true}},
		{1000, 32, [5]bool{true, true, true}},
		{9_999, 1, [5]bool{true, true, true}},
		{10_000, 1, [5]bool{true, true, true, true}},
		{100_000, 1, [5]bool{true, true, true, true, true}},
	} {
		h := NewHistogram()
		for range tc.samples {
			h.Record(2_000_000, tc.each)
		}
		q := h.Quantiles()
		got := [5]bool{q.P50.Known(), q.P90.Known(), q.P99.Known(), q.P999.Known(), q.P9999.Known()}
		if got != tc.told || q.Samples != tc.samples || q.Count != tc.samples*tc.each {
			t.Errorf("%d samples of %d messages: told %v, want %v; %+v", tc.samples, tc.each, got, tc.told, q)
		}
	}
}

func TestMillisJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal([]Millis{1.5, Unknown()})
	if err != nil || string(text) != "[1.5,null]" {
		t.Fatalf("got %s, %v", text, err)
	}
	var back []Millis
	if err := json.Unmarshal(text, &back); err != nil || back[0] != 1.5 || back[1].Known() {
		t.Errorf("read back: %v, %v", back, err)
	}
	if s := Unknown().String(); s != "-" {
		t.Errorf("text of an unknown quantile: %q", s)
	}
}

// TestSamplerSeries: what recorders count lands in the second it was counted in, in the total, and
// in the histogram log; failures by cause.
func TestSamplerSeries(t *testing.T) {
	t.Parallel()
	var gate Gate
	var log bytes.Buffer
	recs := []*Recorder{NewRecorder(&gate), NewRecorder(&gate)}
	s := NewSampler(Sampled{
		Clock: NewClock(), Recorders: recs, BrokerPID: os.Getpid(),
		Backlog: func() int64 { return 42 }, HistogramLog: &log,
	})
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	count := func(n, latencyNS int64) {
		for _, r := range recs {
			if r.Begin() {
				for range n {
					r.AnsweredLocked(1, 100, latencyNS)
				}
				r.RefusedLocked("SYSTEM_BUSY", 2)
				r.UnansweredLocked("connection lost", 1)
			}
			r.End()
		}
	}
	s.Open()
	gate.Set(Measuring)
	count(500, 1_000_000)
	first := s.Tick()
	count(100, 3_000_000)
	second := s.Tick()
	gate.Set(Done)
	s.Close()
	recs[0].Begin() // an answer after the window, of a message due in it
	recs[0].LatencyLocked(1, 9_000_000)
	recs[0].End()
	r := s.Result("produce", "due", nil, 0)

	if first.Messages != 1000 || second.Messages != 200 || first.Bytes != 100_000 ||
		first.Backlog != 42 || first.ResponseFailed != 4 || first.SendFailed != 2 {
		t.Errorf("seconds: %+v, %+v", first, second)
	}
	if !first.Latency.P99.Known() || math.Abs(float64(first.Latency.P50)-1) > 0.01 ||
		math.Abs(float64(second.Latency.P50)-3) > 0.01 {
		t.Errorf("latencies of the seconds: %+v, %+v", first.Latency, second.Latency)
	}
	if r.Messages != 1200 || r.Latency.Count != 1201 || r.Latency.Max < 8.9 {
		t.Errorf("result: %d messages, latency %+v", r.Messages, r.Latency)
	}
	want := map[string]int64{"SYSTEM_BUSY": 8, "connection lost": 4}
	if diff := cmp.Diff(want, r.Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if got := Causes(r.Errors); got != "SYSTEM_BUSY 8, connection lost 4" {
		t.Errorf("causes: %q", got)
	}
	if r.Broker == nil || r.Broker.RSSAnonMost == 0 || r.Generator == nil || r.Environment.Go == "" {
		t.Errorf("processes and environment: %+v, %+v, %+v", r.Broker, r.Generator, r.Environment)
	}
	h, intervals, err := ReadHistogramLog(&log)
	if err != nil || intervals < 3 || h.Quantiles().Count != 1201 {
		t.Errorf("log: %d intervals, %+v, %v", intervals, h, err)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

// TestSamplerBounded: a series never outgrows its bound, and joining seconds loses no message.
func TestSamplerBounded(t *testing.T) {
	t.Parallel()
	s := NewSampler(Sampled{Clock: NewClock()})
	const ticks = 3*secondsMax + 11
	for i := range ticks {
		s.add(Second{
			End: float64(i + 1), Length: 1, Messages: 1, OwnCPU: 0.5,
			Latency: Quantiles{Count: 1, Mean: 2, P50: Millis(i % 7), P99: Unknown()},
		})
	}
	if n := len(s.series); n > secondsMax || n < secondsMax/2 {
		t.Errorf("%d entries, want %d to %d", n, secondsMax/2, secondsMax)
	}
	var messages int64
	length := 0.0
	for i := range s.series {
		e := &s.series[i]
		messages += e.Messages
		length += e.Length
		if e.OwnCPU != 0.5 || e.Latency.Mean != 2 || e.Latency.P99.Known() {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	if messages != ticks || length != ticks || s.series[len(s.series)-1].End != ticks {
		t.Errorf("%d messages in %v s, want %d", messages, length, ticks)
	}
	if !slices.IsSortedFunc(s.series, func(a, b Second) int { return int(a.End - b.End) }) {
		t.Error("entries are out of order")
	}
}

func TestClockSteps(t *testing.T) {
	t.Parallel()
	var s clockSteps
	s.start(time.Millisecond)
	for _, offset := range []time.Duration{
		time.Millisecond + 400*time.Microsecond, // slewed
		2 * time.Second,                         // set ahead
		2 * time.Second,
		time.Second, // set back
	} {
		s.look(offset)
	}
	if s.count != 2 || s.sum.Round(10*time.Millisecond) != time.Second {
		t.Errorf("got %d steps of %v in all", s.count, s.sum)
	}
	if step := NewClock().wallStep(); step.Abs() > time.Millisecond {
		t.Errorf("a new clock is %v off", step)
	}
}

// TestWarnings: each reason for doubt is said, and a good run says none.
func TestWarnings(t *testing.T) {
	t.Parallel()
	codes := func(s *Sampler, change func(r *Result)) []string {
		r := &Result{
			Seconds: 10, Messages: 100_000, MessagesPerSec: 10_000, RateAsked: 10_000,
			Environment: &Environment{Cores: 2, Processors: 2},
			Generator:   &Process{CPUSeconds: 4}, Broker: &Process{CPUSeconds: 8},
			Machine: &Machine{IdleShare: 0.3},
			Latency: Quantiles{Count: 100_000, Samples: 100_000, P999: 5},
		}
		change(r)
		s.warn(r)
		var list []string
		for _, w := range r.Warnings {
			list = append(list, w.Code)
		}
		return list
	}
	plain := func() *Sampler { return NewSampler(Sampled{Clock: NewClock()}) }
	stepped, below, unread, unsent := plain(), plain(), plain(), plain()
	oneLoop := NewSampler(Sampled{Clock: NewClock(), Threads: 1})
	unsent.series = []Second{{SocketUnsent: 1 << 20}, {}}
	stepped.steps = clockSteps{count: 1, sum: time.Second}
	below.total.Record(-5, 10_000)
	unread.series = []Second{{SocketUnread: 1 << 20}, {}}
	for _, tc := range []struct {
		want   string
		s      *Sampler
		change func(r *Result)
	}{
		{"", plain(), func(*Result) {}},
		{"own-cpu", plain(), func(r *Result) { r.Generator.CPUSeconds = 18.5 }},
		{"", plain(), func(r *Result) { r.Generator.CPUSeconds = 9.5 }},
		{"own-cpu", oneLoop, func(r *Result) { r.Generator.CPUSeconds = 9.5 }},
		{"", oneLoop, func(r *Result) { r.Generator.CPUSeconds = 8.5 }},
		{"machine-busy", plain(), func(r *Result) { r.Machine.IdleShare = 0.01 }},
		{"stolen-cpu", plain(), func(r *Result) { r.Machine.StolenShare = 0.05 }},
		{"rate-not-reached", plain(), func(r *Result) { r.MessagesPerSec = 9_000 }},
		{"own-sockets", unread, func(*Result) {}},
		{"unsent-bytes", unsent, func(*Result) {}},
		{"clock-step", stepped, func(*Result) {}},
		{"clocks-differ", below, func(*Result) {}},
		{"short-window", plain(), func(r *Result) { r.Seconds = 2; r.Generator.CPUSeconds = 1 }},
		{"few-samples", plain(), func(r *Result) { r.Latency.P999 = Unknown() }},
		{"broker-pid", plain(), func(r *Result) { r.Broker.CPUSeconds = 0 }},
		{"errors", plain(), func(r *Result) { r.ResponseFailed = 1 }},
	} {
		if got := strings.Join(codes(tc.s, tc.change), ","); got != tc.want {
			t.Errorf("want %q, got %q", tc.want, got)
		}
	}
}

// TestSocketQueues: bytes that this process has not read are seen.
func TestSocketQueues(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/net/tcp"); err != nil {
		t.Skip("no /proc/self/net/tcp on this system")
	}
	own := map[string]bool{"77": true}
	line := "   1: 0100007F:4DA4 0100007F:1F90 01 0000000A:00000014 00:00000000 00000000     0        0 77 1"
	if rx, tx, ok := queuesOf(line, own); rx != 20 || tx != 10 || !ok {
		t.Errorf("own socket: %d unread, %d unsent, %v", rx, tx, ok)
	}
	if _, _, ok := queuesOf(strings.Replace(line, " 77 ", " 78 ", 1), own); ok {
		t.Error("a socket of another process is taken for an own one")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	const size = 100_000
	if _, err := out.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		unread, unsent := socketQueues("/proc/self")
		if unread+unsent >= size {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes unread, %d unsent, want %d together", unread, unsent, size)
		}
	}
}

// TestMachine reads the counters of processors and of kernel threads from a tree like /proc.
func TestMachine(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "cpu  100 0 50 800 40 0 0 10 7 0\ncpu0 1 1 1 1\n")
	before := readMachineCPU(proc)
	write("stat", "cpu  300 0 150 1300 40 0 0 110 7 0\ncpu0 1 1 1 1\n")
	want := Machine{IdleShare: 500.0 / 900, StolenShare: 100.0 / 900}
	if m := newMachine(before, readMachineCPU(proc)); m == nil ||
		math.Abs(m.IdleShare-want.IdleShare) > 1e-9 || math.Abs(m.StolenShare-want.StolenShare) > 1e-9 {
		t.Errorf("machine: got %+v, want %+v", m, want)
	}
	thread := func(pid, name, parent, user, system string) {
		write(pid+"/stat", pid+" ("+name+") S "+parent+" 0 0 0 -1 0 0 0 0 0 "+user+" "+system+" 0 0 20 0\n")
	}
	thread("30", "kswapd0", "2", "0", "150")
	thread("31", "kworker/u4:1-flush-254:0", "2", "0", "30")
	thread("32", "kworker/0:2-events", "2", "0", "5")
	thread("33", "jbd2/vda-8", "2", "0", "7")
	thread("34", "kswapd0", "1", "0", "999") // a process that calls itself so
	thread("35", "migration/0", "2", "0", "999")
	before2 := kernelCPU(proc)
	thread("30", "kswapd0", "2", "5", "165")
	thread("31", "kworker/u4:1-events_unbound", "2", "0", "70") // the same one, at other work
	thread("33", "jbd2/vda-8", "2", "0", "7")
	thread("36", "kworker/u4:2", "2", "0", "10") // new
	want2 := map[string]float64{"kswapd": 0.2, "unbound-worker": 0.5}
	got := KernelUsed(before2, kernelCPU(proc))
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want2, got, near); diff != "" {
		t.Errorf("kernel threads (-want +got):\n%s", diff)
	}
}

// TestAllocsRecorder: counting an answer allocates nothing.
func TestAllocsRecorder(t *testing.T) {
	var gate Gate
	gate.Set(Measuring)
	r := NewRecorder(&gate)
	if n := testing.AllocsPerRun(1000, func() {
		if r.Begin() {
			r.AnsweredLocked(1, 1024, 180_000)
		}
		r.End()
	}); n != 0 {
		t.Errorf("%v allocations for an answer", n)
	}
}
