// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func testPlace() Place { return Place{Topic: "t", Broker: "b", Queue: 3} }

func body(number, floor uint64) []byte {
	b := bytes.Repeat([]byte{'x'}, 100)
	s := Stamp{Run: 9, Stream: 1, Number: number, Floor: floor}
	s.Put(b)
	return b
}

// again is the second copy of a message whose first one got no answer.
func again(number uint64) []byte {
	b := bytes.Repeat([]byte{'x'}, 100)
	s := Stamp{Run: 9, Stream: 1, Number: number, Again: true}
	s.Put(b)
	return b
}

func endBody(count uint64, missing ...Range) []byte {
	s := Stamp{Run: 9, Stream: 1, Number: count, Missing: missing}
	return s.AppendEnd(nil)
}

// TestCheckerFaults feeds a sequence with one fault of each kind and expects that kind alone.
func TestCheckerFaults(t *testing.T) {
	t.Parallel()
	damaged := body(1, 0)
	damaged[99] ^= 1
	cut := body(1, 0)[:90]
	for _, tc := range []struct {
		name   string
		bodies [][]byte
		want   Faults
	}{
		{"whole", [][]byte{body(0, 0), body(1, 1), body(2, 2), endBody(3)}, Faults{Messages: 3}},
		{"lost inside", [][]byte{body(0, 0), body(2, 2), endBody(3)}, Faults{Messages: 2, Lost: 1}},
		{"lost first", [][]byte{body(2, 2), endBody(3)}, Faults{Messages: 1, Lost: 2}},
		{"lost last", [][]byte{body(0, 0), endBody(3)}, Faults{Messages: 1, Lost: 2}},
		{"lost all", [][]byte{endBody(5)}, Faults{Lost: 5}},
		{
			"duplicate",
			[][]byte{body(0, 0), body(1, 0), body(0, 0), endBody(2)},
			Faults{Messages: 3, Duplicates: 1},
		},
		{
			"swapped in flight",
			[][]byte{body(1, 0), body(0, 0), endBody(2)},
			Faults{Messages: 2, Swapped: 1},
		},
		{
			"disordered",
			[][]byte{body(1, 1), body(0, 0), endBody(2)},
			Faults{Messages: 2, Disordered: 1},
		},
		{
			"changed byte",
			[][]byte{body(0, 0), damaged, endBody(2)},
			Faults{Messages: 1, Changed: 1, Lost: 1},
		},
		{
			"cut short",
			[][]byte{body(0, 0), cut, endBody(2)},
			Faults{Messages: 1, Changed: 1, Lost: 1},
		},
		{
			"unacknowledged and absent",
			[][]byte{body(0, 0), body(4, 1), endBody(6, Range{1, 2}, Range{5, 1})},
			Faults{Messages: 2, Lost: 1, Unacked: 3},
		},
		{
			"unacknowledged and there",
			[][]byte{body(0, 0), body(1, 1), endBody(2, Range{1, 1})},
			Faults{Messages: 2, Unacked: 1},
		},
		{
			"sent again and stored twice",
			[][]byte{body(0, 0), body(1, 0), body(2, 2), again(1), endBody(3)},
			Faults{Messages: 4, Resent: 1},
		},
		{
			"sent again and stored late",
			[][]byte{body(0, 0), body(2, 2), again(1), endBody(3)},
			Faults{Messages: 3},
		},
		{
			"first copy behind the second",
			[][]byte{body(0, 0), again(1), body(2, 2), body(1, 0), endBody(3)},
			Faults{Messages: 4, Resent: 1},
		},
		{
			"duplicate of a neighbour of what was sent again",
			[][]byte{body(0, 0), again(1), body(0, 0), endBody(2)},
			Faults{Messages: 3, Duplicates: 1},
		},
		{"without end", [][]byte{body(0, 0)}, Faults{Messages: 1, Unended: 1}},
		{"foreign", [][]byte{[]byte("hello"), body(0, 0), endBody(1)}, Faults{Messages: 1, Foreign: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := NewChecker(true)
			for _, b := range tc.bodies {
				c.Body(testPlace(), b, true)
			}
			tc.want.Streams = 1
			got := c.Faults()
			diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Faults{}, "Examples"))
			if diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			bad := tc.want.Lost+tc.want.Duplicates+tc.want.Swapped+tc.want.Disordered+
				tc.want.Changed+tc.want.Unended > 0
			if got.Any(false, true) != bad {
				t.Errorf("any fault: got %v, want %v", !bad, bad)
			}
		})
	}
}

