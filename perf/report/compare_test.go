// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// run makes a result of n seconds around a rate and a p99, each second off by up to noise (a
// share).
func run(seed uint64, n int, rate, p99, noise float64) *measure.Result {
	random := rand.New(rand.NewPCG(seed*0x9e3779b97f4a7c15, 7))
	off := func(v float64) float64 { return v * (1 + noise*(2*random.Float64()-1)) }
	r := &measure.Result{
		Type: "result", Schema: measure.SchemaVersion, Command: "produce", OK: true,
		Settings:    map[string]any{"size": 1024, "broker_pid": seed},
		LatencyFrom: "sent",
		Broker:      &measure.Process{RSSAnonMost: 30e6},
		Environment: &measure.Environment{Cores: 2},
		Curve:       []measure.Point{{Q: 0, MS: 0.1}, {Q: 0.9, MS: 2}, {Q: 0.99, MS: p99}},
	}
	for i := range n {
		s := measure.Second{
			End: float64(i + 1), Length: 1, Messages: int64(off(rate)), BrokerCPU: off(0.8),
			BrokerRSSAnon: 30e6, Backlog: 256,
		}
		s.Bytes = 1024 * s.Messages
		s.Latency = measure.Quantiles{
			Count: s.Messages, Samples: s.Messages, Mean: off(1), P50: measure.Millis(off(1)),
			P90: measure.Millis(off(2)), P99: measure.Millis(off(p99)), P999: measure.Unknown(),
			P9999: measure.Unknown(), Max: off(50),
		}
		r.Series = append(r.Series, s)
		r.Messages += s.Messages
		r.Bytes += s.Bytes
		r.Broker.CPUSeconds += s.BrokerCPU
		r.Latency.Mean += s.Latency.Mean / float64(n)
		r.Latency.P99 += s.Latency.P99 / measure.Millis(n)
		r.Latency.P50 += s.Latency.P50 / measure.Millis(n)
		r.Latency.P90 += s.Latency.P90 / measure.Millis(n)
		r.Latency.Max = max(r.Latency.Max, s.Latency.Max)
	}
	r.Seconds = float64(n)
	r.Latency.P999, r.Latency.P9999 = measure.Unknown(), measure.Unknown()
	r.Latency.Count, r.Latency.Samples = r.Messages, r.Messages
	r.MessagesPerSec, r.MBPerSec = float64(r.Messages)/r.Seconds, float64(r.Bytes)/r.Seconds/1e6
	r.Broker.MessagesPerCPUSecond = float64(r.Messages) / r.Broker.CPUSeconds
	r.Broker.CPUMicrosPerMessage = 1e6 / r.Broker.MessagesPerCPUSecond
	return r
}

func side(name string, runs ...*measure.Result) report.Side {
	return report.Side{Name: name, Runs: runs}
}

func verdict(t *testing.T, c *report.Comparison, name string) report.Compared {
	t.Helper()
	for _, f := range c.Figures {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no figure %s in %+v", name, c.Figures)
	return report.Compared{}
}

// TestCompareSeconds: between two single runs blocks of their seconds decide.
func TestCompareSeconds(t *testing.T) {
	t.Parallel()
	base := side("base", run(1, 40, 100_000, 10, 0.2))
	for _, tc := range []struct {
		name      string
		other     *measure.Result
		rate, p99 report.Verdict
	}{
		{"same load again", run(2, 40, 100_000, 10, 0.2), report.Noise, report.Noise},
		{"a third faster", run(3, 40, 133_000, 10, 0.2), report.Improved, report.Noise},
		{"slower and later", run(4, 40, 70_000, 15, 0.2), report.Worsened, report.Worsened},
		{"too short to tell", run(5, 3, 200_000, 10, 0.2), report.Undecided, report.Undecided},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := report.Compare(base, side("other", tc.other), 0)
			rate := verdict(t, c, "messages_per_second")
			if rate.Verdict != tc.rate || rate.Basis != "seconds" {
				t.Errorf("rate: got %+v, want %s by seconds", rate, tc.rate)
			}
			if tc.rate != report.Undecided && (rate.Low > rate.Ratio || rate.High < rate.Ratio) {
				t.Errorf("ratio %v is not within its bounds %v to %v", rate.Ratio, rate.Low, rate.High)
			}
			if p99 := verdict(t, c, "latency_ms.p99"); p99.Verdict != tc.p99 {
				t.Errorf("p99: got %+v, want %s", p99, tc.p99)
			}
			if tc.rate == report.Undecided && !strings.Contains(rate.Note, "measure longer") {
				t.Errorf("an undecided figure says %q, not what to do", rate.Note)
			}
		})
	}
}

// TestCompareFalseAlarms: of many pairs of the same load few may be called different. Rates within
// a run wander, as those of a real broker do, so neighbouring seconds are alike.
func TestCompareFalseAlarms(t *testing.T) {
	t.Parallel()
	wandering := func(seed uint64) *measure.Result {
		r := run(seed, 60, 100_000, 10, 0)
		random := rand.New(rand.NewPCG(seed, 9))
		drift := 0.0
		for i := range r.Series {
			drift = 0.8*drift + 0.05*random.NormFloat64()
			r.Series[i].Messages = int64(100_000 * (1 + drift))
		}
		return r
	}
	alarms := 0
	const pairs = 200
	for i := range uint64(pairs) {
		x, y := wandering(2*i+1), wandering(2*i+2)
		x.MessagesPerSec, y.MessagesPerSec = 1, 1.0001+float64(i%2) // either direction is believed
		c := report.Compare(side("x", x), side("y", y), 0)
		if v := verdict(t, c, "messages_per_second").Verdict; v != report.Noise && v != report.Undecided {
			alarms++
		}
	}
	if alarms > pairs*6/100 {
		t.Errorf("%d of %d pairs of the same load were called different", alarms, pairs)
	}
}

