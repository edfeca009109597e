// SPDX-License-Identifier: Apache-2.0

package sqlfilter

import (
	"bytes"
	"cmp"
	"math"
	"unsafe"
)

// opcode is what a node computes.
type opcode uint8

const (
	opOr opcode = iota + 1
	opAnd
	opNot
	opCast // a bare property as a truth value
	opEqual
	opIsNull
	opGreater
	opGreaterEqual
	opLess
	opLessEqual
	opIn
	opContains
	opStartsWith
	opEndsWith
	opBool // literals from here on
	opNull
	opText
	opInt
	opLong
	opDouble
	opProperty
	opNegate
)

// node is one step of an expression. It is immutable once compiled.
type node struct {
	op          opcode
	not         bool // of opIn and the text searches
	quick       bool // of comparisons: a property on the left, a number on the right
	truth       bool // of opBool
	slot        int  // of opProperty
	left, right *node
	list        []*node // of opOr and opAnd
	text        string  // of opText, and what the text searches look for
	members     []string
	set         map[string]struct{} // members, when there are many
	n           int64
	f           float64
}

// boolean reports whether the node is a truth value by itself (RocketMQ BooleanExpression).
func (n *node) boolean() bool { return n.op <= opNull }

// literal reports whether the node is a constant (RocketMQ ConstantExpression).
func (n *node) literal() bool { return n.op >= opBool && n.op <= opDouble }

// comparison makes a node of =, < and its like.
func comparison(op opcode, left, right *node) *node {
	return &node{
		op: op, left: left, right: right,
		quick: left.op == opProperty && right.op >= opInt && right.op <= opDouble,
	}
}

// Result is the outcome of an expression for one message.
type Result uint8

// The outcomes. Only True selects the message.
const (
	False   Result = iota
	True           // selected
	Unknown        // null in SQL: it depends on something that is missing
	Failed         // a value could not be read as what it is compared with
)

func truth(b bool) Result {
	if b {
		return True
	}
	return False
}

func (r Result) not() Result {
	switch r {
	case True:
		return False
	case False:
		return True
	default:
		return r
	}
}

// values are the properties of one message by slot; nil: missing.
type values [][]byte

// test computes a node that is a truth value.
func (n *node) test(v values) Result {
	switch n.op {
	case opOr:
		return n.any(v)
	case opAnd:
		return n.every(v)
	case opNot:
		return n.left.test(v).not()
	case opCast: // a text is never true
		if v[n.left.slot] == nil {
			return Unknown
		}
		return False
	case opEqual:
		return n.equal(v)
	case opIsNull:
		return n.isNull(v)
	case opGreater, opGreaterEqual, opLess, opLessEqual:
		return n.ordered(v)
	case opIn:
		return n.in(v)
	case opContains, opStartsWith, opEndsWith:
		return n.search(v)
	case opBool:
		return truth(n.truth)
	default: // opNull
		return Unknown
	}
}

// any is OR from left to right: true ends it, and so does a failure.
func (n *node) any(v values) Result {
	result := False
	for _, part := range n.list {
		switch r := part.test(v); r {
		case True, Failed:
			return r
		case Unknown:
			result = Unknown
		case False:
		}
	}
	return result
}

// every is AND from left to right: false ends it, and so does a failure.
func (n *node) every(v values) Result {
	result := True
	for _, part := range n.list {
		switch r := part.test(v); r {
		case False, Failed:
			return r
		case Unknown:
			result = Unknown
		case True:
		}
	}
	return result
}

// equal is not symmetric: with only the left side missing the result is unknown, with only the
// right side missing it is false, and with both it is true.
func (n *node) equal(v values) Result {
	if n.quick {
		order, r := n.againstNumber(v)
		if r == True {
			r = truth(order == 0)
		}
		return r
	}
	a, b := n.left.operand(v), n.right.operand(v)
	switch {
	case a.kind == valueFailed || b.kind == valueFailed:
		return Failed
	case a.kind == valueNull && b.kind == valueNull:
		return True
	case a.kind == valueNull:
		return Unknown
	case b.kind == valueNull:
		return False
	}
	order, ok := compare(a, b)
	if !ok {
		return Failed
	}
	return truth(order == 0)
}

func (n *node) isNull(v values) Result {
	switch n.left.operand(v).kind {
	case valueFailed:
		return Failed
	case valueNull:
		return True
	default:
		return False
	}
}

