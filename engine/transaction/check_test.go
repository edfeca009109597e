// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Checks come at 6 s and then each interval, 15 of them; then the message is given up, and can be
// taken up again.
func TestCheckTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.half("one")
	b.after(5900 * time.Millisecond)
	if n := len(b.checks()); n != 0 {
		t.Fatalf("%d checks before 6 s", n)
	}
	if next := b.after(200 * time.Millisecond); !next.After(b.clock()) {
		t.Errorf("next step at %v, now is %v", next, b.clock())
	}
	for i := range 15 {
		checks := b.checks()
		if len(checks) != 1 {
			t.Fatalf("check %d: %d were sent", i+1, len(checks))
		}
		v, err := record.Parse(checks[0].Record)
		if err != nil {
			t.Fatal(err)
		}
		if string(v.Topic()) != "T" || v.QueueID() != 3 || string(v.Body()) != "one" || v.Flag() != 7 ||
			property(v, "TRANSACTION_CHECK_TIMES") != fmt.Sprint(i+1) ||
			int64(v.QueueOffset()) != checks[0].Offset || v.PhysicalOffset() != checks[0].At {
			t.Fatalf("check %d asks about %s %d %s %v", i+1, v.Topic(), v.QueueID(), v.Body(), string(v.Properties()))
		}
		b.after(interval - time.Second)
		if n := len(b.checks()); n != 0 {
			t.Fatalf("%d checks within the interval after the %dth", n, i+1)
		}
		b.after(time.Second)
	}
	if n := len(b.checks()); n != 0 {
		t.Fatalf("%d checks after the 15th", n)
	}
	given := b.messages(protocol.TransCheckMaxTimeTopic, 0)
	if len(given) != 1 || string(given[0].Body()) != "one" || property(given[0], "REAL_TOPIC") != "T" {
		t.Fatalf("given up: %d messages", len(given))
	}
	if !strings.Contains(strings.Join(b.said, "\n"), "given up") {
		t.Errorf("nobody was told: %q", b.said)
	}
	if !b.settle() {
		t.Error("it does not come to rest")
	}
	half := b.messages(protocol.HalfTopic, 0)
	if got := b.positions(); got[0] != int64(len(half)) {
		t.Errorf("positions %v with %d half messages", got, len(half))
	}
	if err := b.service.Resume(given[0].PhysicalOffset()); err != nil {
		t.Fatal(err)
	}
	b.after(6 * time.Second)
	checks := b.checks()
	if len(checks) != 1 {
		t.Fatalf("%d checks after it was taken up again", len(checks))
	}
	b.answer(checks[0], true)
	b.delivered("one")
}

// Tries are counted only when somebody is asked, and the message waits where it is.
func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.alone = true
	b.half("one", "CHECK_IMMUNITY_TIME_IN_SECONDS", "600")
	b.half("two")
	for range 60 {
		b.after(20 * time.Second)
	}
	if n := len(b.messages(protocol.HalfTopic, 0)); n != 2 {
		t.Errorf("%d half messages: they were copied although nobody was asked", n)
	}
	b.alone = false
	b.after(time.Second)
	if n := len(b.checks()); n != 0 {
		t.Fatalf("%d checks before the next is due", n)
	}
	b.service.ProducerJoined("G")
	b.after(0)
	checks := b.checks()
	if len(checks) != 2 {
		t.Fatalf("%d checks when a producer came back", len(checks))
	}
	for _, c := range checks {
		v, _ := record.Parse(c.Record)
		if times := property(v, "TRANSACTION_CHECK_TIMES"); times != "1" {
			t.Errorf("%s was counted %s times", v.Body(), times)
		}
		b.answer(c, true)
	}
	if !strings.Contains(strings.Join(b.said, "\n"), "no producer") {
		t.Errorf("nobody was told: %q", b.said)
	}
	// After the time that files are kept it is given up in any case.
	b.alone = true
	b.half("three")
	b.after(73 * time.Hour)
	if n := len(b.messages(protocol.TransCheckMaxTimeTopic, 0)); n != 1 {
		t.Errorf("%d given up after 73 h", n)
	}
}

