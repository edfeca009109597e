// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// printRows prints structs as a table, or as one JSON object a line. A field's tag col is the head
// of its column; fields without it are in JSON only.
func printRows[T any](a *app, rows []T) error {
	if a.json {
		for _, r := range rows {
			if err := a.printJSON(r); err != nil {
				return err
			}
		}
		return nil
	}
	lines := make([][]string, 0, len(rows)+1)
	lines = append(lines, heads(reflect.TypeFor[T]()))
	for _, r := range rows {
		lines = append(lines, cells(reflect.ValueOf(r)))
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			b.WriteString(cell)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(a.stdout, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

func heads(t reflect.Type) []string {
	var list []string
	for i := range t.NumField() {
		if head := t.Field(i).Tag.Get("col"); head != "" {
			list = append(list, head)
		}
	}
	return list
}

func cells(v reflect.Value) []string {
	var list []string
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("col") != "" {
			list = append(list, cell(v.Field(i).Interface()))
		}
	}
	return list
}

func cell(v any) string {
	switch x := v.(type) {
	case time.Time:
		return stamp(x)
	case float64:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case []string:
		return strings.Join(x, ",")
	default:
		return fmt.Sprint(v)
	}
}
