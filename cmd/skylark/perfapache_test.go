// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
)

// reports collects report lines and ends a run after some of them.
type reports struct {
	stop context.CancelFunc

	mu   sync.Mutex
	text strings.Builder
}

func (r *reports) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(b)
	if strings.Count(r.text.String(), "Current Time: ") >= 2 {
		r.stop()
	}
	return len(b), nil
}

// fields takes a line apart as scripts do: at the bars, then at the first colon.
func fields(line string) (names, values []string) {
	for part := range strings.SplitSeq(line, "|") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), ":")
		names, values = append(names, name), append(values, strings.TrimSpace(value))
	}
	return names, values
}

// TestE2EApacheReports: each of RocketMQ's benchmark command lines, without a number of messages,
// reports from the tenth second on in lines that scripts take apart, until it is interrupted.
func TestE2EApacheReports(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out with -short: RocketMQ's programs report from the tenth second on, so this takes twelve")
	}
	ns := enginetest.Start(t).NameServer()
	must(t, "perf", "produce", "-n", ns, "--topic", "reports", "--count", "10")
	for _, tc := range []struct {
		name, line string
		names      []string
		last       string // of the output
		beside     string // runs as long as the program: a consumer needs something to read in each second
	}{
		{
			"producer", "apache-producer -t reports -w 2 -s 100 -ri 1000",
			[]string{
				"Current Time", "Send TPS", "Max RT(ms)", "Average RT(ms)", "Send Failed", "Response Failed",
			},
			"[Complete] Send Total: ", "",
		},
		{
			"batch", "apache-batch-producer -t batches -w 1 -b 4 -s 100 -ri 1000",
			[]string{
				"Current Time", "Send TPS", "Send MPS", "Max RT(ms)", "Average RT(ms)",
				"Average Message RT(ms)", "Send Failed", "Send Message Failed",
			},
			"", "",
		},
		{
			"consumer", "apache-consumer -t reports -g readers -ri 1000",
			[]string{
				"Current Time", "Consume TPS", "AVG(B2C) RT(ms)", "AVG(S2C) RT(ms)", "MAX(B2C) RT(ms)",
				"MAX(S2C) RT(ms)", "Consume Fail",
			},
			"", "perf produce --topic reports --rate 200",
		},
		{
			"transactions", "apache-transaction-producer -t halves -w 1 -s 100 -i 5 -ri 1000",
			[]string{
				"Current Time", "Send TPS", "Max RT(ms)", "AVG RT(ms)", "Send Failed", "Check",
				"UnexpectedCheck", "DuplicatedCheck",
			},
			"", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			limit, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ctx, stop := context.WithCancel(limit)
			defer stop()
			var beside sync.WaitGroup
			defer beside.Wait()
			if tc.beside != "" {
				beside.Go(func() { run(ctx, append(strings.Fields(tc.beside), "-n", ns), io.Discard, io.Discard, noEnv) })
			}
			out := &reports{stop: stop}
			args := append([]string{"perf"}, strings.Fields(tc.line)...)
			code := run(ctx, append(args, "-n", ns), out, io.Discard, noEnv)
			text := strings.TrimRight(out.text.String(), "\n")
			if limit.Err() != nil || code != exitDone {
				t.Fatalf("exit code %d, %v:\n%s", code, limit.Err(), text)
			}
			lines := strings.Split(text, "\n")
			if tc.last != "" && !strings.HasPrefix(lines[len(lines)-1], tc.last) {
				t.Errorf("the last line is %q", lines[len(lines)-1])
			}
			at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Current") })
			names, values := fields(lines[at])
			if !slices.Equal(names, tc.names) {
				t.Fatalf("fields %q, want %q", names, tc.names)
			}
			if _, err := time.Parse("2006-01-02 15:04:05,000", values[0]); err != nil {
				t.Error(err)
			}
			number := regexp.MustCompile(`^\d+(\.\d{1,3})?$`)
			for i, v := range values[1:] {
				if !number.MatchString(v) || i == 0 && v == "0" {
					t.Errorf("%s is %q", names[i+1], v)
				}
			}
		})
	}
}
