// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// field is one settable field of a configuration struct.
type field struct {
	key       string
	value     reflect.Value
	important bool
	min, max  string // of the tags, "" for none
	oneof     []string
}

// fieldsOf lists the fields of the struct that dst points at by key. Struct fields without a key,
// embedded or named, are entered, so one key may have several fields: each of them is set.
func fieldsOf(dst any) (map[string][]field, error) {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("settings: %T is not a pointer to a struct", dst)
	}
	out := map[string][]field{}
	collect(v.Elem(), func(f field) { out[f.key] = append(out[f.key], f) })
	return out, nil
}

// collect calls visit for each field with a key, in the order of the struct.
func collect(v reflect.Value, visit func(field)) {
	t := v.Type()
	for i := range t.NumField() {
		sf := t.Field(i)
		key, tagged := sf.Tag.Lookup("key")
		if !tagged {
			if sf.Type.Kind() == reflect.Struct && sf.IsExported() {
				collect(v.Field(i), visit)
			}
			continue
		}
		f := field{
			key:       key,
			value:     v.Field(i),
			important: sf.Tag.Get("important") == "true",
			min:       sf.Tag.Get("min"),
			max:       sf.Tag.Get("max"),
		}
		if oneof := sf.Tag.Get("oneof"); oneof != "" {
			f.oneof = strings.Split(oneof, ",")
		}
		visit(f)
	}
}

// parse checks text and returns what stores it, or why it is refused.
func (f field) parse(text string) (set func(), reason string) {
	v := f.value
	switch v.Kind() {
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "true":
			return func() { v.SetBool(true) }, ""
		case "false":
			return func() { v.SetBool(false) }, ""
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return f.parseInt(text)
	case reflect.Float32, reflect.Float64:
		return f.parseFloat(text)
	case reflect.String:
		return f.parseString(text)
	default:
		return nil, fmt.Sprintf("cannot be set: its type %s has no text form", v.Type())
	}
	return nil, fmt.Sprintf("%q is not true or false", text)
}

func (f field) parseInt(text string) (func(), string) {
	v := f.value
	n, err := strconv.ParseInt(text, 10, v.Type().Bits())
	if err != nil {
		return nil, fmt.Sprintf("%q is not a whole number of %d bits", text, v.Type().Bits())
	}
	if low, err := strconv.ParseInt(f.min, 10, 64); err == nil && n < low {
		return nil, fmt.Sprintf("%d is out of range %s", n, f.bounds())
	}
	if high, err := strconv.ParseInt(f.max, 10, 64); err == nil && n > high {
		return nil, fmt.Sprintf("%d is out of range %s", n, f.bounds())
	}
	return func() { v.SetInt(n) }, ""
}

func (f field) parseFloat(text string) (func(), string) {
	v := f.value
	n, err := strconv.ParseFloat(text, v.Type().Bits())
	if err != nil || n != n {
		return nil, fmt.Sprintf("%q is not a number", text)
	}
	if low, err := strconv.ParseFloat(f.min, 64); err == nil && n < low {
		return nil, fmt.Sprintf("%g is out of range %s", n, f.bounds())
	}
	if high, err := strconv.ParseFloat(f.max, 64); err == nil && n > high {
		return nil, fmt.Sprintf("%g is out of range %s", n, f.bounds())
	}
	return func() { v.SetFloat(n) }, ""
}

func (f field) parseString(text string) (func(), string) {
	v := f.value
	if len(f.oneof) == 0 {
		return func() { v.SetString(text) }, ""
	}
	for _, name := range f.oneof {
		if strings.EqualFold(name, text) {
			return func() { v.SetString(name) }, ""
		}
	}
	return nil, fmt.Sprintf("%q is not one of %s", text, strings.Join(f.oneof, ", "))
}

func (f field) bounds() string {
	low, high := f.min, f.max
	if low == "" {
		low = "-"
	}
	if high == "" {
		high = "-"
	}
	return low + ".." + high
}

func (f field) text() string {
	switch v := f.value; v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, v.Type().Bits())
	case reflect.String:
		return v.String()
	default:
		return strconv.FormatInt(v.Int(), 10)
	}
}
