// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
)

// Rules of the search for the highest rate.
const (
	triesMost = 8
	stepUp    = 1.15
	stepDown  = 0.87

	keptLeast  = 0.98 // of what was asked for, on both sides
	backlogMax = 0.25 // of a second's messages, in the median second of the last third
)

// try is one rate at which both sides ran.
type try struct {
	Asked        float64
	Sent, Read   float64 // a second
	Unsent, Lags float64 // messages due and not answered, stored and not read: median of the last third
	P999         float64 // ms
	Held         bool
}

// search is what was tried. The first one had no rate: it says where to begin.
type search struct{ tries []try }

// rate is the highest rate that was held.
func (s *search) rate() float64 {
	best := 0.0
	for _, t := range s.tries {
		if t.Held {
			best = max(best, t.Asked)
		}
	}
	return best
}

// next is the rate to try after those before; false: there is no more to try.
func (s *search) next() (float64, bool) {
	if len(s.tries) > triesMost {
		return 0, false
	}
	last := s.tries[len(s.tries)-1]
	if len(s.tries) == 1 {
		return min(last.Sent, last.Read), true
	}
	failed := slices.ContainsFunc(s.tries[1:], func(t try) bool { return !t.Held })
	switch {
	case last.Held && failed:
		return 0, false // it came from above
	case last.Held:
		return last.Asked * stepUp, true
	case s.rate() > 0:
		return 0, false // it came from below
	}
	return last.Asked * stepDown, true
}

// newTry judges a run at a rate, 0 for none.
func newTry(asked float64, send, read *measure.Result) try {
	t := try{
		Asked: asked, Sent: send.MessagesPerSec, Read: read.MessagesPerSec,
		Unsent: backlog(send.Series), Lags: backlog(read.Series), P999: float64(send.Latency.P999),
	}
	t.Held = asked > 0 && send.OK && read.OK && min(t.Sent, t.Read) >= keptLeast*asked &&
		max(t.Unsent, t.Lags) <= backlogMax*asked
	return t
}

// backlog is what waited at the end of the median second of the last third.
func backlog(series []measure.Second) float64 {
	var list []int64
	for i := range series[len(series)-len(series)/3:] {
		list = append(list, series[len(series)-1-i].Backlog)
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return float64(list[len(list)/2])
}

// sustained looks for the highest rate that sender, broker and reader keep up with together. What one
// side alone can do says nothing: without a rate the sender takes the processors from the reader, and what
// was not read in time would be read later, beside the sends of the soak.
func (p *plan) sustained(ctx context.Context) (*search, error) {
	found := &search{}
	asked := 0.0
	for more := true; more; asked, more = found.next() {
		t, err := p.attempt(ctx, asked)
		if err != nil {
			return nil, err
		}
		found.tries = append(found.tries, t)
		say("looking for the highest rate: asked %.0f, sent %.0f, read %.0f a second, behind %.0f and %.0f "+
			"messages, held %v", t.Asked, t.Sent, t.Read, t.Unsent, t.Lags, t.Held)
	}
	if found.rate() == 0 {
		return nil, fmt.Errorf("no rate was held by both sides; the lowest tried was %.0f",
			found.tries[len(found.tries)-1].Asked)
	}
	return found, nil
}

// attempt runs both sides at a rate, 0 for none, with a broker on an empty store.
func (p *plan) attempt(ctx context.Context, asked float64) (try, error) {
	const name = "calibrate"
	s, err := p.server(ctx, name)
	if err != nil {
		return try{}, err
	}
	defer func() {
		s.End(syscall.SIGKILL)
		_ = os.RemoveAll(filepath.Join(p.work, name))
	}()
	args := []string{"--warmup", "5s", "--duration", p.calibrate.String(), "--commit"}
	if asked > 0 {
		args = append(args, "--rate", strconv.Itoa(int(asked)))
	}
	parts, err := s.Perf(ctx, p.verify(name, args...)...)
	switch {
	case ctx.Err() != nil:
		return try{}, ctx.Err()
	case len(parts) != 2: // that it has a fault is a result
		return try{}, errors.Join(err, fmt.Errorf("perf verify gave %d results, want those of both sides",
			len(parts)))
	}
	return newTry(asked, parts[0], parts[1]), nil
}

// table says what was tried.
func (s *search) table() string {
	number := func(v float64) string { return report.Number(measure.Millis(v)) }
	t := report.Table{
		Head: []string{
			"asked for", "sent a second", "read a second", "due and unsent", "stored and unread",
			"p99.9 of a send, ms", "held",
		},
		Figures: 5,
	}
	for _, r := range s.tries {
		asked, held := "no rate", "-"
		if r.Asked > 0 {
			asked, held = number(r.Asked), fmt.Sprint(r.Held)
		}
		t.Rows = append(t.Rows, []string{
			asked, number(r.Sent), number(r.Read), number(r.Unsent), number(r.Lags), number(r.P999), held,
		})
	}
	return "How the highest rate was found:\n\n" + t.Markdown() + "\n"
}