// A half message with an immunity time is asked about when that is over, and does not keep those
// behind it waiting.
func TestImmunity(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.half("long", "CHECK_IMMUNITY_TIME_IN_SECONDS", "100")
	b.half("minus", "CHECK_IMMUNITY_TIME_IN_SECONDS", "-1")
	b.half("plain")
	b.after(7 * time.Second)
	for _, want := range []string{"minus", "plain"} {
		checks := b.checks()
		if len(checks) != 2 {
			t.Fatalf("%d checks after 7 s", len(checks))
		}
		found := false
		for _, c := range checks {
			v, _ := record.Parse(c.Record)
			found = found || string(v.Body()) == want
		}
		if !found {
			t.Errorf("%s was not checked", want)
		}
		b.asked = checks
	}
	for _, c := range b.checks() {
		b.answer(c, false)
	}
	b.after(92 * time.Second)
	if n := len(b.checks()); n != 0 {
		t.Errorf("%d checks within the immunity time", n)
	}
	b.after(2 * time.Second)
	if n := len(b.checks()); n != 1 {
		t.Errorf("%d checks after the immunity time", n)
	}
}

// An answer to a check that was asked again meanwhile settles the later copy too.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	first := b.half("one")
	b.after(6 * time.Second)
	b.after(interval)
	b.after(interval)
	checks := b.checks()
	if len(checks) != 3 {
		t.Fatalf("%d checks", len(checks))
	}
	b.answer(checks[0], true)
	b.answer(checks[2], true)
	b.answer(checks[1], true)
	b.end(first, true)
	b.delivered("one")
	for range 20 {
		b.after(interval)
	}
	if n := len(b.checks()); n != 0 {
		t.Errorf("%d checks of an ended message", n)
	}
	b.delivered("one")
}

// After a kill nothing that was ended is asked about, and everything else is, whatever the positions
// in the file are.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill=", kill), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			var ends []transaction.End
			for i := range 100 {
				ends = append(ends, b.half(fmt.Sprint(i)))
			}
			var want []string
			for i, e := range ends {
				switch i % 4 {
				case 0:
					b.end(e, true)
					want = append(want, fmt.Sprint(i))
				case 1:
					b.end(e, false)
				}
			}
			b.after(6 * time.Second) // 50 checks
			for _, c := range b.checks()[:10] {
				b.answer(c, true)
				v, _ := record.Parse(c.Record)
				want = append(want, string(v.Body()))
			}
			b.again(kill)
			b.after(interval)
			checks := b.checks()
			if len(checks) != 40 {
				t.Fatalf("%d checks after the restart, want 40", len(checks))
			}
			for _, c := range checks {
				b.answer(c, true)
				v, _ := record.Parse(c.Record)
				want = append(want, string(v.Body()))
			}
			b.delivered(want...)
			b.after(interval)
			b.after(interval)
			if n := len(b.checks()); n != 0 {
				t.Errorf("%d checks of ended messages", n)
			}
			if !b.settle() {
				t.Error("it does not come to rest")
			}
			n := int64(len(b.messages(protocol.HalfTopic, 0)))
			if got := b.positions(); got[0] != n || got[1] != int64(len(b.messages(protocol.OpHalfTopic, 0))) {
				t.Errorf("positions %v, %d half messages", got, n)
			}
		})
	}
}

// A position is committed only when what settles the messages before it is on disk: else the power going
// would take an end and leave a position that says there was one.
func TestPositionWaitsForDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.end(b.half("one"), true)
	b.after(7 * time.Second) // on disk up to here
	b.end(b.half("two"), true)
	b.service.Step(b.clock().Add(7 * time.Second))
	b.service.Step(b.clock().Add(9 * time.Second))
	if b.store.Flushed() < b.messages(protocol.OpHalfTopic, 0)[1].PhysicalOffset() && b.positions()[0] > 1 {
		t.Errorf("position %d is ahead of the disk", b.positions()[0])
	}
	b.settle()
	if got := b.positions()[0]; got != 2 {
		t.Errorf("position %d", got)
	}
}

// One forgotten message does not keep the position, and with it the work of a start, for ever.
func TestLaggard(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *transaction.Config) { c.Window = 100 })
	b.alone = true
	b.half("forgotten")
	b.after(7 * time.Second)
	for i := range 150 {
		b.end(b.half(fmt.Sprint(i)), false)
	}
	for range 4 {
		b.after(2 * time.Second)
	}
	if got := b.positions(); got[0] != 151 {
		t.Errorf("position %d, want 151", got[0])
	}
	b.again(false)
	b.alone = false
	b.after(7 * time.Second)
	checks := b.checks()
	if len(checks) != 1 {
		t.Fatalf("%d checks", len(checks))
	}
	v, _ := record.Parse(checks[0].Record)
	if property(v, "TRANSACTION_CHECK_TIMES") != "1" {
		t.Errorf("the move was counted: %s", v.Properties())
	}
}

