// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/engine/enginetest"
)

// command runs one command line to its end.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs, noEnv)
	return code, out.String(), errs.String()
}

func noEnv(string) (string, bool) { return "", false }

// must runs a command that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(t, args...)
	if code != exitDone {
		t.Fatalf("skylark %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if out := must(t, "version"); !strings.HasPrefix(out, "skylark ") {
		t.Errorf("got %q", out)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(must(t, "version", "--json")), &v); err != nil || v["version"] == nil {
		t.Errorf("JSON: %v, %v", v, err)
	}
}

// TestMisuse: each mistyped command line ends with 2, says what is wrong and where help is.
func TestMisuse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"sent":                                   `unknown command "sent"; did you mean "send"?`,
		"send --topik x":                         "--topik; did you mean --topic?",
		"send --xyzzy":                           "--xyzzy",
		"inspect foo":                            `unknown command "foo"`,
		"send":                                   "--topic and --body are required",
		"send --topic x":                         "--body is required",
		"send --topic x --body y extra":          `"extra"`,
		"send --topic x --body y --property z":   "name=value",
		"send --topic x --body y -n nowhere":     "host:port",
		"send --topic x --body y --timeout-ms 0": "--timeout-ms",
		"receive":                                "--topic is required",
		"receive --topic x --from noon":          "--from",
		"receive --topic x --count -1":           "not negative",
		"perf produce --size 0":                  "size is 0",
		"perf produce --serialize xml":           "xml",
		"perf produce --workload nothing":        "nothing",
		"perf produce --workload catch-up":       "perf produce",
		"perf produce --verify --size 10":        "verify needs",
		"perf produce --report-ms 5":             "--report-ms",
		"perf produce --rate 10:1s,,":            "--rate",
		"perf produce --rate 10,20:5s":           "has no time",
		"perf produce --rate 0:5s":               "sends nothing",
		"perf produce --rate fast":               "is no rate",
		"perf produce --burst-us 5":              "burst needs a rate",
		"perf produce --driver iocp":             "driver is",
		"perf produce --loops 5000":              "loops is 5000",
		"perf produce --size 9-3":                "3 is below 9",
		"perf produce --size a:b":                "size is a",
		"perf produce --compress zip":            "compress is",
		"perf produce --compressible 2":          "compressible is 2",
		"perf produce --compress lz4 --batch 2":  "compressed batches",
		"perf produce --delay-level 19":          "delay level is 19",
		"perf produce --property a":              "name=value",
		"perf produce --connections 0":           "connections is 0",
		"perf latency --size 20-100":             "verify needs",
		"perf verify --retries 200":              "retries is 200",
		"perf mixed --hot-groups -1":             "--hot-groups",
		"perf mixed --consume-delay 2m":          "consume delay",
		"perf null-server --size 0":              "--size is 0",
		"perf consume --from middle":             "middle",
		"perf consum":                            `did you mean "consume"?`,
		"server --broker-listen here":            "host:port",
		"server --name-server-listen 9876":       "host:port",
		"broker --recover all":                   "--recover",
		"nameserver --listen x":                  "host:port",
	} {
		code, stdout, stderr := command(t, strings.Fields(line)...)
		if code != exitMisuse || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--help") || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want 2 and %q", line, code, stdout, stderr, want)
		}
	}
}

// TestNothingThere: without a server the commands fail with 1 and say what to do.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"send -n 127.0.0.1:1 --topic x --body y",
		"receive -n 127.0.0.1:1 --topic x",
		"perf produce -n 127.0.0.1:1 --count 1",
		"perf verify -n 127.0.0.1:1 --count 1",
	} {
		code, _, stderr := command(t, strings.Fields(line)...)
		if code != exitFailed || !strings.Contains(stderr, "127.0.0.1:1") ||
			!strings.Contains(stderr, "Start one with 'skylark server'") {
			t.Errorf("%s: exit code %d, stderr %q", line, code, stderr)
		}
	}
}

