// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"

	"github.com/skylarkmq/skylark/perf/measure"
)

// TestJudge has runs of 300 seconds that stay as they are, leak, and become slower.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		memory, tail func(second float64) float64
		bad          bool
	}{
		"flat":      {func(float64) float64 { return 8e6 }, func(float64) float64 { return 5 }, false},
		"one spike": {func(float64) float64 { return 8e6 }, spike, false},
		"warming":   {func(s float64) float64 { return 8e6 + 5e3*min(s, 100) }, func(float64) float64 { return 5 }, false},
		"leak":      {func(s float64) float64 { return 8e6 + 3e4*s }, func(float64) float64 { return 5 }, true},
		"drift":     {func(float64) float64 { return 8e6 }, func(s float64) float64 { return 5 + s/100 }, true},
		"unknown":   {func(float64) float64 { return 8e6 }, func(float64) float64 { return math.NaN() }, true},
	} {
		var series []measure.Second
		for s := range 300 {
			second := measure.Second{Length: 1, Messages: 20_000, BrokerRSSAnon: int64(c.memory(float64(s)))}
			second.Latency.P999 = measure.Millis(c.tail(float64(s)))
			series = append(series, second)
		}
		j, err := judge(series)
		if err != nil {
			t.Fatal(err)
		}
		if fault := j.fault(); (fault != nil) != c.bad {
			t.Errorf("%s: %v, want a fault: %v", name, fault, c.bad)
		}
	}
	if _, err := judge(make([]measure.Second, 30)); err == nil {
		t.Error("thirty seconds were judged")
	}
}

// spike is one bad minute in the last third: an event, not a drift.
func spike(second float64) float64 {
	if second > 210 && second < 240 {
		return 500
	}
	return 5
}
