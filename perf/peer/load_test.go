// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
	"github.com/skylarkmq/skylark/storage/record"
)

// A broker that dies under load answers nothing and uses no CPU; such a run once counted as 0.
func TestRunThatMeasuredNothingIsRefused(t *testing.T) {
	t.Parallel()
	dead := &measure.Result{SendFailed: 64, Broker: &measure.Process{}}
	if err := check(dead); err == nil || !strings.Contains(err.Error(), "64 sends failed") {
		t.Errorf("no messages: got %v", err)
	}
	if err := check(&measure.Result{Messages: 10, Broker: &measure.Process{}}); err == nil {
		t.Error("no CPU time: taken as a result")
	}
	good := &measure.Result{Messages: 10, Broker: &measure.Process{CPUSeconds: 0.5}}
	if err := check(good); err != nil {
		t.Errorf("a good run: %v", err)
	}
}

// A broker once vanished in the middle of a load and left no word of how: status or signal, and the
// end of its log, are told whatever ends it.
func TestDeathIsTold(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo last words; kill -9 $$":      "signal 9 (killed)",
		"echo last words >&2; exit 3":      "exit status 3",
		"echo last words; kill -SEGV $$":   "signal 11",
		"echo last words; kill -TERM $$ #": "signal 15",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := &side{name: "skylark", dir: t.TempDir()}
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
			if err := s.run("broker", cmd, "broker.out"); err != nil {
				t.Fatal(err)
			}
			<-s.processes[0].ended
			err := s.alive()
			if err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "last words") ||
				!strings.Contains(err.Error(), "skylark broker") {
				t.Errorf("got %v, want %q and the end of the log", err, want)
			}
			logs := t.TempDir()
			s.down(logs, "ingest-small")
			if kept := tailOf(filepath.Join(logs, "ingest-small-skylark-broker.out")); kept != "last words\n" {
				t.Errorf("kept log: %q", kept)
			}
		})
	}
}

// TestLiving: a process that runs is not called dead, and ends when asked.
func TestLiving(t *testing.T) {
	t.Parallel()
	s := &side{name: "apache", dir: t.TempDir()}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec sleep 600")
	if err := s.run("broker", cmd, "broker.out"); err != nil {
		t.Fatal(err)
	}
	p := s.processes[0]
	if err := s.alive(); err != nil {
		t.Errorf("a living process is called dead: %v", err)
	}
	s.stop()
	if got := how(p.state); got != "signal 15 (terminated)" || len(s.processes) != 0 {
		t.Errorf("ended by %q, %d processes are left", got, len(s.processes))
	}
}

// made has two sides and two rounds of two loads, one of which fails.
func made() (*results, []*side) {
	sides := []*side{
		{name: "skylark", settings: map[string]string{"memory": "none"}},
		{name: "apache", settings: map[string]string{"version": "5.5.0"}},
	}
	run := func(perCPU, p999 float64) *measure.Result {
		return &measure.Result{
			Type: "result", Messages: 1000, Seconds: 1, MessagesPerSec: perCPU,
			Latency: measure.Quantiles{P50: 1, P99: 2, P999: measure.Millis(p999), P9999: measure.Unknown()},
			Broker: &measure.Process{
				CPUSeconds: 1, UserSeconds: 0.75, SystemSeconds: 0.25, MessagesPerCPUSecond: perCPU,
				RSSAnonMost: 30e6,
			},
			KernelCPU: map[string]float64{"kswapd": 0.1, "unbound-worker": 0.2},
			Curve:     []measure.Point{{Q: 0, MS: 1}, {Q: 0.9, MS: 2}},
			Series:    []measure.Second{{End: 1, Length: 1, Messages: 1000, BrokerCPU: 1}},
			Warnings:  []measure.Warning{{Code: "own-cpu", Text: "the load generator used all"}},
		}
	}
	loads := allLoads()
	good := &row{load: loads[0], memFreeMB: 77, outcomes: []outcome{
		{Side: "skylark", Round: 0, Result: run(1, 1)}, // warm-up: not counted
		{Side: "skylark", Round: 1, Result: run(400_000, 8)},
		{Side: "apache", Round: 1, Result: run(40_000, 30)},
		{Side: "apache", Round: 2, Result: run(20_000, 50)},
		{Side: "skylark", Round: 2, Result: run(500_000, 10)},
		{Side: "limit", Round: 1, Result: run(900_000, 1)},
	}}
	bad := &row{load: loads[1], failure: "apache broker ended: signal 9 (killed)"}
	r := &results{
		commit: "abc", rows: []*row{good, bad},
		env:    environment{Common: commonSettings()},
		plan:   plan{rounds: 2},
		starts: map[string][]float64{"skylark": {0.03}, "apache": {6}},
	}
	return r, sides
}

// TestReport: medians, their spread, ratios, goals, kernel CPU, settings and failures stand in both
// forms of the report.
func TestReport(t *testing.T) {
	t.Parallel()
	r, sides := made()
	text := r.markdown(sides)
	page, err := r.page(sides).HTML()
	if err != nil {
		t.Fatal(err)
	}
	squeezed := regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
	for _, want := range []string{
		"450000 (400000-500000) | 30000 (20000-40000) | 15.00 (10.00-25.00) | at least 10: met | 900000 | 50 % |",
		"| p99.9 ms | 9 (8-10) | 40 (30-50) | 0.23 (0.16-0.33) | at most 0.333: met | | |",
		"| kernel threads us a message | 300 | 300 | 1.00 | | | |",
		"| broker user us a message | 750 |", "flushDiskType | ASYNC_FLUSH | ASYNC_FLUSH",
		"mappedFileSizeCommitLog | 1073741824 | 1073741824", "FAILED, see below", "signal 9 (killed)",
		"Fewer than 5 rounds", "skylark: the load generator used all", "ingest-small 77",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("report.md lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{"Rate over time", "skylark msg/s", "apache msg/s", "15.00 (10.00-25.00)", "signal 9"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("report.html lacks %q", want)
		}
	}
}

