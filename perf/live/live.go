// SPDX-License-Identifier: Apache-2.0

// Package live shows a run of the load generator on a terminal: a progress bar below a few lines
// with the current rate, latencies, errors by code and what waits. It draws; perf/measure gives the
// figures.
//
//	v := live.New(os.Stdout)
//	v.Show(status) // once a second, from one goroutine
//	v.Close()
package live

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/skylarkmq/skylark/perf/measure"
)

const (
	redraw   = 200 * time.Millisecond
	barWidth = 30 // columns
	widthMin = 40 // of a terminal that says something smaller, or nothing
)

// View draws over its own lines. Show and Close are called from one goroutine; another one draws.
type View struct {
	bars  progress.Writer
	bar   *progress.Tracker // of the current phase; nil before the first Show
	phase measure.Phase
	last  measure.Status
	drawn chan struct{} // closed when the drawing goroutine has ended
}

// New starts a view on a terminal, or on any writer as if it were one of 120 columns.
func New(w io.Writer) *View {
	const columns = 120
	width := columns
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = max(n, widthMin)
		}
	}
	v := &View{bars: progress.NewWriter(), drawn: make(chan struct{})}
	v.bars.SetOutputWriter(struct{ io.Writer }{w}) // not seen as stdout: the width is known here
	v.bars.SetTerminalWidth(width)
	v.bars.SetUpdateFrequency(redraw)
	v.bars.SetTrackerLength(barWidth)
	v.bars.SetTrackerPosition(progress.PositionRight)
	style := progress.StyleBlocks
	style.Options.Separator = " "
	style.Visibility = progress.StyleVisibility{
		ETA: true, Percentage: true, Pinned: true, Tracker: true, Time: true,
	}
	v.bars.SetStyle(style)
	go func() {
		defer close(v.drawn)
		v.bars.Render()
	}()
	return v
}

// Show draws s from now on.
func (v *View) Show(s measure.Status) {
	v.bars.SetPinnedMessages(lines(s)...)
	done, of := progressOf(s)
	if v.bar == nil || v.phase != s.Phase {
		if v.bar != nil {
			v.bar.MarkAsDone()
		}
		v.phase = s.Phase
		v.bar = &progress.Tracker{
			Message: name(s), Total: of, AutoStopDisabled: true, RemoveOnCompletion: true,
			ExpectedDuration: s.Planned,
		}
		v.bars.AppendTracker(v.bar)
	}
	v.last = s
	v.bar.SetValue(min(done, of))
}

// Close draws for the last time and leaves the lines standing. It may be called again.
func (v *View) Close() {
	// The last Show was up to a second before the planned end.
	if s := v.last; v.bar != nil && s.Planned > 0 && s.Planned-s.Elapsed < 3*time.Second/2 {
		v.bar.SetValue(s.Planned.Milliseconds())
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		v.bars.Stop() // does nothing while drawing has not yet begun
		select {
		case <-v.drawn:
			return
		case <-again.C:
		}
	}
}

func name(s measure.Status) string {
	if s.Phase == measure.Warming {
		return s.Command + ", warming up"
	}
	return s.Command
}

// progressOf returns how far the phase is, by whatever ends it; a total of 0 has no end.
func progressOf(s measure.Status) (done, of int64) {
	switch {
	case s.Planned > 0:
		return s.Elapsed.Milliseconds(), s.Planned.Milliseconds()
	case s.Wanted > 0:
		return s.Messages, s.Wanted
	}
	return 0, 0
}

// lines are what stands above the bar.
func lines(s measure.Status) []string {
	if s.Phase == measure.Warming {
		return []string{"nothing is counted yet"}
	}
	sec := &s.Second
	rate := fmt.Sprintf("now   %s msg/s  %.1f MB/s", Grouped(sec.PerSecond()),
		perSecond(sec.Bytes, sec.Length)/1e6)
	if s.RateAsked > 0 {
		rate += fmt.Sprintf("  (%s asked)", Grouped(s.RateAsked))
	}
	rate += fmt.Sprintf("  backlog %s", Grouped(float64(sec.Backlog)))
	rate += cpu("  broker", sec.BrokerCPU, sec.BrokerRSSAnon)
	rate += cpu("  own", sec.OwnCPU, sec.OwnRSSAnon)
	list := []string{
		rate,
		"ms    " + latencies(sec.Latency),
		fmt.Sprintf("all   %s messages  ms %s", Grouped(float64(s.Messages)), latencies(s.Latency)),
		"fail  " + failures(s.Errors),
	}
	for i := range s.Others {
		o := &s.Others[i]
		list = append(list, fmt.Sprintf("%s  %s msg/s  backlog %s  all ms %s  fail %s", o.Name,
			Grouped(o.Second.PerSecond()), Grouped(float64(o.Second.Backlog)), latencies(o.Latency),
			failures(o.Errors)))
	}
	return list
}

func failures(errors map[string]int64) string {
	if len(errors) == 0 {
		return "none"
	}
	return measure.Causes(errors)
}

func latencies(q measure.Quantiles) string {
	return fmt.Sprintf("p50 %v  p99 %v  p99.9 %v  max %.3f", q.P50, q.P99, q.P999, q.Max)
}

func cpu(who string, cores float64, anonymous int64) string {
	if cores == 0 && anonymous == 0 {
		return ""
	}
	return fmt.Sprintf("%s %.2f cores %.0f MB", who, cores, float64(anonymous)/1e6)
}

func perSecond(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// Grouped renders a whole number in groups of three digits, as 1 234 567.
func Grouped(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	digits := strings.TrimPrefix(text, "-")
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(' ')
		}
		out.WriteRune(d)
	}
	if digits != text {
		return "-" + out.String()
	}
	return out.String()
}
