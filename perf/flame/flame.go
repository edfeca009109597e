// SPDX-License-Identifier: Apache-2.0

// Package flame draws a CPU profile as a flame graph: an SVG that any browser opens, without
// scripts from elsewhere. Each box is a function; it stands on its caller, and its width is its
// share of the CPU time. Names and shares show under the pointer, and a click on a box makes it as
// wide as the picture.
//
//	svg, err := flame.SVG(profileBytes, "broker under ingest-small")
package flame

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

const (
	width     = 1400.0 // pixels
	margin    = 10.0
	rowHeight = 17.0
	headroom  = 46.0   // title and the line below it
	letter    = 6.6    // pixels of a letter, about
	thinnest  = 0.0005 // share of the whole below which a box is left out
	depthMost = 200    // rows; deeper calls are left out
)

// node is a function as called by what is above it in the tree.
type node struct {
	name     string
	value    int64 // of the sample type, children included
	children map[string]*node
}

func (n *node) child(name string) *node {
	c := n.children[name]
	if c == nil {
		c = &node{name: name, children: map[string]*node{}}
		n.children[name] = c
	}
	return c
}

// tree joins the samples of a profile by their stacks.
func tree(p *profile.Profile) (*node, error) {
	index := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool {
		return t.Type == "cpu" && t.Unit == "nanoseconds"
	})
	if index < 0 {
		return nil, fmt.Errorf("flame: the profile has no CPU time, but %v", p.SampleType)
	}
	root := &node{name: "all", children: map[string]*node{}}
	for _, s := range p.Sample {
		at := root
		at.value += s.Value[index]
		for _, location := range slices.Backward(s.Location) {
			for _, line := range slices.Backward(location.Line) { // inlined calls, innermost first
				name := "?"
				if line.Function != nil {
					name = line.Function.Name
				}
				at = at.child(name)
				at.value += s.Value[index]
			}
		}
	}
	if root.value == 0 {
		return nil, fmt.Errorf("flame: the profile has no samples")
	}
	return root, nil
}

// SVG draws a profile in pprof's form, compressed or not. It fails for one without CPU time.
func SVG(text []byte, title string) ([]byte, error) {
	p, err := profile.ParseData(text)
	if err != nil {
		return nil, fmt.Errorf("flame: %w", err)
	}
	root, err := tree(p)
	if err != nil {
		return nil, err
	}
	d := drawing{total: root.value}
	d.rows = d.depth(root)
	d.below(root, margin, 0)
	height := headroom + float64(d.rows)*rowHeight + margin
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" `+
		`viewBox="0 0 %.0f %.0f" font-family="monospace" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	fmt.Fprintf(&out, `<text x="%.0f" y="18" font-size="15">%s</text>`+"\n", margin, escaped(title))
	fmt.Fprintf(&out, `<text id="details" x="%.0f" y="36">%v of CPU time; %s</text>`+"\n", margin,
		time.Duration(root.value).Round(time.Millisecond), "blue: Skylark, green: Go's runtime, "+
			"red: the kernel, grey: libraries; click to zoom, click the lowest box to go back")
	out.Write(d.boxes.Bytes())
	fmt.Fprintf(&out, "<script><![CDATA[%s]]></script>\n</svg>\n", zoomScript)
	return out.Bytes(), nil
}

// drawing lays boxes out from the root at the bottom upwards.
type drawing struct {
	boxes bytes.Buffer
	total int64
	rows  int
}

func (d *drawing) tooThin(n *node) bool { return float64(n.value) < thinnest*float64(d.total) }

func (d *drawing) depth(n *node) int {
	deepest := 0
	for _, c := range n.children {
		if !d.tooThin(c) {
			deepest = max(deepest, d.depth(c))
		}
	}
	return min(deepest+1, depthMost)
}

// below draws n at x in a row, and its children above it, the widest first.
func (d *drawing) below(n *node, x float64, row int) {
	if row >= depthMost {
		return
	}
	share := float64(n.value) / float64(d.total)
	w := share * (width - 2*margin)
	y := headroom + float64(d.rows-1-row)*rowHeight
	label := ""
	if letters := int((w - 4) / letter); letters >= 3 {
		if label = short(n.name); len(label) > letters {
			label = label[:letters-2] + ".."
		}
	}
	fmt.Fprintf(&d.boxes, `<g class="box" data-x="%.3f" data-w="%.3f" data-row="%d" data-name="%s">`+
		`<title>%s, %.2f %%, %v</title>`+
		`<rect x="%.2f" y="%.1f" width="%.2f" height="%.1f" rx="1.5" fill="%s" stroke="#ffffff" `+
		`stroke-width="0.5"/><text x="%.2f" y="%.1f">%s</text></g>`+"\n",
		x-margin, w, row, escaped(short(n.name)), escaped(n.name), 100*share,
		time.Duration(n.value).Round(time.Millisecond), x, y, w, rowHeight-1, colour(n.name), x+3, y+12,
		escaped(label))
	sorted := slices.SortedFunc(maps.Values(n.children), func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.name, b.name))
	})
	for _, c := range sorted {
		if d.tooThin(c) {
			break
		}
		d.below(c, x, row+1)
		x += float64(c.value) / float64(d.total) * (width - 2*margin)
	}
}

// short leaves the path of the package out, but for its last element.
func short(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 && !strings.Contains(name, "[") {
		return name[i+1:]
	}
	return name
}

func colour(name string) string {
	switch {
	case strings.Contains(name, "skylarkmq/skylark") || strings.HasPrefix(name, "main."):
		return "#8ec5ff"
	case strings.Contains(name, "syscall"):
		return "#ff9d8a"
	case strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "internal/runtime") ||
		!strings.Contains(name, "."):
		return "#a8e0a0"
	}
	return "#d4d8dd"
}

func escaped(s string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(s)) // writing to memory does not fail
	return out.String()
}

// zoomScript makes the box that is clicked as wide as the picture, with what stands on it.
const zoomScript = `
(() => {
  const full = 1380, margin = 10, letter = 6.6;
  const boxes = [...document.querySelectorAll("g.box")];
  const num = (b, name) => Number(b.dataset[name]);
  const zoom = (to) => {
    const from = num(to, "x"), scale = full / num(to, "w");
    for (const b of boxes) {
      const below = num(b, "row") < num(to, "row");
      const left = Math.max(0, (num(b, "x") - from) * scale);
      const right = Math.min(full, (num(b, "x") + num(b, "w") - from) * scale);
      const there = right - left > 0.5;
      b.style.display = there ? "" : "none";
      b.style.opacity = below && there ? 0.5 : 1;
      if (!there) continue;
      b.querySelector("rect").setAttribute("x", left + margin);
      b.querySelector("rect").setAttribute("width", right - left);
      const text = b.querySelector("text"), fit = Math.floor((right - left - 4) / letter);
      text.setAttribute("x", left + margin + 3);
      text.textContent = fit < 3 ? "" : b.dataset.name.length > fit ? b.dataset.name.slice(0, fit - 2) + ".." : b.dataset.name;
    }
  };
  for (const b of boxes) b.addEventListener("click", () => zoom(b));
  document.documentElement.dataset.boxes = String(boxes.length);
})();
`
