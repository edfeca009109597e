// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/measure"
)

// results runs a load with --json and returns its results.
func results(t *testing.T, args ...string) []measure.Result {
	t.Helper()
	var list []measure.Result
	out := must(t, append(args, "--json")...)
	for line := range strings.Lines(out) {
		var r measure.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r.Type == "result" {
			list = append(list, r)
		}
	}
	return list
}

// TestE2EPerfTogether runs the commands that send and read at once against a real broker.
func TestE2EPerfTogether(t *testing.T) {
	t.Parallel()
	ns := enginetest.Start(t).NameServer()
	common := []string{"-n", ns, "--duration", "500ms"}
	with := func(args ...string) []string { return append(append([]string{"perf"}, args...), common...) }

	res := results(t, with("latency", "--topic", "a", "--rate", "2000")...)
	if len(res) != 2 || res[0].Part != "send" || res[1].Part != "end-to-end" ||
		res[0].Latency.Count < 800 || res[1].Latency.Count != res[0].Latency.Count ||
		res[1].LatencyFrom != "due" {
		t.Errorf("latency: %+v", res)
	}
	folder := filepath.Join(t.TempDir(), "out")
	res = results(t, with("verify", "--topic", "b", "--connections", "2", "--late-ms", "60000",
		"--out", folder)...)
	if len(res) != 2 || !res[1].OK || res[1].Verify == nil || res[1].Verify.Messages == 0 {
		t.Errorf("verify: %+v", res)
	}
	for _, name := range []string{"result.json", "latency-send.hlog", "latency-end-to-end.hlog"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
			t.Errorf("--out has no %s: %v", name, err)
		}
	}
	res = results(t, with("mixed", "--workload", "mixed", "--hot-groups", "2", "--consume-delay", "1ms")...)
	if len(res) != 3 || res[1].Part != "hot" || res[2].Part != "lagging" ||
		res[1].Messages < res[0].Messages || res[2].Messages == 0 {
		t.Errorf("mixed: %+v", res)
	}
}

// TestPerfVerifyFails: a broker that loses what it acknowledged ends the command with 1.
func TestPerfVerifyFails(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	cluster.SetTopic("x", 4)
	cluster.Brokers[0].Spoil(func(n int, rec []byte) [][]byte {
		if n == 50 {
			return nil
		}
		return [][]byte{rec}
	})
	code, stdout, stderr := command(t, "perf", "verify", "-n", cluster.NameServer.Addr, "--topic", "x",
		"--count", "100")
	if code != exitFailed || !strings.Contains(stdout, "lost 1,") || !strings.Contains(stdout, "FAILED") {
		t.Errorf("exit code %d, printed %s%s", code, stdout, stderr)
	}
}

// TestE2EPerfNullServer: the null server takes a load and ends with its context.
func TestE2EPerfNullServer(t *testing.T) {
	t.Parallel()
	server := serve(t, "\n", "perf", "null-server", "--listen", "127.0.0.1:0")
	addr, ok := strings.CutPrefix(strings.TrimSpace(server.out.String()), "listening on ")
	if !ok {
		t.Fatalf("null-server printed %q", server.out.String())
	}
	res := results(t, "perf", "produce", "-n", addr, "--count", "5000")
	if len(res) != 1 || res[0].Messages != 5000 {
		t.Errorf("sent %+v", res)
	}
	if code, stderr := server.stop(); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestPerfHelp: every load says by examples how it is used.
func TestPerfHelp(t *testing.T) {
	t.Parallel()
	perf := (&app{env: noEnv}).perfCommand()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, "skylark perf "+cmd.Name()) {
			t.Errorf("perf %s has no example", cmd.Name())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(perf)
	out := must(t, "perf", "workloads")
	for _, want := range []string{"ingest-small: ", "  perf produce --topic perf --size 1024", "mixed|latency"} {
		if !strings.Contains(out, want) {
			t.Errorf("perf workloads lacks %q:\n%s", want, out)
		}
	}
}
