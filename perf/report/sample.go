// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/skylarkmq/skylark/perf/measure"
)

const (
	// runsLeast runs on each side let the runs themselves be compared; with fewer, their seconds are.
	runsLeast = 4
	// blocksLeast is how many blocks of seconds a side must have to be compared at all.
	blocksLeast = 5
	// secondShortest leaves the cut end of a run out.
	secondShortest = 0.5
	resamples      = 2000
)

// spread is what a verdict rests on: values that are as good as independent of each other.
type spread struct {
	values  []float64
	seconds int  // that one value joins; 0: a value is a whole run
	drifts  bool // neighbours still depend on each other
}

// runValues has one value for each run.
func runValues(runs []*measure.Result, f figure) spread {
	var s spread
	for _, r := range runs {
		if v := f.run(r); told(v) {
			s.values = append(s.values, v)
		}
	}
	return s
}

// secondValues has one value for each block of neighbouring seconds. Blocks grow until the means of
// neighbours no longer depend on each other, as far as blocks enough are left: a broker that is
// slow for ten seconds has been slow once, not ten times. A block joins at least that many seconds.
func secondValues(runs []*measure.Result, f figure, block int) spread {
	var all [][]float64
	total := 0
	for _, r := range runs {
		var values []float64
		for i := range r.Series {
			if s := &r.Series[i]; s.Length >= secondShortest {
				if v := f.second(s); told(v) {
					values = append(values, v)
				}
			}
		}
		all = append(all, values)
		total += len(values)
	}
	s := spread{seconds: block}
	for {
		s.values = nil
		for _, values := range all {
			s.values = append(s.values, blockMeans(values, s.seconds)...)
		}
		s.drifts = dependent(s.values)
		if !s.drifts || total/(2*s.seconds) < blocksLeast {
			return s
		}
		s.seconds *= 2
	}
}

// blockMeans joins each n neighbours; a rest at the end is left out.
func blockMeans(values []float64, n int) []float64 {
	var means []float64
	for len(values) >= n {
		means = append(means, mean(values[:n]))
		values = values[n:]
	}
	return means
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// dependent reports whether neighbours are correlated beyond what chance gives: a lag-1
// autocorrelation over 2/sqrt(n), which chance passes once in twenty to forty times.
func dependent(values []float64) bool {
	if len(values) < 3 {
		return false
	}
	m, with, own := mean(values), 0.0, 0.0
	for i, v := range values {
		own += (v - m) * (v - m)
		if i > 0 {
			with += (v - m) * (values[i-1] - m)
		}
	}
	return own > 0 && with/own > 2/math.Sqrt(float64(len(values)))
}

// ratioBounds is the 95 % interval of the ratio of two means, by bootstrap. The seed is fixed, so
// that a comparison says the same each time.
func ratioBounds(a, b []float64) (low, high float64) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(values []float64) float64 {
		sum := 0.0
		for range values {
			sum += values[random.IntN(len(values))]
		}
		return sum / float64(len(values))
	}
	var ratios []float64
	for range resamples {
		if m := draw(a); m != 0 {
			ratios = append(ratios, draw(b)/m)
		}
	}
	if len(ratios) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(ratios)
	at := func(q float64) float64 { return ratios[int(q*float64(len(ratios)-1))] }
	return at(0.025), at(0.975)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
