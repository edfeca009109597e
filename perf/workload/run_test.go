// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/storage/record"
)

func testProduce(c *scripttest.Cluster) Produce {
	cfg := DefaultProduce()
	cfg.NameServers, cfg.Topic = []string{c.NameServer.Addr}, "load"
	cfg.Connections, cfg.InFlight, cfg.Count = 3, 8, 500
	cfg.Verify = true
	return cfg
}

func testConsume(c *scripttest.Cluster) Consume {
	cfg := DefaultConsume()
	cfg.NameServers, cfg.Topic, cfg.Verify = []string{c.NameServer.Addr}, "load", true
	cfg.Connections = 3
	return cfg
}

func produce(t *testing.T, cfg Produce) *measure.Result {
	t.Helper()
	res, err := RunProduce(t.Context(), cfg, Output{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func consume(t *testing.T, cfg Consume) *measure.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := RunConsume(ctx, cfg, Output{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestProduceConsume sends and reads back everything, over two brokers, in all forms.
func TestProduceConsume(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		set  func(p *Produce, c *Consume)
	}{
		{"single", func(*Produce, *Consume) {}},
		{"binary", func(p *Produce, c *Consume) { p.Binary, c.Binary = true, true }},
		{"batch", func(p *Produce, _ *Consume) { p.Batch, p.Size = 10, 1000 }},
		{"rate", func(p *Produce, _ *Consume) { p.Rate = 5000 }},
		{"topics", func(p *Produce, c *Consume) { p.Topics, c.Topics, p.Tags, p.Keys = 3, 3, 2, true }},
		{"queues", func(p *Produce, c *Consume) { p.Queues, c.Queues = 2, 2 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cluster := scripttest.NewCluster(t, 2)
			p, c := testProduce(cluster), testConsume(cluster)
			tc.set(&p, &c)
			sent := produce(t, p)
			if !sent.OK || sent.Messages != 500 || sent.SendFailed+sent.ResponseFailed != 0 {
				t.Fatalf("produced: %+v", sent)
			}
			if sent.Latency.Count != 500 || sent.Latency.P50 <= 0 {
				t.Errorf("latency: %+v", sent.Latency)
			}
			got := consume(t, c)
			if !got.OK || got.Verify.Messages != 500 || got.Verify.Foreign != 0 {
				t.Errorf("consumed: %+v, verify %+v: %s", got, got.Verify, got.Problem)
			}
		})
	}
}

// TestConsumeFindsFaults spoils what the broker stores, one fault of each kind, and expects the run
// to fail with that kind.
func TestConsumeFindsFaults(t *testing.T) {
	t.Parallel()
	var held []byte
	for _, tc := range []struct {
		name  string
		spoil func(n int, rec []byte) [][]byte
		found func(f *measure.Faults) int64
	}{
		{"lost", func(n int, rec []byte) [][]byte {
			if n == 100 {
				return nil
			}
			return [][]byte{rec}
		}, func(f *measure.Faults) int64 { return f.Lost }},
		{"duplicate", func(n int, rec []byte) [][]byte {
			if n == 100 {
				return [][]byte{rec, rec}
			}
			return [][]byte{rec}
		}, func(f *measure.Faults) int64 { return f.Duplicates }},
		{"changed", func(n int, rec []byte) [][]byte {
			if n == 100 {
				rec[130] ^= 0x20 // inside the body
			}
			return [][]byte{rec}
		}, func(f *measure.Faults) int64 { return f.Changed }},
		{"disorder", func(n int, rec []byte) [][]byte {
			switch n {
			case 100:
				held = rec
				return nil
			case 300:
				return [][]byte{rec, held}
			}
			return [][]byte{rec}
		}, func(f *measure.Faults) int64 { return f.Disordered }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cluster := scripttest.NewCluster(t, 1)
			cluster.Brokers[0].Spoil(tc.spoil)
			p, c := testProduce(cluster), testConsume(cluster)
			p.Connections, p.Queues = 1, 1
			produce(t, p)
			got := consume(t, c)
			if got.OK || got.Problem == "" || tc.found(got.Verify) != 1 {
				t.Errorf("verify: %+v ok=%v", got.Verify, got.OK)
			}
		})
	}
}

// TestProduceFailures: refusals and lost answers are counted, connections are made anew, and what
// was never acknowledged is no loss.
func TestProduceFailures(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	b := cluster.Brokers[0]
	b.Refuse(remoting.SystemBusy, 5)
	b.Swallow(2)
	p, c := testProduce(cluster), testConsume(cluster)
	p.Connections, p.Timeout = 1, Duration(time.Second)
	sent := produce(t, p)
	if !sent.OK || sent.ResponseFailed != 5 || sent.SendFailed < 2 {
		t.Errorf("produced: %+v", sent)
	}
	got := consume(t, c)
	if !got.OK || got.Verify.Unacked < 7 || got.Verify.Lost != 0 {
		t.Errorf("consumed: %+v: %s", got.Verify, got.Problem)
	}
}

// TestRateCountsFromDueMoment: at a fixed rate a stall shows in the latency of every message that
// came due meanwhile, not only of those that were in flight.
func TestRateCountsFromDueMoment(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	p := testProduce(cluster)
	p.Rate, p.Count, p.Verify = 1000, 0, false
	p.Connections, p.Duration = 1, Duration(1500*time.Millisecond)
	resume := cluster.Brokers[0].Stall()
	stalled := time.AfterFunc(600*time.Millisecond, resume)
	defer stalled.Stop()
	res := produce(t, p)
	if res.LatencyFrom != "due" || res.RateAsked != 1000 {
		t.Errorf("result: from %s, asked %v", res.LatencyFrom, res.RateAsked)
	}
	// 600 of 1500 messages came due in the stall, with latencies evenly up to 600 ms.
	// A machine with too much to do ends the run later, and then with more messages.
	if n, want := float64(res.Latency.Count), 1000*res.Seconds; n < 0.9*want || n > 1.1*want {
		t.Errorf("%v latencies, want about %v", n, want)
	}
	if q := res.Latency; q.P90 < 350 && res.Seconds < 1.7 || q.Max < 550 {
		t.Errorf("latencies %+v: the stall of 600 ms does not show", q)
	}
}

// TestClosedLoopStall is the counterpart: a closed loop sees the stall once for each in flight.
func TestClosedLoopStall(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	p := testProduce(cluster)
	p.Connections, p.InFlight, p.Count = 1, 2, 2000
	resume := cluster.Brokers[0].Stall()
	stalled := time.AfterFunc(300*time.Millisecond, resume)
	defer stalled.Stop()
	res := produce(t, p)
	if q := res.Latency; q.Max < 250 || q.P99 > 200 {
		t.Errorf("latencies %+v: want two of 300 ms", q)
	}
}

func TestWarmupIsNotCounted(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	p := testProduce(cluster)
	p.Rate, p.Count, p.Verify = 1000, 0, false
	p.Warmup, p.Duration = Duration(300*time.Millisecond), Duration(300*time.Millisecond)
	res := produce(t, p)
	// 300 came due in the warm-up, however long the machine lets the rest take.
	if res.Sent-res.Messages < 250 || res.Sent-res.Latency.Count < 250 {
		t.Errorf("counted %d, latencies %d, sent %d", res.Messages, res.Latency.Count, res.Sent)
	}
}

// TestConsumeReconnects: a lost connection costs nothing but time.
func TestConsumeReconnects(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	produce(t, testProduce(cluster))
	c := testConsume(cluster)
	b := cluster.Brokers[0]
	c.PullBatch = 1
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		for b.Count(remoting.PullMessage) < 100 && t.Context().Err() == nil {
			tick(100 * time.Microsecond)
		}
		b.Drop()
	}()
	got := consume(t, c)
	<-dropped
	if !got.OK || got.Verify.Messages != 500 {
		t.Errorf("consumed: %+v", got.Verify)
	}
}

// TestDamagedRecord: when a record cannot be parsed, those before it in the same answer are not read
// and judged a second time.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	cfg := DefaultConsume()
	cfg.Verify = true
	c := &consumer{cfg: &cfg, timing: &timing{clock: measure.NewClock()}}
	p := newPuller(c, "", "g")
	p.checker = c.newChecker()
	d := record.Draft{Topic: []byte("t"), Body: []byte("body")}
	var body []byte
	for i := range 3 {
		b := make([]byte, d.Size())
		d.Encode(b, record.Place{Queue: record.QueueOffset(7 + i)})
		body = append(body, b...)
	}
	body[2*d.Size()+5] ^= 0xFF // the magic of the last one
	q := newPullQueue(&target{topic: "t"}, 7, 10)
	n, err := p.recordsLocked(q, body, 0, 0, false)
	if err == nil || n != 2 || q.next != 9 {
		t.Errorf("read %d, goes on at %d: %v", n, q.next, err)
	}
}

func TestConsumeFromLastWithCount(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	produce(t, testProduce(cluster))
	c := testConsume(cluster)
	c.From, c.Verify, c.Commit, c.Count = Last, false, true, 300
	done := make(chan *measure.Result, 1)
	go func() {
		res, err := RunConsume(t.Context(), c, Output{})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	b := cluster.Brokers[0]
	for b.Count(remoting.PullMessage) < 4 { // the consumer waits at the end of all queues
		if t.Context().Err() != nil {
			t.Fatal("the consumer never pulled")
		}
		tick(time.Millisecond)
	}
	produce(t, testProduce(cluster))
	res := <-done
	if res == nil || res.Messages != 300 || res.BornMean < 0 {
		t.Fatalf("consumed: %+v", res)
	}
	if at := b.Offset("benchmark_consumer", "load", 0); at < 0 {
		t.Error("no offset was stored")
	}
}

// TestOutputs holds the forms of the output.
func TestOutputs(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	p := testProduce(cluster)
	p.Count, p.Rate, p.Duration = 0, 2000, Duration(1200*time.Millisecond)
	var text, objects bytes.Buffer
	if _, err := RunProduce(t.Context(), p, Output{Reports: &text, Every: 500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"topic: load, threadCount: 24, messageSize: 128, keyEnable: false",
		"reportInterval: 500\n", "Current Time: ", " | Send TPS: ", "[Complete] Send Total: ",
		"latency ms  from due", "p99.99",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, text.String())
		}
	}
	out := Output{Reports: &objects, JSON: true, Every: 500 * time.Millisecond}
	if _, err := RunProduce(t.Context(), p, out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(objects.String()), "\n")
	if len(lines) < 2 {
		t.Fatalf("JSON output:\n%s", objects.String())
	}
	for i, line := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
		want := "report"
		if i == len(lines)-1 {
			want = "result"
		}
		latency, _ := v["latency_ms"].(map[string]any)
		if _, told := latency["p99.9"]; v["type"] != want || !told || v["messages_per_second"] == nil {
			t.Errorf("line %d is no %s: %s", i, want, line)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := RunProduce(t.Context(), Produce{Verify: true, Size: 10}, Output{})
	for _, want := range []string{"no name server", "no topic", "connections is 0", "verify needs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("produce: got %v, want it to name %q", err, want)
		}
	}
	c := DefaultConsume()
	c.Verify, c.Filter, c.Groups, c.From = true, "a", 2, "middle"
	_, err = RunConsume(t.Context(), c, Output{})
	for _, want := range []string{"filter", "one group", "middle"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("consume: got %v, want it to name %q", err, want)
		}
	}
	p := DefaultProduce()
	p.NameServers = []string{"127.0.0.1:1"}
	if _, err := RunProduce(t.Context(), p, Output{}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no name server there: got %v", err)
	}
}

