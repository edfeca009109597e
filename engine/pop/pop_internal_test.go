// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testAuthor() *author {
	return &author{
		topic: "rmq_sys_REVIVE_LOG_DefaultCluster", host: netip.MustParseAddrPort("127.0.0.1:30911"),
		rules: &delay.Rules{PrecisionMS: 1000, TimerMaxMS: 3 * 24 * 3600 * 1000},
	}
}

// properties of an entry, as the recordings of RocketMQ 5.5.0 show them.
func properties(e *storage.Entry) map[string]string {
	props := map[string]string{}
	record.EachProperty(e.Draft.Properties, func(name, value []byte) bool {
		props[string(name)] = string(value)
		return true
	})
	return props
}

// The records are those that RocketMQ 5.5.0 wrote for the same pop and acknowledgement
// (storage/testdata/vectors/pop.tar.gz).
func TestGoldenRecords(t *testing.T) {
	t.Parallel()
	a := testAuthor()
	const now = 1795977772173
	c := &Checkpoint{
		Broker: "broker-a", Group: "GID_pop", Diffs: []int32{0, 1, 2, 3}, InvisibleMS: 10000, Num: 4,
		PopMS: now, Queue: 1, Topic: "PopTopic",
	}
	e, err := a.checkpoint(c, 0, now)
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"bm":0,"bn":"broker-a","c":"GID_pop","d":[0,1,2,3],"it":10000,"n":4,"pt":1795977772173,"q":1,` +
		`"reviveTime":1795977782173,"ro":0,"so":0,"sp":false,"t":"PopTopic"}`
	if got := string(e.Draft.Body); got != body {
		t.Errorf("checkpoint\n got  %s\n want %s", got, body)
	}
	want := map[string]string{
		"REAL_QID": "0", "REAL_TOPIC": a.topic, "TAGS": "ck", "TIMER_DELIVER_MS": "1795977781173",
		"TIMER_OUT_MS": "1795977781000", "UNIQ_KEY": "PopTopic@1@0@GID_pop@1795977772173@broker-a@ck",
	}
	if diff := cmp.Diff(want, properties(&e)); diff != "" || string(e.Draft.Topic) != protocol.TimerTopic {
		t.Errorf("checkpoint in %s (-want +got):\n%s", e.Draft.Topic, diff)
	}
	key := ckKey{"PopTopic", "GID_pop", 1, 0, now}
	e, err = a.ack(&key, "broker-a", []int64{3}, 0, c.dueMS(), now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(e.Draft.Body),
		`{"ao":3,"bn":"broker-a","c":"GID_pop","pt":1795977772173,"q":1,"so":0,"t":"PopTopic"}`; got != want {
		t.Errorf("ack\n got  %s\n want %s", got, want)
	}
	if got := properties(&e)["TIMER_OUT_MS"]; got != "1795977782000" {
		t.Errorf("ack is due at %s", got)
	}
	e, err = a.ack(&key, "broker-a", []int64{1, 2}, 3, c.dueMS(), c.dueMS())
	if err != nil || string(e.Draft.Topic) != a.topic || e.Draft.QueueID != 3 {
		t.Errorf("an ack that is due goes to %s/%d, %v", e.Draft.Topic, e.Draft.QueueID, err)
	}
	if p := properties(&e); p["TAGS"] != "bAck" || p["UNIQ_KEY"] != "PopTopic@1@-1@GID_pop@1795977772173@broker-a@ack" ||
		!strings.Contains(string(e.Draft.Body), `"ao":-1,"aol":[1,2]`) {
		t.Errorf("batch ack: %v %s", p, e.Draft.Body)
	}
}

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	c := Checkpoint{Start: 100, Num: 3, Diffs: []int32{0, 2, 7}, Topic: "T", Group: "g"}
	if c.check() != nil || c.offset(2) != 107 || c.index(102) != 1 || c.index(101) != -1 {
		t.Errorf("%v %d %d %d", c.check(), c.offset(2), c.index(102), c.index(101))
	}
	c.Diffs = nil
	if c.check() != nil || c.offset(2) != 102 {
		t.Errorf("without differences: %v %d", c.check(), c.offset(2))
	}
	for name, bad := range map[string]Checkpoint{
		"too many": {Num: 33, Topic: "T", Group: "g"}, "negative": {Num: -1, Topic: "T", Group: "g"},
		"offsets": {Num: 2, Diffs: []int32{0}, Topic: "T", Group: "g"}, "no topic": {Group: "g"}, "no group": {Topic: "T"},
	} {
		if bad.check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	r, err := ParseReceipt("4 1795977772355 10000 2 0 broker-a 0 5")
	want := Receipt{4, 1795977772355, 10000, 2, "0", "broker-a", 0, 5}
	if err != nil || r != want || r.String() != "4 1795977772355 10000 2 0 broker-a 0 5" || r.Ordered() {
		t.Errorf("%+v %v", r, err)
	}
	if r, err = ParseReceipt("4 1 2 999 1 b 3"); err != nil || !r.Ordered() || r.Queue != 3 {
		t.Errorf("old form: %+v %v", r, err)
	}
	for _, text := range []string{"", "rubbish", "1 2 3 4 5", "x 2 3 4 0 b", "1 2 3 4 0 b 9999999999", "1 2 3 4 0 b 1 2 3 4"} {
		if _, err := ParseReceipt(text); err == nil {
			t.Errorf("%q: taken", text)
		}
	}
	for topic, want := range map[string]string{
		"%RETRY%g_T": "T", "%RETRY%g+T": "T", "T": "T", "%RETRY%g": "%RETRY%g", "%RETRY%h_T": "%RETRY%h_T", "g_T": "g_T",
	} {
		if got := NormalTopic(topic, "g"); got != want {
			t.Errorf("%s comes from %s, want %s", topic, got, want)
		}
	}
	for kind, want := range map[string]string{"0": "T", "1": "%RETRY%g_T", "2": "%RETRY%g+T"} {
		got, err := TopicOfKind(kind, "T", "g")
		if err != nil || got != want || KindOf(got) != kind {
			t.Errorf("kind %s: %s %v", kind, got, err)
		}
	}
	var i Infos
	i.Add("T", 0, 5, []int64{5, 7})
	i.Add("%RETRY%g_T", 0, 1, []int64{1})
	i.AddCounts("T", 0, []int64{5, 7}, map[int64]int32{7: 2})
	if i.Starts() != "0 0 5;1 0 1" || i.Offsets() != "0 0 5,7;1 0 1" || i.Counts() != "0 qo0%7 2;0 0 0" {
		t.Errorf("%q %q %q", i.Starts(), i.Offsets(), i.Counts())
	}
}

func FuzzReceipt(f *testing.F) {
	f.Add("4 1795977772355 10000 2 0 broker-a 0 5")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReceipt(text)
		if err != nil {
			return
		}
		if again, err := ParseReceipt(r.String()); err != nil || again != r {
			t.Fatalf("%q: %+v, then %+v %v", text, r, again, err)
		}
	})
}

// The file is RocketMQ's: this one was written by a broker of 5.5.0.
const apacheOrders = `{
	"orderInfoCount":1,
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"PopOrder@GID_order":{
			0:{
				"a":"attempt-PopOrder",
				"cm":1,
				"i":10000,
				"l":1795977772393,
				"o":[0,1,2],
				"popTime":1795977772388
			}
		}
	}
}`

func TestGoldenOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, OrdersFileName)
	if err := os.WriteFile(path, []byte(apacheOrders), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := OpenOrders(dir, false, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	const pop = 1795977772388
	if !o.Blocked("PopOrder", "GID_order", 0, "other", 10000, pop+9999) ||
		o.Blocked("PopOrder", "GID_order", 0, "attempt-PopOrder", 10000, pop+1) ||
		o.Blocked("PopOrder", "GID_order", 0, "other", 10000, pop+10000) {
		t.Error("blocked when it should not be, or the reverse")
	}
	now := time.Now().UnixMilli()
	for _, step := range []struct{ offset, pop, want int64 }{
		{2, pop, 1}, {5, pop, OrderNotOut}, {1, pop + 1, OrderOld}, {1, pop, 3},
	} {
		if got := o.Commit("PopOrder", "GID_order", 0, step.offset, step.pop, now); got != step.want {
			t.Errorf("%+v: got %d", step, got)
		}
	}
	if got := o.Commit("PopOrder", "GID_order", 7, 4, 1, now); got != 5 {
		t.Errorf("a queue that is not known: %d", got)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	var f ordersFile
	data, err := os.ReadFile(path)
	if err == nil {
		err = protocol.Unmarshal(data, &f)
	}
	want := &order{
		AttemptID: "attempt-PopOrder", Acked: 7, InvisibleMS: 10000, LastMS: now, Offsets: []int64{0, 1, 2}, PopMS: pop,
	}
	if diff := cmp.Diff(want, f.Table["PopOrder@GID_order"][0]); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s\n%s", err, diff, data)
	}
}

func TestOrdersFree(t *testing.T) {
	t.Parallel()
	o, err := OpenOrders(t.TempDir(), false, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	poked := 0
	o.setPoke(func() { poked++ })
	w := &Wish{Topic: "T", Group: "g", Queue: 1, PopMS: 1000, InvisibleMS: 500, AttemptID: "a"}
	o.Update(w, []int64{10, 12}, 1000)
	if poked == 0 || o.nextMS() != 1500 {
		t.Errorf("poked %d times, next at %d", poked, o.nextMS())
	}
	o.SetVisible("T", "g", 1, 12, 1000, 9000)
	o.Commit("T", "g", 1, 10, 1000, 1001)
	if o.nextMS() != 9000 || !o.Blocked("T", "g", 1, "b", 1, 8999) {
		t.Errorf("next at %d", o.nextMS())
	}
	var freed []string
	free := func(topic, group string, queue int32) { freed = append(freed, fmt.Sprint(topic, group, queue)) }
	o.step(8999, free)
	o.step(9000, free)
	if fmt.Sprint(freed) != "[Tg1]" || o.nextMS() != 0 {
		t.Errorf("freed %v", freed)
	}
	if counts := o.Update(&Wish{Topic: "T", Group: "g", Queue: 1, PopMS: 9000, AttemptID: "b"}, []int64{12, 13}, 9000); counts[12] != 1 || counts[13] != 0 {
		t.Errorf("counts %v", counts)
	}
	o.Clear("T", "g", 1)
	if o.Blocked("T", "g", 1, "", 1, 9000) {
		t.Error("cleared and still blocked")
	}
}

// waiter notes how it was woken.
type waiter struct{ woken chan bool }

func (w *waiter) Wake(due bool) { w.woken <- due }

func park(t *testing.T, table *Waiters, topic, group string, queue int32, wait time.Duration) *waiter {
	t.Helper()
	w := &waiter{woken: make(chan bool, 1)}
	if p := table.Park(&Wait{
		Waiter: w, Topic: topic, Group: group, Queue: queue, Deadline: time.Now().Add(wait),
	}); p != ParkedHeld {
		t.Fatalf("parked %d", p)
	}
	return w
}

func TestWaiters(t *testing.T) {
	t.Parallel()
	table := NewWaiters(time.Now)
	defer table.Close()
	anyOfG := park(t, table, "T", "g", -1, time.Hour)
	later := park(t, table, "T", "g", -1, time.Hour)
	one := park(t, table, "T", "g", 1, time.Hour)
	other := park(t, table, "T", "h", 2, time.Hour)
	table.Arrived("T", 1)
	if due := <-anyOfG.woken; due {
		t.Error("woken as due")
	}
	<-one.woken
	if table.Len() != 2 || table.Of("T", "g", -1) != 1 || len(later.woken)+len(other.woken) > 0 {
		t.Errorf("%d wait", table.Len())
	}
	table.Wake("T", "h", -1)
	<-other.woken
	table.WakeOne("T", "g", -1)
	<-later.woken
	soon := park(t, table, "T", "g", -1, 200*time.Millisecond)
	if due := <-soon.woken; !due {
		t.Error("not woken as due")
	}
	if p := table.Park(&Wait{Waiter: soon, Deadline: time.Now()}); p != ParkedTooLate {
		t.Errorf("parked %d at its deadline", p)
	}
	for i := range waitersOfKey {
		park(t, table, "full", "g", 0, time.Hour+time.Duration(i))
	}
	if p := table.Park(&Wait{Waiter: soon, Topic: "full", Group: "g", Deadline: time.Now().Add(time.Hour)}); p != ParkedFull {
		t.Errorf("parked %d", p)
	}
	table.Close()
	if table.Len() != 0 {
		t.Errorf("%d wait after the end", table.Len())
	}
}

// Everybody is woken exactly once, whoever wakes.
func TestWaitersRace(t *testing.T) {
	t.Parallel()
	table := NewWaiters(time.Now)
	var work, woken sync.WaitGroup
	for g := range 4 {
		work.Go(func() {
			for i := range 200 {
				woken.Add(1)
				w := &countdown{&woken}
				if table.Park(&Wait{
					Waiter: w, Topic: "T", Group: fmt.Sprint(g), Queue: int32(i % 3),
					Deadline: time.Now().Add(time.Duration(60+i) * time.Millisecond),
				}) != ParkedHeld {
					woken.Done()
				}
				table.Arrived("T", int32(i%3))
			}
		})
	}
	work.Wait()
	table.Close()
	woken.Wait()
}

type countdown struct{ group *sync.WaitGroup }

func (c *countdown) Wake(bool) { c.group.Done() }
