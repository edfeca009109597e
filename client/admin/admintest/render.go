// SPDX-License-Identifier: Apache-2.0

package admintest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// render writes a value without what differs from run to run: times are "set" or "zero", durations
// and floating-point numbers are left out, fields that are zero too.
func render(v any) string {
	var b strings.Builder
	renderValue(&b, reflect.ValueOf(v))
	return b.String()
}

func renderValue(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	switch x := v.Interface().(type) {
	case time.Time:
		b.WriteString(map[bool]string{true: "zero", false: "set"}[x.IsZero()])
		return
	case []byte:
		fmt.Fprintf(b, "%q", x)
		return
	case fmt.Stringer:
		b.WriteString(x.String())
		return
	case error:
		b.WriteString("error")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		renderStruct(b, v)
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			renderValue(b, v.Index(i))
		}
		b.WriteByte(']')
	case reflect.Map:
		renderMap(b, v)
	case reflect.Pointer, reflect.Interface:
		renderValue(b, v.Elem())
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v.Interface())
	}
}

func renderStruct(b *strings.Builder, v reflect.Value) {
	b.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		skip := value.IsZero() || value.Kind() == reflect.Float64 ||
			value.Type() == reflect.TypeFor[time.Duration]()
		if !f.IsExported() || skip || value.Kind() == reflect.Map && value.Len() == 0 ||
			value.Kind() == reflect.Slice && value.Len() == 0 {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		if !f.Anonymous {
			b.WriteString(f.Name + ":")
		}
		renderValue(b, value)
	}
	b.WriteByte('}')
}

func renderMap(b *strings.Builder, v reflect.Value) {
	var lines []string
	for it := v.MapRange(); it.Next(); {
		var line strings.Builder
		renderValue(&line, it.Key())
		line.WriteByte('=')
		renderValue(&line, it.Value())
		lines = append(lines, line.String())
	}
	slices.Sort(lines)
	b.WriteString("{" + strings.Join(lines, " ") + "}")
}
