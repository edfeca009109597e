// SPDX-License-Identifier: Apache-2.0

package sqlfiltertest

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/engine/sqlfilter"
)

// Golden is a table of expressions, property texts, and what RocketMQ makes of each pair.
type Golden struct {
	Comments    []string
	Properties  []string // as in a stored record
	Expressions []string
	Rows        []string // for each expression "E", or a letter for each of Properties
}

// LoadGolden reads a table.
func LoadGolden(path string) (*Golden, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	g := &Golden{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		row := ""
		if kind == "e" {
			row, rest, _ = strings.Cut(rest, " ")
		}
		if kind == "#" {
			g.Comments = append(g.Comments, lines.Text())
			continue
		}
		text, err := strconv.Unquote(rest)
		if err != nil {
			return nil, fmt.Errorf("sqlfiltertest: %s: %q: %w", path, lines.Text(), err)
		}
		if kind == "p" {
			g.Properties = append(g.Properties, text)
			continue
		}
		g.Expressions, g.Rows = append(g.Expressions, text), append(g.Rows, row)
	}
	return g, lines.Err()
}

// Save writes the table.
func (g *Golden) Save(path string) error {
	var b strings.Builder
	for _, c := range g.Comments {
		b.WriteString(c + "\n")
	}
	for _, p := range g.Properties {
		b.WriteString("p " + strconv.Quote(p) + "\n")
	}
	for i, e := range g.Expressions {
		b.WriteString("e " + g.Rows[i] + " " + strconv.Quote(e) + "\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// Row evaluates one expression with package sqlfilter, in the letters of the table.
func Row(text string, properties []string) string {
	e, err := sqlfilter.Compile(text)
	if err != nil {
		return "E"
	}
	var row strings.Builder
	for _, p := range properties {
		row.WriteByte("FTNX"[e.Evaluate([]byte(p))])
	}
	return row.String()
}

// PropertyText writes properties as a stored record has them.
func PropertyText(props map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(props)) {
		b.WriteString(name + "\x01" + props[name] + "\x02")
	}
	return b.String()
}

// Soup is a sequence of tokens that seldom makes an expression.
func Soup(r *rand.Rand) string {
	tokens := []string{
		"a", "b", "price", "5", "7l", "0", "2147483648", "5.5", ".5", "1e3", "'abc'", "'it''s'", "''", "TRUE",
		"false", "NULL", "IS", "NOT", "AND", "OR", "BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH",
		"=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "/* c */", "-- c\n", "'", "#", ".",
		"a = 5", "b > 3", "a IS NULL", "(a = 'abc')", "price BETWEEN 1 AND 9", "a IN ('abc', '5')",
	}
	var b strings.Builder
	for range 1 + r.IntN(8) {
		b.WriteString(tokens[r.IntN(len(tokens))])
		if r.IntN(6) > 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}
