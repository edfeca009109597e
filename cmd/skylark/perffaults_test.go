// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/faultproxy"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// faultCounts reads the count of each fault out of a verdict.
func faultCounts() map[faultproxy.Fault]func(f *measure.Faults) int64 {
	return map[faultproxy.Fault]func(f *measure.Faults) int64{
		faultproxy.Drop:      func(f *measure.Faults) int64 { return f.Lost },
		faultproxy.Duplicate: func(f *measure.Faults) int64 { return f.Duplicates },
		faultproxy.Swap:      func(f *measure.Faults) int64 { return f.Disordered + f.Swapped },
		faultproxy.Flip:      func(f *measure.Faults) int64 { return f.Changed },
		faultproxy.Delay:     func(f *measure.Faults) int64 { return f.Late },
	}
}

// slowDelay is far above what a busy machine delays by itself.
const slowDelay = 2500 * time.Millisecond

// lateFlag bounds the age of messages where they are delayed.
func lateFlag(fault faultproxy.Fault) []string {
	if fault != faultproxy.Delay {
		return nil
	}
	return []string{"--late-ms", "2000"}
}

// TestPerfVerifyLive: `perf verify`, which sends and reads at once through the proxy, ends with 1
// and the right count for each fault, and with 0 without one.
func TestPerfVerifyLive(t *testing.T) {
	t.Parallel()
	for _, fault := range append(faultproxy.Faults(), faultproxy.None) {
		t.Run("fault="+string(fault), func(t *testing.T) {
			t.Parallel()
			cluster := enginetest.Start(t)
			proxy, err := faultproxy.Start(faultproxy.Config{
				NameServer: cluster.NameServer(), Broker: cluster.Broker(), Fault: fault, Every: 97,
				Count: 3, Delay: slowDelay,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			line := []string{
				"perf", "verify", "-n", proxy.NameServer(), "--topic", "live", "--count", "300",
				"--in-flight", "1", "--queues", "4", "--timeout-ms", "10000", "--json",
			}
			code, stdout, stderr := command(t, append(line, lateFlag(fault)...)...)
			results, err := report.Parse([]byte(stdout))
			if err != nil || len(results) != 2 || results[1].Verify == nil {
				t.Fatalf("results: %v, %d of them, stderr %s, stdout %s", err, len(results), stderr, stdout)
			}
			verdict := results[1].Verify
			if fault == faultproxy.None {
				if code != exitDone || verdict.Messages != 300 {
					t.Errorf("without a fault: exit %d, %+v", code, verdict)
				}
				return
			}
			got := faultCounts()[fault](verdict)
			if code != exitFailed || got != 3 || proxy.Injected() != 3 {
				t.Errorf("exit %d, %d found, %d injected, want 1, 3, 3: %+v", code, got, proxy.Injected(),
					verdict)
			}
		})
	}
}

// TestPerfVerifyFaults: whatever a proxy does to acknowledged messages, `perf consume --verify`
// ends with 1, counts it in JSON, and names it in text.
func TestPerfVerifyFaults(t *testing.T) {
	t.Parallel()
	count := faultCounts()
	word := map[faultproxy.Fault]string{
		faultproxy.Drop: "lost 3,", faultproxy.Duplicate: "duplicates 3,", faultproxy.Flip: "changed 3,",
		faultproxy.Swap: "disordered 3,", faultproxy.Delay: "late 3,",
	}
	for _, fault := range faultproxy.Faults() {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			cluster := enginetest.Start(t)
			proxy, err := faultproxy.Start(faultproxy.Config{
				NameServer: cluster.NameServer(), Broker: cluster.Broker(), Fault: fault, Every: 50,
				Count: 3, Delay: slowDelay,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			must(t, "perf", "produce", "-n", proxy.NameServer(), "--topic", "checked", "--verify",
				"--count", "200", "--in-flight", "1", "--timeout-ms", "10000")
			check := append([]string{
				"perf", "consume", "-n", cluster.NameServer(), "--topic", "checked", "--verify",
			}, lateFlag(fault)...)
			code, stdout, _ := command(t, append(check, "--json")...)
			var res measure.Result
			if err := json.Unmarshal([]byte(stdout), &res); err != nil || res.Verify == nil {
				t.Fatalf("result: %v, %s", err, stdout)
			}
			if got := count[fault](res.Verify); code != exitFailed || got != 3 || proxy.Injected() != 3 {
				t.Errorf("exit %d, %d found, %d injected, want 1, 3, 3: %+v", code, got, proxy.Injected(),
					res.Verify)
			}
			code, stdout, _ = command(t, check...)
			if code != exitFailed || !strings.Contains(stdout, word[fault]) ||
				!strings.Contains(stdout, "FAILED") {
				t.Errorf("exit %d, want %q in:\n%s", code, word[fault], stdout)
			}
		})
	}
}

// TestPerfVerifyClean: the same without a fault is no failure.
func TestPerfVerifyClean(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	proxy, err := faultproxy.Start(faultproxy.Config{
		NameServer: cluster.NameServer(), Broker: cluster.Broker(), Every: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	must(t, "perf", "produce", "-n", proxy.NameServer(), "--topic", "checked", "--verify", "--count", "500")
	out := must(t, "perf", "consume", "-n", cluster.NameServer(), "--topic", "checked", "--verify")
	if want := fmt.Sprintf("%d numbered messages", 500); !strings.Contains(out, want) {
		t.Errorf("no %q in:\n%s", want, out)
	}
}
