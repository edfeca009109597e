// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each Go block of README.md is the body of the function that an example gives to the call it begins
// with, or of a TestReadme, and each of those is in README.md: what users read is what runs. A task
// takes five lines; a few that loop or branch take six.
func TestReadmeIsWhatRuns(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]bool{}
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1) {
		blocks[string(m[1])] = false
	}
	bodies := exampleBodies(t)
	short := 0
	for name, body := range bodies {
		lines := strings.Count(body, "\n")
		if lines <= 5 {
			short++
		}
		if lines > 6 {
			t.Errorf("%s takes %d lines, six at most", name, lines)
		}
		if _, ok := blocks[body]; !ok {
			t.Errorf("README.md has no block with the text of %s:\n%s", name, body)
		}
		blocks[body] = true
	}
	if few := 3; short < 10 || len(bodies)-short > few {
		t.Errorf("%d of %d tasks take five lines, all but %d should", short, len(bodies), few)
	}
	for block, used := range blocks {
		if !used {
			t.Errorf("README.md has a block that no example runs:\n%s", block)
		}
	}
}

// exampleBodies returns the text that each example of example_test.go runs, without its indent and
// without a last line that only says return nil.
func exampleBodies(t *testing.T) map[string]string {
	t.Helper()
	const name = "example_test.go"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		body, indent := f.Body, "\t"
		switch {
		case strings.HasPrefix(f.Name.Name, "Example"):
			last := body.List[len(body.List)-1] // what comes before are values that it is given
			call := last.(*ast.ExprStmt).X.(*ast.CallExpr)
			body, indent = call.Args[len(call.Args)-1].(*ast.FuncLit).Body, "\t\t"
		case !strings.HasPrefix(f.Name.Name, "TestReadme"):
			continue
		}
		from, to := files.Position(body.Lbrace).Offset+2, files.Position(body.Rbrace).Offset
		lines := strings.Split(strings.TrimRight(string(text[from:to]), "\t"), "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], indent)
		}
		bodies[f.Name.Name] = strings.TrimSuffix(strings.Join(lines, "\n"), "return nil\n")
	}
	return bodies
}