// TestBrokerCPU: figures of a process are those of the window; a process that is not there is an
// error before anything is sent.
func TestBrokerCPU(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	p := testProduce(cluster)
	p.BrokerPID = 1
	res := produce(t, p)
	if res.Broker == nil || res.Broker.PID != 1 {
		t.Errorf("result without broker figures: %+v", res.Broker)
	}
	p.BrokerPID = 1 << 30
	if _, err := RunProduce(t.Context(), p, Output{}); err == nil {
		t.Error("a process that does not exist was accepted")
	}
}

// TestSchedule: over a second every schedule brings the whole rate, evenly or in bursts, and nothing
// before its time.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for _, burst := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		total := 0
		moments := map[int64]bool{}
		for i := range 4 {
			s := newSchedule(1000, []Step{{Rate: 10_000}}, i, 4, burst)
			for s.due() < 1000+int64(time.Second) {
				if at := s.due() - 1000; float64(at) < s.parts[0].interval*float64(s.next)-1 {
					t.Fatalf("burst %s: request %d is due early, at %d", burst, s.next, at)
				}
				moments[s.due()] = true
				total++
				s.next++
			}
		}
		if total < 9_900 || total > 10_100 {
			t.Errorf("burst %s: %d requests in a second, want 10000", burst, total)
		}
		if burst > 0 && len(moments) > int(4*time.Second/burst)+8 {
			t.Errorf("burst %s: %d moments", burst, len(moments))
		}
	}
}

