// SPDX-License-Identifier: Apache-2.0

package longpoll_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skylarkmq/skylark/engine/longpoll"
)

// waiter counts its wakes.
type waiter struct {
	hold  longpoll.Hold
	woken chan bool
}

func newWaiter(from int64, wait time.Duration) *waiter {
	w := &waiter{woken: make(chan bool, 8)}
	w.hold = longpoll.Hold{Waiter: w, From: from, Deadline: time.Now().Add(wait)}
	return w
}

func (w *waiter) Wake(due bool) { w.woken <- due }

func at(end int64) func() int64 { return func() int64 { return end } }

func TestArrivedWakesOnlyWhatWaitsBelowTheEnd(t *testing.T) {
	t.Parallel()
	table := longpoll.New(10, time.Now)
	low, high, other := newWaiter(5, time.Minute), newWaiter(9, time.Minute), newWaiter(5, time.Minute)
	for _, p := range []struct {
		w     *waiter
		queue int32
	}{{low, 0}, {high, 0}, {other, 1}} {
		if parked, _ := table.Park([]byte("t"), p.queue, &p.w.hold, at(5)); !parked {
			t.Fatal("not parked")
		}
	}
	table.Arrived("t", 0, 6)
	if due := <-low.woken; due {
		t.Error("woken as due, want as grown")
	}
	if got := table.Len(); got != 2 {
		t.Errorf("held: got %d, want 2", got)
	}
	table.Arrived("t", 0, 9)
	table.Arrived("u", 1, 100)
	if len(high.woken)+len(other.woken) != 0 {
		t.Error("woken by an end that its offset has not passed, or by another topic")
	}
	table.Close()
	if due := <-high.woken; !due {
		t.Error("close must wake as due")
	}
	<-other.woken
	if parked, _ := table.Park([]byte("t"), 0, &low.hold, at(0)); parked {
		t.Error("parked after Close")
	}
}

func TestParkSeesWhatArrivedMeanwhile(t *testing.T) {
	t.Parallel()
	table := longpoll.New(10, time.Now)
	w := newWaiter(5, time.Minute)
	parked, grown := table.Park([]byte("t"), 0, &w.hold, at(6))
	if parked || !grown {
		t.Errorf("got parked=%v grown=%v, want a hold that is not taken", parked, grown)
	}
	// Arrived runs between the insertion and the second look: the wake must come exactly once.
	parked, grown = table.Park([]byte("t"), 0, &w.hold, func() int64 {
		table.Arrived("t", 0, 6)
		return 6
	})
	if !parked || grown {
		t.Errorf("got parked=%v grown=%v, want parked and woken", parked, grown)
	}
	if len(w.woken) != 1 || table.Len() != 0 {
		t.Errorf("wakes %d, held %d", len(w.woken), table.Len())
	}
}

func TestTheBound(t *testing.T) {
	t.Parallel()
	table := longpoll.New(1, time.Now)
	a, b := newWaiter(1, time.Minute), newWaiter(1, time.Minute)
	table.Park([]byte("t"), 0, &a.hold, at(0))
	if parked, grown := table.Park([]byte("t"), 0, &b.hold, at(0)); parked || grown {
		t.Error("the table took more than its bound")
	}
	table.WakeTopic("t")
	if due := <-a.woken; due {
		t.Error("a topic's wake is not a deadline")
	}
	table.Close()
}

func TestClockDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := longpoll.New(100, time.Now)
		start := time.Now()
		var holds []*waiter
		waits := []time.Duration{
			15 * time.Second, 3 * time.Second, 20 * time.Second, 9 * time.Second, 3 * time.Second,
		}
		for i, wait := range waits {
			w := newWaiter(1, wait)
			holds = append(holds, w)
			table.Park([]byte("t"), int32(i), &w.hold, at(0))
		}
		for i, want := range waits {
			if due := <-holds[i].woken; !due {
				t.Errorf("hold %d: woken as grown", i)
			}
			if i == 2 { // the last one
				if took := time.Since(start); took < want || took > want+time.Second {
					t.Errorf("the longest hold ended after %v, want %v", took, want)
				}
			}
		}
		if table.Len() != 0 {
			t.Errorf("held: %d", table.Len())
		}
		table.Close()
	})
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	table := longpoll.New(10000, time.Now)
	var end atomic.Int64
	var wg sync.WaitGroup
	const rounds = 2000
	for q := range int32(4) {
		wg.Go(func() {
			for i := range int64(rounds) {
				w := newWaiter(i, time.Minute)
				parked, _ := table.Park([]byte("t"), q, &w.hold, end.Load)
				if parked {
					<-w.woken
				}
			}
		})
	}
	for i := range int64(rounds) {
		end.Store(i + 1)
		for q := range int32(4) {
			table.Arrived("t", q, i+1)
		}
	}
	wg.Wait()
	if table.Len() != 0 {
		t.Errorf("held: %d", table.Len())
	}
}

func TestAllocsParkAndWake(t *testing.T) {
	table := longpoll.New(10, time.Now)
	w := newWaiter(1, time.Hour)
	topic := []byte("topic")
	end := at(0)
	got := testing.AllocsPerRun(1000, func() {
		table.Park(topic, 3, &w.hold, end)
		table.Arrived("topic", 3, 2)
		<-w.woken
	})
	if got != 0 {
		t.Errorf("allocations: got %v, want 0", got)
	}
	table.Close()
}
