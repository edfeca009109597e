// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInto measures dimensions one after the other into one folder: rows of earlier ones stay, a dimension
// that is measured again has its new rows only, and a figure that was not read stays unread.
func TestInto(t *testing.T) {
	t.Parallel()
	all := dimensions()
	run := func(p plan, at int, send float64) *results {
		t.Helper()
		r, err := newResults(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		g := &growth{dimension: all[at], commit: "abc"}
		g.add(1, readings{sendCPU: send})
		g.add(100, readings{sendCPU: send, openFiles: 7})
		r.add(g)
		if err := r.write(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := run(plan{results: t.TempDir()}, 3, 1)
	again := plan{into: first.dir}
	run(again, 0, 2)
	last := run(again, 3, 3)
	if len(last.all) != 2 || last.all[0].dimension.name != all[0].name || last.all[1].values[1][sendCPU] != 3 {
		t.Fatalf("%+v", last.all)
	}
	if _, read := last.all[0].values[0][openFiles]; read || last.all[0].values[1][openFiles] != 7 {
		t.Errorf("taken over: %+v", last.all[0].values)
	}
	text, err := os.ReadFile(filepath.Join(first.dir, "report.md"))
	if err != nil || strings.Count(string(text), "\n## ") != 2 {
		t.Errorf("%v: %s", err, text)
	}
	if text, _ = os.ReadFile(filepath.Join(first.dir, "command.txt")); strings.Count(string(text), "\n") != 3 {
		t.Errorf("command lines: %s", text)
	}
}
