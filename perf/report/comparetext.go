// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/skylarkmq/skylark/perf/measure"
)

// howJudged says in two sentences what a verdict rests on.
func howJudged() string {
	return fmt.Sprintf("A difference is noise unless a Mann-Whitney test gives it a probability below "+
		"%g by chance (%d runs or more on each side), or below %g between blocks of seconds of fewer "+
		"runs. The bounds are the 95 %% interval, by bootstrap, of the ratio of the means of these parts; "+
		"for a quantile the ratio of whole runs may lie outside of it.", AlphaRuns,
		runsLeast, AlphaSeconds)
}

// Table is the comparison as a table.
func (c *Comparison) Table() Table {
	t := Table{
		Head: []string{
			"figure", "unit", "A", "B", "B/A", "95 % of parts", "p", "values", "verdict",
		},
		FirstFigure: 2, Figures: 6,
	}
	notes := map[string]int{}
	for i := range c.Figures {
		f := &c.Figures[i]
		bounds := "-"
		if f.Low.Known() {
			bounds = fmt.Sprintf("%.3f-%.3f", float64(f.Low), float64(f.High))
		}
		verdict := string(f.Verdict)
		if f.Note != "" {
			if notes[f.Note] == 0 {
				notes[f.Note] = len(notes) + 1
				t.Notes = append(t.Notes, fmt.Sprintf("[%d] %s", len(notes), f.Note))
			}
			verdict += fmt.Sprintf(" [%d]", notes[f.Note])
		}
		t.Rows = append(t.Rows, []string{
			f.Name, f.Unit, Number(f.A), Number(f.B), three(f.Ratio), bounds, f.chance(), f.values(),
			verdict,
		})
	}
	return t
}

func (f *Compared) values() string {
	switch f.Basis {
	case "runs":
		return fmt.Sprintf("%d+%d runs", f.SizeA, f.SizeB)
	case "seconds":
		return fmt.Sprintf("%d+%d x %d s", f.SizeA, f.SizeB, f.Block)
	}
	return "-"
}

func (f *Compared) chance() string {
	if f.P < 0.001 { // false when unknown
		return "<0.001"
	}
	return three(f.P)
}

func three(v measure.Millis) string {
	if !v.Known() {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(v))
}

// Number renders a figure with three significant digits, or whole from 1000 on.
func Number(v measure.Millis) string {
	switch {
	case !v.Known():
		return "-"
	case v >= 1000 || v <= -1000:
		return fmt.Sprintf("%.0f", float64(v))
	}
	return fmt.Sprintf("%.3g", float64(v))
}

// DifferentTable is what else differs, as a table.
func (c *Comparison) DifferentTable() Table {
	t := Table{Caption: "Not the same on both sides", Head: []string{"setting", "A", "B"}}
	for _, d := range c.Different {
		t.Rows = append(t.Rows, []string{d.Name, d.A, d.B})
	}
	return t
}

type labelledSide struct {
	label string
	note  SideNote
}

func (c *Comparison) sides() []labelledSide { return []labelledSide{{"A", c.A}, {"B", c.B}} }

// WriteText prints the comparison for people.
func (c *Comparison) WriteText(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	for _, side := range c.sides() {
		p("%s  %s, %d runs of %s%s", side.label, side.note.Name, side.note.Runs, side.note.Command,
			partOf(c.Part))
		for _, warning := range side.note.Warnings {
			p("   warning %s: %s", warning.Code, warning.Text)
		}
	}
	p("\n%s", c.Table().Text())
	if len(c.Different) > 0 {
		p("\n%s", c.DifferentTable().Text())
	}
	p("\n%s", howJudged())
}

// Worse reports whether B is worse than A in any figure, beyond noise.
func (c *Comparison) Worse() bool {
	for i := range c.Figures {
		if c.Figures[i].Verdict == Worsened {
			return true
		}
	}
	return false
}

// writer returns a table of go-pretty with the same cells.
func (t Table) writer() table.Writer {
	w := table.NewWriter()
	row := func(cells []string) table.Row {
		r := make(table.Row, len(cells))
		for i, cell := range cells {
			r[i] = cell
		}
		return r
	}
	if len(t.Head) > 0 {
		w.AppendHeader(row(t.Head))
	}
	for _, cells := range t.Rows {
		w.AppendRow(row(cells))
	}
	var columns []table.ColumnConfig
	for i := range t.Head {
		if t.Figure(i) {
			columns = append(columns, table.ColumnConfig{
				Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight,
			})
		}
	}
	w.SetColumnConfigs(columns)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	return w
}

// Text renders the table for a terminal.
func (t Table) Text() string {
	var lines []string
	if t.Caption != "" {
		lines = append(lines, t.Caption)
	}
	for line := range strings.Lines(t.writer().Render()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(append(lines, t.Notes...), "\n")
}

// Markdown renders the table for a document, without its caption.
func (t Table) Markdown() string {
	return strings.Join(append([]string{t.writer().RenderMarkdown()}, t.Notes...), "\n\n")
}