// TestCheckerAllows: swaps on one connection and missing ends are faults only where asked.
func TestCheckerAllows(t *testing.T) {
	t.Parallel()
	if (Faults{Swapped: 1}).Any(true, true) {
		t.Error("allowed swap counts as a fault")
	}
	if (Faults{Unended: 1}).Any(false, false) {
		t.Error("an open stream counts although reading stopped early")
	}
}

func TestCheckerRecordFaults(t *testing.T) {
	t.Parallel()
	c := NewChecker(true)
	other := testPlace()
	other.Queue = 4
	c.Body(testPlace(), body(0, 0), true)
	c.Body(other, body(1, 0), true)             // another queue
	c.Body(testPlace(), []byte("hello"), false) // the record's own checksum is wrong
	for _, offset := range []int64{5, 6, 8, 9} {
		c.Offset(testPlace(), offset)
	}
	c.Offset(other, 100)
	want := Faults{
		Messages: 2, Streams: 1, Misplaced: 1, Changed: 1, OffsetGaps: 1, Unended: 1,
	}
	diff := cmp.Diff(want, c.Faults(), cmpopts.IgnoreFields(Faults{}, "Examples"))
	if diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// TestCheckerMidway: a consumer that starts late takes the first number it sees as the start.
func TestCheckerMidway(t *testing.T) {
	t.Parallel()
	c := NewChecker(false)
	for n := uint64(50); n < 60; n++ {
		c.Body(testPlace(), body(n, n), true)
	}
	if f := c.Faults(); f.Lost != 0 || f.Messages != 10 {
		t.Errorf("faults: got %+v, want none in 10 messages", f)
	}
}

// TestModelChecker compares the checker with sets over random deliveries.
func TestModelChecker(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		count := uint64(r.IntN(200) + 1)
		c := NewChecker(true)
		seen := map[uint64]bool{}
		var duplicates int64
		for range r.IntN(400) {
			n := r.Uint64N(count)
			if seen[n] {
				duplicates++
			}
			seen[n] = true
			c.Body(testPlace(), body(n, 0), true)
		}
		c.Body(testPlace(), endBody(count), true)
		f := c.Faults()
		if lost := int64(count) - int64(len(seen)); f.Lost != lost || f.Duplicates != duplicates {
			t.Fatalf("seed %d: got lost %d duplicates %d, want %d and %d",
				seed, f.Lost, f.Duplicates, lost, duplicates)
		}
	}
}

func TestCheckerMerge(t *testing.T) {
	t.Parallel()
	a, b := NewChecker(true), NewChecker(true)
	a.Body(testPlace(), body(1, 0), true)
	b.Body(testPlace(), body(0, 0), true) // the same stream in the other's queue
	b.Body(testPlace(), []byte("x"), true)
	a.Merge(b)
	if f := a.Faults(); f.Misplaced != 1 || f.Foreign != 1 || f.Messages != 2 {
		t.Errorf("merged: got %+v", f)
	}
}

func TestAllocsChecker(t *testing.T) {
	c := NewChecker(true)
	b := body(0, 0)
	n := uint64(0)
	got := testing.AllocsPerRun(100, func() {
		s := Stamp{Run: 9, Stream: 1, Number: n, Floor: n}
		s.Put(b)
		c.Body(testPlace(), b, true)
		c.Offset(testPlace(), int64(n))
		n++
	})
	if got != 0 {
		t.Errorf("allocations for a stamp and a check: got %v, want 0", got)
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	b := bytes.Repeat([]byte{'x'}, 100)
	s := Stamp{Run: 9, Stream: 1, Due: 1_700_000_000_123_456_789}
	s.Put(b)
	if got := NewChecker(true).Body(testPlace(), b, true); got != s.Due {
		t.Errorf("due of a judged body: got %d, want %d", got, s.Due)
	}
	if got := DueOf(b); got != s.Due {
		t.Errorf("due: got %d, want %d", got, s.Due)
	}
	if DueOf([]byte("foreign")) != 0 || DueOf(endBody(1)) != 0 {
		t.Error("a body that is no message has a due moment")
	}
}
