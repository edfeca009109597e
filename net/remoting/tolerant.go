// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// depthMax bounds the nesting of JSON in headers and bodies.
const depthMax = 32

// parseJSON reads a header that scanJSON does not know, and has the last word on it. Fields come
// out sorted by name.
func (c *Command) parseJSON(h []byte) error {
	scratch, body := c.scratch, c.Body
	*c = Command{Fields: c.Fields[:0], Body: body, Serialize: JSON, scratch: scratch}
	// Trees of small members take far more memory than their text. No client writes such headers.
	if len(h) > tolerantMax {
		return fmt.Errorf("remoting: odd header of %d bytes, limit %d: %w",
			len(h), tolerantMax, ErrMalformed)
	}
	text, err := StrictJSON(nil, h)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return fmt.Errorf("remoting: header is not a JSON object: %w", ErrMalformed)
	}
	var numbers [4]int32
	for i, name := range [len(numbers)]string{"code", "flag", "version", "opaque"} {
		if raw, ok := members[name]; ok {
			if numbers[i], ok = looseInt32(raw); !ok {
				return fmt.Errorf("remoting: header member %s is %.32q: %w", name, raw, ErrMalformed)
			}
		}
	}
	c.Code, c.Flag, c.Version, c.Opaque = numbers[0], numbers[1], numbers[2], Opaque(numbers[3])
	if raw, ok := members["language"]; ok {
		c.Language = looseLanguage(raw)
	}
	if raw, ok := members["remark"]; ok {
		c.Remark, _ = looseText(raw)
	}
	if raw, ok := members["extFields"]; ok {
		return c.parseFields(raw)
	}
	return nil
}

func (c *Command) parseFields(raw json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("remoting: extFields are no object: %w", ErrMalformed)
	}
	c.HasFields = fields != nil
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if value, ok := looseText(fields[name]); ok && !c.addField([]byte(name), value) {
			return fmt.Errorf("remoting: more than %d fields: %w", fieldsMax, ErrMalformed)
		}
	}
	return nil
}

// looseText returns the text of a value: of a string its content, of anything else its JSON. ok is
// false for null, which stands for absence.
func looseText(raw json.RawMessage) (text []byte, ok bool) {
	if string(raw) == "null" {
		return nil, false
	}
	if raw[0] != '"' {
		return raw, true
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, false
	}
	return []byte(s), true
}

// looseInt32 takes a number, the text of a number, or nothing, which is 0. A fraction is cut off.
func looseInt32(raw json.RawMessage) (int32, bool) {
	text, ok := looseText(raw)
	if !ok || len(text) == 0 || string(text) == "null" {
		return 0, true
	}
	n, ok := ParseInt(text)
	if !ok && raw[0] != '"' {
		f, err := strconv.ParseFloat(string(text), 64)
		n, ok = int64(f), err == nil && f > -1<<31-1 && f < 1<<31
	}
	return int32(n), ok && int64(int32(n)) == n
}

func looseLanguage(raw json.RawMessage) Language {
	text, ok := looseText(raw)
	if !ok {
		return LanguageUnknown
	}
	if n, isInt := ParseInt(text); isInt && raw[0] != '"' && int64(int32(n)) == n {
		return languageAt(int32(n))
	}
	return languageOf(text)
}

// StrictJSON appends to dst the JSON that the text src means in the dialect of RocketMQ's peers.
//
// The dialect is that of the fastjson library. On top of JSON it takes names and strings in single
// quotes, numbers and objects as names, comments, superfluous commas, leading zeros, control
// characters in strings and a few more escapes. A number as a name comes out as a string, an object
// as a string with the JSON of the object. Bare words as names are refused, as RocketMQ 5.5 does.
// Values may be nested 32 deep and an object in the place of a name must not hold another such.
// The size of the result is at most a small multiple of that of src. Errors wrap ErrMalformed.
func StrictJSON(dst, src []byte) ([]byte, error) {
	t := translator{src: src, out: dst}
	ok := t.value(0) && t.space() == len(src)
	if !ok {
		return nil, fmt.Errorf("remoting: JSON refused at byte %d of %d: %w",
			min(t.at, len(src)), len(src), ErrMalformed)
	}
	return t.out, nil
}

// translator is a recursive descent over the dialect. Its methods return false where the text ends
// too early or does not fit, with at near the place.
type translator struct {
	src   []byte
	at    int
	out   []byte
	inKey bool // within an object that stands for a name
}

// space moves over blanks and comments. An unfinished comment is left for the caller to stumble on.
func (t *translator) space() int {
	for t.at < len(t.src) {
		switch t.src[t.at] {
		case ' ', '\n', '\t', '\r', '\f', '\b':
			t.at++
		case '/':
			rest := t.src[t.at:]
			switch {
			case bytes.HasPrefix(rest, []byte("//")):
				end := bytes.IndexByte(rest, '\n')
				if end < 0 {
					end = len(rest) - 1
				}
				t.at += end + 1
			case bytes.HasPrefix(rest, []byte("/*")):
				end := bytes.Index(rest[2:], []byte("*/"))
				if end < 0 {
					return t.at
				}
				t.at += end + 4
			default:
				return t.at
			}
		default:
			return t.at
		}
	}
	return t.at
}

// peek returns the next byte that is no space, 0 at the end.
func (t *translator) peek() byte {
	if t.space() >= len(t.src) {
		return 0
	}
	return t.src[t.at]
}

