// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/skylarkmq/skylark/perf/measure"
)

// ComparisonSchema is the number of the JSON form of Comparison, see measure.SchemaVersion.
const ComparisonSchema = 1

// Verdict says what a difference is worth.
type Verdict string

// The verdicts.
const (
	Noise     Verdict = "noise"     // what repeating one side could have given as well
	Improved  Verdict = "better"    // B is better than A, beyond noise
	Worsened  Verdict = "worse"     // B is worse than A, beyond noise
	Differs   Verdict = "differs"   // beyond noise, and neither direction is good or bad
	Undecided Verdict = "undecided" // too little to tell noise from difference; Note says why
)

// Alphas are the probabilities with which noise alone may be called a difference. Seconds of one
// run do not show how runs differ from each other, so they have to differ more clearly.
const (
	AlphaRuns    = 0.05
	AlphaSeconds = 0.01
)

// Compared is one figure of both sides. B stands against A: a ratio of 2 means that B has twice as
// much.
type Compared struct {
	Name   string         `json:"name"`
	Unit   string         `json:"unit"`
	Better Better         `json:"better,omitempty"`
	A      measure.Millis `json:"a"` // median of the runs; null: not measured, or too few samples
	B      measure.Millis `json:"b"`
	Ratio  measure.Millis `json:"ratio"` // B to A
	// Low and High bound the ratio of the means with 95 % confidence.
	Low     measure.Millis `json:"ratio_low"`
	High    measure.Millis `json:"ratio_high"`
	P       measure.Millis `json:"p"`     // of the Mann-Whitney test: as different by chance alone
	Basis   string         `json:"basis"` // runs, seconds, or nothing
	Block   int            `json:"block_seconds,omitempty"`
	SizeA   int            `json:"values_a"`
	SizeB   int            `json:"values_b"`
	Verdict Verdict        `json:"verdict"`
	Note    string         `json:"note,omitempty"`
}

// Difference is a setting, or a part of the environment, that is not the same on both sides.
type Difference struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// SideNote names a side and carries the doubts of its runs.
type SideNote struct {
	Name     string            `json:"name"`
	Runs     int               `json:"runs"`
	Command  string            `json:"command"`
	Warnings []measure.Warning `json:"warnings,omitempty"`
}

// Comparison is two sides beside each other. perf/docs/result.md describes its JSON form.
type Comparison struct {
	Type   string `json:"type"` // "comparison"
	Schema int    `json:"schema"`
	// Part is the part of runs that have several; see measure.Result.
	Part    string     `json:"part,omitempty"`
	A       SideNote   `json:"a"`
	B       SideNote   `json:"b"`
	Figures []Compared `json:"figures"`
	// Different lists what else differs: with it, a difference of figures may not be the broker's.
	Different []Difference `json:"different,omitempty"`
}

// Compare holds b against a. Both have at least one run. alpha of 0 takes AlphaRuns or
// AlphaSeconds.
func Compare(a, b Side, alpha float64) *Comparison {
	c := &Comparison{Type: "comparison", Schema: ComparisonSchema, A: noteOf(a), B: noteOf(b)}
	paced := func(r *measure.Result) bool { return r.RateAsked > 0 }
	for _, f := range figures() {
		if f.rate && (slices.ContainsFunc(a.Runs, paced) || slices.ContainsFunc(b.Runs, paced)) {
			f.better = "" // the rate is what was asked for
		}
		if one, ok := compareFigure(a, b, f, alpha); ok {
			c.Figures = append(c.Figures, one)
		}
	}
	c.Different = differences(a.Runs[0], b.Runs[0])
	return c
}

// CompareParts holds b against a part by part, in the order of a, leaving out those that b has not.
// Without a part of the same name the list is empty.
func CompareParts(a, b Side, alpha float64) []*Comparison {
	var list []*Comparison
	for _, part := range a.Parts() {
		x, y := a.Part(part), b.Part(part)
		if len(y.Runs) == 0 {
			continue
		}
		c := Compare(x, y, alpha)
		c.Part = part
		list = append(list, c)
	}
	return list
}

func noteOf(s Side) SideNote {
	n := SideNote{Name: s.Name, Runs: len(s.Runs), Command: s.Runs[0].Command}
	for _, r := range s.Runs {
		for _, w := range r.Warnings {
			known := func(have measure.Warning) bool { return have.Code == w.Code }
			if !slices.ContainsFunc(n.Warnings, known) {
				n.Warnings = append(n.Warnings, w)
			}
		}
	}
	return n
}