// TestCompareRuns: from 4 runs on each side on, runs are compared, not seconds.
func TestCompareRuns(t *testing.T) {
	t.Parallel()
	runs := func(seed uint64, rate float64) []*measure.Result {
		var list []*measure.Result
		for i := range uint64(5) {
			list = append(list, run(seed+i, 10, rate*(1+0.02*float64(i)), 10, 0.1))
		}
		return list
	}
	a, b, again := runs(1, 100_000), runs(11, 150_000), runs(21, 101_000)
	c := report.Compare(side("a", a...), side("b", b...), 0)
	if f := verdict(t, c, "messages_per_second"); f.Verdict != report.Improved || f.Basis != "runs" ||
		f.SizeA != 5 || f.Block != 0 {
		t.Errorf("half as fast again: got %+v", f)
	}
	c = report.Compare(side("a", a...), side("again", again...), 0)
	if f := verdict(t, c, "messages_per_second"); f.Verdict != report.Noise {
		t.Errorf("one per cent beside two of spread: got %+v", f)
	}
	if c.Worse() {
		t.Errorf("nothing is worse, but: %s", c.Table().Text())
	}
}

// TestCompareAskedRate: a rate that was asked for is no merit.
func TestCompareAskedRate(t *testing.T) {
	t.Parallel()
	a, b := run(1, 20, 10_000, 10, 0.01), run(2, 20, 30_000, 10, 0.01)
	a.RateAsked, b.RateAsked = 10_000, 30_000
	f := verdict(t, report.Compare(side("a", a), side("b", b), 0), "messages_per_second")
	if f.Verdict != report.Differs || f.Better != "" {
		t.Errorf("got %+v, want differs without a direction", f)
	}
}

// TestCompareDifferent: settings that differ are said, those that only name places are not.
func TestCompareDifferent(t *testing.T) {
	t.Parallel()
	a, b := run(1, 10, 1000, 1, 0.1), run(2, 10, 1000, 1, 0.1)
	b.Settings = map[string]any{"size": 128, "broker_pid": 99}
	b.Environment = &measure.Environment{Cores: 4}
	c := report.Compare(side("a", a), side("b", b), 0)
	want := []report.Difference{
		{Name: "size", A: "1024", B: "128"}, {Name: "environment cores", A: "2", B: "4"},
	}
	if diff := cmp.Diff(want, c.Different); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	var text strings.Builder
	c.WriteText(&text)
	for _, part := range []string{"messages_per_second", "Not the same", "environment cores", "noise"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("text lacks %q:\n%s", part, text.String())
		}
	}
	if _, err := json.Marshal(c); err != nil {
		t.Errorf("as JSON: %v", err)
	}
}

// TestCompareParts: a part is held against the part of the same name, not against another.
func TestCompareParts(t *testing.T) {
	t.Parallel()
	part := func(r *measure.Result, name string) *measure.Result {
		r.Part = name
		return r
	}
	a := side("a", part(run(1, 20, 1000, 1, 0.1), "send"), part(run(2, 20, 9000, 9, 0.1), "end-to-end"))
	b := side("b", part(run(3, 20, 9000, 9, 0.1), "end-to-end"), part(run(4, 20, 1000, 1, 0.1), "send"),
		part(run(5, 20, 1, 1, 0.1), "other"))
	list := report.CompareParts(a, b, 0)
	if len(list) != 2 || list[0].Part != "send" || list[1].Part != "end-to-end" {
		t.Fatalf("got %d comparisons: %+v", len(list), list)
	}
	for _, c := range list {
		if f := verdict(t, c, "messages_per_second"); f.Verdict != report.Noise || c.A.Runs != 1 {
			t.Errorf("part %s: got %+v of %d runs", c.Part, f, c.A.Runs)
		}
	}
	if page, err := report.ComparisonPage(list, a, b).HTML(); err != nil ||
		!strings.Contains(string(page), "of the part end-to-end") {
		t.Errorf("page: %v", err)
	}
	if got := report.CompareParts(a, side("c", part(run(6, 9, 1, 1, 0), "x")), 0); len(got) != 0 {
		t.Errorf("nothing in common: got %+v", got)
	}
}

// TestLoad reads every form a result is kept in, and says what is wrong with others.
func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, values ...any) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, v := range values {
			one, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, one...), '\n')
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r := run(1, 3, 1000, 1, 0.1)
	report0 := map[string]any{"type": "report", "messages_per_second": 1}
	write("folder/result.json", r)
	write("rounds/1/result.json", r)
	write("rounds/2/result.json", r)
	for path, want := range map[string]int{
		filepath.Join(dir, "folder"):              1,
		filepath.Join(dir, "rounds"):              2,
		write("stdout.json", report0, report0, r): 1,
		write("array.json", []any{r, r, r}):       3,
	} {
		got, err := report.Load(path)
		if err != nil || len(got.Runs) != want {
			t.Errorf("%s: got %d runs, %v; want %d", path, len(got.Runs), err, want)
			continue
		}
		if q := got.Runs[0].Latency; q.P999.Known() || q.P99 != r.Latency.P99 {
			t.Errorf("%s: latencies %+v, want %+v", path, q, r.Latency)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"):                                        "no such file",
		write("reports.json", report0):                                      "holds no result",
		write("newer.json", map[string]any{"type": "result", "schema": 99}): "newer skylark",
		t.TempDir():                 "result.json",
		write("text.json", "hello"): "text.json",
	} {
		if _, err := report.Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", path, err, want)
		}
	}
}
