// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogramLog writes the interval log of the HdrHistogram project, version 1.3: a base64 histogram
// for each second, latencies in nanoseconds, times in seconds from the start of the log. The first
// error stays.
//
// Histograms are encoded here, since the library makes a compressor for each of them: 0.8 MB an
// interval. What an interval leaves to the garbage collector is a copy of its counters.
type histogramLog struct {
	w    *hdrhistogram.HistogramLogWriter // of the head
	to   io.Writer
	base int64 // milliseconds since 1970
	err  error

	zip    *zlib.Writer // the rest is scratch
	counts []byte
	zipped bytes.Buffer
	line   []byte
}

func newHistogramLog(w io.Writer) *histogramLog {
	zip, _ := zlib.NewWriterLevel(io.Discard, zlib.BestCompression) // fails for levels there are not
	return &histogramLog{w: hdrhistogram.NewHistogramLogWriter(w), to: w, zip: zip}
}

func (l *histogramLog) start(at time.Time) {
	l.base = at.UnixMilli()
	l.keep(l.w.OutputComment("[latencies in nanoseconds, skylark perf]"))
	l.keep(l.w.OutputLogFormatVersion())
	l.keep(l.w.OutputStartTime(at.UnixMilli()))
	l.keep(l.w.OutputLegend())
}

// interval appends a line: start, length and maximum in seconds, seconds and milliseconds, and the
// histogram.
func (l *histogramLog) interval(h *Histogram, from, to time.Time) {
	if l.err != nil {
		return
	}
	text, err := l.encode(h.h.Export())
	if err != nil {
		l.keep(err)
		return
	}
	start, end := float64(from.UnixMilli()-l.base), float64(to.UnixMilli()-l.base)
	l.line = fmt.Appendf(l.line[:0], "%f,%f,%f,", start/1e3, (end-start)/1e3, ms(h.h.Max()))
	l.line = base64.StdEncoding.AppendEncode(l.line, text)
	_, err = l.to.Write(append(l.line, '\n'))
	l.keep(err)
}

// Cookies of the second encoding of HdrHistogram, with words of 8 bytes at most.
const (
	cookieV2           = 0x1c849303 | 0x10
	cookieV2Compressed = 0x1c849304 | 0x10
	headV2             = 40 // bytes before the counters
	headV2Compressed   = 8
)

// encode returns the compressed form of a histogram, which is valid until the next call: two words
// before a zlib stream of a head and the counters. These are zigzag varints, a negative one for so
// many zeros. All is big-endian.
func (l *histogramLog) encode(s *hdrhistogram.Snapshot) ([]byte, error) {
	used := len(s.Counts)
	for used > 1 && s.Counts[used-1] == 0 {
		used--
	}
	b := append(l.counts[:0], make([]byte, headV2)...)
	for i := 0; i < used; {
		zeros := 0
		for i+zeros < used && s.Counts[i+zeros] == 0 {
			zeros++
		}
		if zeros > 1 {
			b = binary.AppendVarint(b, int64(-zeros))
			i += zeros
			continue
		}
		b = binary.AppendVarint(b, s.Counts[i])
		i++
	}
	l.counts = b
	binary.BigEndian.PutUint32(b[0:], cookieV2)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-headV2))
	binary.BigEndian.PutUint32(b[8:], 0) // offset of the first counter
	binary.BigEndian.PutUint32(b[12:], uint32(s.SignificantFigures))
	binary.BigEndian.PutUint64(b[16:], uint64(s.LowestTrackableValue))
	binary.BigEndian.PutUint64(b[24:], uint64(s.HighestTrackableValue))
	binary.BigEndian.PutUint64(b[32:], math.Float64bits(1)) // integers are the values themselves
	l.zipped.Reset()
	l.zipped.Write(make([]byte, headV2Compressed))
	l.zip.Reset(&l.zipped)
	if _, err := l.zip.Write(b); err != nil {
		return nil, err
	}
	if err := l.zip.Close(); err != nil {
		return nil, err
	}
	out := l.zipped.Bytes()
	binary.BigEndian.PutUint32(out[0:], cookieV2Compressed)
	binary.BigEndian.PutUint32(out[4:], uint32(len(out)-headV2Compressed))
	return out, nil
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
