// SPDX-License-Identifier: Apache-2.0

package timer_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/engine/timer"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestClockDelivery delivers at the exact millisecond, in the order of the times, and sleeps in
// between.
func TestClockDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	if next := b.step(0); next != -1 {
		t.Errorf("with nothing to do it wakes in %v", next)
	}
	b.send("c", "TIMER_DELAY_MS=2450")
	b.send("a", "TIMER_DELAY_MS=2400")
	b.send("far", "TIMER_DELAY_SEC=3600")
	b.send("b", fmt.Sprint("TIMER_DELIVER_MS=", startMS+2440))
	if next := b.step(0); next != 1700*time.Millisecond {
		t.Errorf("it wakes in %v, want at the start of the second", next)
	}
	if next := b.step(1700 * time.Millisecond); next != 700*time.Millisecond {
		t.Errorf("it wakes in %v, want for the first message", next)
	}
	b.send("between", "TIMER_DELAY_MS=720") // joins the second that has begun
	b.step(699 * time.Millisecond)
	b.want("")
	b.step(time.Millisecond)
	b.want("a")
	b.step(45 * time.Millisecond)
	b.want("a between b")
	b.step(10 * time.Minute)
	b.want("a between b c")
	if next := b.step(0); next != 3600*time.Second-10*time.Minute-2445*time.Millisecond-300*time.Millisecond {
		t.Errorf("it wakes in %v, want at the start of the second of the last one", next)
	}
	b.step(time.Hour)
	b.want("a between b c far")
	if n := b.service.Pending(); n != 0 {
		t.Errorf("%d are said to wait", n)
	}
	if len(b.notices) > 0 {
		t.Errorf("notices %q", b.notices)
	}
}

// TestDeliveredRecord holds what a delivered record keeps and gets.
func TestDeliveredRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("a", "KEYS=k TIMER_DELAY_SEC=2")
	b.step(0)
	b.step(2 * time.Second)
	got := ""
	b.records(topicName, func(v record.View) { got = text(v.Properties()) })
	const want = "KEYS=k TIMER_DELAY_SEC=2 UNIQ_KEY=key-of-a TIMER_OUT_MS=1795978002000 " +
		"REAL_TOPIC=orders REAL_QID=0 TIMER_ENQUEUE_MS=1795978000000 TIMER_DEQUEUE_MS=1795978002300"
	if got != want {
		t.Errorf("properties\n%q, want\n%q", got, want)
	}
}

// TestRecall drops what was recalled, before and in the second in which it is due, by either form of
// the key.
func TestRecall(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	for _, body := range []string{"a", "b", "c", "d"} {
		b.send(body, "TIMER_DELAY_MS=5900") // due at the end of second 5
	}
	b.send("stays", "TIMER_DELAY_MS=5900")
	const out = startMS + 5900 - 200
	b.recall("a", out)
	b.step(0)
	if n := b.service.Pending(); n != 4 {
		t.Errorf("%d are said to wait, want 4", n)
	}
	b.recall("orders+key-of-nobody", out)
	b.send("0", fmt.Sprintf("TIMER_DELIVER_MS=%d TIMER_DEL_UNIQKEY=orders+key-of-b", out+1))
	b.step(5700 * time.Millisecond) // the second has begun
	b.recall("c", out)
	b.step(100 * time.Millisecond)
	b.want("")
	b.step(time.Second)
	b.want("d stays")
	b.step(time.Minute)
	if n := b.service.Pending(); n != 0 {
		t.Errorf("%d are said to wait, want 0", n)
	}
}

// TestRoll puts what is due beyond the window into the timer topic again, and delivers it once.
func TestRoll(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.config.RollTicks = 30
	b.close()
	b.open()
	b.send("near", "TIMER_DELAY_SEC=29")
	b.send("far", fmt.Sprint("TIMER_DELIVER_MS=", startMS+100_450))
	b.send("gone", "TIMER_DELAY_SEC=100")
	b.recall("gone", startMS+100_000-300)
	for range 101 {
		b.step(time.Second)
	}
	b.want("near far")
	rolls := 0
	b.records(timerName, func(v record.View) {
		if n, ok := record.Property(v.Properties(), "TIMER_ROLL_TIMES"); ok && string(v.Body()) == "far" {
			rolls++
			if string(n) != fmt.Sprint(rolls) {
				t.Errorf("roll %d says %s", rolls, n)
			}
		}
	})
	if rolls < 3 || rolls > 5 {
		t.Errorf("it was rolled %d times", rolls)
	}
	b.step(time.Minute)
	if n := b.service.Pending(); n != 0 {
		t.Errorf("%d are said to wait, want 0", n)
	}
}

