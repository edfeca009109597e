// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// kind says how a figure may grow with the level.
type kind uint8

const (
	flat   kind = iota // not at all: what one message costs
	linear             // in proportion: what serves all of them
)

// Allowances of the verdict. CPU is counted in steps of 10 ms on a machine that does other things.
const (
	flatMost   = 1.30 // highest level over the cheapest one
	linearMost = 1.30 // cost of one more at the highest level, over that at a lower one
	visible    = 0.10 // growth below this share of the first level's value is none
)

// figure is one line of a dimension.
type figure struct {
	name  string // with its unit
	kind  kind
	noise float64 // differences below are none, in the figure's unit
	why   string  // for a figure that may grow otherwise: what it is; no verdict then
}

// verdict is how a figure grew.
type verdict struct {
	Text string  `json:"text"`
	Each float64 `json:"for_each_more,omitempty"` // what one more costs at the highest level
	Bad  bool    `json:"bad,omitempty"`
}

// judge looks at the values of a figure at rising levels.
func (f figure) judge(levels []int, values []float64) verdict {
	levels, values = known(levels, values)
	if f.why != "" {
		return verdict{Text: f.why}
	}
	if len(values) < 2 {
		return verdict{Text: "too few levels"}
	}
	if f.kind == flat {
		return f.judgeFlat(values)
	}
	return f.judgeLinear(levels, values)
}

// known leaves out levels at which the figure was not read.
func known(levels []int, values []float64) (l []int, v []float64) {
	for i, value := range values {
		if !math.IsNaN(value) {
			l, v = append(l, levels[i]), append(v, value)
		}
	}
	return l, v
}

// judgeFlat compares the highest level with the cheapest one below it.
func (f figure) judgeFlat(values []float64) verdict {
	last := values[len(values)-1]
	least := math.Inf(1)
	for _, v := range values[:len(values)-1] {
		least = min(least, v)
	}
	ratio := last / least
	if last-least <= f.noise || ratio <= flatMost {
		return verdict{Text: fmt.Sprintf("flat: %.2f x", ratio)}
	}
	return verdict{Text: fmt.Sprintf("GROWS: %.2f x", ratio), Bad: true}
}

// judgeLinear compares what one more costs between the first and the highest level with what it
// costs up to the level before, or the next lower one that shows any growth. A fixed cost, which
// the first level shows, thus does not hide growth; and caches that are outgrown at some level, after
// which each costs the same again, are no law of growth.
func (f figure) judgeLinear(levels []int, values []float64) verdict {
	first, last := 0, len(values)-1
	each := func(i int) float64 {
		return (values[i] - values[first]) / float64(levels[i]-levels[first])
	}
	if values[last]-values[first] <= max(f.noise, visible*values[first]) {
		return verdict{Text: "does not grow"}
	}
	v := verdict{Each: each(last)}
	worst := 0.0
	for i := last - 1; i > first && worst == 0; i-- {
		if values[i]-values[first] > max(f.noise, visible*values[first]) {
			worst = each(last) / each(i)
		}
	}
	switch {
	case worst == 0:
		// Only the highest level shows any growth: it is linear if the fixed cost explains that the
		// one before shows none.
		unseen := max(f.noise, visible*values[first]) * float64(levels[last]-levels[first]) /
			float64(levels[last-1]-levels[first])
		if last > 1 && values[last]-values[first] > linearMost*unseen {
			v.Text, v.Bad = "WORSE than linear: seen at the highest level only", true
			return v
		}
		v.Text = "at most linear"
	case worst > linearMost:
		v.Text, v.Bad = fmt.Sprintf("WORSE than linear: one more costs %.2f x", worst), true
	case worst < 1/linearMost:
		v.Text = "less than linear"
	default:
		v.Text = "linear"
	}
	return v
}
