// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/faultproxy"
	"github.com/skylarkmq/skylark/perf/measure"
)

func testTogether(nameServer string) Together {
	p, c := DefaultProduce(), DefaultConsume()
	p.NameServers, p.Topic, p.Verify = []string{nameServer}, "together", true
	p.Connections, p.InFlight, p.Duration = 3, 8, Duration(time.Second)
	c.From, c.Verify, c.EndToEnd = Last, true, true
	return Together{
		Command: "verify", Produce: p, Readers: []Reader{{Name: "end-to-end", Consume: c}},
		Drain: Duration(10 * time.Second),
	}
}

func together(t *testing.T, cfg Together) []*measure.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	list, err := RunTogether(ctx, cfg, Output{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestE2ELatency: every message that was due in the window is measured twice, to its answer and to
// its receipt, at a fixed rate and in a closed loop, on a topic that did not exist.
func TestE2ELatency(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{2000, 0} {
		cluster := enginetest.Start(t)
		cfg := testTogether(cluster.NameServer())
		cfg.Produce.Rate = rate
		if rate == 0 {
			cfg.Produce.Count, cfg.Produce.Duration = 3000, 0
		}
		res := together(t, cfg)
		send, receive := res[0], res[1]
		from := map[bool]string{true: "due", false: "sent"}[rate > 0]
		if send.LatencyFrom != from || receive.LatencyFrom != from || send.Part != "send" {
			t.Errorf("latencies from %s and %s, want %s", send.LatencyFrom, receive.LatencyFrom, from)
		}
		if !send.OK || !receive.OK || receive.Verify.Lost > 0 {
			t.Errorf("rate %v: %s %s %+v", rate, send.Problem, receive.Problem, receive.Verify)
		}
		if n := send.Latency.Count; n < 1500 || receive.Latency.Count != n {
			t.Errorf("rate %v: %d sends and %d receipts measured", rate, n, receive.Latency.Count)
		}
		if rate > 0 && receive.Latency.Mean <= send.Latency.Mean/2 {
			t.Errorf("to receipt %v ms, to answer %v ms", receive.Latency.Mean, send.Latency.Mean)
		}
	}
}

// TestE2EVerifyRestart stops and starts the broker while both sides run: nothing is lost, and what
// had no answer was sent again.
func TestE2EVerifyRestart(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	cfg := testTogether(cluster.NameServer())
	cfg.Produce.Duration, cfg.Produce.Retries = Duration(2*time.Second), 5
	done := make(chan []*measure.Result, 1)
	go func() {
		list, err := RunTogether(t.Context(), cfg, Output{})
		if err != nil {
			t.Error(err)
		}
		done <- list
	}()
	tick(700 * time.Millisecond)
	cluster.Restart()
	res := <-done
	if len(res) != 2 {
		t.Fatal("no results")
	}
	if !res[0].OK || !res[1].OK {
		t.Errorf("%s %s %+v", res[0].Problem, res[1].Problem, res[1].Verify)
	}
	if f := res[1].Verify; f.Messages < res[0].Messages {
		t.Errorf("%d answered, %d received", res[0].Messages, f.Messages)
	}
}

// TestRetriesAreNoFaults: a broker that stores and does not answer gets messages twice, one that is
// busy gets them late; neither is its fault, and in the end everything is there.
func TestRetriesAreNoFaults(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 5000} {
		cluster := scripttest.NewCluster(t, 1)
		cluster.SetTopic("together", 4)
		b := cluster.Brokers[0]
		b.Refuse(2, 5) // SYSTEM_BUSY
		b.Swallow(20)
		cfg := testTogether(cluster.NameServer.Addr)
		p := &cfg.Produce
		p.Connections, p.Timeout, p.Retries, p.Rate = 1, Duration(200*time.Millisecond), 30, rate
		p.Duration, p.Count = 0, 1000
		res := together(t, cfg)
		f := res[1].Verify
		if !res[0].OK || !res[1].OK {
			t.Errorf("rate %v: %s %s %+v", rate, res[0].Problem, res[1].Problem, f)
		}
		if f.Resent == 0 || f.Unacked != 0 || res[0].Retried < 25 || f.Messages-f.Resent != 1000 {
			t.Errorf("rate %v: %d sent again, verdict %+v", rate, res[0].Retried, f)
		}
	}
}

// TestTogetherFindsLoss: a message that is acknowledged and not stored is found by the reader that
// ran meanwhile.
func TestTogetherFindsLoss(t *testing.T) {
	t.Parallel()
	cluster := scripttest.NewCluster(t, 1)
	cluster.SetTopic("together", 4)
	cluster.Brokers[0].Spoil(func(n int, rec []byte) [][]byte {
		if n == 100 {
			return nil
		}
		return [][]byte{rec}
	})
	cfg := testTogether(cluster.NameServer.Addr)
	cfg.Produce.Duration, cfg.Produce.Count = 0, 1000
	res := together(t, cfg)
	if !res[0].OK || res[1].OK || res[1].Verify.Lost != 1 {
		t.Errorf("%+v: %s", res[1].Verify, res[1].Problem)
	}
}

// TestE2EMixed: hot groups keep up while a slow one lags, each with figures of its own.
func TestE2EMixed(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	cfg := testTogether(cluster.NameServer())
	cfg.Produce.Verify, cfg.Produce.Rate = false, 3000
	hot, lagging := DefaultConsume(), DefaultConsume()
	hot.From, hot.Group, hot.Groups = Last, "hot", 2
	lagging.Group, lagging.Delay = "lagging", Duration(5*time.Millisecond)
	cfg.Readers = []Reader{{Name: "hot", Consume: hot}, {Name: "lagging", Consume: lagging}}
	var text bytes.Buffer
	res, err := RunTogether(t.Context(), cfg, Output{Reports: &text, Every: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	sent, fast, slow := res[0].Messages, res[1].Messages, res[2].Messages
	if sent < 1000 || fast <= slow || slow == 0 || slow > sent*3/4 {
		t.Errorf("sent %d, hot groups read %d, the slow one %d", sent, fast, slow)
	}
	if last := res[2].Series[len(res[2].Series)-1]; last.Backlog == 0 {
		t.Error("the slow group has no backlog")
	}
	for _, want := range []string{"part        send", "part        hot", "part        lagging", "Consume TPS"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, text.String())
		}
	}
}

// TestE2EManyGroups has a thousand new groups read one topic, and then a thousand others, while the
// broker may still be making the first ones: the second ones do not wait for that when they ask for
// offsets, and all groups get what is sent.
func TestE2EManyGroups(t *testing.T) {
	t.Parallel()
	const groups = 1000
	cluster := enginetest.Start(t)
	for _, name := range []string{"first", "second"} {
		cfg := testTogether(cluster.NameServer())
		p := &cfg.Produce
		p.Verify, p.Rate, p.Connections, p.Queues, p.Warmup = false, 10, 1, 1, Duration(2*time.Second)
		hot := DefaultConsume()
		hot.From, hot.Group, hot.Groups, hot.Connections = Last, name, groups, 1
		cfg.Readers = []Reader{{Name: "hot", Consume: hot}}
		res := together(t, cfg)
		if res[1].Messages < res[0].Messages {
			t.Errorf("%s: sent %d, all groups together read %d", name, res[0].Messages, res[1].Messages)
		}
	}
}

func TestTogetherSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(*Together){
		"name of another part": func(c *Together) { c.Readers[0].Name = "send" },
		"begins at the end":    func(c *Together) { c.Readers[0].Consume.From = First },
		"numbered messages":    func(c *Together) { c.Produce.Verify = false },
		"drain":                func(c *Together) { c.Drain = 0 },
		"retries needs verify": func(c *Together) { c.Produce.Verify, c.Produce.Retries = false, 1 },
		"consume delay":        func(c *Together) { c.Readers[0].Consume.Delay = -1 },
	} {
		cfg := testTogether("127.0.0.1:1")
		set(&cfg)
		if _, err := RunTogether(t.Context(), cfg, Output{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

// TestE2ETogetherFindsFaults: a proxy commits faults on acknowledged messages while both sides run, and
// the verdict names them.
func TestE2ETogetherFindsFaults(t *testing.T) {
	t.Parallel()
	const n = 3
	for fault, found := range map[faultproxy.Fault]func(*measure.Faults) int64{
		faultproxy.Drop:      func(f *measure.Faults) int64 { return f.Lost },
		faultproxy.Duplicate: func(f *measure.Faults) int64 { return f.Duplicates },
		faultproxy.Swap:      func(f *measure.Faults) int64 { return f.Disordered },
		faultproxy.Flip:      func(f *measure.Faults) int64 { return f.Changed },
		faultproxy.Delay:     func(f *measure.Faults) int64 { return f.Late },
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			cluster := enginetest.Start(t)
			proxy, err := faultproxy.Start(faultproxy.Config{
				NameServer: cluster.NameServer(), Broker: cluster.Broker(), Fault: fault, Every: 101,
				Count: n, Delay: 1500 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			cfg := testTogether(proxy.NameServer())
			cfg.Produce.Connections, cfg.Produce.InFlight, cfg.Produce.Retries = 2, 1, 2
			cfg.Produce.Duration, cfg.Produce.Count = 0, 1500
			if fault == faultproxy.Delay {
				cfg.Readers[0].Consume.Late = Duration(time.Second)
			}
			res := together(t, cfg)
			if res[1].OK || found(res[1].Verify) < n {
				t.Errorf("verdict: %v %s %+v", res[1].OK, res[1].Problem, res[1].Verify)
			}
		})
	}
}
