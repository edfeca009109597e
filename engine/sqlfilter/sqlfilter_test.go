// SPDX-License-Identifier: Apache-2.0

package sqlfilter_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/sqlfilter"
	"github.com/skylarkmq/skylark/engine/sqlfilter/sqlfiltertest"
)

var seed = flag.Uint64("seed", 0, "of random tests; 0: of the clock")

// What RocketMQ's classes answered, expression by expression.
func TestGolden(t *testing.T) {
	t.Parallel()
	g, err := sqlfiltertest.LoadGolden("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Expressions) < 400 || len(g.Properties) < 70 {
		t.Fatalf("%d expressions, %d property texts", len(g.Expressions), len(g.Properties))
	}
	for i, text := range g.Expressions {
		if got := sqlfiltertest.Row(text, g.Properties); got != g.Rows[i] {
			t.Errorf("%q:\n got  %s\n want %s", text, got, g.Rows[i])
		}
	}
}

// checkTree compares one expression with the slow evaluator.
func checkTree(t *testing.T, tree *sqlfiltertest.Tree, sets []map[string]string) {
	t.Helper()
	text := tree.Text()
	e, err := sqlfilter.Compile(text)
	if (err == nil) != tree.Valid() {
		t.Fatalf("%q: compiled with %v, valid is %v", text, err, tree.Valid())
	}
	if err != nil {
		return
	}
	for _, set := range sets {
		got := rune("FTNX"[e.Evaluate([]byte(sqlfiltertest.PropertyText(set)))])
		if want := tree.Evaluate(set); got != want {
			t.Fatalf("%q on %q: got %c, want %c", text, set, got, want)
		}
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	r := rand.New(rand.NewPCG(s, 0))
	sets := sqlfiltertest.Properties()
	for range 5000 {
		checkTree(t, sqlfiltertest.Random(r, r.IntN(5)), sets)
	}
}

// The seed decides the tree: the fuzzer finds trees that take new branches.
func FuzzAgainstModel(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(3))
	f.Fuzz(func(t *testing.T, a, b uint64, depth uint8) {
		r := rand.New(rand.NewPCG(a, b))
		checkTree(t, sqlfiltertest.Random(r, int(depth%6)), sqlfiltertest.Properties())
	})
}

// Any text compiles or names a place in itself, and any property text can be evaluated.
func FuzzCompile(f *testing.F) {
	f.Add("a = 5 AND NOT (b IS NULL)", []byte("a\x015\x02"))
	f.Add("a IN ('x', 'it''s') -- c", []byte("a\x01"))
	f.Fuzz(func(t *testing.T, text string, props []byte) {
		e, err := sqlfilter.Compile(text)
		if err == nil {
			if e.Match(props) != (e.Evaluate(props) == sqlfilter.True) || e.Memory() < len(text) {
				t.Fatal("two answers")
			}
			return
		}
		var bad *sqlfilter.SyntaxError
		if !errors.As(err, &bad) || bad.Line < 1 || bad.Column < 1 || bad.Reason == "" {
			t.Fatalf("%#v", err)
		}
	})
}

func TestSyntaxErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a = 5 AND":         `line 1, column 10, at the end: expected a property, a literal or (`,
		"a =\n  = 5":        `line 2, column 3, at "=": expected a property, a literal or (`,
		"ä = 5":             `line 1, column 1, at "ä": unexpected character`,
		"x = 'ä' OR 'y":     `line 1, column 12, at "'y": the text in quotes does not end`,
		"a > 'x'":           `line 1, column 5, at "'x'": this has no order, only numbers and properties have`,
		"NOT 5":             `line 1, column 5, at "5": this is no truth value`,
		"a = NULL":          `line 1, column 5, at "NULL": NULL cannot be compared, use IS NULL`,
		"a BETWEEN 5 OR":    `line 1, column 13, at "OR": expected AND`,
		"5 IN ('x')":        `line 1, column 1, at "5": IN stands behind a property`,
		"a NOT 5":           `line 1, column 7, at "5": expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH`,
		"a = 0.0":           `line 1, column 5, at "0.0": the number is not between the smallest above zero and the greatest of 64 bits`,
		"a BETWEEN 2 AND 1": `line 1, column 11, at "2": the lower bound is above the upper one`,
	} {
		_, err := sqlfilter.Compile(text)
		if err == nil || err.Error() != "Invalid MessageSelector. "+want {
			t.Errorf("%q:\n got  %v\n want %s", text, err, want)
		}
	}
}

// Nothing that a client sends can make the parser take more than its bounds.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"text":        strings.Repeat(" ", sqlfilter.TextMax) + "a = 5",
		"parentheses": strings.Repeat("(", 600) + "a" + strings.Repeat(")", 600),
		"prefixes":    strings.Repeat("NOT ", 600) + "(a = 5)",
	} {
		if _, err := sqlfilter.Compile(text); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
	long := "a = '" + strings.Repeat("x", 60000) + "'"
	if _, err := sqlfilter.Compile(long); err != nil {
		t.Errorf("a long one: %v", err)
	}
}

// manyNames uses more properties than the stack has room for.
const manyNames = "a=1 OR b=1 OR c=1 OR d=1 OR e=1 OR f=1 OR g=1 OR h=1 OR i=1 OR j=1 OR k=1 OR l=1 OR m=1 OR n=2"

func TestManyNames(t *testing.T) {
	t.Parallel()
	e, err := sqlfilter.Compile(manyNames)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time with the slots of the first
		if !e.Match([]byte("n\x012\x02")) || e.Match([]byte("n\x013\x02")) || e.Match(nil) {
			t.Fatal("wrong answers")
		}
	}
}

// stored is a property text as the broker writes it for a Java producer.
const stored = "KEYS\x01order-7\x02UNIQ_KEY\x01C00002022B58797EC11194F8D0310000\x02CLUSTER\x01DefaultCluster\x02" +
	"WAIT\x01true\x02TAGS\x01eu\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02" +
	"region\x01eu-west\x02price\x01417\x02customer\x01000042\x02"

func TestAllocsMatch(t *testing.T) {
	for _, text := range []string{
		"price = 418", "price BETWEEN 1 AND 9.5", "region IN ('us', 'asia') OR customer CONTAINS '43'",
		"region > 5 OR price < 2", manyNames,
	} {
		e, err := sqlfilter.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		props := []byte(stored)
		if n := testing.AllocsPerRun(1000, func() { e.Match(props) }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, text := range map[string]string{
		"integer":  "price = 418",
		"between":  "price BETWEEN 500 AND 505",
		"three":    "region = 'us-east' AND price > 400 AND NOT (customer IS NULL)",
		"in":       "region IN ('us-east', 'us-west', 'asia')",
		"contains": "customer CONTAINS '43'",
	} {
		b.Run("expression="+name, func(b *testing.B) {
			e, err := sqlfilter.Compile(text)
			if err != nil {
				b.Fatal(err)
			}
			props := []byte(stored)
			b.ReportAllocs()
			for b.Loop() {
				if e.Match(props) {
					b.Fatal("matches")
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sqlfilter.Compile("region = 'us' AND price BETWEEN 5 AND 10 AND NOT (vip IS NULL)"); err != nil {
			b.Fatal(err)
		}
	}
}
