// SPDX-License-Identifier: Apache-2.0

package sqlfilter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// TextMax is the greatest size of an expression in bytes. RocketMQ has no bound but its stack.
const TextMax = 64 << 10

// nestingMax bounds parentheses and prefixes inside one another.
const nestingMax = 500

// parser is a recursive descent over the grammar, one method for each level of precedence.
type parser struct {
	lexer lexer
	tok   token // the next one
	depth int
	slots map[string]int
	names []string
}

// advance takes the next token. Errors travel as panics of *SyntaxError up to Compile.
func (p *parser) advance() token {
	was := p.tok
	t, err := p.lexer.next()
	if err != nil {
		panic(err)
	}
	p.tok = t
	return was
}

func (p *parser) fail(t token, format string, args ...any) {
	panic(errorAt(p.lexer.text, t.at, t.text, fmt.Sprintf(format, args...)))
}

// expect takes a token of one kind.
func (p *parser) expect(k kind, what string) token {
	if p.tok.kind != k {
		p.fail(p.tok, "expected %s", what)
	}
	return p.advance()
}

func (p *parser) enter() {
	if p.depth++; p.depth > nestingMax {
		p.fail(p.tok, "nested more than %d deep", nestingMax)
	}
}

func (p *parser) or() *node {
	first := p.tok
	left := p.and()
	for p.tok.kind == tokOr {
		left = p.boolean(left, first)
		p.advance()
		first = p.tok
		left = join(opOr, left, p.boolean(p.and(), first))
	}
	return left
}

func (p *parser) and() *node {
	first := p.tok
	left := p.equality()
	for p.tok.kind == tokAnd {
		left = p.boolean(left, first)
		p.advance()
		first = p.tok
		left = join(opAnd, left, p.boolean(p.equality(), first))
	}
	return left
}

// join makes one node of a chain of the same operator, which is evaluated from left to right.
func join(op opcode, left, right *node) *node {
	if left.op == op {
		left.list = append(left.list, right)
		return left
	}
	return &node{op: op, list: []*node{left, right}}
}

func (p *parser) equality() *node {
	first := p.tok
	left := p.comparison()
	for {
		switch at := p.tok; at.kind {
		case tokEqual, tokNotEqual:
			p.advance()
			second := p.tok
			right := p.comparison()
			p.comparable(left, first)
			p.comparable(right, second)
			if left.op == opBool && right.literal() && right.op != opBool {
				p.fail(at, "a truth value cannot be compared with this literal")
			}
			left = comparison(opEqual, left, right)
			if at.kind == tokNotEqual {
				left = &node{op: opNot, left: left}
			}
		case tokIs:
			p.advance()
			not := p.tok.kind == tokNot
			if not {
				p.advance()
			}
			p.expect(tokNull, "NULL")
			left = &node{op: opIsNull, left: left}
			if not {
				left = &node{op: opNot, left: left}
			}
		default:
			return left
		}
	}
}

// comparable refuses NULL as an operand of = and <>.
func (p *parser) comparable(n *node, at token) {
	if n.op == opNull {
		p.fail(at, "NULL cannot be compared, use IS NULL")
	}
}

func (p *parser) comparison() *node {
	first := p.tok
	left := p.unary()
	for {
		var op opcode // of the four that order
		switch p.tok.kind {
		case tokGreater:
			op = opGreater
		case tokGreaterEqual:
			op = opGreaterEqual
		case tokLess:
			op = opLess
		case tokLessEqual:
			op = opLessEqual
		case tokNot, tokBetween, tokIn, tokContains, tokStartsWith, tokEndsWith:
			left = p.predicate(left, first)
			continue
		default:
			return left
		}
		p.advance()
		second := p.tok
		right := p.unary()
		p.ordered(left, first)
		p.ordered(right, second)
		left = comparison(op, left, right)
	}
}

// ordered refuses what has no order: truth values, text literals and NULL.
func (p *parser) ordered(n *node, at token) {
	if n.boolean() || n.op == opText {
		p.fail(at, "this has no order, only numbers and properties have")
	}
}

