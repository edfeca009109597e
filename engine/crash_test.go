// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// The crash tests need a broker in a process of its own, to be killed. The test binary is that
// process when these variables are set.
const (
	crashDir   = "SKYLARK_TEST_CRASH_DIR"
	crashFlush = "SKYLARK_TEST_CRASH_FLUSH"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		runVictim(dir, os.Getenv(crashFlush))
		return
	}
	os.Exit(m.Run())
}

// runVictim serves until standard input closes, which it does at the latest when the test dies.
func runVictim(dir, flush string) {
	cfg := engine.Default()
	cfg.BrokerName, cfg.BindAddress, cfg.ListenPort, cfg.FastPort = "victim", "127.0.0.1", 0, -1
	cfg.StoreRoot, cfg.FlushDiskType = dir, flush
	cfg.CommitLogFileSize, cfg.MaxMessageSize, cfg.QueueFileSize = 1<<20, 1<<18, 6000
	cfg.IndexSlots, cfg.IndexEntries = 500, 2000
	cfg.DelayLevels = "1s 1s 2s"
	quickChecks(&cfg)
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	names, err := startVictimNames(filepath.Join(dir, "namesrv"), "127.0.0.1:0")
	var b *engine.Broker
	if err == nil {
		cfg.NameServers = names.Addr()
		b, err = engine.New(cfg)
	}
	if err == nil {
		err = b.Start(context.Background())
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "failed:", err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready", b.Addr(), names.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(b.Close(context.Background()), names.Close()); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "failed:", err)
		os.Exit(1)
	}
}

func startVictimNames(dir, listen string) (*nameserver.Server, error) {
	cfg := nameserver.DefaultConfig()
	cfg.Listen, cfg.Dir = listen, dir
	names, err := nameserver.New(cfg)
	if err == nil {
		err = names.Start()
	}
	return names, err
}

// victim is a process with a broker and its name server.
type victim struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	addr  string // of the broker
	names string // of the name server
}

func startVictim(t *testing.T, dir, flush string) *victim {
	t.Helper()
	v := &victim{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	v.cmd.Env = append(os.Environ(), crashDir+"="+dir, crashFlush+"="+flush)
	v.cmd.Stderr = &strings.Builder{}
	var err error
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addrs, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ready {
		_ = v.cmd.Process.Kill()
		_ = v.cmd.Wait()
		t.Fatalf("the broker does not start: %q %v\n%s", line, err, v.cmd.Stderr)
	}
	v.addr, v.names, _ = strings.Cut(addrs, " ")
	return v
}

// end closes the victim gracefully, or kills it.
func (v *victim) end(t *testing.T, kill bool) {
	t.Helper()
	if kill {
		_ = v.cmd.Process.Kill()
		_ = v.cmd.Wait()
		return
	}
	_ = v.in.Close()
	if err := v.cmd.Wait(); err != nil {
		t.Errorf("graceful end: %v\n%s", err, v.cmd.Stderr)
	}
}

// place is where an acknowledged message must be for ever.
type place struct {
	queue  int32
	offset int64
}

// ledger is what was acknowledged.
type ledger struct {
	mu    sync.Mutex
	acked map[place]string
}

// load sends to four queues from several connections until ctx ends or the broker dies.
func (l *ledger) load(ctx context.Context, addr string, seed int) {
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			pool := invoke.NewPool(invoke.Config{})
			defer func() { _ = pool.Close() }()
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf("%d/%d/%d %s", seed, worker, i, strings.Repeat("x", i%700))
				// Under SYNC_FLUSH half of the senders do not wait for the disk.
				wait := fmt.Sprint(worker%2 == 0)
				call, cancel := context.WithTimeout(ctx, callWithin)
				r, err := pool.Call(call, addr, &invoke.Request{
					Code: remoting.SendMessageV2, Body: []byte(body),
					Header: sendRequest("crash", int32(worker), "KEYS", fmt.Sprint("k", i), "WAIT", wait),
				})
				cancel()
				if err != nil {
					return
				}
				l.note(r, body)
			}
		})
	}
	wg.Wait()
}

func (l *ledger) note(r *invoke.Response, body string) {
	var sent protocol.SendResponse
	if r.Code != remoting.Success || sent.Decode(r.Command) != nil {
		return
	}
	l.mu.Lock()
	l.acked[place{sent.QueueID, sent.QueueOffset}] = body
	l.mu.Unlock()
}

// verify reads every queue from the start: each acknowledged message is at its place, unchanged, and
// the offsets have no gap.
func (l *ledger) verify(t *testing.T, p *peer) {
	t.Helper()
	found := make(map[place]string)
	for queue := range int32(4) {
		for next := int64(0); ; {
			d := p.pull(pullRequest("crash", queue, next, "*", 0))
			if d.code != remoting.Success {
				break
			}
			for _, v := range d.views {
				if int64(v.QueueOffset()) != next {
					t.Fatalf("queue %d: offset %d where %d was due", queue, v.QueueOffset(), next)
				}
				found[place{queue, next}] = string(v.Body())
				next++
			}
		}
	}
	for at, body := range l.acked {
		if got, ok := found[at]; !ok || got != body {
			t.Fatalf("acknowledged %v %.40q: found %v %.40q (of %d acknowledged, %d found)",
				at, body, ok, got, len(l.acked), len(found))
		}
	}
}

// TestCrashKillLosesNothingAcknowledged kills the broker under load again and again. An acknowledged
// message survives the death of the process under both kinds of flush, with WAIT=false too, since it is
// in the kernel's hands by then; what SYNC_FLUSH adds, the death of the machine, is tested where power
// can be lost, in storage.
func TestCrashKillLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := &ledger{acked: make(map[place]string)}
			rounds := 6
			if testing.Short() {
				rounds = 2
			}
			for round := range rounds {
				v := startVictim(t, dir, flush)
				p := newPeer(t, v.addr)
				p.send("crash", 0, "hello") // creates topic and, by the pull, group
				p.pull(pullRequest("crash", 0, 0, "*", 0))
				l.verify(t, p)
				wait := 50*time.Millisecond + rand.N(250*time.Millisecond)
				ctx, cancel := context.WithTimeout(context.Background(), wait)
				done := make(chan struct{})
				go func() {
					defer close(done)
					l.load(context.WithoutCancel(ctx), v.addr, round)
				}()
				<-ctx.Done()
				cancel()
				v.end(t, true)
				<-done
			}
			v := startVictim(t, dir, flush)
			l.verify(t, newPeer(t, v.addr))
			v.end(t, false)
			if len(l.acked) < 10*rounds {
				t.Errorf("only %d messages were acknowledged in %d rounds", len(l.acked), rounds)
			}
		})
	}
}
