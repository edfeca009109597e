// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Marshal returns a body in the form that Java, Go and other clients read: integer keys quoted,
// MessageQueue keys as objects, since a string in their place makes the Go client fail. It is
// strict JSON unless there is a MessageQueue key. Members come in the order of the struct, which is
// alphabetical as in Java; nil maps, slices and pointers are left out, as Java leaves out null.
// v must be made of the types of this package or of strings, numbers, booleans, slices and maps;
// anything else is a bug and panics.
func Marshal(v any) []byte { return marshal(v, dialect{objectKeys: true}) }

// MarshalStandard returns a body for clients from V4_9_4 on: strict JSON with sorted and quoted
// keys, "/" and all beyond ASCII escaped, integers beyond 53 bits quoted.
func MarshalStandard(v any) []byte { return marshal(v, dialect{standard: true}) }

// MarshalFastJSON returns a body with integer keys as bare numbers, as RocketMQ writes it to disk
// and to clients before V4_9_4.
func MarshalFastJSON(v any) []byte { return marshal(v, dialect{objectKeys: true, bareKeys: true}) }

// dialect says how keys and text are written.
type dialect struct {
	objectKeys bool // MessageQueue keys as objects, otherwise as the text of the object
	bareKeys   bool
	standard   bool
}

// writer appends one value. Integers in standard form are quoted beyond what a double holds.
type writer struct {
	dialect
	out []byte
}

const doubleIntMax = 1<<53 - 1

func marshal(v any, d dialect) []byte {
	w := writer{dialect: d}
	w.value(reflect.ValueOf(v))
	return w.out
}

func (w *writer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
		w.out = append(w.out, "null"...)
	case reflect.Pointer, reflect.Interface:
		w.value(v.Elem())
	case reflect.String:
		w.text(v.String())
	case reflect.Bool:
		w.out = strconv.AppendBool(w.out, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.integer(v.Int())
	case reflect.Float64:
		w.double(v.Float())
	case reflect.Slice:
		w.slice(v)
	case reflect.Map:
		w.mapping(v)
	case reflect.Struct:
		w.object(v)
	default:
		panic(fmt.Sprintf("protocol: body holds a %s", v.Type()))
	}
}

func (w *writer) integer(n int64) {
	quoted := w.standard && (n > doubleIntMax || n < -doubleIntMax)
	if quoted {
		w.out = append(w.out, '"')
	}
	w.out = strconv.AppendInt(w.out, n, 10)
	if quoted {
		w.out = append(w.out, '"')
	}
}

// double writes what Java's Double.toString would, null for what JSON cannot say.
func (w *writer) double(f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		w.out = append(w.out, "null"...)
		return
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-3 || abs >= 1e7) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		exponent = strings.TrimPrefix(exponent, "+")
		sign := strings.HasPrefix(exponent, "-")
		exponent = strings.TrimLeft(strings.TrimPrefix(exponent, "-"), "0")
		w.out = append(append(w.out, mantissa...), 'E')
		if sign {
			w.out = append(w.out, '-')
		}
		w.out = append(w.out, exponent...)
		return
	}
	from := len(w.out)
	w.out = strconv.AppendFloat(w.out, f, 'f', -1, 64)
	if !slices.Contains(w.out[from:], '.') {
		w.out = append(w.out, '.', '0')
	}
}

func (w *writer) slice(v reflect.Value) {
	if v.IsNil() {
		w.out = append(w.out, "null"...)
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		w.out = append(w.out, '"')
		w.out = base64.StdEncoding.AppendEncode(w.out, v.Bytes())
		w.out = append(w.out, '"')
		return
	}
	w.out = append(w.out, '[')
	for i := range v.Len() {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.value(v.Index(i))
	}
	w.out = append(w.out, ']')
}

func (w *writer) object(v reflect.Value) {
	w.out = append(w.out, '{')
	w.members(v, true)
	w.out = append(w.out, '}')
}

// members writes the members of a struct and of structs embedded in it.
func (w *writer) members(v reflect.Value, first bool) bool {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, omitEmpty := memberOf(field)
		f := v.Field(i)
		if name == "" && field.Anonymous && f.Kind() == reflect.Struct {
			first = w.members(f, first)
			continue
		}
		if name == "" || omitEmpty && f.IsZero() || isNil(f) {
			continue
		}
		if !first {
			w.out = append(w.out, ',')
		}
		first = false
		w.out = append(w.out, '"')
		w.out = append(w.out, name...)
		w.out = append(w.out, '"', ':')
		w.value(f)
	}
	return first
}

// memberOf returns the JSON name of a struct field, "" for none.
func memberOf(f reflect.StructField) (name string, omitEmpty bool) {
	tag := f.Tag.Get("json")
	name, options, _ := strings.Cut(tag, ",")
	if name == "-" {
		return "", false
	}
	return name, options == "omitempty"
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		return v.IsNil()
	}
	return false
}

// mapping writes a map in the order of its keys.
func (w *writer) mapping(v reflect.Value) {
	if v.IsNil() {
		w.out = append(w.out, "null"...)
		return
	}
	keys := v.MapKeys()
	sortKeys(keys)
	w.out = append(w.out, '{')
	for i, key := range keys {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.key(key)
		w.out = append(w.out, ':')
		w.value(v.MapIndex(key))
	}
	w.out = append(w.out, '}')
}

func (w *writer) key(key reflect.Value) {
	switch key.Kind() {
	case reflect.String:
		w.text(key.String())
	case reflect.Struct:
		if w.objectKeys {
			w.object(key)
			return
		}
		inner := writer{dialect: w.dialect}
		inner.object(key)
		w.text(string(inner.out))
	default:
		if w.bareKeys {
			w.out = strconv.AppendInt(w.out, key.Int(), 10)
			return
		}
		w.out = append(w.out, '"')
		w.out = strconv.AppendInt(w.out, key.Int(), 10)
		w.out = append(w.out, '"')
	}
}

func sortKeys(keys []reflect.Value) {
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		switch a.Kind() {
		case reflect.String:
			return strings.Compare(a.String(), b.String())
		case reflect.Struct:
			return compareQueues(a.Interface().(MessageQueue), b.Interface().(MessageQueue))
		}
		switch x, y := a.Int(), b.Int(); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

const hexDigits = "0123456789abcdef"

// text writes a string. Bytes that are no UTF-8 come out as U+FFFD, so that the body stays JSON.
func (w *writer) text(s string) {
	w.out = append(w.out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			w.ascii(c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case !w.standard:
			w.out = utf8.AppendRune(w.out, r)
		case r >= 0x10000:
			w.unit(0xd800 + (r-0x10000)>>10)
			w.unit(0xdc00 + (r-0x10000)&0x3ff)
		default:
			w.unit(r)
		}
	}
	w.out = append(w.out, '"')
}

func (w *writer) ascii(c byte) {
	switch {
	case c == '"' || c == '\\' || c == '/' && w.standard:
		w.out = append(w.out, '\\', c)
	case c == '\n':
		w.out = append(w.out, '\\', 'n')
	case c == '\r':
		w.out = append(w.out, '\\', 'r')
	case c == '\t':
		w.out = append(w.out, '\\', 't')
	case c < 0x20 || c == 0x7f && w.standard:
		w.unit(rune(c))
	default:
		w.out = append(w.out, c)
	}
}

func (w *writer) unit(r rune) {
	w.out = append(w.out, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15],
		hexDigits[r&15])
}