// A disk that is full between any two records delays things, and neither loses nor doubles them.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	one := b.half("one")
	one.Commit = true
	b.room = 0
	if err := b.service.End(&one); !errors.Is(err, storage.ErrDiskFull) {
		t.Fatalf("commit on a full disk: %v", err)
	}
	b.room = 1 // the commit, not its op record
	b.end(one, true)
	b.end(one, true)
	b.delivered("one")
	if next := b.after(7 * time.Second); next.IsZero() {
		t.Error("nobody comes back for the op record")
	}
	b.room = -1
	b.after(time.Second)
	if ops := b.messages(protocol.OpHalfTopic, 0); len(ops) != 1 || string(ops[0].Body()) != "0," {
		t.Errorf("%d op records", len(ops))
	}

	b.half("two")
	b.half("three")
	b.room = 0
	b.after(7 * time.Second)
	b.room = 1 // the copy of one of them, not the op record
	b.after(2 * time.Second)
	if n := len(b.checks()); n != 0 {
		t.Fatalf("%d checks without a trace of them in the store", n)
	}
	b.room = -1
	for range 4 {
		b.after(interval)
	}
	bodies := map[string]int{}
	for _, c := range b.checks() {
		v, _ := record.Parse(c.Record)
		bodies[string(v.Body())]++
		b.answer(c, true)
	}
	if bodies["two"] == 0 || bodies["three"] == 0 || bodies["one"] != 0 {
		t.Errorf("checked %v", bodies)
	}
	b.again(true)
	b.after(interval)
	if n := len(b.checks()); n != 0 {
		t.Errorf("%d checks after all was ended", n)
	}
	got := map[string]int{}
	for _, v := range b.messages("T", 3) {
		got[string(v.Body())]++
	}
	if diff := cmp.Diff(map[string]int{"one": 1, "two": 1, "three": 1}, got); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

// A bound on what waits only delays the checks of the rest.
func TestWaitingMax(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *transaction.Config) { c.WaitingMax = 10 })
	for i := range 35 {
		b.half(fmt.Sprint(i), "CHECK_IMMUNITY_TIME_IN_SECONDS", "60")
	}
	seen := map[string]bool{}
	for range 20 {
		b.after(interval)
		if n := b.service.Waiting(); n > 10 {
			t.Fatalf("%d wait", n)
		}
		for _, c := range b.checks() {
			v, _ := record.Parse(c.Record)
			seen[string(v.Body())] = true
			b.answer(c, false)
		}
	}
	if len(seen) != 35 {
		t.Errorf("%d of 35 were checked", len(seen))
	}
}

// The timer runs only while a half message waits.
func TestTimer(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *transaction.Config) {
		c.Now, c.TimeOut = time.Now, 20*time.Millisecond
	})
	b.mu.Lock()
	b.now = time.Now()
	b.mu.Unlock()
	b.half("one")
	limit, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for answered := false; !answered; {
		if checks := b.checks(); len(checks) > 0 {
			b.answer(checks[0], true)
			answered = true
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("no check")
		}
	}
	b.delivered("one")
}

// A half message whose copy cannot be stored, because its properties have no room for what a check
// adds, holds up nobody else, and can be ended.
func TestCheckWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.half("first")
	size := len(b.messages(protocol.HalfTopic, 0)[0].Properties())
	full := b.half("poison", "KEYS", strings.Repeat("k", record.MaxProperties-size-len("KEYS")-4))
	b.half("last")
	got := map[string]int{}
	for range 4 {
		b.after(interval)
		for range 3 {
			b.after(2 * time.Second)
		}
		for _, c := range b.checks() {
			got[c.UniqueKey]++
		}
	}
	if got["Ufirst"] < 3 || got["Ulast"] < 3 {
		t.Errorf("in four intervals, checks %v", got)
	}
	b.end(full, true)
	b.delivered("poison")
}

// A limit for bodies that was lowered does not concern what was taken before it.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	large := strings.Repeat("x", 5000)
	b.half(large)
	b.maxMessage = 1000
	b.again(false)
	b.after(7 * time.Second)
	checks := b.checks()
	if len(checks) != 1 {
		t.Fatalf("%d checks", len(checks))
	}
	b.answer(checks[0], true)
	b.delivered(large)
}
