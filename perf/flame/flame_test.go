// SPDX-License-Identifier: Apache-2.0

package flame_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/skylarkmq/skylark/perf/flame"
)

// made is a profile of 100 ms: 75 in main > handle > append, 25 in main > syscall, of which handle
// is inlined into main.
func made(t *testing.T) []byte {
	t.Helper()
	names := []string{"main.main", "github.com/skylarkmq/skylark/engine.handle<T>", "runtime.memmove", "syscall.write"}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"},
		},
	}
	for i, name := range names {
		p.Function = append(p.Function, &profile.Function{ID: uint64(i + 1), Name: name})
	}
	line := func(i int) profile.Line { return profile.Line{Function: p.Function[i]} }
	p.Location = []*profile.Location{
		{ID: 1, Line: []profile.Line{line(1), line(0)}}, // innermost first
		{ID: 2, Line: []profile.Line{line(2)}},
		{ID: 3, Line: []profile.Line{line(0)}},
		{ID: 4, Line: []profile.Line{line(3)}},
	}
	p.Sample = []*profile.Sample{
		{Location: []*profile.Location{p.Location[1], p.Location[0]}, Value: []int64{3, 75e6}},
		{Location: []*profile.Location{p.Location[3], p.Location[2]}, Value: []int64{1, 25e6}},
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestSVG: the picture is XML, and each function has a box of its share on that of its caller.
func TestSVG(t *testing.T) {
	t.Parallel()
	svg, err := flame.SVG(made(t), "load <a> & b")
	if err != nil {
		t.Fatal(err)
	}
	type box struct{ width, y float64 }
	boxes := map[string]box{}
	name := ""
	in := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attribute := map[string]string{}
		for _, a := range e.Attr {
			attribute[a.Name.Local] = a.Value
		}
		switch {
		case e.Name.Local == "g":
			name = attribute["data-name"]
		case e.Name.Local == "rect" && name != "":
			w, errW := strconv.ParseFloat(attribute["width"], 64)
			y, errY := strconv.ParseFloat(attribute["y"], 64)
			if errW != nil || errY != nil {
				t.Fatalf("box of %s: %v", name, attribute)
			}
			boxes[name] = box{w, y}
		}
	}
	whole := boxes["all"]
	for name, share := range map[string]float64{
		"main.main": 1, "engine.handle<T>": 0.75, "runtime.memmove": 0.75, "syscall.write": 0.25,
	} {
		if got := boxes[name].width / whole.width; math.Abs(got-share) > 0.001 {
			t.Errorf("%s: got a share of %.3f, want %.3f; boxes %v", name, got, share, boxes)
		}
	}
	rows := []string{"all", "main.main", "engine.handle<T>", "runtime.memmove"}
	for i, name := range rows[1:] {
		if boxes[name].y >= boxes[rows[i]].y {
			t.Errorf("%s does not stand on %s", name, rows[i])
		}
	}
	for _, want := range []string{"load &lt;a&gt; &amp; b", "100ms of CPU time", "75.00 %"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("picture lacks %q", want)
		}
	}
	if strings.Contains(string(svg), "href") {
		t.Error("picture refers to something outside")
	}
}

func TestSVGRefuses(t *testing.T) {
	t.Parallel()
	heap := &profile.Profile{SampleType: []*profile.ValueType{{Type: "inuse_space", Unit: "bytes"}}}
	var text bytes.Buffer
	if err := heap.Write(&text); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"no profile": []byte("hello"), "no CPU time": text.Bytes()} {
		if _, err := flame.SVG(text, name); err == nil {
			t.Errorf("%s: drawn", name)
		}
	}
}
