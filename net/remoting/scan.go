// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// The scanner below knows one JSON object of scalars with one object of scalars in it. Each
// function takes the text and a position, and returns the position after what it read, or -1 for
// "not known here": then the tolerant parser reads the header again, so that nothing is refused
// for being unusual.

// scanJSON reads a JSON header. It does not allocate once scratch and Fields have grown.
func (c *Command) scanJSON(h []byte) bool {
	i := skipSpace(h, 0)
	if i == len(h) || h[i] != '{' {
		return false
	}
	i = skipSpace(h, i+1)
	if i < len(h) && h[i] == '}' {
		return skipSpace(h, i+1) == len(h)
	}
	for {
		name, at := scanName(h, i)
		if at < 0 {
			return false
		}
		if i = c.scanMember(h, at, name); i < 0 {
			return false
		}
		i = skipSpace(h, i)
		if i == len(h) {
			return false
		}
		switch h[i] {
		case ',':
			i = skipSpace(h, i+1)
		case '}':
			return skipSpace(h, i+1) == len(h)
		default:
			return false
		}
	}
}

func (c *Command) scanMember(h []byte, i int, name []byte) int {
	switch string(name) {
	case "code":
		return scanInt32(h, i, &c.Code)
	case "flag":
		return scanInt32(h, i, &c.Flag)
	case "version":
		return scanInt32(h, i, &c.Version)
	case "opaque":
		return scanInt32(h, i, (*int32)(&c.Opaque))
	case "language":
		var word []byte
		if word, i = c.scanText(h, i); i < 0 {
			return -1
		}
		c.Language = languageOf(word)
		return i
	case "remark":
		c.Remark, i = c.scanText(h, i)
		return i
	case "extFields":
		return c.scanFields(h, i)
	}
	return skipValue(h, i)
}

func (c *Command) scanFields(h []byte, i int) int {
	if i == len(h) || h[i] != '{' {
		return -1
	}
	c.HasFields = true
	fields := c.Fields[:0]
	i = skipSpace(h, i+1)
	if i < len(h) && h[i] == '}' {
		c.Fields = fields
		return i + 1
	}
	for {
		name, at := scanName(h, i)
		if at < 0 || at == len(h) {
			return -1
		}
		var value []byte
		switch h[at] {
		case '"':
			value, i = c.scanText(h, at)
		case '{', '[', 'n':
			return -1
		default:
			i = scanScalar(h, at)
			if i >= 0 {
				value = h[at:i:i]
			}
		}
		if i < 0 || len(fields) >= fieldsMax {
			return -1
		}
		fields = append(fields, Field{Name: name, Value: value})
		i = skipSpace(h, i)
		if i == len(h) {
			return -1
		}
		switch h[i] {
		case ',':
			i = skipSpace(h, i+1)
		case '}':
			c.Fields = fields
			return i + 1
		default:
			return -1
		}
	}
}

func skipSpace(h []byte, i int) int {
	for i < len(h) && (h[i] == ' ' || h[i] == '\n' || h[i] == '\t' || h[i] == '\r') {
		i++
	}
	return i
}

// scanName reads a member's name without escapes, the colon, and the space around it.
func scanName(h []byte, i int) (name []byte, next int) {
	if i >= len(h) || h[i] != '"' {
		return nil, -1
	}
	from := i + 1
	for i = from; i < len(h) && h[i] != '"'; i++ {
		if h[i] == '\\' {
			return nil, -1
		}
	}
	if i >= len(h) {
		return nil, -1
	}
	name = h[from:i:i]
	i = skipSpace(h, i+1)
	if i == len(h) || h[i] != ':' {
		return nil, -1
	}
	return name, skipSpace(h, i+1)
}

// shortText is the length up to which a loop over bytes is faster: its end is guessed rightly, while
// that of textEnd has to be computed before the scanner goes on.
const shortText = 24

