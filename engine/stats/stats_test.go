// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/stats"
)

// clock is a passed-in clock in milliseconds.
type clock struct{ ms int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms) }

func newManager(c *clock) *stats.Manager {
	return stats.New(stats.Config{Cluster: "DefaultCluster", Now: c.now, Location: time.UTC})
}

// TestWindows: the numbers are those that a snapshot every ten seconds would have given, although
// nothing runs in between.
func TestWindows(t *testing.T) {
	t.Parallel()
	c := &clock{ms: 1_000_000_000_000}
	m := newManager(c)
	put := func(n int64) { m.Topic([]byte("T")).Put(c.ms, 1, n, n*100) }
	minute := func(sum int64, tps float64) {
		t.Helper()
		d, ok := m.View("TOPIC_PUT_NUMS", "T")
		if !ok || d.StatsMinute.Sum != sum || d.StatsMinute.TPS != tps {
			t.Fatalf("%+v, want sum %d tps %v", d.StatsMinute, sum, tps)
		}
	}
	put(30)
	minute(0, 0) // no snapshot yet
	c.ms += 10_000
	minute(30, 3)
	put(30)
	put(30)
	c.ms += 50_000
	minute(90, 1.5)
	c.ms += 10_000
	minute(60, 1)
	c.ms += 600_000
	minute(0, 0)
	d, _ := m.View("TOPIC_PUT_NUMS", "T")
	if d.StatsHour.Sum != 90 || d.StatsDay.Sum != 0 {
		t.Fatalf("%+v", d)
	}
	if d, _ = m.View("TOPIC_PUT_SIZE", "T"); d.StatsHour.Sum != 9000 || d.StatsHour.AvgPT != 3000 {
		t.Fatalf("%+v", d)
	}
	c.ms += 48 * 3600_000
	if d, _ = m.View("TOPIC_PUT_NUMS", "T"); d.StatsDay.Sum != 0 || d.StatsHour.Sum != 0 {
		t.Fatalf("two days later: %+v", d)
	}
}

func TestViewUnknown(t *testing.T) {
	t.Parallel()
	c := &clock{ms: 1}
	m := newManager(c)
	m.Topic([]byte("T"))
	m.Group([]byte("g"), []byte("T")).Get(c.ms, 1, 1)
	for _, pair := range [][2]string{
		{"TOPIC_PUT_NUMS", "T"}, // known but never counted
		{"TOPIC_PUT_NUMS", "U"},
		{"GROUP_GET_NUMS", "T"},
		{"GROUP_GET_NUMS", "T@h"},
		{"NO_SUCH", "T@g"},
		{"BROKER_PUT_NUMS", "DefaultCluster"},
		{"BROKER_GET_NUMS", "other"},
		{"", ""},
	} {
		if _, ok := m.View(pair[0], pair[1]); ok {
			t.Fatalf("%v is there", pair)
		}
	}
	if _, ok := m.View("GROUP_GET_NUMS", "T@g"); !ok {
		t.Fatal("T@g is missing")
	}
	m.RemoveGroup("g")
	if _, ok := m.View("GROUP_GET_NUMS", "T@g"); ok {
		t.Fatal("removed and still there")
	}
}

func TestBrokerReport(t *testing.T) {
	t.Parallel()
	c := &clock{ms: time.Date(2026, 1, 1, 23, 0, 0, 0, time.UTC).UnixMilli()}
	m := newManager(c)
	b := m.Broker()
	b.Put(c.ms, 1, 10, 1000, 0, false)
	b.Put(c.ms, 1, 10, 1000, 7, true)
	b.Get(c.ms, 5, 3, false)
	b.Miss(c.ms)
	b.PutFailed()
	c.ms += 10_000
	r := b.Report(c.ms)
	if r.Put != (stats.Totals{Now: 20}) || r.Get.Now != 5 || r.PutCalls != 2 || r.PutFailed != 1 ||
		r.PutBytes != 2000 || r.PutMaxMS != 7 || r.GetMaxMS != 3 {
		t.Fatalf("%+v", r)
	}
	if r.PutTPS != "2.0 2.0 2.0" || r.TotalTPS != "0.2 0.2 0.2" || r.TransferredTPS != "0.5 0.5 0.5" {
		t.Fatalf("%+v", r)
	}
	if !strings.HasPrefix(r.PutTimes, "[<=0ms]:1 [0~10ms]:1 [10~50ms]:0 ") ||
		!strings.HasSuffix(r.PutTimes, "[10s~]:0 ") {
		t.Fatal(r.PutTimes)
	}
	c.ms += 2 * 3600_000 // past midnight
	b.Put(c.ms, 1, 1, 1, 0, false)
	if got := b.Report(c.ms).Put; got != (stats.Totals{TodayMorning: 20, Now: 21}) {
		t.Fatalf("%+v", got)
	}
	c.ms += 24 * 3600_000
	if got := b.Report(c.ms).Put; got != (stats.Totals{20, 21, 21}) {
		t.Fatalf("%+v", got)
	}
	c.ms += 72 * 3600_000
	if got := b.Report(c.ms).Put; got != (stats.Totals{21, 21, 21}) {
		t.Fatalf("%+v", got)
	}
}

// TestClockBack: a clock that is set back neither panics nor counts backwards.
func TestClockBack(t *testing.T) {
	t.Parallel()
	c := &clock{ms: 2_000_000_000_000}
	m := newManager(c)
	m.Topic([]byte("T")).Put(c.ms, 1, 1, 1)
	c.ms += 10_000
	m.View("TOPIC_PUT_NUMS", "T")
	c.ms -= 24 * 365 * 24 * 3600_000
	m.Topic([]byte("T")).Put(c.ms, 1, 1, 1)
	m.Broker().Put(c.ms, 1, 1, 1, 0, false)
	if d, ok := m.View("TOPIC_PUT_NUMS", "T"); !ok || d.StatsMinute.Sum < 0 {
		t.Fatalf("%+v", d)
	}
	c.ms += 10_000
	if d, _ := m.View("TOPIC_PUT_NUMS", "T"); d.StatsMinute.Sum != 1 || d.StatsMinute.TPS != 0.1 {
		t.Fatalf("it does not count on: %+v", d)
	}
	if r := m.Broker().Report(c.ms); r.PutTPS != "0.1 0.1 0.1" || r.Put.Now != 1 {
		t.Fatalf("%+v", r)
	}
}

func TestAllocsPut(t *testing.T) {
	c := &clock{ms: 1_000_000}
	m := newManager(c)
	topic, group := []byte("T"), []byte("g")
	n := testing.AllocsPerRun(1000, func() {
		m.Topic(topic).Put(c.ms, 1, 1, 1)
		m.Group(group, topic).Get(c.ms, 1, 1)
		m.Broker().Put(c.ms, 1, 1, 1, 1, false)
	})
	if n > 0.01 {
		t.Fatalf("%v allocations", n)
	}
}
