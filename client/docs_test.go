// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of faults has 30 groups, each with tests that exist in this folder or below it.
func TestFaultTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	row := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || !regexp.MustCompile(`^ \d+ $`).MatchString(cells[1]) {
			continue
		}
		row++
		if got := strings.TrimSpace(cells[1]); got != fmt.Sprint(row) {
			t.Errorf("row %d has number %s", row, got)
		}
		names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[4], -1)
		if len(names) == 0 {
			t.Errorf("group %d has no test", row)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("group %d: there is no %s", row, name[1])
			}
		}
	}
	if row != 30 {
		t.Errorf("%d groups, want 30", row)
	}
}

// testNames are the test functions of this folder and those below it.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	header := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(t \*testing\.T\)`)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range header.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