// TestManyInOneSecond delivers several batches and files of the log in one go.
func TestManyInOneSecond(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	var want []string
	for i := range 1000 {
		b.send(fmt.Sprintf("%03d", i), fmt.Sprint("TIMER_DELIVER_MS=", startMS+5000+i/10))
		want = append(want, fmt.Sprintf("%03d", i))
	}
	b.step(0)
	b.step(time.Minute)
	b.want(strings.Join(want, " "))
}

// TestRestart goes on after a graceful end, after a death, and after files were lost: nothing is lost
// and nothing comes twice.
func TestRestart(t *testing.T) {
	t.Parallel()
	remove := func(names ...string) func(b *bench) {
		return func(b *bench) {
			for _, name := range names {
				if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
	cases := map[string]struct {
		graceful bool
		damage   func(b *bench)
	}{
		"graceful":               {true, remove()},
		"death":                  {false, remove()},
		"wheel gone":             {true, remove("timerwheel")},
		"wheel gone and death":   {false, remove("timerwheel")},
		"log gone":               {true, remove("timerlog")},
		"both gone":              {true, remove("timerlog", "timerwheel")},
		"last file of log gone":  {true, remove("timerlog/00000000000000004096")},
		"first file of log gone": {true, remove("timerlog/00000000000000000000")},
		"wheel cut": {true, func(b *bench) {
			if err := os.Truncate(filepath.Join(b.dir, "timerwheel"), 4096); err != nil {
				b.t.Fatal(err)
			}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, t.TempDir())
			var want []string
			for i := range 150 {
				body := fmt.Sprintf("%03d", i)
				b.send(body, fmt.Sprint("TIMER_DELIVER_MS=", startMS+1000+20*i))
				want = append(want, body)
				b.step(0)
			}
			b.step(2500 * time.Millisecond) // in the middle of a second
			b.want(strings.Join(want[:76], " "))
			b.send("late", "TIMER_DELAY_MS=1") // not filed before the end
			if c.graceful {
				b.close()
			} else {
				b.die()
			}
			c.damage(b)
			b.open()
			b.step(0)
			b.want(strings.Join(want[:76], " "))
			b.step(2 * time.Millisecond)
			b.step(time.Minute)
			b.want(strings.Join(append(append(want[:76:76], "late"), want[76:]...), " "))
		})
	}
}

// TestEndOfTick ends a second whose messages were all delivered with the service, for a Java broker
// that goes by the checkpoint; what comes for that second later still comes at its time.
func TestEndOfTick(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("a", "TIMER_DELAY_MS=1000")
	b.step(0)
	b.step(time.Second)
	b.close()
	check, err := os.ReadFile(filepath.Join(b.dir, "config", timer.CheckName))
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(binary.BigEndian.Uint64(check)); got != startMS-300+2000 {
		t.Errorf("the checkpoint says %d, want the second after %d", got, startMS+1000)
	}
	b.open()
	b.send("b", "TIMER_DELAY_MS=400") // in the second that is over
	b.step(0)
	b.step(399 * time.Millisecond)
	b.want("a")
	b.step(time.Millisecond)
	b.want("a b")
}

// TestDown delivers after a long time what was due meanwhile, in order.
func TestDown(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("b", "TIMER_DELAY_SEC=7200")
	b.send("a", "TIMER_DELAY_SEC=3600")
	b.step(0)
	b.send("early", "TIMER_DELAY_SEC=1") // never filed before the end
	b.close()
	b.ms.Add((30 * 24 * time.Hour).Milliseconds())
	b.open()
	b.send("after", "TIMER_DELAY_SEC=20")
	b.step(0)
	b.want("early a b")
	b.step(20 * time.Second)
	b.want("early a b after")
}

// TestClockSetBack delivers by the clock as it is now.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("a", "TIMER_DELAY_SEC=1")
	b.step(0)
	b.step(time.Second)
	b.step(time.Minute)
	b.want("a")
	b.ms.Add(-30_000)
	b.send("b", "TIMER_DELAY_SEC=5")
	b.step(0)
	b.want("a")
	b.step(4999 * time.Millisecond)
	b.want("a")
	b.step(time.Millisecond)
	b.want("a b")
}

// TestLostCopies takes the store back to before deliveries that the progress file remembers, as a
// loss of power does: what was lost is delivered again.
func TestLostCopies(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), t.TempDir()
	b := newBench(t, dir)
	b.send("a", "TIMER_DELAY_SEC=1")
	b.step(0)
	b.close()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.step(time.Second)
	b.want("a")
	b.die()
	marks, err := os.ReadFile(filepath.Join(dir, "config", progress.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "config", progress.FileName), marks, 0o644); err != nil {
		t.Fatal(err)
	}
	b.dir = old
	b.open()
	b.step(0)
	b.want("a")
}

