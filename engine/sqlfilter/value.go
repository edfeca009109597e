// SPDX-License-Identifier: Apache-2.0

package sqlfilter

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// valueKind is the type of a value, RocketMQ's Java classes.
type valueKind uint8

const (
	valueNull valueKind = iota
	valueBool
	valueText
	valueInt  // Integer
	valueLong // Long
	valueDouble
	valueFailed // an error on the way
)

// value is an operand of a comparison.
type value struct {
	kind valueKind
	n    int64 // of valueBool, valueInt, valueLong
	f    float64
	text []byte
}

// negated is unary minus: everything that is no number becomes null, texts that look like one too.
func (v value) negated() value {
	switch v.kind {
	case valueInt:
		v.n = int64(int32(-v.n))
	case valueLong:
		v.n = -v.n
	case valueDouble:
		v.f = -v.f
	case valueFailed:
	default:
		return value{}
	}
	return v
}

func (v value) number() bool { return v.kind >= valueInt && v.kind <= valueDouble }

func (v value) double() float64 {
	if v.kind == valueDouble {
		return v.f
	}
	return float64(v.n)
}

// compare orders two values as RocketMQ's ComparisonExpression.__compare does. A text is read as
// the type of the other side; ok is false when it cannot be. Types that do not go together come out
// as less.
func compare(a, b value) (order int, ok bool) {
	switch {
	case a.kind == valueText && b.kind == valueText:
		return bytes.Compare(a.text, b.text), true
	case a.kind == valueText:
		return compareText(a.text, b)
	case b.kind == valueText:
		if a.kind == valueBool {
			return 0, false // a class cast that RocketMQ gets wrong
		}
		order, ok = compareText(b.text, a)
		return -order, ok
	case a.kind == b.kind && a.kind != valueDouble:
		return cmp.Compare(a.n, b.n), true
	case !a.number() || !b.number():
		return -1, true
	case a.kind == valueDouble || b.kind == valueDouble:
		return compareDoubles(a.double(), b.double()), true
	default:
		return cmp.Compare(a.n, b.n), true
	}
}

// compareText orders a text against a value of another type.
func compareText(text []byte, b value) (order int, ok bool) {
	switch b.kind {
	case valueBool:
		var a int64
		if bytes.EqualFold(text, []byte("true")) {
			a = 1
		}
		return cmp.Compare(a, b.n), true
	case valueInt:
		n, ok := parseInteger(text, math.MinInt32, math.MaxInt32)
		return cmp.Compare(n, b.n), ok
	case valueLong:
		n, ok := parseInteger(text, math.MinInt64, math.MaxInt64)
		return cmp.Compare(n, b.n), ok
	default:
		f, ok := parseDouble(text)
		return compareDoubles(f, b.f), ok
	}
}

func doubleOf(text []byte) (value, bool) {
	f, ok := parseDouble(text)
	return value{kind: valueDouble, f: f}, ok
}

// compareDoubles is Java's total order: -0.0 is below 0.0, NaN equals itself and is above all.
func compareDoubles(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b && a != 0:
		return 0
	}
	return cmp.Compare(javaBits(a), javaBits(b))
}

func javaBits(f float64) int64 {
	if f != f {
		return math.MaxInt64
	}
	return int64(math.Float64bits(f))
}

// parseInteger reads text as Java's Integer.valueOf and Long.valueOf do: a sign, digits of any
// script, nothing else.
func parseInteger(text []byte, low, high int64) (n int64, ok bool) {
	i, negative := 0, false
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		negative = text[0] == '-'
		i++
	}
	if i == len(text) {
		return 0, false
	}
	for i < len(text) {
		d := int64(text[i] - '0')
		size := 1
		if text[i] >= utf8.RuneSelf {
			d, size = foreignDigit(text[i:])
		}
		// n is kept negative, as the range is wider there; 18 digits always fit.
		if d < 0 || d > 9 || i >= 18 && n < (math.MinInt64+d)/10 {
			return 0, false
		}
		n = 10*n - d
		i += size
	}
	if negative {
		return n, n >= low
	}
	return -n, n != math.MinInt64 && -n <= high
}

// foreignDigit reads a decimal digit of another script; -1: it is none. Java looks at UTF-16 units,
// so that digits outside the basic plane are none.
func foreignDigit(text []byte) (d int64, size int) {
	r, size := utf8.DecodeRune(text)
	for _, block := range unicode.Nd.R16 {
		if lo := rune(block.Lo); lo <= r && r <= rune(block.Hi) {
			return int64(r-lo) % 10, size
		}
	}
	return -1, size
}

// parseDouble reads text as Java's Double.valueOf does.
func parseDouble(text []byte) (f float64, ok bool) {
	for len(text) > 0 && text[0] <= ' ' {
		text = text[1:]
	}
	for len(text) > 0 && text[len(text)-1] <= ' ' {
		text = text[:len(text)-1]
	}
	if f, ok := parsePlain(text); ok {
		return f, true
	}
	body := text
	if len(body) > 0 && (body[0] == '-' || body[0] == '+') {
		body = body[1:]
	}
	switch string(body) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		if text[0] == '-' {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	}
	if !javaFloat(body) {
		return 0, false
	}
	if last := text[len(text)-1] | 0x20; last == 'f' || last == 'd' {
		text = text[:len(text)-1]
	}
	// Out of range is no error in Java; the value is then infinite or zero, as here.
	f, _ = strconv.ParseFloat(unsafe.String(&text[0], len(text)), 64)
	return f, true
}

// parsePlain is the short way for digits with at most one point: up to 15 of them are exact.
func parsePlain(text []byte) (f float64, ok bool) {
	i, negative := 0, false
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		negative = text[0] == '-'
		i++
	}
	if len(text)-i > 16 {
		return 0, false
	}
	n, count, scale := int64(0), 0, -1
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case digit(c):
			n = 10*n + int64(c-'0')
			count++
		case c == '.' && scale < 0:
			scale = count
		default:
			return 0, false
		}
	}
	if count == 0 || count > 15 {
		return 0, false
	}
	f = float64(n)
	if scale >= 0 {
		f /= powers[count-scale]
	}
	if negative {
		f = -f
	}
	return f, true
}

// powers of ten that are exact.
var powers = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
}

// javaFloat reports whether text without its sign is a number as Java writes them: decimal with an
// exponent if one likes, or hexadecimal with a binary exponent, and f or d at the end.
func javaFloat(text []byte) bool {
	isDigit, mark := digit, byte('e')
	hex := len(text) > 1 && text[0] == '0' && text[1]|0x20 == 'x'
	if hex {
		text, mark = text[2:], 'p'
		isDigit = func(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
	}
	i, count, points := 0, 0, 0
	for i < len(text) && (isDigit(text[i]) || text[i] == '.') {
		if text[i] == '.' {
			points++
		} else {
			count++
		}
		i++
	}
	if count == 0 || points > 1 {
		return false
	}
	text = text[i:]
	if len(text) > 0 && text[0]|0x20 == mark {
		n := 1
		if n < len(text) && (text[n] == '-' || text[n] == '+') {
			n++
		}
		d := 0
		for n+d < len(text) && digit(text[n+d]) {
			d++
		}
		if d == 0 {
			return false
		}
		text = text[n+d:]
	} else if hex {
		return false
	}
	if len(text) == 1 {
		return text[0]|0x20 == 'f' || text[0]|0x20 == 'd'
	}
	return len(text) == 0
}
