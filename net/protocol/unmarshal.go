// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/net/remoting"
)

// ErrBody means that a body cannot be read.
var ErrBody = errors.New("malformed body")

// Unmarshal reads a body or a configuration file into v, a pointer to a type of this package.
//
// It takes the dialect of remoting.StrictJSON: bare integer keys, objects as keys, single quotes,
// comments, superfluous commas. Beyond that it takes texts where numbers or booleans are expected
// and the reverse, as the Go client sends them, ignores unknown members, and treats null and "" in
// the place of anything but a string as absence. Names keep their case. Nesting is limited to 32.
// What v held before is kept where the text is silent; a zero v, like every element that the text
// adds, begins with RocketMQ's defaults for its type.
//
// No text is malformed: a required body is missing. The error wraps ErrBody and names the member.
// Memory grows with the text, never by a number in it.
func Unmarshal(data []byte, v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		panic(fmt.Sprintf("protocol: Unmarshal into %T", v))
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("protocol: body of %s is missing: %w", target.Elem().Type().Name(), ErrBody)
	}
	strict, err := remoting.StrictJSON(make([]byte, 0, len(data)), data)
	if err != nil {
		return fmt.Errorf("protocol: body of %s: %w: %w", target.Elem().Type().Name(), ErrBody, err)
	}
	tree, err := parseTree(strict)
	if err != nil {
		return err
	}
	if tree == nil {
		return fmt.Errorf("protocol: body of %s is null: %w", target.Elem().Type().Name(), ErrBody)
	}
	if problem := assign(target.Elem(), tree); problem != nil {
		return fmt.Errorf("protocol: body of %s: %s: %w",
			target.Elem().Type().Name(), problem.Error(), ErrBody)
	}
	return nil
}

// parseTree reads strict JSON into maps, slices, strings, json.Number, bool and nil.
func parseTree(strict []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(strict))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("protocol: %w: %w", ErrBody, err)
	}
	return tree, nil
}

// mismatch tells where a value does not fit. The path grows on the way out.
type mismatch struct {
	path string
	what string
}

func (m *mismatch) Error() string {
	if m.path == "" {
		return m.what
	}
	return "member " + m.path + " " + m.what
}

func (m *mismatch) within(name string) *mismatch {
	if m.path != "" {
		name += "." + m.path
	}
	return &mismatch{path: name, what: m.what}
}

func wrong(node any, want string) *mismatch {
	text := fmt.Sprint(node)
	if len(text) > 64 {
		text = text[:64]
	}
	return &mismatch{what: fmt.Sprintf("is %q, not %s", text, want)}
}

// assign stores a node in v, which keeps its value when the node stands for absence.
func assign(v reflect.Value, node any) *mismatch {
	if own, ok := ownParser(v); ok {
		text, err := json.Marshal(node)
		if err == nil {
			err = own.UnmarshalJSON(text)
		}
		if err != nil {
			return &mismatch{what: err.Error()}
		}
		return nil
	}
	if node == nil || node == "" && v.Kind() != reflect.String && v.Kind() != reflect.Interface {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return assign(v.Elem(), node)
	case reflect.Interface:
		v.Set(reflect.ValueOf(node))
	case reflect.String:
		return assignText(v, node)
	case reflect.Bool:
		return assignBool(v, node)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := integerOf(node)
		if !ok || v.OverflowInt(n) {
			return wrong(node, "an integer of "+strconv.Itoa(v.Type().Bits())+" bits")
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(textOf(node), 64)
		if err != nil {
			return wrong(node, "a number")
		}
		v.SetFloat(f)
	case reflect.Slice:
		return assignSlice(v, node)
	case reflect.Map:
		return assignMap(v, node)
	case reflect.Struct:
		return assignStruct(v, node)
	default:
		panic(fmt.Sprintf("protocol: body holds a %s", v.Type()))
	}
	return nil
}

// ownParser returns the json.Unmarshaler of types outside this package that have one.
func ownParser(v reflect.Value) (json.Unmarshaler, bool) {
	if !v.CanAddr() || v.Type().Name() == "" {
		return nil, false
	}
	own, ok := v.Addr().Interface().(json.Unmarshaler)
	return own, ok
}

// textOf returns the text of a scalar, "" for what is none.
func textOf(node any) string {
	switch n := node.(type) {
	case string:
		return n
	case json.Number:
		return n.String()
	case bool:
		return strconv.FormatBool(n)
	}
	return ""
}

// enumeration is a text type whose values RocketMQ's parser also takes by ordinal.
type enumeration interface{ ordinals() []string }

func assignText(v reflect.Value, node any) *mismatch {
	if number, ok := node.(json.Number); ok {
		if e, ok := v.Interface().(enumeration); ok {
			names := e.ordinals()
			n, err := strconv.Atoi(number.String())
			if err != nil || n < 0 || n >= len(names) {
				return wrong(node, "one of "+strings.Join(names, ", "))
			}
			v.SetString(names[n])
			return nil
		}
	}
	switch node.(type) {
	case string, json.Number, bool:
		v.SetString(textOf(node))
		return nil
	}
	return wrong(node, "a text")
}

func assignBool(v reflect.Value, node any) *mismatch {
	switch text := textOf(node); {
	case strings.EqualFold(text, "true"), text == "1":
		v.SetBool(true)
	case strings.EqualFold(text, "false"), text == "0":
		v.SetBool(false)
	default:
		return wrong(node, "true or false")
	}
	return nil
}

// integerOf takes integers, texts of integers, and numbers whose fraction it cuts off.
func integerOf(node any) (int64, bool) {
	text := textOf(node)
	if n, ok := remoting.ParseInt([]byte(text)); ok {
		return n, true
	}
	if _, ok := node.(json.Number); !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return int64(f), err == nil && f > -(1<<63) && f < 1<<63
}

func assignSlice(v reflect.Value, node any) *mismatch {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		raw, err := base64.StdEncoding.DecodeString(textOf(node))
		if err != nil {
			return wrong(node, "base64")
		}
		v.SetBytes(raw)
		return nil
	}
	list, ok := node.([]any)
	if !ok {
		return wrong(node, "an array")
	}
	out := reflect.MakeSlice(v.Type(), 0, len(list))
	for i, item := range list {
		if item == nil {
			continue // fastjson keeps null; nobody could use it here
		}
		e := reflect.New(v.Type().Elem()).Elem()
		if problem := assign(e, item); problem != nil {
			return problem.within(strconv.Itoa(i))
		}
		out = reflect.Append(out, e)
	}
	v.Set(out)
	return nil
}

