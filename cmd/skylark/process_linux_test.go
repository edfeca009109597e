// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// asMain makes the test binary the program itself, for tests that need a process of it.
const asMain = "SKYLARK_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a running `skylark server`.
type process struct {
	cmd    *exec.Cmd
	broker string
	errs   *strings.Builder // read it when the process has ended
}

func startProcess(t *testing.T, data, conf string) *process {
	t.Helper()
	p := &process{errs: new(strings.Builder), cmd: exec.Command(os.Args[0],
		"server", "--json", "--data", data, "-c", conf,
		"--name-server-listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0")}
	p.cmd.Env = append(os.Environ(), asMain+"=1")
	p.cmd.Stderr = p.errs
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	var where struct {
		Broker string `json:"broker_listen"`
	}
	if err := json.NewDecoder(out).Decode(&where); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		t.Fatalf("the server does not start: %v\n%s", err, p.errs)
	}
	p.broker = where.Broker
	return p
}

// terminate sends SIGTERM; the process must end within 10 s, with exit code 0.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	begun := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end: %v\n%s", err, p.errs)
		}
		t.Logf("ended after %v", time.Since(begun).Round(time.Millisecond))
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-ended
		t.Fatalf("it does not end within 10 s\n%s", p.errs)
	}
}

func call(ctx context.Context, pool *invoke.Pool, addr string, code remoting.RequestCode,
	header remoting.Header, body []byte,
) (*invoke.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return pool.Call(ctx, addr, &invoke.Request{Code: code, Header: header, Body: body})
}

func sendRequest(queue int32) *protocol.SendRequest {
	return &protocol.SendRequest{
		Group: []byte("p"), Topic: []byte("load"), DefaultTopic: []byte("TBW102"), DefaultTopicQueues: 4,
		QueueID: queue, MaxReconsumeTimes: -1,
	}
}

func pullRequest(queue int32, from int64, hold time.Duration) *protocol.PullRequest {
	return &protocol.PullRequest{
		Group: []byte("c"), Topic: []byte("load"), QueueID: queue, QueueOffset: from, MaxMessages: 32,
		SysFlag: 4 | 2, SuspendMS: hold.Milliseconds(), Subscription: []byte("*"),
	}
}

// TestFaultTerminateUnderLoad: SIGTERM while producers send and consumers wait. The server ends in
// time, everything that was acknowledged is there afterwards, and the next start recovers nothing.
func TestFaultTerminateUnderLoad(t *testing.T) {
	t.Parallel()
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			conf := small(t, "flushDiskType="+flush+"\n")
			acked := make([]map[int64]string, 4)
			for range 2 {
				p := startProcess(t, data, conf)
				ctx, cancel := context.WithCancel(t.Context())
				var load sync.WaitGroup
				enough := make(chan struct{}, 4)
				for queue := range int32(4) {
					if acked[queue] == nil {
						acked[queue] = map[int64]string{}
					}
					load.Go(func() { produce(ctx, p.broker, queue, acked[queue], enough) })
					load.Go(func() { consume(ctx, p.broker, queue) })
				}
				for range 4 {
					<-enough
				}
				slow := neverReads(t, p.broker)
				p.terminate(t)
				_ = slow.Close()
				cancel()
				load.Wait()
				if _, err := os.Stat(filepath.Join(data, "abort")); !os.IsNotExist(err) {
					t.Errorf("the file abort: %v", err)
				}
				if strings.Contains(p.errs.String(), "clean=false") {
					t.Errorf("the start recovered:\n%s", p.errs)
				}
			}
			p := startProcess(t, data, conf)
			for queue := range int32(4) {
				verify(t, p.broker, queue, acked[queue])
			}
			p.terminate(t)
		})
	}
}

