// SPDX-License-Identifier: Apache-2.0

package sqlfilter

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	tokEnd kind = iota
	tokName
	tokInteger
	tokFloat
	tokString
	tokEqual
	tokNotEqual
	tokGreater
	tokGreaterEqual
	tokLess
	tokLessEqual
	tokOpen
	tokClose
	tokComma
	tokPlus
	tokMinus
	tokNot
	tokAnd
	tokOr
	tokBetween
	tokIn
	tokTrue
	tokFalse
	tokNull
	tokIs
	tokContains
	tokStartsWith
	tokEndsWith
)

// keyword returns the kind of a word: keywords are known in any case, the rest are property names.
func keyword(word string) kind {
	words := [...]struct {
		text string
		kind kind
	}{
		{"NOT", tokNot},
		{"AND", tokAnd},
		{"OR", tokOr},
		{"BETWEEN", tokBetween},
		{"IN", tokIn},
		{"TRUE", tokTrue},
		{"FALSE", tokFalse},
		{"NULL", tokNull},
		{"IS", tokIs},
		{"CONTAINS", tokContains},
		{"STARTSWITH", tokStartsWith},
		{"ENDSWITH", tokEndsWith},
	}
	for _, w := range words {
		if len(w.text) == len(word) && strings.EqualFold(w.text, word) {
			return w.kind
		}
	}
	return tokName
}

// token is one piece of the text.
type token struct {
	kind kind
	at   int    // byte offset in the text
	text string // as written
}

// SyntaxError says where and why an expression is not one.
type SyntaxError struct {
	Line, Column int    // from 1; columns count characters
	Token        string // what was found there; "" at the end of the text
	Reason       string
}

// Error begins as RocketMQ's MQFilterException does, and adds what that does not say.
func (e *SyntaxError) Error() string {
	found := "at the end"
	if e.Token != "" {
		found = fmt.Sprintf("at %q", e.Token)
	}
	return fmt.Sprintf("Invalid MessageSelector. line %d, column %d, %s: %s",
		e.Line, e.Column, found, e.Reason)
}

// tokenShown bounds how much of a token an error repeats, in bytes.
const tokenShown = 40

// errorAt makes an error about a place in the text.
func errorAt(text string, at int, tok, reason string) *SyntaxError {
	before := text[:at]
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	if len(tok) > tokenShown {
		tok = strings.ToValidUTF8(tok[:tokenShown], "") + "..."
	}
	return &SyntaxError{Line: line, Column: column, Token: tok, Reason: reason}
}

// lexer cuts the text into tokens, each when it is asked for: RocketMQ never looks at what follows
// the token after the end of the expression.
type lexer struct {
	text string
	pos  int
}

// next returns the token at pos.
func (l *lexer) next() (token, *SyntaxError) {
	l.skip()
	if l.pos == len(l.text) {
		return token{kind: tokEnd, at: l.pos}, nil
	}
	rest := l.text[l.pos:]
	k, size := operator(rest)
	switch c := rest[0]; {
	case size > 0:
	case wordStart(c):
		size = 1
		for size < len(rest) && (wordStart(rest[size]) || digit(rest[size])) {
			size++
		}
		k = keyword(rest[:size])
	case digit(c) || c == '.':
		k, size = number(rest)
	case c == '\'':
		k, size = tokString, quoted(rest)
		if size == 0 {
			return token{}, errorAt(l.text, l.pos, rest, "the text in quotes does not end")
		}
	}
	if size == 0 {
		_, n := utf8.DecodeRuneInString(rest)
		return token{}, errorAt(l.text, l.pos, rest[:n], "unexpected character")
	}
	t := token{kind: k, at: l.pos, text: rest[:size]}
	l.pos += size
	return t, nil
}

// skip passes over white space and comments. A comment without an end is none.
func (l *lexer) skip() {
	for l.pos < len(l.text) {
		rest := l.text[l.pos:]
		switch {
		case strings.IndexByte(" \t\n\r\f", rest[0]) >= 0:
			l.pos++
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexAny(rest, "\r\n")
			if end < 0 {
				return
			}
			l.pos += end + 1
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return
			}
			l.pos += 2 + end + 2
		default:
			return
		}
	}
}

// operator recognises what is neither a word nor a literal; size 0: nothing.
func operator(rest string) (k kind, size int) {
	second := byte(0)
	if len(rest) > 1 {
		second = rest[1]
	}
	switch rest[0] {
	case '=':
		return tokEqual, 1
	case '(':
		return tokOpen, 1
	case ')':
		return tokClose, 1
	case ',':
		return tokComma, 1
	case '+':
		return tokPlus, 1
	case '-':
		return tokMinus, 1
	case '>':
		if second == '=' {
			return tokGreaterEqual, 2
		}
		return tokGreater, 1
	case '<':
		switch second {
		case '=':
			return tokLessEqual, 2
		case '>':
			return tokNotEqual, 2
		}
		return tokLess, 1
	}
	return tokEnd, 0
}

func wordStart(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$'
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n
}

// exponent returns the size of an exponent at the start of s, 0 when there is none.
func exponent(s string) int {
	if s == "" || s[0]|0x20 != 'e' {
		return 0
	}
	n := 1
	if n < len(s) && (s[n] == '+' || s[n] == '-') {
		n++
	}
	if d := digits(s[n:]); d > 0 {
		return n + d
	}
	return 0
}

// number reads the longest literal at the start of rest. An integer does not begin with a zero, so
// that 012 is two tokens, and only one that does not may end with an l.
func number(rest string) (k kind, size int) {
	n := digits(rest)
	if n < len(rest) && rest[n] == '.' {
		fraction := digits(rest[n+1:])
		if n == 0 && fraction == 0 {
			return tokEnd, 0
		}
		n += 1 + fraction
		return tokFloat, n + exponent(rest[n:])
	}
	if e := exponent(rest[n:]); e > 0 {
		return tokFloat, n + e
	}
	if rest[0] == '0' {
		return tokInteger, 1
	}
	if n < len(rest) && rest[n]|0x20 == 'l' {
		n++
	}
	return tokInteger, n
}

// quoted returns the size of the longest text literal at the start of rest, 0 when it does not end.
// A quote inside is doubled.
func quoted(rest string) int {
	size := 0
	for i := 1; i < len(rest); i++ {
		if rest[i] != '\'' {
			continue
		}
		size = i + 1
		if i+1 == len(rest) || rest[i+1] != '\'' {
			break
		}
		i++
	}
	return size
}