// textEnd returns the place of the first quote or backslash from i on, or len(h). It looks at eight
// bytes at once.
func textEnd(h []byte, i int) int {
	for ; i+8 <= len(h); i += 8 {
		w := binary.LittleEndian.Uint64(h[i:])
		if m := quotes(w); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(h); i++ {
		if h[i] == '"' || h[i] == '\\' {
			break
		}
	}
	return i
}

// scanText reads a string. Without escapes the value aliases h, otherwise the scratch of c.
func (c *Command) scanText(h []byte, i int) (value []byte, next int) {
	if i >= len(h) || h[i] != '"' {
		return nil, -1
	}
	from := i + 1
	for i = from; i < len(h) && i < from+shortText; i++ {
		if h[i] == '"' {
			return h[from:i:i], i + 1
		}
		if h[i] == '\\' {
			return c.unescape(h, from, i)
		}
	}
	switch i = textEnd(h, i); {
	case i == len(h):
		return nil, -1
	case h[i] == '"':
		return h[from:i:i], i + 1
	}
	return c.unescape(h, from, i)
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// quotes marks the high bits of the bytes of w that are a quote or a backslash. Bytes above such a
// byte may be marked wrongly, the lowest marked one never is.
func quotes(w uint64) uint64 {
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// specials is quotes with control characters.
func specials(w uint64) uint64 {
	return quotes(w) | (w-ones*0x20)&^w&highs
}

// unescape copies the string that starts at from and has its first escape at i into the scratch.
func (c *Command) unescape(h []byte, from, i int) (value []byte, next int) {
	if len(c.scratch) == 0 && cap(c.scratch) < len(h) {
		c.scratch = make([]byte, 0, len(h))
	}
	// Every byte of the header is unescaped at most once, so this append never moves scratch.
	at := len(c.scratch)
	out := append(c.scratch, h[from:i]...)
	for i < len(h) {
		if h[i] == '"' {
			c.scratch = out
			return out[at:len(out):len(out)], i + 1
		}
		if b, ok := separator(h, i); ok {
			out, i = append(out, b), i+6
		} else if out, i = appendEscape(out, h, i+1); i < 0 {
			return nil, -1
		}
		from = i
		i = textEnd(h, from)
		out = append(out, h[from:i]...)
	}
	return nil, -1
}

// separator reads the escape of one of the first ten characters, with which RocketMQ separates
// properties.
func separator(h []byte, i int) (b byte, ok bool) {
	const start = `\u000`
	if len(h)-i < 6 || string(h[i:i+5]) != start {
		return 0, false
	}
	b = h[i+5] - '0'
	return b, b <= 9
}

// appendEscape appends what the escape means whose letter, after the backslash, is at i.
func appendEscape(out, h []byte, i int) ([]byte, int) {
	if i >= len(h) {
		return out, -1
	}
	switch h[i] {
	case '"', '\\', '/':
		return append(out, h[i]), i + 1
	case 'b':
		return append(out, '\b'), i + 1
	case 'f':
		return append(out, '\f'), i + 1
	case 'n':
		return append(out, '\n'), i + 1
	case 'r':
		return append(out, '\r'), i + 1
	case 't':
		return append(out, '\t'), i + 1
	case 'u':
		r, ok := hex4(h, i+1)
		if !ok {
			return out, -1
		}
		i += 5
		if !utf16.IsSurrogate(r) {
			return utf8.AppendRune(out, r), i
		}
		if i+1 < len(h) && h[i] == '\\' && h[i+1] == 'u' {
			low, ok := hex4(h, i+2)
			if full := utf16.DecodeRune(r, low); ok && full != utf8.RuneError {
				return utf8.AppendRune(out, full), i + 6
			}
		}
		return utf8.AppendRune(out, utf8.RuneError), i // half a pair
	}
	return out, -1
}

func hex4(h []byte, i int) (r rune, ok bool) {
	if i+4 > len(h) {
		return 0, false
	}
	for _, b := range h[i : i+4] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	return r, true
}

// scanInt32 reads a decimal number that fits.
func scanInt32(h []byte, i int, v *int32) int {
	end := scanInteger(h, i)
	if end < 0 {
		return -1
	}
	n, ok := ParseInt(h[i:end])
	if !ok || int64(int32(n)) != n {
		return -1
	}
	*v = int32(n)
	return end
}

// scanInteger returns the end of an integer in JSON's grammar that ends where a value may end.
func scanInteger(h []byte, i int) int {
	if i < len(h) && h[i] == '-' {
		i++
	}
	from := i
	for i < len(h) && h[i] >= '0' && h[i] <= '9' {
		i++
	}
	if i == from || i-from > 1 && h[from] == '0' {
		return -1
	}
	return endOfValue(h, i)
}

// scanScalar returns the end of an integer, true or false.
func scanScalar(h []byte, i int) int {
	switch h[i] {
	case 't':
		return scanWord(h, i, "true")
	case 'f':
		return scanWord(h, i, "false")
	}
	return scanInteger(h, i)
}

func scanWord(h []byte, i int, word string) int {
	if len(h)-i < len(word) || string(h[i:i+len(word)]) != word {
		return -1
	}
	return endOfValue(h, i+len(word))
}

func endOfValue(h []byte, i int) int {
	if i >= len(h) {
		return -1
	}
	switch h[i] {
	case ',', '}', ']', ' ', '\n', '\t', '\r':
		return i
	}
	return -1
}

// skipValue returns the end of the value of an unknown member; objects and arrays, which nobody
// sends there, are left to the tolerant parser.
func skipValue(h []byte, i int) int {
	if i >= len(h) {
		return -1
	}
	switch h[i] {
	case '"':
		return skipString(h, i)
	case 'n':
		return scanWord(h, i, "null")
	case '{', '[':
		return -1
	}
	return scanScalar(h, i)
}

func skipString(h []byte, i int) int {
	if i = textEnd(h, i+1); i == len(h) || h[i] == '\\' {
		return -1
	}
	return i + 1
}

// ParseInt reads a decimal int64 as Java's Long.parseLong does: an optional sign, then digits, and
// nothing else. It does not allocate.
func ParseInt(b []byte) (v int64, ok bool) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	const cut = 1 << 63 // |math.MinInt64|
	var n uint64
	if len(b) <= 18 { // fits, whatever the digits are
		for _, c := range b {
			d := uint64(c - '0')
			if d > 9 {
				return 0, false
			}
			n = n*10 + d
		}
		if negative {
			return -int64(n), true
		}
		return int64(n), true
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if n > (cut-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), n < cut
}