// produce keeps 16 sends under way until the server is gone, and notes what was acknowledged.
func produce(ctx context.Context, addr string, queue int32, acked map[int64]string, enough chan<- struct{}) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := 0
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	for worker := range 16 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf("%d/%d/%d %s", queue, worker, i, strings.Repeat("x", 500))
				r, err := call(ctx, pool, addr, remoting.SendMessageV2, sendRequest(queue), []byte(body))
				if err != nil {
					return // the server is gone
				}
				var sent protocol.SendResponse
				if r.Code != remoting.Success || sent.Decode(r.Command) != nil {
					continue
				}
				mu.Lock()
				acked[sent.QueueOffset] = body
				if count++; count == 300 {
					enough <- struct{}{}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// neverReads is a client that asks for much and reads nothing of it.
func neverReads(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for range 20000 {
		e := remoting.Begin(nil, remoting.Head{Code: int32(remoting.GetBrokerConfig)})
		if _, err := c.Write(e.End(nil)); err != nil {
			break // the server does not read any more either
		}
	}
	return c
}

// consume waits for messages at the end of the queue, as a consumer that has caught up does.
func consume(ctx context.Context, addr string, queue int32) {
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	for next := int64(0); ctx.Err() == nil; {
		r, err := call(ctx, pool, addr, remoting.PullMessage, pullRequest(queue, next, 3*time.Second), nil)
		if err != nil {
			return
		}
		var head protocol.PullResponse
		if r.Code == remoting.Success && head.Decode(r.Command) == nil {
			next = head.NextOffset
		}
	}
}

func verify(t *testing.T, addr string, queue int32, acked map[int64]string) {
	t.Helper()
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	found := map[int64]string{}
	for next := int64(0); ; {
		r, err := call(t.Context(), pool, addr, remoting.PullMessage, pullRequest(queue, next, 0), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != remoting.Success {
			break
		}
		for body := r.Body; len(body) > 0; next++ {
			v, err := record.Parse(body)
			if err != nil || int64(v.QueueOffset()) != next {
				t.Fatalf("queue %d, offset %d: %v, offset %d", queue, next, err, v.QueueOffset())
			}
			found[next] = string(v.Body())
			body = body[v.TotalSize():]
		}
	}
	for at, body := range acked {
		if found[at] != body {
			t.Fatalf("queue %d, offset %d: %.30q was acknowledged, %.30q is there", queue, at, body, found[at])
		}
	}
	if len(acked) < 300 {
		t.Errorf("only %d were acknowledged", len(acked))
	}
}

// TestFaultIdleClients: 10 000 clients that have said who they are and now keep silent. They are
// answered, others are served beside them, and the server stays small.
func TestFaultIdleClients(t *testing.T) {
	t.Parallel()
	clients := 10_000
	if testing.Short() {
		clients = 2000
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < uint64(clients)+500 {
		t.Skipf("needs %d descriptors on each side, the hard limit is %d (%v)", clients+500, limit.Max, err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, filepath.Join(t.TempDir(), "data"), small(t, ""))
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	before := descriptors(t, p.cmd.Process.Pid)
	conns := make([]net.Conn, clients)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	var wg sync.WaitGroup
	const lanes = 8
	for lane := range lanes {
		wg.Go(func() {
			for i := lane; i < clients; i += lanes {
				var err error
				if conns[i], err = idleClient(p.broker, i); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range 100 {
		begun := time.Now()
		r, err := call(t.Context(), pool, p.broker, remoting.SendMessageV2, sendRequest(0), []byte("x"))
		if err != nil || r.Code != remoting.Success || time.Since(begun) > 3*time.Second {
			t.Fatalf("send %d beside the idle clients: %+v %v after %v", i, r, err, time.Since(begun))
		}
	}
	if r, err := call(t.Context(), pool, p.broker, remoting.PullMessage, pullRequest(0, 0, 0), nil); err != nil || r.Code != remoting.Success {
		t.Errorf("pull beside the idle clients: %+v %v", r, err)
	}
	used := anonymous(t, p.cmd.Process.Pid)
	t.Logf("%d clients: RssAnon %d MiB", clients, used>>20)
	if used > 200<<20 {
		t.Errorf("RssAnon is %d MiB", used>>20)
	}
	for i, c := range conns {
		_ = c.Close()
		conns[i] = nil
	}
	deadline := time.Now().Add(10 * time.Second)
	for descriptors(t, p.cmd.Process.Pid) > before+20 {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors are left, %d before", descriptors(t, p.cmd.Process.Pid), before)
		}
		<-time.After(20 * time.Millisecond)
	}
	p.terminate(t)
}

// idleClient connects and sends one heartbeat: every client as a producer, one in a hundred as a
// consumer as well.
func idleClient(addr string, i int) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	data := &protocol.HeartbeatData{
		ClientID:        fmt.Sprintf("10.0.%d.%d@%d", i>>8, i&255, i),
		ProducerDataSet: []protocol.ProducerData{{GroupName: fmt.Sprint("p", i%100)}},
	}
	if i%100 == 0 {
		data.ConsumerDataSet = []protocol.ConsumerData{{GroupName: fmt.Sprint("c", i%1000)}}
	}
	e := remoting.Begin(nil, remoting.Head{Code: int32(remoting.HeartBeat), Version: remoting.ProtocolVersion, Opaque: 7})
	if _, err := c.Write(e.End(protocol.Marshal(data))); err != nil {
		return c, err
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReaderSize(c, 16)
	head, err := in.Peek(4)
	if err != nil {
		return c, err
	}
	size, err := remoting.FrameSize(head, remoting.MaxFrame)
	if err == nil {
		_, err = io.CopyN(io.Discard, in, int64(size))
	}
	return c, err
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// anonymous is the anonymous resident memory of a process in bytes.
func anonymous(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	value, _, _ := strings.Cut(rest, "kB")
	kb, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		t.Fatalf("RssAnon: %v", err)
	}
	return kb << 10
}

// TestFaultServerInUse: a second server on the directory of a running one, on other ports, ends with
// the reason and leaves its files alone, those of the name server included.
func TestFaultServerInUse(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := startProcess(t, data, small(t, ""))
	unfinished := filepath.Join(data, "namesrv", "kvConfig.json.tmp")
	if err := os.MkdirAll(filepath.Dir(unfinished), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unfinished, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "server", "--data", data, "-c", small(t, ""),
		"--name-server-listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0")
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("exit code %d, %q, %q; want process %d named", code, stdout, stderr, p.cmd.Process.Pid)
	}
	if _, err := os.Stat(unfinished); err != nil {
		t.Errorf("the other server's file: %v", err)
	}
	p.terminate(t)
}
