// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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
	must(t, with("produce", "--topic", "a", "--verify", "--count", "500")...)
	res = results(t, "perf", "consume", "-n", ns, "--topic", "a", "--until-end", "--end-to-end")
	if len(res) != 1 || res[0].LatencyFrom != "due" || res[0].Latency.Count < 1300 {
		t.Errorf("consume --end-to-end: %+v", res)
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
	res = results(t, with("mixed", "--workload", "mixed", "--hot-groups", "2", "--consume-delay", "1ms",
		"--rate", "1000")...)
	if len(res) != 3 || res[1].Part != "hot" || res[2].Part != "lagging" || res[0].Messages == 0 ||
		res[1].Messages == 0 || res[2].Messages == 0 || res[2].Seconds != res[0].Seconds {
		t.Errorf("mixed: %+v", res)
	}
}

// TestE2EPerfProcessors: readers do not wait for a processor that a sending loop keeps while it waits for
// its sockets, and the process has as many as before when the command has ended.
//
//nolint:paralleltest // the number is the whole process's, and other commands change it too
func TestE2EPerfProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "") // who sets it has his number of processors
	ns, before := enginetest.Start(t).NameServer(), runtime.GOMAXPROCS(0)
	res := results(t, "perf", "latency", "-n", ns, "--topic", "a", "--rate", "1000", "--duration", "200ms")
	if got := res[0].Environment.Processors; got != before+1 {
		t.Errorf("%d processors while one loop sends, want one more than %d", got, before)
	}
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors afterwards, want %d", got, before)
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

// TestE2EApacheCommands: command lines of RocketMQ's benchmark programs work as they are.
func TestE2EApacheCommands(t *testing.T) {
	t.Parallel()
	ns := enginetest.Start(t).NameServer()
	line := func(text string) string {
		return must(t, append([]string{"perf"}, strings.Fields(text)...)...)
	}
	out := line("apache-producer -n " + ns + " -t a -w8 -s 100 -k true -l 2 -c true -ch 64 -ct ZSTD -q 3000 -ri 1000")
	for _, want := range []string{
		"topic: a, threadCount: 8, messageSize: 100, keyEnable: true, propertySize: 0, tagCount: 2, ",
		"asyncEnable: false\n compressEnable: true, reportInterval: 1000\ncompressType: ZSTD compressLevel: 5\n",
		"[Complete] Send Total: 3000 Send Failed: 0 Response Failed: 0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("apache-producer lacks %q:\n%s", want, out)
		}
	}
	out = line("apache-producer --namesrvAddr=" + ns + " --topic a -y true -d true -e 1 -q 100")
	if !strings.Contains(out, "threadCount: 1,") || !strings.Contains(out, "delayEnable: true, delayLevel: 1, asyncEnable: true") {
		t.Errorf("apache-producer -y printed %s", out)
	}
	out = line("apache-batch-producer -n " + ns + " -t b -w 2 -b 8 -q 800")
	if !strings.Contains(out, "batchSize: 8, ") || !strings.Contains(out, "[Complete] Send Total: 800 ") {
		t.Errorf("apache-batch-producer printed %s", out)
	}
	line("apache-consumer -n " + ns + " -t b -g g -q 0 -h")
	res := results(t, "perf", "apache-transaction-producer", "-n", ns, "-t", "c", "-w", "4", "-q", "200",
		"-sr", "0.5")
	if len(res) != 1 || res[0].Messages != 200 || !res[0].OK {
		t.Errorf("apache-transaction-producer: %+v", res)
	}
}

// TestE2EApacheConsumer: a group that has read goes on where it stopped.
func TestE2EApacheConsumer(t *testing.T) {
	t.Parallel()
	ns := enginetest.Start(t).NameServer()
	must(t, "perf", "produce", "-n", ns, "--topic", "a", "--count", "500", "--tags", "2")
	must(t, "perf", "consume", "-n", ns, "--topic", "a", "--group", "g", "--commit", "--count", "100")
	expression := filepath.Join(t.TempDir(), "expr")
	if err := os.WriteFile(expression, []byte("tag0 || tag1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := must(t, "perf", "apache-consumer", "-n", ns, "-t", "a", "-g", "g", "-f", "TAG", "-e", expression,
		"-q", "200")
	if !strings.Contains(out, "topic: a, threadCount 20, group: g, suffix: false, filterType: TAG, ") ||
		!strings.HasSuffix(out, "Expression: tag0 || tag1\nConsumer Started.\n") {
		t.Errorf("apache-consumer printed %s", out)
	}
}

func TestApacheMisuse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"apache-producer -x 1":                        `unknown option "-x"`,
		"apache-producer -w":                          "needs a value",
		"apache-producer -w many":                     "-w is",
		"produce --access-key me":                     "secret key",
		"consume --secret-key mine":                   "access key",
		"apache-producer -e 0":                        "-e is",
		"apache-producer extra":                       `unknown option "extra"`,
		"apache-producer -c true -ct SNAPPY":          "compress is",
		"apache-batch-producer -b 1":                  "-b is",
		"apache-consumer -f SQL":                      "-e: reading",
		"apache-consumer -r 2":                        "-r is",
		"apache-transaction-producer -su 0.6 -sr 0.6": "together",
		"apache-transaction-producer -s 5":            "-s is",
	} {
		code, _, stderr := command(t, append([]string{"perf"}, strings.Fields(line)...)...)
		if code != exitMisuse || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want 2 and %q", line, code, stderr, want)
		}
	}
}

// stopAt ends a run when a text is written.
type stopAt struct {
	text string
	stop context.CancelFunc
}

func (s stopAt) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.text) {
		s.stop()
	}
	return len(b), nil
}

// TestE2EPerfConsumeWaits: a run that waits for its topic says so, and can be interrupted.
func TestE2EPerfConsumeWaits(t *testing.T) {
	t.Parallel()
	ns := enginetest.Start(t).NameServer()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	told, stop := context.WithCancel(ctx)
	defer stop()
	code := run(told, []string{"perf", "consume", "-n", ns, "--topic", "absent"}, io.Discard,
		stopAt{"no topic absent yet", stop}, noEnv)
	if code != exitFailed || ctx.Err() != nil || told.Err() == nil {
		t.Errorf("exit code %d, %v, told: %v", code, ctx.Err(), told.Err())
	}
}
