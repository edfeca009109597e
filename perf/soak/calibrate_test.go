// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"

	"github.com/skylarkmq/skylark/perf/measure"
)

// TestSearch has a machine on which both sides together hold a certain rate, whatever the sender does
// alone: the search comes within a sixth of it from either side, and never above it.
func TestSearch(t *testing.T) {
	t.Parallel()
	const most = 100_000
	for _, alone := range []struct{ sent, read float64 }{
		{220_000, 60_000}, {220_000, 200_000}, {120_000, 118_000}, {101_000, 99_000},
	} {
		s := &search{tries: []try{{Sent: alone.sent, Read: alone.read}}}
		for asked, more := s.next(); more; asked, more = s.next() {
			s.tries = append(s.tries, newTry(asked, run(asked, asked), run(min(asked, most), asked)))
		}
		if got := s.rate(); got > most*1.02 || got < most/1.17 {
			t.Errorf("%+v: found %.0f: %+v", alone, got, s.tries)
		}
	}
	s := &search{tries: []try{{Sent: 1e6, Read: 1e6}}}
	for asked, more := s.next(); more; asked, more = s.next() {
		s.tries = append(s.tries, newTry(asked, run(asked, asked), run(10, asked)))
	}
	if s.rate() != 0 || len(s.tries) > triesMost+1 {
		t.Errorf("a rate was held: %+v", s.tries)
	}
}

// run is a run at a rate, of which so many messages a second are dealt with.
func run(done, asked float64) *measure.Result {
	r := &measure.Result{MessagesPerSec: done, OK: true}
	for second := range 30 {
		r.Series = append(r.Series, measure.Second{
			Length: 1, Messages: int64(done), Backlog: int64(math.Max(0, asked-done) * float64(second+1)),
		})
	}
	return r
}

// TestTryNeedsBoth: a rate at which one side falls behind is not held, nor is one at which a backlog
// that is not worked off stands all the time.
func TestTryNeedsBoth(t *testing.T) {
	t.Parallel()
	standing := run(1000, 1000)
	for i := range standing.Series {
		standing.Series[i].Backlog = 400
	}
	failed := run(1000, 1000)
	failed.OK = false
	good := run(1000, 1000)
	for name, c := range map[string]struct {
		send, read *measure.Result
		held       bool
	}{
		"both":           {good, good, true},
		"reader behind":  {good, run(900, 1000), false},
		"sender behind":  {run(900, 1000), good, false},
		"standing queue": {good, standing, false},
		"lost something": {good, failed, false},
	} {
		if got := newTry(1000, c.send, c.read); got.Held != c.held {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