// predicate reads [NOT] BETWEEN, IN, CONTAINS, STARTSWITH and ENDSWITH.
func (p *parser) predicate(left *node, first token) *node {
	not := p.tok.kind == tokNot
	if not {
		p.advance()
	}
	switch at := p.advance(); at.kind {
	case tokBetween:
		return p.between(left, first, not)
	case tokIn:
		return p.in(left, first, not)
	case tokContains:
		return &node{op: opContains, left: left, text: p.literalText(), not: not}
	case tokStartsWith:
		return &node{op: opStartsWith, left: left, text: p.literalText(), not: not}
	case tokEndsWith:
		return &node{op: opEndsWith, left: left, text: p.literalText(), not: not}
	default:
		p.fail(at, "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
		return nil
	}
}

func (p *parser) between(left *node, first token, not bool) *node {
	lowAt := p.tok
	low := p.unary()
	p.expect(tokAnd, "AND")
	highAt := p.tok
	high := p.unary()
	p.ordered(left, first)
	p.ordered(low, lowAt)
	p.ordered(high, highAt)
	if not {
		return join(opOr, comparison(opLess, left, low), comparison(opGreater, left, high))
	}
	if low.literal() && high.literal() {
		if order, _ := compare(high.value(), low.value()); order < 0 {
			p.fail(lowAt, "the lower bound is above the upper one")
		}
	}
	return join(opAnd, comparison(opGreaterEqual, left, low), comparison(opLessEqual, left, high))
}

func (p *parser) in(left *node, first token, not bool) *node {
	p.expect(tokOpen, "(")
	n := &node{op: opIn, left: left, not: not}
	var members []string
	for {
		members = append(members, p.literalText())
		if p.tok.kind != tokComma {
			break
		}
		p.advance()
	}
	p.expect(tokClose, ") or a comma")
	if left.op != opProperty {
		p.fail(first, "IN stands behind a property")
	}
	if len(members) < setFrom {
		n.members = members
		return n
	}
	n.set = make(map[string]struct{}, len(members))
	for _, m := range members {
		n.set[m] = struct{}{}
	}
	return n
}

// setFrom is the number of members of IN from which on they are looked up by hash.
const setFrom = 8

func (p *parser) literalText() string {
	return unquote(p.expect(tokString, "a text in quotes").text)
}

func unquote(image string) string {
	return strings.ReplaceAll(image[1:len(image)-1], "''", "'")
}

func (p *parser) unary() *node {
	p.enter()
	defer func() { p.depth-- }()
	switch p.tok.kind {
	case tokPlus:
		p.advance()
		return p.unary()
	case tokMinus:
		p.advance()
		return &node{op: opNegate, left: p.unary()}
	case tokNot:
		p.advance()
		first := p.tok
		return &node{op: opNot, left: p.boolean(p.unary(), first)}
	default:
		return p.primary()
	}
}

func (p *parser) primary() *node {
	switch t := p.tok; t.kind {
	case tokOpen:
		p.advance()
		n := p.or()
		p.expect(tokClose, ")")
		return n
	case tokName:
		p.advance()
		return &node{op: opProperty, slot: p.slot(t.text)}
	case tokString:
		p.advance()
		return &node{op: opText, text: unquote(t.text)}
	case tokInteger:
		p.advance()
		return p.integer(t)
	case tokFloat:
		p.advance()
		return p.float(t)
	case tokTrue, tokFalse:
		p.advance()
		return &node{op: opBool, truth: t.kind == tokTrue}
	case tokNull:
		p.advance()
		return &node{op: opNull}
	default:
		p.fail(t, "expected a property, a literal or (")
		return nil
	}
}

// integer makes a literal of 32 bits where that is enough, else of 64: a text that it is compared
// with is read as the same type.
func (p *parser) integer(t token) *node {
	v, err := strconv.ParseInt(strings.TrimRight(t.text, "lL"), 10, 64)
	if err != nil {
		p.fail(t, "the number does not fit into 64 bits")
	}
	if v <= math.MaxInt32 {
		return &node{op: opInt, n: v}
	}
	return &node{op: opLong, n: v}
}

// float makes a literal; RocketMQ has no 0.0, since it is below the smallest number above zero.
func (p *parser) float(t token) *node {
	f, ok := parseDouble([]byte(t.text))
	if !ok || f > math.MaxFloat64 || f < math.SmallestNonzeroFloat64 {
		p.fail(t, "the number is not between the smallest above zero and the greatest of 64 bits")
	}
	return &node{op: opDouble, f: f}
}

// slot gives each property of the expression its place among the values.
func (p *parser) slot(name string) int {
	if s, ok := p.slots[name]; ok {
		return s
	}
	s := len(p.names)
	p.slots[name] = s
	p.names = append(p.names, name)
	return s
}

// boolean makes n usable as a truth value: a bare property is cast.
func (p *parser) boolean(n *node, at token) *node {
	switch {
	case n.boolean():
		return n
	case n.op == opProperty:
		return &node{op: opCast, left: n}
	default:
		p.fail(at, "this is no truth value")
		return nil
	}
}