// TestScheduleSteps: each step brings its rate for its time, a pause nothing, and after the last one
// with an end comes nothing more.
func TestScheduleSteps(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	steps := []Step{
		{Rate: 1000, For: Duration(time.Second)},
		{Rate: 0, For: Duration(time.Second)},
		{Rate: 5000, For: Duration(2 * time.Second)},
	}
	var inSecond [5]int
	for i := range 3 {
		s := newSchedule(0, steps, i, 3, 0)
		last := int64(-1)
		for due := s.due(); due != math.MaxInt64; due = s.due() {
			if due < last {
				t.Fatalf("due %d after %d", due, last)
			}
			last = due
			inSecond[min(due/second, 4)]++
			s.next++
		}
	}
	want := [5]int{1000, 0, 5000, 5000, 0}
	for i, n := range inSecond {
		if n < want[i]-3 || n > want[i]+3 {
			t.Errorf("second %d: %d due, want %d", i, n, want[i])
		}
	}
	if length(steps) != 4*time.Second || length([]Step{{Rate: 1}}) != 0 {
		t.Error("length of steps")
	}
}

// TestDueHeap compares the heap with a search over random schedules.
func TestDueHeap(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	senders := make([]*sender, 50)
	var h dueHeap
	for i := range senders {
		senders[i] = &sender{sched: newSchedule(0, []Step{{Rate: 1 + r.Float64()}}, i, 50, 0)}
	}
	for range 5000 {
		s := senders[r.IntN(len(senders))]
		h.remove(s)
		s.sched.next += r.Int64N(3)
		if r.IntN(4) > 0 {
			h.push(s)
		}
		least := int64(math.MaxInt64)
		for _, s := range senders {
			if s.queued {
				least = min(least, s.sched.due())
			}
		}
		if first := h.first(); (first == nil) != (least == math.MaxInt64) ||
			first != nil && first.sched.due() != least {
			t.Fatalf("first is not the one due at %d", least)
		}
	}
}

// tick lets a loop that looks for a condition look again.
func tick(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}