// ordered is < and its like. Two texts are compared as numbers of 64-bit floating point.
func (n *node) ordered(v values) Result {
	if n.quick {
		order, r := n.againstNumber(v)
		if r == True {
			r = n.decide(order)
		}
		return r
	}
	a := n.left.operand(v)
	if a.kind == valueNull || a.kind == valueFailed {
		return unusable(a)
	}
	b := n.right.operand(v)
	if b.kind == valueNull || b.kind == valueFailed {
		return unusable(b)
	}
	if a.kind == valueText && b.kind == valueText {
		var okA, okB bool
		a, okA = doubleOf(a.text)
		b, okB = doubleOf(b.text)
		if !okA || !okB {
			return Failed
		}
	}
	order, ok := compare(a, b)
	if !ok {
		return Failed
	}
	return n.decide(order)
}

// decide turns an order into the answer of a comparison.
func (n *node) decide(order int) Result {
	switch n.op {
	case opGreater:
		return truth(order > 0)
	case opGreaterEqual:
		return truth(order >= 0)
	case opLess:
		return truth(order < 0)
	default:
		return truth(order <= 0)
	}
}

// againstNumber is the short way for a property on the left and a number on the right, which is what
// most comparisons are. Unknown and Failed are final; True: order says it.
func (n *node) againstNumber(v values) (order int, r Result) {
	text := v[n.left.slot]
	if text == nil {
		return 0, Unknown
	}
	switch right := n.right; right.op {
	case opInt:
		got, ok := parseInteger(text, math.MinInt32, math.MaxInt32)
		return cmp.Compare(got, right.n), readable(ok)
	case opLong:
		got, ok := parseInteger(text, math.MinInt64, math.MaxInt64)
		return cmp.Compare(got, right.n), readable(ok)
	default:
		got, ok := parseDouble(text)
		return compareDoubles(got, right.f), readable(ok)
	}
}

// readable turns a text that is no number into a failure.
func readable(ok bool) Result {
	if ok {
		return True
	}
	return Failed
}

func unusable(v value) Result {
	if v.kind == valueFailed {
		return Failed
	}
	return Unknown
}

func (n *node) in(v values) Result {
	text := v[n.left.slot]
	if text == nil {
		return Unknown
	}
	found := false
	if n.set != nil {
		_, found = n.set[string(text)]
	}
	for _, m := range n.members {
		found = found || m == string(text)
	}
	return truth(found != n.not)
}

// search is CONTAINS and its like. What has no text matches neither them nor their negations, and
// nothing contains the empty text.
func (n *node) search(v values) Result {
	if n.text == "" {
		return False
	}
	a := n.left.operand(v)
	switch a.kind {
	case valueFailed:
		return Failed
	case valueText:
	default:
		return False
	}
	// Reading only: the bytes of a string may be seen as a slice.
	wanted := unsafe.Slice(unsafe.StringData(n.text), len(n.text))
	var found bool
	switch n.op {
	case opContains:
		found = bytes.Contains(a.text, wanted)
	case opStartsWith:
		found = bytes.HasPrefix(a.text, wanted)
	default:
		found = bytes.HasSuffix(a.text, wanted)
	}
	return truth(found != n.not)
}

// operand computes any node as a value.
func (n *node) operand(v values) value {
	switch n.op {
	case opProperty:
		text := v[n.slot]
		if text == nil {
			return value{}
		}
		return value{kind: valueText, text: text}
	case opText, opInt, opLong, opDouble:
		return n.value()
	case opNegate:
		return n.left.operand(v).negated()
	default: // a truth value
	}
	switch n.test(v) {
	case True:
		return value{kind: valueBool, n: 1}
	case False:
		return value{kind: valueBool}
	case Failed:
		return value{kind: valueFailed}
	default:
		return value{}
	}
}

// value returns the value of a literal.
func (n *node) value() value {
	switch n.op {
	case opText:
		return value{
			kind: valueText, text: unsafe.Slice(unsafe.StringData(n.text), len(n.text)),
		}
	case opInt:
		return value{kind: valueInt, n: n.n}
	case opLong:
		return value{kind: valueLong, n: n.n}
	case opDouble:
		return value{kind: valueDouble, f: n.f}
	case opBool:
		if n.truth {
			return value{kind: valueBool, n: 1}
		}
		return value{kind: valueBool}
	default:
		return value{}
	}
}