// TestLostMessages takes the CommitLog back behind messages that wheel and log have: their units are
// forgotten, and those that lie in their places later are filed rightly.
func TestLostMessages(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), t.TempDir()
	b := newBench(t, dir)
	b.send("a", "TIMER_DELAY_SEC=5")
	b.step(0)
	b.close()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.send("lost", "TIMER_DELAY_SEC=5")
	b.send("lost too", "TIMER_DELAY_SEC=9")
	b.step(0)
	b.close()
	for _, name := range []string{timer.WheelName, timer.LogName} {
		if err := os.RemoveAll(filepath.Join(old, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(old, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.dir = old
	b.open()
	b.send("b", "TIMER_DELAY_SEC=5")
	b.step(0)
	b.step(time.Minute)
	b.want("a b")
	if n := b.service.Pending(); n != 0 {
		t.Errorf("%d are said to wait, want 0", n)
	}
}

// TestOtherFileSize files everything again when the log was written with files of another size.
func TestOtherFileSize(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.send("a", "TIMER_DELAY_SEC=1")
	b.step(0)
	b.close()
	b.config.FileSize = 8192
	b.open()
	b.step(2 * time.Second)
	b.want("a")
	if len(b.notices) != 1 || !strings.Contains(b.notices[0], "mappedFileSizeTimerLog") {
		t.Errorf("notices %q", b.notices)
	}
}

// TestStrangers leaves out what only a client that knows the topic can send, and says so once.
func TestStrangers(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	for _, props := range []string{"", "TIMER_OUT_MS=soon", "TIMER_OUT_MS=-5", "TIMER_DELAY_SEC=1"} {
		b.put(timerName, "strange", props)
	}
	b.put(timerName, "no target", fmt.Sprint("TIMER_OUT_MS=", startMS))
	b.send("a", "TIMER_DELAY_SEC=1")
	b.step(0)
	b.step(2 * time.Second)
	b.want("a")
	if len(b.notices) != 2 {
		t.Errorf("notices %q", b.notices)
	}
}

// TestPrecision works with other ticks, and finds its messages after the ticks have changed.
func TestPrecision(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.config.PrecisionMS = 100
	b.close()
	b.open()
	b.send("a", "TIMER_DELAY_MS=1050")
	b.send("b", "TIMER_DELAY_SEC=3600")
	b.step(0)
	b.step(1049 * time.Millisecond)
	b.want("")
	b.step(time.Millisecond)
	b.want("a")
	b.close()
	b.config.PrecisionMS = 1000
	b.open()
	b.step(time.Hour)
	b.want("a b")
}

// TestRuns runs the goroutine.
func TestRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.service.Start()
	b.send("a", "TIMER_DELAY_SEC=1")
	b.service.Wake()
	b.ms.Add(1000)
	b.send("b", "TIMER_DELAY_SEC=100")
	b.service.Wake()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.bodies(topicName) != "a" || b.service.Pending() != 1 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("delivered %q, %d wait", b.bodies(topicName), b.service.Pending())
		}
	}
	if got := string(b.service.Metrics()); !strings.Contains(got, `"orders":{"count":1,"timeStamp":`) {
		t.Errorf("numbers %s", got)
	}
}

// TestFullProperties delivers a message whose properties have no room for what the wheel adds, also
// when it is rolled on the way.
func TestFullProperties(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.config.RollTicks = 30
	b.close()
	b.open()
	for i, wait := range []int{2, 100} {
		body := string(rune('b' + i))
		ask := fmt.Sprintf("TIMER_DELIVER_MS=%d KEYS=", startMS+wait*1000)
		b.send("a", ask+"k")
		size := 0
		b.records(timerName, func(v record.View) { size = len(v.Properties()) })
		b.send(body, ask+strings.Repeat("k", 1+record.MaxProperties-size))
		full := false
		b.records(timerName, func(v record.View) {
			full = full || len(v.Properties()) == record.MaxProperties
		})
		if !full {
			t.Fatal("the properties are not as long as they may be")
		}
	}
	for range 102 {
		b.step(time.Second)
	}
	b.want("a b a c")
}

// TestForeignTarget passes over what a client put into the timer topic itself to be delivered into a
// topic to which it may not send.
func TestForeignTarget(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	names := []string{
		"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX",
		"TRANS_CHECK_MAX_TIME_TOPIC",
	}
	for _, name := range names {
		b.put(timerName, "0,1,2", fmt.Sprintf(
			"TIMER_OUT_MS=%d TIMER_DELIVER_MS=%[1]d REAL_TOPIC=%s REAL_QID=0 TAGS=d", startMS, name))
	}
	b.send("a", "TIMER_DELAY_SEC=2")
	b.step(0)
	b.step(4 * time.Second)
	b.want("a")
	for _, name := range names {
		if got := b.bodies(name); got != "" {
			t.Errorf("%s got %q", name, got)
		}
	}
}
