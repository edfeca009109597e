// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
)

var against = flag.String("against", "skylark",
	"which servers the foreign clients talk to: skylark, or apache to check the tests themselves")

// shared is what all tests of the package use. It is made piece by piece, by the first test that
// needs a piece, and taken down by TestMain.
var shared = &lab{
	usedPorts: map[int]bool{}, suffixes: map[*testing.T]string{}, runs: map[string]int{},
}

type lab struct {
	mu        sync.Mutex // guards what follows
	dir       string
	apache    *apache.Installation
	jvm       *driver
	goClient  *driver
	binary    string
	servers   *target
	process   *process
	failed    bool // to start the shared servers: said once
	usedPorts map[int]bool
	suffixes  map[*testing.T]string // of names in a repeated test
	runs      map[string]int        // of a test, by its name
}

// target is a name server with a broker that a test talks to.
type target struct {
	NameServer, Broker, BrokerName string
	Dir                            string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	shared.close()
	os.Exit(code)
}

func (l *lab) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.goClient != nil {
		l.goClient.stop()
	}
	if l.jvm != nil {
		l.jvm.stop()
	}
	if l.process != nil {
		_ = l.process.stop()
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
	}
}

// folder makes a directory that lasts until the end of all tests.
func (l *lab) folder(t *testing.T, name string) string {
	t.Helper()
	if l.dir == "" {
		//nolint:usetesting // it outlives the test that happens to make it
		dir, err := os.MkdirTemp("", "skylark-interop-*")
		if err != nil {
			t.Fatal(err)
		}
		l.dir = dir
	}
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// scratch makes a directory of the test's own. Threads of Apache's servers may go on writing there
// after their stop, so that, unlike with t.TempDir, what cannot be removed at once stays until the end
// of all tests.
func scratch(t *testing.T) string {
	t.Helper()
	shared.mu.Lock()
	base := shared.folder(t, "scratch")
	shared.mu.Unlock()
	dir, err := os.MkdirTemp(base, "*") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// java returns the one process that runs Apache's Java client, tools and servers.
func java(t *testing.T) *driver {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.javaLocked(t)
}

func (l *lab) javaLocked(t *testing.T) *driver {
	t.Helper()
	if l.jvm != nil {
		return l.jvm
	}
	if ok, missing := apache.Available(); !ok {
		t.Skipf("no %s here", missing)
	}
	if l.apache == nil {
		installation, err := apache.Install(t.Context(), "java", os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		l.apache = installation
	}
	home := l.folder(t, "java")
	cmd := l.apache.Command(context.Background(), home, "skylark.interop.Main", []string{
		"-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=2g",
		"-Djava.io.tmpdir=" + home,
		"-Drocketmq.client.localOffsetStoreDir=" + home + "/offsets",
		// Clients look for changed members and queues this often, in milliseconds, instead of every 20 s.
		"-Drocketmq.client.rebalance.waitInterval=700",
		"-Drocketmq.client.rebalance.minInterval=700",
		"-Drocketmq.client.rebalance.lockInterval=2000",
	}, nil)
	cmd.Dir = home
	jvm, err := startDriver("java", cmd, filepath.Join(home, "stderr.txt"))
	if err != nil {
		t.Fatal(err)
	}
	l.jvm = jvm
	return jvm
}

// golang returns the process that runs Apache's Go client.
func golang(t *testing.T) *driver {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	l := shared
	if l.goClient != nil {
		return l.goClient
	}
	home := l.folder(t, "go")
	program := filepath.Join(home, "goclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "goclient"
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go client program: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home) // it keeps offsets of broadcasting groups there
	client, err := startDriver("go client", cmd, filepath.Join(home, "stderr.txt"))
	if err != nil {
		t.Fatal(err)
	}
	l.goClient = client
	return client
}

// servers returns the name server and broker that the tests of foreign clients share.
func servers(t *testing.T) target {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	l := shared
	if l.servers != nil {
		return *l.servers
	}
	if l.failed {
		t.Fatal("the shared servers did not start, see an earlier test")
	}
	l.failed = true
	dir := l.folder(t, "servers")
	var made target
	switch *against {
	case "skylark":
		made = target{
			NameServer: address(l.portsLocked(t)), Broker: address(l.portsLocked(t)),
			BrokerName: "broker-a", Dir: dir,
		}
		l.process = made.start(t, l.binaryLocked(t), map[string]string{"enablePropertyFilter": "true"})
	case "apache":
		jvm := l.javaLocked(t)
		made = target{
			NameServer: address(l.portsLocked(t)), Broker: address(l.portsLocked(t)),
			BrokerName: "broker-a", Dir: dir,
		}
		run(t, jvm, "namesrv.start", args{"port": port(made.NameServer), "dir": dir + "/namesrv"})
		run(t, jvm, "broker.start", args{
			"port": port(made.Broker), "dir": dir + "/store", "namesrv": made.NameServer,
			"conf": args{"enablePropertyFilter": "true"},
		})
		waitForRoute(t, made.NameServer, "TBW102")
	default:
		t.Fatalf("-against=%s", *against)
	}
	l.servers, l.failed = &made, false
	return made
}

// startServer runs `skylark server` with its data in dir until the end of the test. conf are further
// lines of broker.conf.
func startServer(t *testing.T, dir string, conf map[string]string) (target, *process) {
	t.Helper()
	made := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-a", Dir: dir,
	}
	p := made.start(t, skylark(t), conf)
	t.Cleanup(func() { _ = p.stop() })
	return made, p
}

// start runs `skylark server` at the target's addresses and waits until clients can use it.
func (made target) start(t *testing.T, program string, conf map[string]string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "broker.conf")
	lines := map[string]string{
		"brokerName": made.BrokerName, "brokerClusterName": "DefaultCluster",
		"mappedFileSizeCommitLog": strconv.Itoa(64 << 20), "ballastFileSize": "0",
	}
	maps.Copy(lines, conf)
	writeConf(t, file, lines)
	p := startProgram(t, program, "server", "--data", made.Dir, "--name-server-listen", made.NameServer,
		"--broker-listen", made.Broker, "-c", file)
	if err := routeOf(made.NameServer, "SELF_TEST_TOPIC", 20*time.Second); err != nil {
		_ = p.stop()
		t.Fatalf("skylark server did not get ready: %v\n%s", err, p.output())
	}
	return p
}

func writeConf(t *testing.T, file string, lines map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&text, "%s=%s\n", key, lines[key])
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start runs one subcommand of skylark until the end of the test.
func start(t *testing.T, arguments ...string) *process {
	t.Helper()
	p := startProgram(t, skylark(t), arguments...)
	t.Cleanup(func() { _ = p.stop() })
	return p
}

func startProgram(t *testing.T, program string, arguments ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(program, arguments...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.text, &p.text
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// skylark builds cmd/skylark once.
func skylark(t *testing.T) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.binaryLocked(t)
}

func (l *lab) binaryLocked(t *testing.T) string {
	t.Helper()
	if l.binary != "" {
		return l.binary
	}
	program := filepath.Join(l.folder(t, "bin"), "skylark")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/skylark")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build skylark: %v\n%s", err, out)
	}
	l.binary = program
	return program
}

