// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// TestVendoredFiles: the library that draws the charts is the published one, with its licence.
func TestVendoredFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"LICENSE":           "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		text, err := os.ReadFile(filepath.Join("assets", "uplot", name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: SHA-256 is %s, want %s", name, got, want)
		}
	}
}

// written makes a results folder of one run and returns its page.
func written(t *testing.T, r *measure.Result) (dir string, page string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "results")
	f, err := report.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write([]string{"skylark", "perf", "produce", "--topic", "</script><b>"}, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.Path(report.PageName))
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(text)
}

// chartsOf reads the data block of a page.
func chartsOf(t *testing.T, page string) map[string]report.Chart {
	t.Helper()
	block := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)
	found := block.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no data block in the page")
	}
	var list []report.Chart
	if err := json.Unmarshal([]byte(found[1]), &list); err != nil {
		t.Fatalf("data block: %v: %.300s", err, found[1])
	}
	charts := map[string]report.Chart{}
	for _, c := range list {
		charts[c.Title] = c
		if !strings.Contains(page, `id="`+c.ID+`"`) {
			t.Errorf("chart %q has no place %s in the page", c.Title, c.ID)
		}
	}
	return charts
}

// TestPage: the page has every series of the run, needs no network, and escapes what it quotes.
func TestPage(t *testing.T) {
	t.Parallel()
	r := run(1, 20, 1000, 10, 0.2)
	r.Warnings = []measure.Warning{{Code: "own-cpu", Text: "used <all> of it"}}
	_, page := written(t, r)
	for _, want := range []string{
		"used &lt;all&gt; of it", "&lt;/script&gt;&lt;b&gt;", "MIT License", "p99.99",
		"default-src &#39;none&#39;", "broker_pid",
	} {
		if !strings.Contains(page, want) && !strings.Contains(page, strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("page lacks %q", want)
		}
	}
	fetch := regexp.MustCompile(`(?i)(src|href)\s*=|url\(|@import|fetch\(|XMLHttpRequest`)
	if found := fetch.FindString(page); found != "" {
		t.Errorf("page may fetch something: %q", found)
	}
	charts := chartsOf(t, page)
	rate := charts["Rate over time"]
	if len(rate.Series) != 1 || len(rate.Series[0].Y) != 20 {
		t.Fatalf("rate chart: %+v", rate)
	}
	for i := range r.Series {
		s := &r.Series[i]
		if rate.Series[0].X[i] != s.End || float64(rate.Series[0].Y[i]) != s.PerSecond() {
			t.Errorf("second %d: chart has %v at %v, series %v at %v", i, rate.Series[0].Y[i],
				rate.Series[0].X[i], s.PerSecond(), s.End)
		}
	}
	var labels []string
	for _, l := range charts["Latency over time"].Series {
		labels = append(labels, l.Label)
	}
	if diff := cmp.Diff([]string{"p50", "p99", "max"}, labels); diff != "" {
		t.Errorf("latency lines, of which p99.9 is unknown (-want +got):\n%s", diff)
	}
	curve := charts["Latency by percentile"]
	if !curve.Log || curve.Kind != "quantile" || len(curve.Series[0].X) != len(r.Curve) {
		t.Errorf("latency curve: %+v", curve)
	}
	if _, there := charts["Failed over time"]; there {
		t.Error("a chart of failures, without any")
	}
}

// TestFolder: a folder holds what it says, and is not written over.
func TestFolder(t *testing.T) {
	t.Parallel()
	r := run(1, 5, 1000, 10, 0.2)
	dir, _ := written(t, r)
	got, err := report.Load(dir)
	if err != nil || len(got.Runs) != 1 {
		t.Fatalf("load: %+v, %v", got, err)
	}
	unknown := cmp.Comparer(func(a, b measure.Millis) bool { return a == b || !a.Known() && !b.Known() })
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Settings" }, cmp.Ignore())
	if diff := cmp.Diff(r, got.Runs[0], unknown, ignore); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	if _, err := report.Create(dir); err == nil || !strings.Contains(err.Error(), "another folder") {
		t.Errorf("made again: got %v, want a refusal", err)
	}
	empty := filepath.Join(t.TempDir(), "none")
	f, err := report.Create(empty)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.HistogramLog(""); err != nil {
		t.Fatal(err)
	}
	f.Discard()
	if _, err := os.Stat(empty); !os.IsNotExist(err) {
		t.Errorf("a discarded folder is still there: %v", err)
	}
}

// TestBrowser opens the pages in a real browser: every chart is drawn, and no script fails.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" || testing.Short() {
		t.Skip("needs Chromium or Chrome, and some seconds")
	}
	a, b := run(1, 20, 1000, 10, 0.2), run(2, 30, 2000, 5, 0.2)
	b.RateAsked = 2000
	_, one := written(t, a)
	both, err := report.ComparisonPage(report.CompareParts(side("a", a), side("b", b), 0), side("a", a),
		side("b", b)).HTML()
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string]string{"run": one, "comparison": string(both)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dom := rendered(t, browser, page)
			n := len(chartsOf(t, page))
			if n < 6 {
				t.Errorf("%d charts, want 6", n)
			}
			if want := fmt.Sprintf(`data-charts="%d"`, n); !strings.Contains(dom, want) {
				t.Errorf("the browser has not drawn all: no %s in %.300s", want, dom)
			}
			if root := regexp.MustCompile(`<html[^>]*>`).FindString(dom); strings.Contains(root, "data-error") {
				t.Errorf("a script failed: %s", root)
			}
			if got := strings.Count(dom, "<canvas"); got != n {
				t.Errorf("%d drawn charts, want %d", got, n)
			}
		})
	}
}

// rendered returns the document after its scripts have run.
func rendered(t *testing.T, browser, page string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--virtual-time-budget=3000", "--window-size=1240,1600", "--dump-dom", "file://"+file)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	return string(out)
}
