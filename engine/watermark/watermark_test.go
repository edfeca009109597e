// SPDX-License-Identifier: Apache-2.0

package watermark_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/watermark"
)

type released = watermark.Released[int]

func TestAdvanceReleasesUpToTheMark(t *testing.T) {
	t.Parallel()
	var got []released
	l := watermark.New(time.Minute, 100, func(rs []released) { got = append(got, rs...) })
	for i, at := range []int64{10, 30, 20} { // the third comes from a slower loop
		if parked, _ := l.Add(at, i); !parked {
			t.Fatalf("position %d not parked", at)
		}
	}
	l.Advance(20)
	if diff := cmp.Diff([]released{{0, true}, {2, true}}, got); diff != "" {
		t.Errorf("released at 20 (-want +got):\n%s", diff)
	}
	if parked, reached := l.Add(15, 9); parked || !reached {
		t.Errorf("a position below the mark: parked=%v reached=%v", parked, reached)
	}
	l.Advance(19) // backwards: ignored
	l.Close()
	if diff := cmp.Diff(released{1, false}, got[2]); diff != "" || len(got) != 3 {
		t.Errorf("released by Close: %v %s", got, diff)
	}
	if parked, reached := l.Add(99, 9); parked || reached {
		t.Error("parked after Close")
	}
}

func TestTheBoundRefuses(t *testing.T) {
	t.Parallel()
	l := watermark.New(time.Minute, 2, func([]released) {})
	l.Add(1, 1)
	l.Add(2, 2)
	if parked, reached := l.Add(3, 3); parked || reached {
		t.Error("took more than its bound")
	}
	l.Advance(1)
	if parked, _ := l.Add(3, 3); !parked {
		t.Error("refused although one has gone")
	}
	l.Close()
}

func TestClockDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []released
		l := watermark.New(5*time.Second, 100, func(rs []released) { got = append(got, rs...) })
		l.Add(10, 1)
		<-time.After(3 * time.Second)
		l.Add(20, 2)
		<-time.After(3 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]released{{1, false}}, got); diff != "" {
			t.Errorf("after 6 s (-want +got):\n%s", diff)
		}
		l.Advance(20)
		if diff := cmp.Diff([]released{{1, false}, {2, true}}, got); diff != "" {
			t.Errorf("after the mark (-want +got):\n%s", diff)
		}
		l.Close()
	})
}

func TestAllocsSteadyState(t *testing.T) {
	l := watermark.New(time.Minute, 1000, func([]released) {})
	mark := int64(0)
	got := testing.AllocsPerRun(1000, func() {
		for i := range int64(16) {
			l.Add(mark+i+1, int(i))
		}
		mark += 16
		l.Advance(mark)
	})
	if got != 0 {
		t.Errorf("allocations: got %v, want 0", got)
	}
	l.Close()
}
