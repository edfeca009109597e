// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
)

// The page's parts. uPlot is vendored, see assets/uplot/README.md.
var (
	//go:embed assets/page.html
	pageTemplate string // read only, as all of these
	//go:embed assets/page.css
	pageStyle string
	//go:embed assets/page.js
	pageScript string
	//go:embed assets/uplot/uPlot.iife.min.js
	plotScript string
	//go:embed assets/uplot/uPlot.min.css
	plotStyle string
	//go:embed assets/uplot/LICENSE
	plotLicence string
)

// Page is a report for a browser. It needs no network: scripts, styles and data are part of it.
type Page struct {
	Title    string
	Lead     []string // paragraphs below the title
	Notices  []Notice // doubts, first
	Sections []Section
}

// Notice is something that the reader must know before the figures.
type Notice struct{ Code, Text string }

// Section is a part of a page under a heading.
type Section struct {
	Title  string
	Text   []string
	Tables []Table
	Charts []Chart
}

// Table is a table of texts.
type Table struct {
	Caption string
	Head    []string
	Rows    [][]string
	// Figures is how many columns, from the second or FirstFigure on, are aligned as figures.
	Figures     int
	FirstFigure int      // 0: the second column
	Notes       []string // below it
}

// Figure reports whether the cells of a column are aligned as figures.
func (t Table) Figure(column int) bool {
	first := max(t.FirstFigure, 1)
	return column >= first && column < first+t.Figures
}

// HTML renders the page.
func (p *Page) HTML() ([]byte, error) {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return nil, fmt.Errorf("report: page template: %w", err)
	}
	var charts []Chart
	for i := range p.Sections {
		for j := range p.Sections[i].Charts {
			c := &p.Sections[i].Charts[j]
			c.ID = fmt.Sprintf("chart-%d", len(charts)+1)
			charts = append(charts, *c)
		}
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"Page": p, "Charts": charts,
		"Style":   template.CSS(plotStyle + pageStyle), //nolint:gosec // the package's own files
		"Script":  template.JS(pageScript),             //nolint:gosec // the package's own file
		"Plot":    template.JS(plotScript),             //nolint:gosec // a vendored file
		"Licence": plotLicence,
	})
	if err != nil {
		return nil, fmt.Errorf("report: page: %w", err)
	}
	return out.Bytes(), nil
}
