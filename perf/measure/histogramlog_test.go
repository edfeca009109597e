// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
)

// drawn returns a histogram of n latencies, most of them below a millisecond.
func drawn(n int) *Histogram {
	r := rand.New(rand.NewPCG(3, 4))
	h := NewHistogram()
	for range n {
		h.Record(int64(r.ExpFloat64()*300_000), 1)
	}
	return h
}

// inflate returns what the histogram of a line is before its compression.
func inflate(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < headV2Compressed {
		t.Fatalf("%q: %v", text, err)
	}
	z, err := zlib.NewReader(bytes.NewReader(b[headV2Compressed:]))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestHistogramLogLine: a line is that of the library, which other tools read.
func TestHistogramLogLine(t *testing.T) {
	t.Parallel()
	one, most := NewHistogram(), NewHistogram()
	one.Record(5_000_000, 3)
	most.Record(latencyMaxNS, 1<<40)
	from := time.UnixMilli(1_764_000_000_000)
	for name, h := range map[string]*Histogram{
		"empty": NewHistogram(), "one": one, "most": most, "few": drawn(20), "many": drawn(100_000),
	} {
		var got, want bytes.Buffer
		log := newHistogramLog(&got)
		log.start(from)
		for range 2 { // the second one with used scratch
			got.Reset()
			log.interval(h, from.Add(time.Second), from.Add(2500*time.Millisecond))
		}
		if log.err != nil {
			t.Fatal(log.err)
		}
		lib := hdrhistogram.NewHistogramLogWriter(&want)
		lib.SetBaseTime(from.UnixMilli())
		h.h.SetStartTimeMs(from.UnixMilli() + 1000)
		h.h.SetEndTimeMs(from.UnixMilli() + 2500)
		if err := lib.OutputIntervalHistogram(h.h); err != nil {
			t.Fatal(err)
		}
		gotParts := strings.SplitN(strings.TrimSpace(got.String()), ",", 4)
		wantParts := strings.SplitN(strings.TrimSpace(want.String()), ",", 4)
		if diff := cmp.Diff(wantParts[:3], gotParts[:3]); diff != "" {
			t.Errorf("%s: times and maximum (-want +got):\n%s", name, diff)
		}
		if !bytes.Equal(inflate(t, gotParts[3]), inflate(t, wantParts[3])) {
			t.Errorf("%s: another encoding than the library's", name)
		}
		back, err := hdrhistogram.Decode([]byte(gotParts[3]))
		if err != nil || !back.Equals(h.h) {
			t.Errorf("%s: read back another histogram: %v", name, err)
		}
	}
}

// TestHistogramLogGarbage: an interval leaves no more than a copy of the counters behind, so that
// the memory of a long run is that of a short one.
func TestHistogramLogGarbage(t *testing.T) {
	h := drawn(20_000)
	log := newHistogramLog(io.Discard)
	at := time.Now()
	log.start(at)
	log.interval(h, at, at)
	const intervals = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range intervals {
		log.interval(h, at, at)
	}
	runtime.ReadMemStats(&after)
	if log.err != nil {
		t.Fatal(log.err)
	}
	each := (after.TotalAlloc - before.TotalAlloc) / intervals
	if most := uint64(h.h.ByteSize() * 5 / 4); each > most {
		t.Errorf("%d bytes allocated for each interval, want %d at most", each, most)
	}
}
