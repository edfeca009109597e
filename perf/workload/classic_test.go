// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestGoldenApacheLines holds every line to what org.apache.rocketmq.example.benchmark 5.5.0 printed:
// testdata/apache-benchmark.txt has it as it came, with the command lines behind '#'.
func TestGoldenApacheLines(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/apache-benchmark.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	at := func(clock string) time.Time {
		when, err := time.Parse("2006-01-02 15:04:05,000", "2026-11-30 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	var got bytes.Buffer
	say := func(line string) { got.WriteString(line + "\n") }
	out := Output{Reports: &got, Every: time.Second, Classic: &Classic{DelayLevel: 1}}

	p := DefaultProduce()
	p.Topic, p.Size, p.Keys, p.Tags, p.Count, p.Compress = "BT", 100, true, 3, 15000, "zlib"
	out.Classic.Threads = 1
	printProduceHeader(&p, out)
	say(measure.Rates{Messages: 2403, Max: 302, RequestMean: 0.416}.FinalProduceLine(15000, 1))
	p = DefaultProduce()
	p.Topic, p.Count = "BT", 1000
	out.Classic.Threads = 2
	printProduceHeader(&p, out)
	say(measure.Rates{Messages: 11, Max: 1115, RequestMean: 102.261}.FinalProduceLine(1000, 1))
	say(measure.Rates{}.ProduceLine(at("01:00:08,301"), 1))

	p.Batch, p.Count, out.Classic.Threads = 8, 0, 1
	printProduceHeader(&p, out)
	say(measure.Rates{Requests: 96, Messages: 773, Max: 1576, RequestMean: 5.002}.
		ProduceLine(at("01:00:07,254"), 8))

	c := DefaultConsume()
	c.Topic, c.FilterType, c.Filter = "BT", "TAG", "tag1 || tag2"
	out.Classic = &Classic{Threads: 20, FilterType: "TAG", FilterFile: "expr"}
	printConsumeHeader(&c, out)
	c = DefaultConsume()
	c.Topic, c.Group, out.Classic = "BT", "bh", &Classic{Threads: 20}
	printConsumeHeader(&c, out)
	say(measure.Rates{}.ConsumeLine(at("01:00:01,185"), 0, 0))
	say(measure.Rates{Messages: 9150, SecondMean: 1.396, RequestMean: 1.061}.
		ConsumeLine(at("01:00:25,136"), 270e6, 353e6))

	check := &checker{}
	say(check.line(measure.Rates{}, at("01:00:00,072"), 0))
	check.snaps = [][4]int64{{}, {0, 847, 0, 0}}
	say(check.line(measure.Rates{Messages: 1618, RequestMean: 0.6}, at("01:00:24,068"), 16e6))

	// The capture of the second consumer was cut before it said that it had started.
	lines := strings.Split(strings.TrimRight(got.String(), "\n"), "\n")
	for i := len(lines) - 1; i > 0; i-- {
		if lines[i] == "Consumer Started." && strings.Contains(lines[i-1], "group: bh") {
			lines = append(lines[:i], lines[i+1:]...)
		}
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-Apache's +ours):\n%s", diff)
	}
}

// TestClassicPrintsNothingElse: the start lines, report lines from the tenth second only, and the
// last line, which is short when there was no time for a rate.
func TestClassicPrintsNothingElse(t *testing.T) {
	t.Parallel()
	server := startNull(t)
	p := DefaultProduce()
	p.NameServers, p.Count = []string{server.Addr()}, 500
	var text bytes.Buffer
	out := Output{Reports: &text, Every: time.Second, Classic: &Classic{Threads: 64}}
	if _, err := RunProduce(t.Context(), p, out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if len(lines) != 3 || lines[2] != "[Complete] Send Total: 500 Send Failed: 0 Response Failed: 0" {
		t.Errorf("printed\n%s", text.String())
	}
}

// TestE2ETransactions: what is committed is readable, what is rolled back or open is not.
func TestE2ETransactions(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	cfg := DefaultTransactions()
	cfg.NameServers, cfg.Topic, cfg.Count = []string{cluster.NameServer()}, "tx", 600
	cfg.Threads, cfg.Size, cfg.SendRollback, cfg.SendUnknown = 8, 100, 0.3, 0.2
	res, err := RunTransactions(t.Context(), cfg, Output{})
	if err != nil || !res.OK || res.Messages != 600 || res.SendFailed+res.ResponseFailed != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	c := DefaultConsume()
	c.NameServers, c.Topic, c.UntilEnd = cfg.NameServers, "tx", true
	// Ends are one-way: the last of them may still be on their way.
	n := int64(0)
	for range 50 {
		if n = consume(t, c).Messages; n >= 240 {
			break
		}
		tick(20 * time.Millisecond)
	}
	if n < 240 || n > 360 {
		t.Errorf("%d of 600 messages are readable, half were committed", n)
	}
}

// TestCheckerOfTransactions: checks are answered as the message says, and judged.
func TestCheckerOfTransactions(t *testing.T) {
	t.Parallel()
	cfg := DefaultTransactions()
	cfg.BatchID = 77
	var text bytes.Buffer
	load := newTransactor(&cfg, nil, Output{Reports: &text})
	defer load.pool.Close()
	c := load.checker
	view := func(p plan, batch int64, times string) record.View {
		props := record.AppendProperty(nil, "TRANSACTION_CHECK_TIMES", times)
		props = record.AppendProperty(props, "UNIQ_KEY", "ID")
		d := record.Draft{Topic: []byte("t"), Body: p.appendBody(nil, batch, 60), Properties: props}
		b := make([]byte, d.Size())
		d.Encode(b, record.Place{})
		v, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	open := plan{number: 5, send: stateUnknown}
	open.checks[0], open.checks[1] = stateUnknown, stateRollback
	for _, tc := range []struct {
		name       string
		view       record.View
		want       byte
		unexpected int64
		duplicated int64
	}{
		{"first check", view(open, 77, "1"), stateUnknown, 0, 0},
		{"the same again", view(open, 77, "1"), stateUnknown, 0, 1},
		{"second check", view(open, 77, "2"), stateRollback, 0, 1},
		{"after an end", view(open, 77, "3"), stateRollback, 1, 1},
		{"of another batch", view(open, 78, "1"), stateRollback, 1, 1},
		{"ended at the send", view(plan{number: 6, send: stateCommit}, 77, "1"), stateCommit, 2, 1},
		{"without times", view(open, 77, "x"), stateRollback, 2, 1},
	} {
		if got := c.judge(tc.view, "TX"); got != tc.want {
			t.Errorf("%s: answered %d, want %d", tc.name, got, tc.want)
		}
		if u, d := c.unexpected.Load(), c.duplicated.Load(); u != tc.unexpected || d != tc.duplicated {
			t.Errorf("%s: unexpected %d duplicated %d, want %d and %d", tc.name, u, d, tc.unexpected, tc.duplicated)
		}
	}
	if !strings.Contains(text.String(), " unexpected check: msgId=ID,txId=TX,checkTimes=1,sendResult=COMMIT_MESSAGE\n") {
		t.Errorf("printed %s", text.String())
	}
	body := open.appendBody(nil, 77, 100)
	if len(body) != 100 || binary.BigEndian.Uint64(body) != 77 || body[planSend] != stateUnknown {
		t.Errorf("body %v", body)
	}
}