// TestE2ESendReceivePerf runs the commands of the README against a real broker.
func TestE2ESendReceivePerf(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	ns := cluster.NameServer()
	out := must(t, "send", "-n", ns, "--topic", "demo", "--body", "hello", "--tag", "a", "--key", "k")
	if !regexp.MustCompile(`^SEND_OK id=[0-9A-F]{32} broker=broker-a queue=\d offset=0\n$`).MatchString(out) {
		t.Errorf("send printed %q", out)
	}
	out = must(t, "receive", "-n", ns, "--topic", "demo", "--from", "first", "--count", "1")
	if !strings.Contains(out, "tag=a keys=[k] hello\n") {
		t.Errorf("receive printed %q", out)
	}
	out = must(t, "receive", "-n", ns, "--topic", "demo", "--from", "first", "--count", "1", "--json")
	var m map[string]any
	if err := json.Unmarshal([]byte(out), &m); err != nil || m["body"] != "hello" || m["tag"] != "a" {
		t.Errorf("receive --json printed %q", out)
	}
	if code, _, stderr := command(t, "receive", "-n", ns, "--topic", "demo", "--timeout", "50ms", "--count", "9"); code != exitFailed ||
		!strings.Contains(stderr, "0 of 9") {
		t.Errorf("too few messages: exit code %d, %q", code, stderr)
	}
	must(t, "receive", "-n", ns, "--topic", "demo", "--timeout", "50ms")
	code, _, stderr := command(t, "receive", "-n", ns, "--topic", "absent", "--timeout", "50ms")
	if code != exitDone || !strings.Contains(stderr, "no topic absent yet") {
		t.Errorf("receive of an absent topic: exit code %d, stderr %q", code, stderr)
	}

	out = must(t, "perf", "produce", "-n", ns, "--topic", "demo", "--count", "2000", "--connections", "2", "--json")
	var result map[string]any
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil ||
		result["type"] != "result" || result["messages"] != 2000.0 || result["ok"] != true {
		t.Errorf("perf produce --json printed %s", out)
	}
	out = must(t, "perf", "consume", "-n", ns, "--topic", "demo", "--until-end")
	if !strings.Contains(out, " 2001 messages in ") || !strings.Contains(out, "Consumer Started.") {
		t.Errorf("perf consume printed %s", out)
	}
	must(t, "send", "-n", ns, "--topic", "checked", "--body", "makes the topic")
	must(t, "perf", "produce", "-n", ns, "--topic", "checked", "--workload", "ingest-small", "--count", "3000", "--verify")
	out = must(t, "perf", "consume", "-n", ns, "--topic", "checked", "--verify")
	if !strings.Contains(out, "3000 numbered messages") || !strings.Contains(out, "lost 0, duplicates 0") {
		t.Errorf("perf consume --verify printed %s", out)
	}
}

// TestVerifyFails: faults that verification finds end the command with 1.
func TestVerifyFails(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	cluster.Brokers[0].Spoil(func(n int, rec []byte) [][]byte {
		if n == 50 {
			return nil
		}
		return [][]byte{rec}
	})
	ns := cluster.NameServer.Addr
	must(t, "perf", "produce", "-n", ns, "--topic", "x", "--count", "100", "--verify")
	code, stdout, _ := command(t, "perf", "consume", "-n", ns, "--topic", "x", "--verify")
	if code != exitFailed || !strings.Contains(stdout, "lost 1,") || !strings.Contains(stdout, "FAILED") {
		t.Errorf("exit code %d, printed %s", code, stdout)
	}
}

// server is one that runs until stop.
type server struct {
	out  *lockedBuffer
	stop func() (code int, stderr string)
}

// lockedBuffer may be written and read at once; grown is told of each write.
type lockedBuffer struct {
	mu    sync.Mutex
	b     bytes.Buffer
	grown chan struct{}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.grown <- struct{}{}:
	default:
	}
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var _ io.Writer = (*lockedBuffer)(nil)

