// SPDX-License-Identifier: Apache-2.0

// Command gotest runs `go test`, prints what failed, and ends with one line that counts tests:
//
//	gotest [-interop] [-interop-only] [-require-interop] -- [arguments of go test]
//
// With ./... as the last argument, the tests of client/otelmq, a module of its own, run too. With
// -interop, the tests of engine/interop run in a second step, alone on the machine, when java and
// mvn are there. It says how many of these ran; a skipped one is not counted as passed. The exit code
// is 0 when every step passed, else 1.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	interopPackage = "./engine/interop"
	everything     = "./..."         // the packages that take the modules inside this one along
	ownModule      = "client/otelmq" // go's patterns leave it out
)

func main() {
	interop := flag.Bool("interop", false, "run the interop tests too when java and mvn are there")
	only := flag.Bool("interop-only", false, "run nothing but the interop tests")
	require := flag.Bool("require-interop", false, "fail when java or mvn is missing")
	flag.Parse()
	os.Exit(run(os.Stdout, flag.Args(), *interop || *only, *only, *require))
}

func run(out io.Writer, args []string, interop, only, require bool) int {
	var total report
	if !only {
		total.step(out, append([]string{"test", "-json"}, args...))
		if len(args) > 0 && args[len(args)-1] == everything {
			total.step(out, append([]string{"test", "-C", ownModule, "-json"}, args...))
		}
	}
	if interop {
		if missing := missingPrograms("java", "mvn"); len(missing) > 0 {
			fmt.Fprintf(out, "interop: 0 tests ran, no %s here\n", strings.Join(missing, " and no "))
			if require {
				total.failed++
			}
		} else {
			before := total
			total.step(out, interopArguments(args, only))
			fmt.Fprintf(out, "interop: %d tests ran with Apache RocketMQ and its clients, %d skipped\n",
				total.passed+total.failed-before.passed-before.failed, total.skipped-before.skipped)
		}
	}
	for _, line := range total.failures {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	if total.failed > 0 || total.broken {
		return 1
	}
	return 0
}

// interopArguments keeps the caller's -run and -v and replaces packages and tags.
func interopArguments(args []string, only bool) []string {
	out := []string{"test", "-json", "-tags", "interop", "-count=1", "-timeout", "9m"}
	for i, a := range args {
		switch {
		case a == "-run" && i+1 < len(args):
			out = append(out, a, args[i+1])
		case strings.HasPrefix(a, "-run=") || a == "-v" || only && a == "-race":
			out = append(out, a)
		}
	}
	return append(out, interopPackage)
}

func missingPrograms(names ...string) []string {
	var missing []string
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			missing = append(missing, n)
		}
	}
	return missing
}

// report sums up steps. Sub-tests count; a package that does not build or that dies counts as one
// failure.
type report struct {
	passed, failed, skipped int
	broken                  bool
	failures                []string
}

// event is one line of `go test -json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

func (r *report) step(out io.Writer, args []string) {
	start := time.Now()
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(out, "gotest: go %s: %v\n", strings.Join(args, " "), err)
		r.broken = true
		return
	}
	r.read(out, pipe)
	if err := cmd.Wait(); err != nil {
		r.broken = true
	}
	fmt.Fprintf(out, "step took %.0f s\n", time.Since(start).Seconds())
}

// read follows the stream. Output of a test is kept until it ends and shown only when it failed.
func (r *report) read(out io.Writer, in io.Reader) {
	kept := map[string]*strings.Builder{} // by package and test
	failedTests := map[string]int{}       // by package
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 1<<20), 64<<20)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			fmt.Fprintln(out, scanner.Text()) // go's own complaints
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Action == "build-output" {
				key = e.ImportPath + " "
			}
			if kept[key] == nil {
				kept[key] = &strings.Builder{}
			}
			kept[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			if e.Test == "" {
				r.packageDone(out, e, failedTests[e.Package], kept)
				continue
			}
			r.testDone(out, e, kept[key])
			if e.Action == "fail" {
				failedTests[e.Package]++
			}
			delete(kept, key)
		}
	}
	if err := scanner.Err(); err != nil {
		fmt.Fprintf(out, "gotest: reading results: %v\n", err)
		r.broken = true
	}
}

func (r *report) testDone(out io.Writer, e event, text *strings.Builder) {
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		fmt.Fprintf(out, "skip  %s %s%s\n", e.Package, e.Test, reason(text))
	case "fail":
		r.failed++
		line := fmt.Sprintf("FAIL  %s %s (%.2f s)", e.Package, e.Test, e.Elapsed)
		r.failures = append(r.failures, line)
		fmt.Fprintln(out, line)
		if text != nil {
			fmt.Fprint(out, text.String())
		}
	}
}

// reason finds the text of t.Skip in the output of a test.
func reason(text *strings.Builder) string {
	if text == nil {
		return ""
	}
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return ": " + line
		}
	}
	return ""
}

func (r *report) packageDone(out io.Writer, e event, failedTests int, kept map[string]*strings.Builder) {
	switch {
	case e.Action == "pass":
		fmt.Fprintf(out, "ok    %s (%.2f s)\n", e.Package, e.Elapsed)
	case e.Action == "fail" && failedTests == 0:
		// It did not build, or it died outside any test: its output is the only clue.
		r.failed++
		line := fmt.Sprintf("FAIL  %s", e.Package)
		r.failures = append(r.failures, line)
		fmt.Fprintln(out, line)
		for key, text := range kept {
			if strings.HasPrefix(key, e.Package+" ") || e.FailedBuild != "" && strings.HasPrefix(key, e.FailedBuild+" ") {
				fmt.Fprint(out, text.String())
			}
		}
	}
	for key := range kept {
		if strings.HasPrefix(key, e.Package+" ") {
			delete(kept, key)
		}
	}
}
