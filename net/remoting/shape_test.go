// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"fmt"
	"strings"
	"testing"
)

// sendHeader is a header as our client and, with other names of members in front, Apache's send it.
func sendHeader(i int) string {
	return fmt.Sprintf(`{"code":310,"extFields":{"a":"producers","b":"topic","c":"TBW102","d":"8","e":"%d",`+
		`"f":"0","g":"%d","h":"0","i":"UNIQ_KEY\u0001AC11000100002A9F%016X\u0002WAIT\u0001true\u0002","j":"0",`+
		`"k":"false","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":%d,`+
		`"serializeTypeCurrentRPC":"JSON","version":513}`, i%8, 1700000000000+i/7, i*7919, i)
}

func frameOf(header string) []byte {
	return append([]byte{0, byte(len(header) >> 16), byte(len(header) >> 8), byte(len(header))}, header...)
}

// TestShapes: headers that look alike are read by their shape, soon after the first, and as they are
// without.
func TestShapes(t *testing.T) {
	t.Parallel()
	var shapes Shapes
	c := Command{Shapes: &shapes}
	unlike := 0
	for i := range 20_000 {
		header := sendHeader(i)
		if i%1000 == 999 {
			header = strings.Replace(header, `"flag":0`, `"flag" : 0`, 1)
		}
		var want Command
		if err := c.Decode(frameOf(header)); err != nil {
			t.Fatal(err)
		}
		if err := want.Decode(frameOf(header)); err != nil {
			t.Fatal(err)
		}
		compare(t, &c, &want)
		for _, e := range shapes.known {
			if e.misses > 0 {
				unlike++
			}
		}
	}
	if unlike > 120 {
		t.Errorf("%d of 20000 headers, 40 of them odd, were read from scratch", unlike)
	}
}

// TestShapesBounded: a header with more values than are remembered is read all the same, and leaves no
// more memory behind.
func TestShapesBounded(t *testing.T) {
	t.Parallel()
	var fields strings.Builder
	for i := range 200 {
		fmt.Fprintf(&fields, `"f%d":"%d",`, i, i)
	}
	frame := frameOf(`{"code":310,"extFields":{` + fields.String() + `"last":"x"},"flag":0}`)
	var shapes Shapes
	c := Command{Shapes: &shapes}
	for range 3 {
		if err := c.Decode(frame); err != nil || len(c.Fields) != 201 || c.Code != 310 {
			t.Fatalf("%d fields, %v", len(c.Fields), err)
		}
	}
	for _, e := range shapes.known {
		if len(e.slots) > 0 || cap(e.slots) > 2*slotsMax {
			t.Errorf("%d values are remembered, with room for %d", len(e.slots), cap(e.slots))
		}
	}
}

//nolint:paralleltest // allocations are counted for the whole process
func TestAllocsShapes(t *testing.T) {
	c := Command{Shapes: &Shapes{}}
	frames := [2][]byte{frameOf(sendHeader(12345)), frameOf(sendHeader(777))}
	i := 0
	if n := testing.AllocsPerRun(1000, func() { _ = c.Decode(frames[i%2]); i++ }); n > 0 {
		t.Errorf("%v allocations for a header", n)
	}
}

func BenchmarkShapes(b *testing.B) {
	var frames [64][]byte
	for i := range frames {
		frames[i] = frameOf(sendHeader(i * 100))
	}
	for name, shapes := range map[string]*Shapes{"with": {}, "without": nil} {
		b.Run(name, func(b *testing.B) {
			c := Command{Shapes: shapes}
			b.ReportAllocs()
			for i := range b.N {
				if err := c.Decode(frames[i%64]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
