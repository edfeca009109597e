// SPDX-License-Identifier: Apache-2.0

// Package sqlfiltertest makes random SQL92 expressions whose outcome is known: a slow and plain
// evaluator to hold package sqlfilter against. Only tests import it.
package sqlfiltertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Outcomes of an expression, as the golden table writes them.
const (
	True    = 'T'
	False   = 'F'
	Null    = 'N'
	Failed  = 'X'
	Invalid = 'E' // the expression does not compile
)

// Tree is a random expression. Text is what a consumer would write, fully parenthesised; Evaluate
// says what comes out of it for the properties of one message.
type Tree struct {
	op    string
	parts []*Tree
	text  string // of a literal or a property name
	value any    // of a literal: nil, bool, string, int32, int64, float64
	list  []string
}

// null, fail are the values that are none.
type null struct{}

type fail struct{}

// Names are the properties that random expressions use.
var Names = []string{"a", "b", "price", "$x", "_y9"}

// Properties returns property maps that decide every rule of comparison at least once.
func Properties() []map[string]string {
	values := []string{
		"", "5", "05", "+5", "-5", "5.0", "5.5", "2147483648", "-0.0", "0", "abc", "TRUE", "false", " 7 ",
		"NaN", "Infinity", "1e3", "0x1p3", "9223372036854775808", "it's", "12d",
	}
	var sets []map[string]string
	for i, v := range values {
		set := map[string]string{"other": "z"}
		for j, name := range Names {
			other := values[(i*7+j*j*3+j)%len(values)]
			if j == 0 {
				other = v
			}
			if other != "" {
				set[name] = other
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// Random makes an expression of at most depth levels.
func Random(r *rand.Rand, depth int) *Tree {
	if depth <= 0 {
		return leaf(r)
	}
	sub := func() *Tree { return Random(r, depth-1) }
	switch r.IntN(12) {
	case 0, 1:
		return &Tree{op: "AND", parts: []*Tree{sub(), sub()}}
	case 2, 3:
		return &Tree{op: "OR", parts: []*Tree{sub(), sub()}}
	case 4:
		return &Tree{op: "NOT", parts: []*Tree{sub()}}
	case 5:
		return &Tree{op: "-", parts: []*Tree{sub()}}
	case 6:
		return &Tree{op: []string{"IS NULL", "IS NOT NULL"}[r.IntN(2)], parts: []*Tree{sub()}}
	case 7:
		op := []string{"BETWEEN", "NOT BETWEEN"}[r.IntN(2)]
		return &Tree{op: op, parts: []*Tree{sub(), leaf(r), leaf(r)}}
	case 8:
		op := []string{"IN", "NOT IN"}[r.IntN(2)]
		members := []string{"5", "abc", "it's", "TRUE", "x", "y", "z", "w", ""}
		return &Tree{op: op, parts: []*Tree{leaf(r)}, list: members[:1+r.IntN(len(members))]}
	case 9:
		op := []string{"CONTAINS", "STARTSWITH", "ENDSWITH"}[r.IntN(3)]
		if r.IntN(2) == 0 {
			op = "NOT " + op
		}
		text := []string{"", "b", "5", "abc", "it'"}[r.IntN(5)]
		return &Tree{op: op, parts: []*Tree{sub()}, text: text}
	case 10:
		return leaf(r)
	default:
		op := []string{"=", "<>", "<", "<=", ">", ">="}[r.IntN(6)]
		return &Tree{op: op, parts: []*Tree{sub(), sub()}}
	}
}

func leaf(r *rand.Rand) *Tree {
	if r.IntN(2) == 0 {
		return &Tree{op: "name", text: Names[r.IntN(len(Names))]}
	}
	literals := []struct {
		text  string
		value any
	}{
		{"TRUE", true},
		{"FALSE", false},
		{"NULL", null{}},
		{"'abc'", "abc"},
		{"'5'", "5"},
		{"''", ""},
		{"'it''s'", "it's"},
		{"5", int32(5)},
		{"0", int32(0)},
		{"7l", int32(7)},
		{"2147483648", int64(2147483648)},
		{"5.0", 5.0},
		{".5", .5},
		{"1e3", 1e3},
		{"8.", 8.0},
	}
	l := literals[r.IntN(len(literals))]
	return &Tree{op: "literal", text: l.text, value: l.value}
}

// Text writes the expression.
func (t *Tree) Text() string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	switch t.op {
	case "name", "literal":
		return t.text
	case "NOT", "-":
		return t.op + " (" + t.parts[0].Text() + ")"
	case "IS NULL", "IS NOT NULL":
		return "(" + t.parts[0].Text() + ") " + t.op
	case "BETWEEN", "NOT BETWEEN":
		return fmt.Sprintf("(%s) %s %s AND %s", t.parts[0].Text(), t.op, t.parts[1].Text(), t.parts[2].Text())
	case "IN", "NOT IN":
		var members []string
		for _, m := range t.list {
			members = append(members, quote(m))
		}
		return fmt.Sprintf("%s %s (%s)", t.parts[0].Text(), t.op, strings.Join(members, ", "))
	}
	if strings.HasSuffix(t.op, "CONTAINS") || strings.HasSuffix(t.op, "WITH") {
		return fmt.Sprintf("(%s) %s %s", t.parts[0].Text(), t.op, quote(t.text))
	}
	return fmt.Sprintf("(%s) %s (%s)", t.parts[0].Text(), t.op, t.parts[1].Text())
}

// boolean says whether the tree is a truth value by its form; a bare property may stand for one.
func (t *Tree) boolean() bool {
	switch t.op {
	case "literal":
		_, isBool := t.value.(bool)
		_, isNull := t.value.(null)
		return isBool || isNull
	case "name", "-":
		return false
	default:
		return true
	}
}

func (t *Tree) condition() bool { return t.boolean() || t.op == "name" }

// Valid says whether RocketMQ compiles the expression.
func (t *Tree) Valid() bool { return t.valid() && t.condition() }

func (t *Tree) valid() bool {
	for _, p := range t.parts {
		if !p.valid() {
			return false
		}
	}
	switch t.op {
	case "AND", "OR":
		return t.parts[0].condition() && t.parts[1].condition()
	case "NOT":
		return t.parts[0].condition()
	case "=", "<>":
		a, b := t.parts[0], t.parts[1]
		literals := a.op == "literal" && b.op == "literal"
		return a.value != null{} && b.value != null{} && (!literals || !a.boolean() || b.boolean())
	case "<", "<=", ">", ">=", "NOT BETWEEN":
		return ordered(t.parts)
	case "BETWEEN":
		low, high := t.parts[1].value, t.parts[2].value
		return ordered(t.parts) && (low == nil || high == nil || number(low) <= number(high))
	case "IN", "NOT IN":
		return t.parts[0].op == "name"
	}
	return true
}

func ordered(parts []*Tree) bool {
	for _, p := range parts {
		if _, text := p.value.(string); text || p.boolean() {
			return false
		}
	}
	return true
}

func number(v any) float64 {
	switch n := v.(type) {
	case int32:
		return float64(n)
	case int64:
		return float64(n)
	default:
		return n.(float64)
	}
}

// Evaluate says what comes out for a message with these properties.
func (t *Tree) Evaluate(props map[string]string) rune {
	if !t.Valid() {
		return Invalid
	}
	switch v := t.truth(props).(type) {
	case fail:
		return Failed
	case null:
		return Null
	case bool:
		if v {
			return True
		}
	}
	return False
}

// truth is eval where a truth value is wanted: a present property is false.
func (t *Tree) truth(props map[string]string) any {
	v := t.eval(props)
	if _, text := v.(string); text {
		return false
	}
	return v
}

func (t *Tree) eval(props map[string]string) any {
	switch t.op {
	case "literal":
		return t.value
	case "name":
		if v, ok := props[t.text]; ok {
			return v
		}
		return null{}
	case "AND":
		return both(t.parts, props, false)
	case "OR":
		return both(t.parts, props, true)
	case "NOT":
		return not(t.parts[0].truth(props))
	case "-":
		return minus(t.parts[0].eval(props))
	case "IS NULL":
		return is(t.parts[0].eval(props))
	case "IS NOT NULL":
		return not(is(t.parts[0].eval(props)))
	case "=":
		return equal(t.parts[0].eval(props), t.parts[1].eval(props))
	case "<>":
		return not(equal(t.parts[0].eval(props), t.parts[1].eval(props)))
	case "BETWEEN":
		return both(t.bounds(">=", "<="), props, false)
	case "NOT BETWEEN":
		return both(t.bounds("<", ">"), props, true)
	case "IN", "NOT IN":
		return in(t, props)
	}
	if strings.HasSuffix(t.op, "CONTAINS") || strings.HasSuffix(t.op, "WITH") {
		return search(t, props)
	}
	return order(t.op, t.parts[0].eval(props), t.parts[1].eval(props))
}

func (t *Tree) bounds(low, high string) []*Tree {
	return []*Tree{
		{op: low, parts: []*Tree{t.parts[0], t.parts[1]}},
		{op: high, parts: []*Tree{t.parts[0], t.parts[2]}},
	}
}

// both is OR when decisive is true, AND when it is false.
func both(parts []*Tree, props map[string]string, decisive bool) any {
	a := parts[0].truth(props)
	if a == any(decisive) || a == any(fail{}) {
		return a
	}
	b := parts[1].truth(props)
	if b == any(decisive) || b == any(fail{}) {
		return b
	}
	if a == any(null{}) || b == any(null{}) {
		return null{}
	}
	return !decisive
}

func not(v any) any {
	if b, ok := v.(bool); ok {
		return !b
	}
	return v
}

func minus(v any) any {
	switch n := v.(type) {
	case int32:
		return -n
	case int64:
		return -n
	case float64:
		return -n
	case fail:
		return v
	}
	return null{}
}

func is(v any) any {
	if v == any(fail{}) {
		return v
	}
	return v == any(null{})
}

func in(t *Tree, props map[string]string) any {
	v, ok := t.parts[0].eval(props).(string)
	if !ok {
		return null{}
	}
	found := false
	for _, m := range t.list {
		found = found || m == v
	}
	return found == (t.op == "IN")
}

func search(t *Tree, props map[string]string) any {
	if t.text == "" {
		return false
	}
	v := t.parts[0].eval(props)
	text, ok := v.(string)
	if !ok {
		if v == any(fail{}) {
			return v
		}
		return false
	}
	op, negated := strings.CutPrefix(t.op, "NOT ")
	var found bool
	switch op {
	case "CONTAINS":
		found = strings.Contains(text, t.text)
	case "STARTSWITH":
		found = strings.HasPrefix(text, t.text)
	default:
		found = strings.HasSuffix(text, t.text)
	}
	return found != negated
}

func equal(a, b any) any {
	switch {
	case a == any(fail{}) || b == any(fail{}):
		return fail{}
	case a == any(null{}) && b == any(null{}):
		return true
	case a == any(null{}):
		return null{}
	case b == any(null{}):
		return false
	}
	c := compare(a, b)
	if c == nil {
		return fail{}
	}
	return *c == 0
}

func order(op string, a, b any) any {
	for _, v := range []any{a, b} {
		if v == any(fail{}) || v == any(null{}) {
			return v
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			fx, okX := double(x)
			fy, okY := double(y)
			if !okX || !okY {
				return fail{}
			}
			a, b = fx, fy
		}
	}
	c := compare(a, b)
	if c == nil {
		return fail{}
	}
	switch op {
	case "<":
		return *c < 0
	case "<=":
		return *c <= 0
	case ">":
		return *c > 0
	default:
		return *c >= 0
	}
}

// compare returns nil when a text cannot be read as the other type.
func compare(a, b any) *int {
	at := func(n int) *int { return &n }
	x, textA := a.(string)
	y, textB := b.(string)
	switch {
	case textA && textB:
		return at(strings.Compare(x, y))
	case textA:
		v := convert(x, b)
		if v == nil {
			return nil
		}
		return compare(v, b)
	case textB:
		if _, isBool := a.(bool); isBool {
			return nil
		}
		v := convert(y, a)
		if v == nil {
			return nil
		}
		return compare(a, v)
	}
	p, boolA := a.(bool)
	q, boolB := b.(bool)
	if boolA || boolB {
		switch {
		case boolA != boolB || !p && q:
			return at(-1)
		case p == q:
			return at(0)
		}
		return at(1)
	}
	return at(total(number(a), number(b)))
}

// total is Java's order of doubles; the integers here are small enough to be exact.
func total(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a) || a > b:
		return 1
	case math.IsNaN(b) || a < b:
		return -1
	case a == 0 && math.Signbit(a) != math.Signbit(b):
		if math.Signbit(a) {
			return -1
		}
		return 1
	}
	return 0
}

// convert reads a text as the type of other.
func convert(text string, other any) any {
	switch other.(type) {
	case bool:
		return strings.EqualFold(text, "true")
	case int32:
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return int32(n)
		}
	case int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case float64:
		if f, ok := double(text); ok {
			return f
		}
	}
	return nil
}

// double reads what Properties has; it knows no more of Java's forms than that.
func double(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	text = strings.TrimSuffix(text, "d")
	if lower := strings.ToLower(text); strings.Contains(lower, "_") || strings.Contains(lower, "inf") &&
		text != "Infinity" || lower == "nan" && text != "NaN" {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}
