// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistogramQuantiles(t *testing.T) {
	t.Parallel()
	h := NewHistogram()
	for i := int64(1); i <= 10_000; i++ {
		h.Record(i*10_000, 1) // 0.01 ms to 100 ms
	}
	q := h.Quantiles()
	near := func(name string, told Millis, want float64) {
		t.Helper()
		got := float64(told)
		if got < want*0.998 || got > want*1.002 {
			t.Errorf("%s: got %.4f ms, want about %.4f", name, got, want)
		}
	}
	near("p50", q.P50, 50)
	near("p99", q.P99, 99)
	near("p99.9", q.P999, 99.9)
	near("max", Millis(q.Max), 100)
	if q.P9999.Known() {
		t.Errorf("p99.99 of 10 000 samples: got %v, want it unknown", q.P9999)
	}
	if q.Count != 10_000 {
		t.Errorf("count: got %d, want 10000", q.Count)
	}
	h.Record(int64(10*time.Minute), 1) // beyond the bound: kept at it
	if got := h.Quantiles().Max; got < 119_000 {
		t.Errorf("max after ten minutes: got %.0f ms, want the bound", got)
	}
}

// TestRecorderGate: only what is answered inside the window counts.
func TestRecorderGate(t *testing.T) {
	t.Parallel()
	var gate Gate
	r := NewRecorder(&gate)
	add := func() {
		if r.Begin() {
			r.AnsweredLocked(2, 200, 5_000_000)
		}
		r.End()
	}
	add()
	gate.Set(Measuring)
	add()
	add()
	gate.Set(Done)
	add()
	want := Totals{
		Messages: 4, Requests: 2, Bytes: 400, LatencySum: 20_000_000, LatencyMax: 5_000_000,
	}
	if diff := cmp.Diff(want, r.Totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if first, _ := r.TakeMax(); first != 5_000_000 {
		t.Errorf("window maximum: got %d", first)
	}
	if first, _ := r.TakeMax(); first != 0 {
		t.Errorf("window maximum after taking it: got %d, want 0", first)
	}
}

// TestReportLines holds the shapes that scripts around RocketMQ's benchmark parse.
func TestReportLines(t *testing.T) {
	t.Parallel()
	var w Window
	for i := range int64(12) {
		if full := w.Full(); full != (i >= 10) {
			t.Fatalf("full after %d snapshots: %v", i, full)
		}
		w.Add(i*1e9, Totals{
			Messages: i * 1000, Requests: i * 100, LatencySum: i * 1000 * 2_500_000,
			LatencyMax: 9_000_000, SecondSum: i * 1000 * 12_000_000, SendFailed: 3, ResponseFailed: i,
		})
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.Local)
	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("line:\n got %s\nwant %s", got, want)
		}
	}
	check(w.Rates().ProduceLine(now, 1), "Current Time: 2026-03-04 05:06:07,089 | Send TPS: 1000 | "+
		"Max RT(ms): 9 | Average RT(ms):   2.500 | Send Failed: 3 | Response Failed: 11")
	check(w.Rates().ProduceLine(now, 10), "Current Time: 2026-03-04 05:06:07,089 | Send TPS: 100 | "+
		"Send MPS: 1000 | Max RT(ms): 9 | Average RT(ms):   2.500 | "+
		"Average Message RT(ms):   0.250 | Send Failed: 1 | Send Message Failed: 14")
	check(w.Rates().FinalProduceLine(11000, 1), "[Complete] Send Total: 11000 | Send TPS: 1000 | "+
		"Max RT(ms): 9 | Average RT(ms):   2.500 | Send Failed: 3 | Response Failed: 11")
	check(w.Rates().ConsumeLine(now, 7_000_000, 15_000_000),
		"Current Time: 2026-03-04 05:06:07,089 | Consume TPS: 1000 | AVG(B2C) RT(ms):  12.000 | "+
			"AVG(S2C) RT(ms):   2.500 | MAX(B2C) RT(ms): 15 | MAX(S2C) RT(ms): 7 | Consume Fail: 9")
}

func TestReadUsage(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	dir := filepath.Join(proc, "42")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 1234 567 0 0 20 0 9 0 1 1 1 1\n")
	write("status", "Name:\tx\nVmRSS:\t 99 kB\nRssAnon:\t   2048 kB\nRssFile:\t 10 kB\n")
	got, err := readUsage(proc, 42)
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{
		UserSeconds: 12.34, SystemSeconds: 5.67, RSSAnonBytes: 2 << 20, RSSFileBytes: 10 << 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if _, err := readUsage(proc, 43); err == nil || !strings.Contains(err.Error(), "process 43") {
		t.Errorf("a missing process: got %v, want an error naming it", err)
	}
	if _, err := ReadUsage(os.Getpid()); err != nil {
		t.Errorf("own process: %v", err)
	}
}

func TestProcessRatios(t *testing.T) {
	t.Parallel()
	p := NewProcess(7, Usage{UserSeconds: 1, SystemSeconds: 1},
		Usage{UserSeconds: 2, SystemSeconds: 4, RSSAnonBytes: 5}, 1_000_000)
	want := Process{
		PID: 7, UserSeconds: 1, SystemSeconds: 3, CPUSeconds: 4, CPUMicrosPerMessage: 4,
		MessagesPerCPUSecond: 250_000, RSSAnonBytes: 5,
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("process (-want +got):\n%s", diff)
	}
	if p := NewProcess(7, Usage{}, Usage{}, 0); p.CPUMicrosPerMessage != 0 || p.MessagesPerCPUSecond != 0 {
		t.Errorf("nothing measured: got %+v, want zero ratios", p)
	}
}

// TestResultJSON holds the names scripts read.
func TestResultJSON(t *testing.T) {
	t.Parallel()
	r := Result{Type: "result", Verify: &Faults{}, Broker: &Process{}, LatencyFrom: "due"}
	text, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		`"p99.9":`, `"p99.99":`, `"p50":`, `"cpu_us_per_message":`, `"messages_per_cpu_second":`,
		`"rss_anon_bytes":`, `"lost":`, `"duplicates":`, `"disordered":`, `"changed":`,
		`"messages_per_second":`, `"latency_from":"due"`, `"ok":false`,
	} {
		if !strings.Contains(string(text), name) {
			t.Errorf("result lacks %s: %s", name, text)
		}
	}
}