func assignMap(v reflect.Value, node any) *mismatch {
	object, ok := node.(map[string]any)
	if !ok {
		return wrong(node, "an object")
	}
	t := v.Type()
	out := reflect.MakeMapWithSize(t, len(object))
	for name, item := range object {
		key := reflect.New(t.Key()).Elem()
		if problem := assignKey(key, name); problem != nil {
			return problem.within(name)
		}
		if item == nil {
			continue
		}
		e := reflect.New(t.Elem()).Elem()
		if problem := assign(e, item); problem != nil {
			return problem.within(name)
		}
		out.SetMapIndex(key, e)
	}
	v.Set(out)
	return nil
}

// assignKey reads a key: an object comes as the text of its JSON, like everything else as text.
func assignKey(v reflect.Value, name string) *mismatch {
	switch v.Kind() {
	case reflect.String:
		v.SetString(name)
		return nil
	case reflect.Struct:
		strict, err := remoting.StrictJSON(nil, []byte(name))
		if err != nil {
			return wrong(name, "an object as key")
		}
		tree, err := parseTree(strict)
		if err != nil {
			return wrong(name, "an object as key")
		}
		return assignStruct(v, tree)
	}
	if name == "" {
		return wrong(name, "an integer as key")
	}
	return assign(v, name)
}

// defaulter is a body some of whose members are not zero when the text is silent.
type defaulter interface{ setDefaults() }

func assignStruct(v reflect.Value, node any) *mismatch {
	object, ok := node.(map[string]any)
	if !ok {
		return wrong(node, "an object")
	}
	if _, ok := object["$ref"]; ok {
		return wrong("$ref", "supported: the sender must not use references")
	}
	if d, ok := v.Addr().Interface().(defaulter); ok && v.IsZero() {
		d.setDefaults()
	}
	return assignMembers(v, object, nil)
}

// assignMembers stores the members of an object. hidden names the members of an outer struct, which
// hide those of one embedded in it.
func assignMembers(v reflect.Value, object map[string]any, hidden []string) *mismatch {
	t := v.Type()
	var own []string
	for i := range t.NumField() {
		if name, _ := memberOf(t.Field(i)); name != "" {
			own = append(own, name)
		}
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _ := memberOf(field)
		if name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct {
			if problem := assignMembers(v.Field(i), object, append(own, hidden...)); problem != nil {
				return problem
			}
			continue
		}
		if name == "" || slices.Contains(hidden, name) {
			continue
		}
		item, ok := object[name]
		if !ok {
			if also := field.Tag.Get("also"); also != "" {
				name = also
				item = object[also]
			}
		}
		if problem := assign(v.Field(i), item); problem != nil {
			return problem.within(name)
		}
	}
	return nil
}
