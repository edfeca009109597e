// SPDX-License-Identifier: Apache-2.0

package tidy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const featureTable = "engine/interop/docs/features.md"

// The table of features has a test in every cell, or says why there is none, and each test is there.
func TestFeatureTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(featureTable)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 3 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "" {
			continue
		}
		rows++
		if len(cells) != 8 {
			t.Errorf("%s: a row of %d cells", cells[1], len(cells)-2)
		}
		for _, cell := range cells[2 : len(cells)-1] {
			names := quoted.FindAllStringSubmatch(cell, -1)
			if len(names) == 0 && !strings.HasPrefix(cell, " none: ") {
				t.Errorf("%s: a cell names no test and gives no reason: %q", cells[1], cell)
			}
			for _, name := range names {
				if !hasTest(t, name[1]) {
					t.Errorf("%s: there is no test %s", cells[1], name[1])
				}
			}
		}
	}
	const features = 13
	if rows != features {
		t.Errorf("%d rows, want %d", rows, features)
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// hasTest looks for a test function by its name, with its package before it unless that is the one of
// the table.
func hasTest(t *testing.T, name string) bool {
	t.Helper()
	dir, function := "engine/interop", name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		dir, function = name[:i], name[i+1:]
	}
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+function+"(t *testing.T)") {
			return true
		}
	}
	return false
}
