// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/measure"
)

// TestPerfOutAndCompare: --out leaves the files it names, whose histogram log holds what the result
// says, and compare reads two of them.
func TestPerfOutAndCompare(t *testing.T) {
	t.Parallel()
	ns := enginetest.Start(t).NameServer()
	dir := t.TempDir()
	a, b, page := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "ab.html")
	for name, size := range map[string]string{a: "100", b: "200"} {
		must(t, "perf", "produce", "-n", ns, "--topic", "demo", "--count", "3000", "--size", size, "--out", name)
	}
	for _, name := range []string{"result.json", "command.txt", "report.html", "latency.hlog"} {
		if info, err := os.Stat(filepath.Join(a, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	log, err := os.Open(filepath.Join(a, "latency.hlog"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h, intervals, err := measure.ReadHistogramLog(log)
	if err != nil || intervals == 0 || h.Quantiles().Count != 3000 {
		t.Errorf("histogram log: %d intervals of %d messages, %v", intervals, h.Quantiles().Count, err)
	}
	out := must(t, "perf", "compare", a, b, "--html", page)
	for _, want := range []string{"messages_per_second", "Not the same on both sides", "100", "200"} {
		if !strings.Contains(out, want) {
			t.Errorf("compare lacks %q:\n%s", want, out)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "Rate over time") {
		t.Errorf("page: %v", err)
	}
	var c struct {
		Type    string
		Figures []struct{ Name, Verdict string }
	}
	text := must(t, "perf", "compare", a, b, "--json")
	if err := json.Unmarshal([]byte(text), &c); err != nil || c.Type != "comparison" || len(c.Figures) < 5 {
		t.Errorf("compare --json: %v, %s", err, text)
	}
	if code, _, stderr := command(t, "perf", "produce", "-n", ns, "--count", "1", "--out", a); code != exitMisuse ||
		!strings.Contains(stderr, "another folder") {
		t.Errorf("a folder that holds a result: exit %d, %s", code, stderr)
	}
	if code, _, stderr := command(t, "perf", "compare", a); code != exitMisuse {
		t.Errorf("one side: exit %d, %s", code, stderr)
	}
	if code, _, stderr := command(t, "perf", "compare", a, filepath.Join(dir, "none")); code != exitFailed ||
		!strings.Contains(stderr, "none") {
		t.Errorf("an absent side: exit %d, %s", code, stderr)
	}
}