// TestRunsReadBack: compare reads the measured rounds of a load and side out of the folder.
func TestRunsReadBack(t *testing.T) {
	t.Parallel()
	r, _ := made()
	r.dir = t.TempDir()
	if err := r.writeRuns(); err != nil {
		t.Fatal(err)
	}
	got, err := report.Load(r.dir + "#ingest-small/skylark")
	if err != nil || len(got.Runs) != 2 || got.Runs[0].MessagesPerSec != 400_000 ||
		len(got.Runs[0].Series) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = report.Load(r.dir + "#ingest-small/kafka")
	if err == nil || !strings.Contains(err.Error(), "ingest-small/apache") {
		t.Errorf("an absent side: got %v, want those that are there", err)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	if s := spreadOf([]float64{3, math.NaN(), 1, 2}); s != (spread{1, 2, 3}) {
		t.Errorf("got %+v", s)
	}
	if s := spreadOf(nil); !math.IsNaN(s.middle) || s.text() != "-" {
		t.Errorf("nothing: got %+v, %q", s, s.text())
	}
	if got := (spread{2, 4, 8}).over(spread{1, 2, 4}); got != (spread{0.5, 2, 8}) {
		t.Errorf("ratio: got %+v", got)
	}
}

// TestLoads: names are unique, every load does something, and the short list has few.
func TestLoads(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	quick := 0
	for _, l := range allLoads() {
		if seen[l.name] {
			t.Errorf("two loads are called %s", l.name)
		}
		seen[l.name] = true
		if l.produce == nil && l.consume == nil && l.endToEnd == nil && !l.java {
			t.Errorf("%s does nothing", l.name)
		}
		if l.quick {
			quick++
		}
	}
	if quick == 0 || quick > 6 {
		t.Errorf("%d loads in the short list", quick)
	}
	p, err := parse([]string{"-quick", "-rounds", "5"})
	if err != nil || p.rounds != 1 || p.fillCache || p.ballast {
		t.Errorf("-quick: %+v, %v", p, err)
	}
	if _, err := parse([]string{"-workload", "none"}); err == nil {
		t.Error("an unknown load is taken")
	}
}

// TestNullHandler: a client takes the null handler for a cluster, and every send is answered.
func TestNullHandler(t *testing.T) {
	t.Parallel()
	s, err := listenNull("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addrs()[0].String()
	for range 3 {
		if err := sendOne(addr, addr); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestRelay: a pull that waits gets the message that comes, a later one what came meanwhile, as records
// that carry the bodies; a connection that has gone is forgotten.
func TestRelay(t *testing.T) {
	t.Parallel()
	s, err := listenNull("127.0.0.1:0", true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	addr := s.Addrs()[0].String()
	pull := func(offset int64) net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		e := remoting.Begin(nil, remoting.NewRequest(remoting.PullMessage, 1))
		h := protocol.PullRequest{
			Group: []byte("g"), Topic: []byte("PeerStart"), QueueOffset: offset, MaxMessages: 32,
			Subscription: []byte("*"), SysFlag: protocol.PullSuspend, SuspendMS: 10_000,
			MaxBytes: -1, RequestSource: -1,
		}
		h.AppendFields(&e)
		if _, err := c.Write(e.End(nil)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	held := func() net.Conn {
		c := pull(0)
		if _, err := exchange(c, int(remoting.GetMaxOffset), map[string]string{"queueId": "0"}, nil); err != nil {
			t.Fatal(err) // its answer shows that the pull before it was taken
		}
		return c
	}
	got := func(c net.Conn) (next int64, bodies []string) {
		defer c.Close()
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			t.Fatal(err)
		}
		var cmd remoting.Command
		var h protocol.PullResponse
		if err := errors.Join(cmd.Decode(frame), h.Decode(&cmd)); err != nil {
			t.Fatal(err)
		}
		for b := cmd.Body; len(b) > 0; {
			v, err := record.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, string(v.Body()))
			b = b[v.TotalSize():]
		}
		return h.NextOffset, bodies
	}
	gone, waits := held(), held()
	_ = gone.Close()
	for range 3 {
		if err := sendOne(addr, addr); err != nil {
			t.Fatal(err)
		}
	}
	if next, bodies := got(waits); next != 1 || !slices.Equal(bodies, []string{"first"}) {
		t.Errorf("the pull that waited got %q, next %d", bodies, next)
	}
	if next, bodies := got(pull(1)); next != 3 || !slices.Equal(bodies, []string{"first", "first"}) {
		t.Errorf("the pull behind got %q, next %d", bodies, next)
	}
}

// TestBallast takes memory and gives it back.
func TestBallast(t *testing.T) {
	t.Parallel()
	b, err := newBallast(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.mem) != 1<<20 || b.mem[0] != 1 || b.mem[len(b.mem)-os.Getpagesize()] != 1 {
		t.Errorf("%d bytes, not all of them touched", len(b.mem))
	}
	b.drop()
	b.drop()
	if b.mem != nil {
		t.Error("the memory was kept")
	}
}
