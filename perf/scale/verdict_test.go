// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

// TestVerdict holds the judge to growth whose law is known.
func TestVerdict(t *testing.T) {
	t.Parallel()
	levels := []int{1, 100, 1000, 10_000}
	of := func(law func(n float64) float64) []float64 {
		var values []float64
		for _, n := range levels {
			values = append(values, law(float64(n)))
		}
		return values
	}
	for name, c := range map[string]struct {
		kind kind
		law  func(n float64) float64
		bad  bool
	}{
		"flat":                    {flat, func(float64) float64 { return 3 }, false},
		"flat, falling":           {flat, func(n float64) float64 { return 3 + 1/n }, false},
		"flat, grows a little":    {flat, func(n float64) float64 { return 3 + n/1e4 }, true},
		"linear":                  {linear, func(n float64) float64 { return 2000 + 3*n }, false},
		"linear, a small share":   {linear, func(n float64) float64 { return 2000 + n/100 }, false},
		"linear, much fixed cost": {linear, func(n float64) float64 { return 9000 + n/2 }, false},
		"root":                    {linear, func(n float64) float64 { return 5 + math.Sqrt(n) }, false},
		"square":                  {linear, func(n float64) float64 { return 5 + n*n }, true},
		"square, much fixed cost": {linear, func(n float64) float64 { return 1e5 + n*n/150 }, true},
		"power of 1.3":            {linear, func(n float64) float64 { return 5 + math.Pow(n, 1.3) }, true},
	} {
		v := figure{name: name, kind: c.kind}.judge(levels, of(c.law))
		if v.Bad != c.bad {
			t.Errorf("%s: %q, want bad %v", name, v.Text, c.bad)
		}
	}
}

// TestVerdictLeavesOutWhatWasNotRead has levels at which a figure makes no sense.
func TestVerdictLeavesOutWhatWasNotRead(t *testing.T) {
	t.Parallel()
	f := figure{kind: linear}
	nan := math.NaN()
	if v := f.judge([]int{1, 10, 100, 1000}, []float64{nan, 10, 100, 1000}); v.Bad || v.Each != 1 {
		t.Errorf("got %+v, want linear, 1 for each", v)
	}
	if v := f.judge([]int{1, 10}, []float64{nan, 10}); v.Bad || v.Text != "too few levels" {
		t.Errorf("got %+v", v)
	}
	told := figure{kind: flat, why: "syscalls"}
	if v := told.judge([]int{1, 10}, []float64{1, 10}); v.Bad || v.Text != "syscalls" {
		t.Errorf("got %+v", v)
	}
}