// serve starts a server command and waits for the text that says it is up.
func serve(t *testing.T, up string, args ...string) server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &lockedBuffer{grown: make(chan struct{}, 1)}
	errs := &lockedBuffer{grown: make(chan struct{}, 1)}
	done := make(chan int, 1)
	env := func(name string) (string, bool) { return "", name == "GOGC" || name == "GOMEMLIMIT" }
	go func() { done <- run(ctx, args, out, errs, env) }()
	s := server{out: out, stop: sync.OnceValues(func() (int, string) {
		cancel()
		return <-done, errs.String()
	})}
	t.Cleanup(func() { s.stop() })
	deadline := time.After(20 * time.Second)
	for !strings.Contains(out.String(), up) {
		select {
		case <-out.grown:
		case code := <-done:
			done <- code
			t.Fatalf("skylark %v ended with %d: %s", args, code, errs.String())
		case <-deadline:
			t.Fatalf("skylark %v is not up: %s", args, errs.String())
		}
	}
	return s
}

// small keeps segments small; a test's file system may not have room for RocketMQ's sizes.
func small(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.conf")
	text := "mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=5000\nmaxIndexNum=20000\n" +
		"fastListenPort=-1\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestE2EServer starts everything as `skylark server` does, uses it, stops it and starts it again.
func TestE2EServer(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	args := []string{
		"server", "--data", data, "--name-server-listen", "127.0.0.1:0",
		"--broker-listen", "127.0.0.1:0", "-c", small(t, ""), "--json",
	}
	var where struct {
		NameServer string `json:"name_server_listen"`
		Advertised string `json:"broker_advertised"`
		Why        string `json:"broker_advertised_why"`
		Data       string `json:"data"`
	}
	for round := range 2 {
		s := serve(t, "}\n", args...)
		if err := json.Unmarshal([]byte(s.out.String()), &where); err != nil {
			t.Fatal(err)
		}
		if where.Data != data || where.Why == "" || !strings.HasPrefix(where.Advertised, "127.0.0.1:") {
			t.Errorf("where: %+v", where)
		}
		if round == 0 {
			must(t, "send", "-n", where.NameServer, "--topic", "demo", "--body", "kept")
		}
		out := must(t, "receive", "-n", where.NameServer, "--topic", "demo", "--from", "first", "--count", "1")
		if !strings.HasSuffix(out, " kept\n") {
			t.Errorf("round %d: received %q", round, out)
		}
		if code, stderr := s.stop(); code != exitDone || !strings.Contains(stderr, "stopped") {
			t.Fatalf("round %d: exit code %d: %s", round, code, stderr)
		}
	}
}

// TestE2EBrokerAndNameServer runs both alone, as old scripts do, which wait for the boot lines.
func TestE2EBrokerAndNameServer(t *testing.T) {
	t.Parallel()
	names := serve(t, "\n", "nameserver", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	boot := regexp.MustCompile(`^The Name Server boot success. serializeType=JSON, address (127\.0\.0\.1:\d+)\n`)
	found := boot.FindStringSubmatch(names.out.String())
	if found == nil {
		t.Fatalf("the name server printed %q", names.out.String())
	}
	ns := found[1]
	conf := small(t, "brokerName=alone\nbrokerIP1=127.0.0.1\n")
	b := serve(t, "data ", "broker", "-n", ns, "-c", conf, "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	want := regexp.MustCompile(`^The broker\[alone, 127\.0\.0\.1:\d+\] boot success\. ` +
		`serializeType=JSON and name server is ` + regexp.QuoteMeta(ns) + `\n`)
	if !want.MatchString(b.out.String()) {
		t.Errorf("the broker printed %q", b.out.String())
	}
	must(t, "send", "-n", ns, "--topic", "demo", "--body", "x")
	if code, stderr := b.stop(); code != exitDone {
		t.Errorf("broker: exit code %d: %s", code, stderr)
	}
	if code, stderr := names.stop(); code != exitDone {
		t.Errorf("name server: exit code %d: %s", code, stderr)
	}
}

func TestPrintConfig(t *testing.T) {
	t.Parallel()
	conf := small(t, "brokerName=b1\n")
	out := must(t, "broker", "-c", conf, "-n", "10.0.0.1:9876", "-p")
	for _, want := range []string{
		`(?m)^brokerName=b1 +# .*broker\.conf$`, `(?m)^listenPort=10911 +# default$`,
		`(?m)^namesrvAddr=10\.0\.0\.1\\?:9876 +# flag --name-server$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("-p lacks %s:\n%s", want, out)
		}
	}
	important := must(t, "broker", "-c", conf, "-m")
	if len(important) >= len(out) || !strings.Contains(important, "brokerName=b1") {
		t.Errorf("-m printed %s", important)
	}
	var v map[string]map[string]string
	text := must(t, "server", "--print-config", "--json", "--data", "/somewhere")
	if err := json.Unmarshal([]byte(text), &v); err != nil || v["storePathRootDir"]["value"] != "/somewhere" {
		t.Errorf("server --print-config --json: %v %s", err, text)
	}
	if out := must(t, "nameserver", "-p"); !strings.Contains(out, "listenPort=9876") {
		t.Errorf("nameserver -p printed %s", out)
	}
}

// TestBadConfig: an unknown key stops the start with its line and the nearest key, unless told to go
// on; a missing file and a taken port say what to do.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	conf := small(t, "brokerNam=x\n")
	code, _, stderr := command(t, "broker", "-c", conf, "-p")
	if code != exitFailed || !strings.Contains(stderr, "line 5") || !strings.Contains(stderr, "brokerName") {
		t.Errorf("unknown key: exit code %d, %s", code, stderr)
	}
	code, _, stderr = command(t, "broker", "-c", conf, "-p", "--ignore-unknown-config")
	if code != exitDone || !strings.Contains(stderr, "brokerNam") {
		t.Errorf("ignored unknown key: exit code %d, %s", code, stderr)
	}
	code, _, stderr = command(t, "broker", "-c", "/does/not/exist.conf")
	if code != exitFailed || !strings.Contains(stderr, "/does/not/exist.conf") {
		t.Errorf("missing file: exit code %d, %s", code, stderr)
	}
	cluster := scripttest.NewCluster(t, 0)
	taken := cluster.NameServer.Addr
	code, _, stderr = command(t, "nameserver", "--listen", taken, "--data", t.TempDir())
	if code != exitFailed || !strings.Contains(stderr, taken) || !strings.Contains(stderr, "--listen") {
		t.Errorf("taken port: exit code %d, %s", code, stderr)
	}
}

func TestEventLoopsFlag(t *testing.T) {
	t.Parallel()
	text := must(t, "broker", "--event-loops", "3", "--print-config", "--data", t.TempDir())
	if !strings.Contains(text, "eventLoopNums=3") || !strings.Contains(text, "flag --event-loops") {
		t.Errorf("--event-loops 3 is not in force: %s", text)
	}
	code, _, stderr := command(t, "broker", "--event-loops", "257", "--print-config")
	if code != exitMisuse || !strings.Contains(stderr, "--event-loops is 257") {
		t.Errorf("257 loops: exit code %d, %s", code, stderr)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"127.0.0.1:9876": "127.0.0.1:9876", "10.1.2.3:1": "10.1.2.3:1", "host:1": "host:1",
	} {
		if got := reachable(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	if got := reachable("0.0.0.0:9876"); strings.HasPrefix(got, "0.0.0.0") || !strings.HasSuffix(got, ":9876") {
		t.Errorf("0.0.0.0:9876: got %s", got)
	}
}

func TestAdvise(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	if got := advise(plain, "x"); !errors.Is(got, plain) {
		t.Errorf("got %v", got)
	}
}
