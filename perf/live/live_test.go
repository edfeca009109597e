// SPDX-License-Identifier: Apache-2.0

package live_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/perf/live"
	"github.com/skylarkmq/skylark/perf/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen keeps what is written, and lets a test wait for a text.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) waitFor(t *testing.T, want string) {
	t.Helper()
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	for {
		s.mu.Lock()
		text := s.text.String()
		s.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-s.more:
		case <-limit.C:
			t.Fatalf("no %q on the screen:\n%s", want, text)
		}
	}
}

// TestView: bar, rate, latencies, errors by code and backlog are drawn, over what was there before.
func TestView(t *testing.T) {
	t.Parallel()
	s := &screen{more: make(chan struct{}, 1)}
	v := live.New(s)
	defer v.Close()
	v.Show(measure.Status{
		Command: "produce", Phase: measure.Warming, Elapsed: time.Second, Planned: 20 * time.Second,
	})
	s.waitFor(t, "produce, warming up")
	q := measure.Quantiles{P50: 1.25, P99: 3, P999: measure.Unknown(), Max: 7}
	v.Show(measure.Status{
		Command: "produce", Phase: measure.Measuring, Elapsed: 15 * time.Second,
		Planned: 60 * time.Second, Messages: 1_234_567, RateAsked: 100_000, Latency: q,
		Errors: map[string]int64{"SYSTEM_BUSY": 3, "no answer in time": 40},
		Second: measure.Second{
			Length: 1, Messages: 98_765, Bytes: 98_765_000, Backlog: 4096, Latency: q, BrokerCPU: 1.5,
			BrokerRSSAnon: 31e6,
		},
		Others: []measure.PartStatus{{
			Name: "end-to-end", Second: measure.Second{Length: 1, Messages: 500, Backlog: 7}, Latency: q,
		}},
	})
	for _, want := range []string{
		"98 765 msg/s  98.8 MB/s  (100 000 asked)", "backlog 4 096", "broker 1.50 cores 31 MB",
		"p50 1.250  p99 3.000  p99.9 -  max 7.000", "1 234 567 messages",
		"no answer in time 40, SYSTEM_BUSY 3", "25.00%", "\x1b[A",
		"end-to-end  500 msg/s  backlog 7  all ms p50 1.250",
	} {
		s.waitFor(t, want)
	}
	v.Show(measure.Status{
		Command: "produce", Phase: measure.Measuring, Elapsed: 59 * time.Second,
		Planned: 60 * time.Second,
	})
	v.Close()
	s.waitFor(t, "100.00%") // the end came after the last second that was shown
}

// TestCloseAtOnce: a view that never drew can be closed.
func TestCloseAtOnce(t *testing.T) {
	t.Parallel()
	v := live.New(&screen{more: make(chan struct{}, 1)})
	v.Close()
	v.Close()
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 999: "999", 1000: "1 000", 1234567.6: "1 234 568", -12345: "-12 345",
	} {
		if got := live.Grouped(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}
