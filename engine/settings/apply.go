// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Report tells what Apply did besides setting fields.
type Report struct {
	Set      []string  // keys that were set, in the order of the file
	Warnings []Warning // keys that have no effect, and keys given twice
}

// Warning is something in a file that does not stop the start.
type Warning struct {
	Key  string
	Line int
	Text string // a sentence for the operator, naming key, file and line
}

// KeyError is a key or a value that stops the start. More than one is joined into Errors.
type KeyError struct {
	Path   string
	Line   int
	Key    string
	Reason string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("settings: %s line %d: %s: %s", e.Path, e.Line, e.Key, e.Reason)
}

// Errors is every fault of one file, in the order of its lines.
type Errors []*KeyError

func (es Errors) Error() string {
	texts := make([]string, len(es))
	for i, e := range es {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap gives errors.As each of them.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Apply sets the fields of the struct dst points at from file.
//
// known holds keys of other releases, which are reported in the Report and change nothing; any
// other key without a field, and any value out of its range, is collected in an Errors and no
// field is set.
func Apply(dst any, file *File, known map[string]bool) (Report, error) {
	return apply(dst, file, known, false)
}

// ApplyLenient is Apply with unknown keys reported instead of refused (--ignore-unknown-config).
// Bad values are refused all the same.
func ApplyLenient(dst any, file *File, known map[string]bool) (Report, error) {
	return apply(dst, file, known, true)
}

// Update is for changes at run time: keys without a field are left out without a word, as
// RocketMQ's Configuration.update does, and a bad value refuses the whole update. It returns the
// keys that were set.
func Update(dst any, file *File) ([]string, error) {
	report, err := apply(dst, file, nil, true)
	return report.Set, err
}

func apply(dst any, file *File, known map[string]bool, lenient bool) (Report, error) {
	fields, err := fieldsOf(dst)
	if err != nil {
		return Report{}, err
	}
	var report Report
	var faults Errors
	var sets []func()
	seen := map[string]int{}
	for _, e := range file.Entries {
		targets := fields[e.Key]
		if first, twice := seen[e.Key]; twice {
			report.warn(file, e, fmt.Sprintf("also set in line %d, the later one counts", first))
		}
		seen[e.Key] = e.Line
		switch {
		case len(targets) > 0:
			for _, t := range targets {
				set, reason := t.parse(e.Value)
				if reason != "" {
					faults = append(faults, &KeyError{file.Path, e.Line, e.Key, reason})
					break
				}
				sets = append(sets, set)
			}
			if !slices.Contains(report.Set, e.Key) {
				report.Set = append(report.Set, e.Key)
			}
		case known[e.Key]:
			report.warn(file, e, "known to RocketMQ, has no effect here")
		case lenient:
			report.warn(file, e, unknownText(e.Key, fields, known))
		default:
			faults = append(faults,
				&KeyError{file.Path, e.Line, e.Key, unknownText(e.Key, fields, known)})
		}
	}
	if len(faults) > 0 {
		return Report{Warnings: report.Warnings}, faults
	}
	for _, set := range sets {
		set()
	}
	return report, nil
}

func (r *Report) warn(file *File, e Entry, what string) {
	text := fmt.Sprintf("%s line %d: %s: %s", file.Path, e.Line, e.Key, what)
	r.Warnings = append(r.Warnings, Warning{e.Key, e.Line, text})
}

func unknownText(key string, fields map[string][]field, known map[string]bool) string {
	names := make([]string, 0, len(fields)+len(known))
	for name := range fields {
		names = append(names, name)
	}
	for name := range known {
		names = append(names, name)
	}
	sort.Strings(names)
	if near := Nearest(key, names); near != "" {
		return fmt.Sprintf("unknown key, did you mean %s?", near)
	}
	return "unknown key"
}

// Nearest returns the name that is closest to key, or "" when none is close enough to be what was
// meant. Case counts little. It compares len(key) with every name: fine for hundreds of names.
func Nearest(key string, names []string) string {
	limit := max(2, len(key)/3)
	best, bestDistance := "", limit*2+1
	for _, name := range names {
		d := 2 * distance(strings.ToLower(key), strings.ToLower(name))
		if d == 0 || !strings.EqualFold(key, name) {
			d++
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the number of inserted, removed or replaced bytes between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diagonal+cost)
			diagonal, row[j] = row[j], next
		}
	}
	return row[len(b)]
}