// process is a running server.
type process struct {
	cmd  *exec.Cmd
	text syncBuffer
	done chan struct{}
	err  error // after done
}

func (p *process) output() string { return p.text.String() }

// stop asks the process to end and waits for it; it is killed when it takes longer than it promises.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("the process did not end within 15 s of SIGTERM")
	}
}

// ended waits until the process ends by itself and returns its exit code.
func (p *process) ended(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("the process did not end within %v:\n%s", limit, p.output())
		return -1
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// ports finds a port that is free together with the two below and the one above it: a broker takes
// listenPort-2 as its fast port, and Apache's listenPort+1 for replicas.
func ports(t *testing.T) int {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.portsLocked(t)
}

func (l *lab) portsLocked(t *testing.T) int {
	t.Helper()
	for range 1000 {
		p := 20002 + 4*rand.IntN(2900) // below the range that the kernel gives to dialling sockets
		if !l.usedPorts[p] && allFree(p-2, p-1, p, p+1) {
			l.usedPorts[p] = true
			return p
		}
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(list ...int) bool {
	for _, p := range list {
		listener, err := net.Listen("tcp", address(p))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func port(address string) int {
	_, text, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(text)
	return n
}

// eventually repeats check until it holds, and fails with what it said last.
func eventually(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	if err := repeat(limit, check); err != nil {
		t.Fatal(err)
	}
}

func repeat(limit time.Duration, check func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-tick.C:
		}
	}
}

func waitForRoute(t *testing.T, nameServer, topic string) {
	t.Helper()
	if err := routeOf(nameServer, topic, 30*time.Second); err != nil {
		t.Fatal(err)
	}
}

// routeOf waits until the name server knows the topic.
func routeOf(nameServer, topic string, limit time.Duration) error {
	return repeat(limit, func() error {
		c, err := dialRaw(nameServer)
		if err != nil {
			return err
		}
		defer c.close()
		a, err := c.call(105, map[string]string{"topic": topic}, nil, 5*time.Second)
		if err != nil {
			return err
		}
		if a.Code != 0 {
			return fmt.Errorf("route of %s: code %d, %s", topic, a.Code, a.Remark)
		}
		return nil
	})
}
