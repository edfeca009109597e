// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"io"
	"reflect"
	"sort"
)

// Values returns the values in force of the given structs or pointers to structs, sorted by key
// and each key once, as Format and GET_BROKER_CONFIG want them. Line is 0.
func Values(structs ...any) []Entry {
	return values(false, structs)
}

// Keys returns the keys that the given structs can be set by, sorted.
func Keys(structs ...any) []string {
	entries := Values(structs...)
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys
}

// Print writes "key=value" lines of the given structs, sorted by key. onlyImportant leaves out
// the keys without the tag important. origin, when it is not nil, says where a value came from
// and is shown behind it as a comment would be; "" shows nothing.
func Print(w io.Writer, onlyImportant bool, origin func(key string) string, structs ...any) error {
	for _, e := range values(onlyImportant, structs) {
		line := e.Key + "=" + escaper.Replace(e.Value)
		if origin != nil {
			if from := origin(e.Key); from != "" {
				line = fmt.Sprintf("%-50s # %s", line, from)
			}
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("settings: print: %w", err)
		}
	}
	return nil
}

func values(onlyImportant bool, structs []any) []Entry {
	byKey := map[string]string{}
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		collect(v, func(f field) {
			if _, twice := byKey[f.key]; !twice && (f.important || !onlyImportant) {
				byKey[f.key] = f.text()
			}
		})
	}
	out := make([]Entry, 0, len(byKey))
	for key, value := range byKey {
		out = append(out, Entry{Key: key, Value: value})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}
