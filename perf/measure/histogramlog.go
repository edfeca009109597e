// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogramLog writes the interval log of the HdrHistogram project, version 1.3: a base64 histogram
// for each second, latencies in nanoseconds, times in seconds from the start of the log. The first
// error stays.
type histogramLog struct {
	w   *hdrhistogram.HistogramLogWriter
	err error
}

func newHistogramLog(w io.Writer) *histogramLog {
	return &histogramLog{w: hdrhistogram.NewHistogramLogWriter(w)}
}

func (l *histogramLog) start(at time.Time) {
	l.w.SetBaseTime(at.UnixMilli())
	l.keep(l.w.OutputComment("[latencies in nanoseconds, skylark perf]"))
	l.keep(l.w.OutputLogFormatVersion())
	l.keep(l.w.OutputStartTime(at.UnixMilli()))
	l.keep(l.w.OutputLegend())
}

func (l *histogramLog) interval(h *Histogram, from, to time.Time) {
	h.h.SetStartTimeMs(from.UnixMilli())
	h.h.SetEndTimeMs(to.UnixMilli())
	l.keep(l.w.OutputIntervalHistogram(h.h))
}

func (l *histogramLog) keep(err error) {
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("measure: writing the histogram log: %w", err)
	}
}

// ReadHistogramLog joins all intervals of a log into one histogram. Its samples are the messages,
// since a log does not tell which of them shared a request.
func ReadHistogramLog(r io.Reader) (h *Histogram, intervals int, err error) {
	h = NewHistogram()
	log := hdrhistogram.NewHistogramLogReader(r)
	for {
		one, err := log.NextIntervalHistogram()
		if errors.Is(err, io.EOF) || err == nil && one == nil {
			return h, intervals, nil
		}
		if err != nil {
			return nil, intervals, fmt.Errorf("measure: histogram log: interval %d: %w",
				intervals+1, err)
		}
		intervals++
		h.h.Merge(one)
		h.samples += one.TotalCount()
	}
}