// compareFigure is false when neither side has the figure.
func compareFigure(a, b Side, f figure, alpha float64) (Compared, bool) {
	runsA, runsB := runValues(a.Runs, f), runValues(b.Runs, f)
	c := Compared{
		Name: f.name, Unit: f.unit, Better: f.better, A: measure.Millis(median(runsA.values)),
		B: measure.Millis(median(runsB.values)), Ratio: measure.Unknown(), Low: measure.Unknown(),
		High: measure.Unknown(), P: measure.Unknown(), Verdict: Undecided, Basis: "nothing",
	}
	if !c.A.Known() && !c.B.Known() {
		return c, false
	}
	if !c.A.Known() || !c.B.Known() {
		c.Note = "one side has not measured it, or had too few samples"
		return c, true
	}
	if c.A == c.B {
		c.Ratio = 1
	} else if c.A != 0 {
		c.Ratio = c.B / c.A
	}
	x, y := runsA, runsB
	c.Basis = "runs"
	limit := cmp.Or(alpha, AlphaRuns)
	if len(x.values) < runsLeast || len(y.values) < runsLeast {
		x = secondValues(a.Runs, f, 1)
		y = secondValues(b.Runs, f, x.seconds)
		x = secondValues(a.Runs, f, y.seconds) // of one length on both sides
		c.Basis = "seconds"
		limit = cmp.Or(alpha, AlphaSeconds)
		c.Block = max(x.seconds, y.seconds)
	}
	c.SizeA, c.SizeB = len(x.values), len(y.values)
	c.decide(x, y, limit)
	return c, true
}

// decide gives the verdict on two spreads.
func (c *Compared) decide(x, y spread, alpha float64) {
	if same(x.values) && same(y.values) && c.A == c.B {
		c.Verdict = Noise
		return
	}
	least := runsLeast
	if c.Basis == "seconds" {
		least = blocksLeast
	}
	if len(x.values) < least || len(y.values) < least {
		c.Note = fmt.Sprintf("%d and %d independent values; %d on each side are needed: measure "+
			"longer, or %d runs of each side", len(x.values), len(y.values), least, runsLeast)
		return
	}
	low, high := ratioBounds(x.values, y.values)
	if told(low) && told(high) {
		c.Low, c.High = measure.Millis(low), measure.Millis(high)
	}
	thresholds := benchmath.DefaultThresholds
	thresholds.CompareAlpha = alpha
	test := benchmath.AssumeNothing.Compare(
		benchmath.NewSample(slices.Clone(x.values), &thresholds),
		benchmath.NewSample(slices.Clone(y.values), &thresholds))
	c.P = measure.Millis(test.P)
	switch {
	case test.P >= alpha:
		c.Verdict = Noise
	case (median(y.values) > median(x.values)) != (c.B > c.A):
		c.Note = "the whole runs differ one way, and most of their parts the other way"
	case c.Better == "":
		c.Verdict = Differs
	case (c.Better == Higher) == (c.B > c.A):
		c.Verdict = Improved
	default:
		c.Verdict = Worsened
	}
	if (x.drifts || y.drifts) && c.Verdict != Noise {
		c.Note = "drifts within a run: measure longer before believing it"
	}
}

func same(values []float64) bool {
	for _, v := range values {
		if v != values[0] {
			return false
		}
	}
	return true
}

// differences lists settings and environment that are not the same.
func differences(a, b *measure.Result) []Difference {
	var list []Difference
	if a.Command != b.Command {
		list = append(list, Difference{"command", a.Command, b.Command})
	}
	list = appendDifferences(list, "", flat(a.Settings), flat(b.Settings))
	return appendDifferences(list, "environment ", flat(a.Environment), flat(b.Environment))
}

// placeKeys are settings that say where, not what.
func placeKeys() []string { return []string{"name_servers", "broker_pid"} }

func appendDifferences(list []Difference, prefix string, a, b map[string]string) []Difference {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if a[key] != b[key] && !slices.Contains(placeKeys(), key) {
			list = append(list, Difference{
				Name: prefix + key, A: cmp.Or(a[key], "-"), B: cmp.Or(b[key], "-"),
			})
		}
	}
	return list
}

// flat renders the fields of a struct or map as JSON texts by name.
func flat(v any) map[string]string {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	out := map[string]string{}
	for name, value := range fields {
		var s string
		if json.Unmarshal(value, &s) == nil {
			out[name] = s
			continue
		}
		out[name] = string(value)
	}
	return out
}
