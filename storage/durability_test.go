// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDurabilityDocument: each test that docs/durability.md names exists, and each line of its tables
// names one or says that there is none.
func TestDurabilityDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("docs", "durability.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([a-z/]+):(Test[A-Za-z0-9]+)`")
	sources := map[string]string{}
	rows := 0
	for line := range strings.Lines(string(text)) {
		found := name.FindAllStringSubmatch(line, -1)
		for _, m := range found {
			if sources[m[1]] == "" {
				sources[m[1]] = testSource(t, m[1])
			}
			if !strings.Contains(sources[m[1]], "\nfunc "+m[2]+"(") {
				t.Errorf("there is no test %s in %s", m[2], m[1])
			}
		}
		head := strings.HasPrefix(line, "|---") || strings.Contains(line, "| held by |")
		if !strings.HasPrefix(line, "|") || head {
			continue
		}
		rows++
		if len(found) == 0 && !strings.Contains(line, "not held by a test") {
			t.Errorf("no test is named in: %s", line)
		}
	}
	if rows < 20 {
		t.Errorf("%d lines of tables were found", rows)
	}
}

// testSource returns the text of all test files of a folder, named from the module's root.
func testSource(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", folder, err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