// commas moves over any number of commas and reports whether there was one.
func (t *translator) commas() bool {
	found := false
	for t.peek() == ',' {
		found = true
		t.at++
	}
	return found
}

func (t *translator) value(depth int) bool {
	switch c := t.peek(); {
	case c == '"' || c == '\'':
		return t.text(c)
	case c == '-' || c >= '0' && c <= '9':
		return t.number()
	case c == 't':
		return t.word("true")
	case c == 'f':
		return t.word("false")
	case c == 'n':
		return t.word("null")
	case c == '{' && depth < depthMax:
		return t.object(depth + 1)
	case c == '[' && depth < depthMax:
		return t.array(depth + 1)
	}
	return false
}

func (t *translator) object(depth int) bool {
	t.at++
	t.out = append(t.out, '{')
	t.commas()
	for first := true; t.peek() != '}'; first = false {
		if !first {
			t.out = append(t.out, ',')
		}
		if !t.name(depth) || t.peek() != ':' {
			return false
		}
		t.at++
		t.out = append(t.out, ':')
		if !t.value(depth) || !t.commas() && t.peek() != '}' {
			return false
		}
	}
	t.at++
	t.out = append(t.out, '}')
	return true
}

func (t *translator) array(depth int) bool {
	t.at++
	t.out = append(t.out, '[')
	t.commas()
	for first := true; t.peek() != ']'; first = false {
		if !first {
			t.out = append(t.out, ',')
		}
		if !t.value(depth) || !t.commas() && t.peek() != ']' {
			return false
		}
	}
	t.at++
	t.out = append(t.out, ']')
	return true
}

// name reads a member's name in any of its forms and writes it as a string.
func (t *translator) name(depth int) bool {
	switch c := t.peek(); {
	case c == '"' || c == '\'':
		return t.text(c)
	case c == '-' || c >= '0' && c <= '9':
		t.out = append(t.out, '"')
		ok := t.number()
		t.out = append(t.out, '"')
		return ok
	case c == '{' && !t.inKey && depth < depthMax:
		// One level only: every further one would double the backslashes.
		outer := t.out
		t.out, t.inKey = nil, true
		ok := t.object(depth + 1)
		inner := t.out
		t.out, t.inKey = append(outer, '"'), false
		t.out = append(appendJSONText(t.out, inner), '"')
		return ok
	}
	return false
}

func (t *translator) word(word string) bool {
	if !bytes.HasPrefix(t.src[t.at:], []byte(word)) {
		return false
	}
	t.at += len(word)
	t.out = append(t.out, word...)
	return t.at == len(t.src) || !isWordByte(t.src[t.at])
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

// number copies a number without its leading zeros.
func (t *translator) number() bool {
	if t.src[t.at] == '-' {
		t.out = append(t.out, '-')
		t.at++
	}
	from := t.at
	t.digits()
	if t.at == from {
		return false
	}
	for from < t.at-1 && t.src[from] == '0' {
		from++
	}
	if t.at < len(t.src) && t.src[t.at] == '.' {
		t.at++
		if !t.digits() {
			return false
		}
	}
	if t.at < len(t.src) && (t.src[t.at] == 'e' || t.src[t.at] == 'E') {
		t.at++
		if t.at < len(t.src) && (t.src[t.at] == '+' || t.src[t.at] == '-') {
			t.at++
		}
		if !t.digits() {
			return false
		}
	}
	t.out = append(t.out, t.src[from:t.at]...)
	return t.at == len(t.src) || !isWordByte(t.src[t.at])
}

func (t *translator) digits() bool {
	from := t.at
	for t.at < len(t.src) && t.src[t.at] >= '0' && t.src[t.at] <= '9' {
		t.at++
	}
	return t.at > from
}

// text copies a string that ends with quote.
func (t *translator) text(quote byte) bool {
	t.at++
	t.out = append(t.out, '"')
	from := t.at
	for t.at < len(t.src) {
		switch c := t.src[t.at]; c {
		case quote:
			t.out = append(appendJSONText(t.out, t.src[from:t.at]), '"')
			t.at++
			return true
		case '\\':
			t.out = appendJSONText(t.out, t.src[from:t.at])
			if !t.escape() {
				return false
			}
			from = t.at
		default:
			t.at++
		}
	}
	return false
}

// escape reads one escape, or a pair of them that forms one character.
func (t *translator) escape() bool {
	var buf [utf8.UTFMax]byte
	out, next := appendEscape(buf[:0], t.src, t.at+1)
	if next < 0 {
		out, next = appendOddEscape(buf[:0], t.src, t.at+1)
	}
	if next < 0 {
		return false
	}
	t.at = next
	t.out = appendJSONText(t.out, out)
	return true
}

// appendOddEscape is appendEscape for those that fastjson adds.
func appendOddEscape(out, h []byte, i int) ([]byte, int) {
	if i >= len(h) {
		return out, -1
	}
	switch c := h[i]; c {
	case '\'':
		return append(out, c), i + 1
	case 'v':
		return append(out, '\v'), i + 1
	case 'F':
		return append(out, '\f'), i + 1
	case '0', '1', '2', '3', '4', '5', '6', '7':
		return append(out, c-'0'), i + 1
	case 'x':
		if i+3 > len(h) {
			return out, -1
		}
		n, err := strconv.ParseUint(string(h[i+1:i+3]), 16, 8)
		if err != nil {
			return out, -1
		}
		return utf8.AppendRune(out, rune(n)), i + 3
	}
	return out, -1
}
