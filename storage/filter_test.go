// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/sqlfilter"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// contains is a filter that looks for a text in the properties, and counts.
type contains struct {
	text  string
	asked int
}

func (c *contains) Match(props []byte) bool {
	c.asked++
	return bytes.Contains(props, []byte(c.text))
}

// A filtered read returns what matches, over segments and in order, and says where it stopped.
func TestReadFilter(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	s := open(t, cfg)
	var want []string
	for i := range 400 {
		d := draft("T", 0, fmt.Sprintf("m%d %s", i, strings.Repeat("x", 500)), "A")
		if i%10 == 3 {
			d.Properties = record.AppendProperty(d.Properties, "want", "yes")
			want = append(want, string(d.Body))
		}
		send(t, s, d)
	}
	var got []string
	f := &contains{text: "want\x01yes"}
	req := &storage.ReadRequest{Topic: []byte("T"), MaxMessages: 32, Filter: f}
	var res storage.ReadResult
	for req.From < 400 {
		s.Read(req, &res)
		if res.Next <= req.From {
			t.Fatalf("no progress at %d: %v", req.From, res.Status)
		}
		got = append(got, bodies(t, &res)...)
		req.From = res.Next
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
	if f.asked != 400 {
		t.Errorf("asked about %d records", f.asked)
	}
	if info := s.Info(); int64(info.Wrote) < 2*cfg.SegmentSize {
		t.Errorf("%d bytes are one segment: the test proves less than it should", info.Wrote)
	}
	f.text = "nothing has this"
	req.From = 0
	if s.Read(req, &res); res.Status != storage.NoMatchedMessage || res.Next == 0 || len(res.Regions) > 0 {
		t.Errorf("nothing matches: %v, next %d", res.Status, res.Next)
	}
}

// Tags are looked at first: the filter is not asked about other messages.
func TestReadFilterAndTags(t *testing.T) {
	t.Parallel()
	s := open(t, small(t.TempDir()))
	for i := range 10 {
		send(t, s, draft("T", 0, fmt.Sprint("m", i), []string{"A", "B"}[i%2]))
	}
	f := &contains{text: "id-m"}
	var res storage.ReadResult
	s.Read(&storage.ReadRequest{
		Topic: []byte("T"), MaxMessages: 32, Filter: f,
		TagCodes: []int32{int32(record.TagsCode([]byte("B")))},
	}, &res)
	if got := bodies(t, &res); len(got) != 5 || f.asked != 5 {
		t.Errorf("%q, asked %d times", got, f.asked)
	}
}

// What this run wrote is recent; what was there at the start may have to come from the disk.
func TestRecent(t *testing.T) {
	t.Parallel()
	cfg := small(t.TempDir())
	s := open(t, cfg)
	send(t, s, draft("T", 0, "old", ""))
	if !s.Recent([]byte("T"), 0, 0) || !s.Recent([]byte("T"), 0, 9) || !s.Recent([]byte("U"), 0, 0) {
		t.Error("not recent")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	send(t, s, draft("T", 0, "new", ""))
	if s.Recent([]byte("T"), 0, 0) || !s.Recent([]byte("T"), 0, 1) {
		t.Error("the restart is not seen")
	}
}

func TestAllocsReadFilter(t *testing.T) {
	s := open(t, small(t.TempDir()))
	for i := range 50 {
		send(t, s, draft("T", 0, fmt.Sprint("m", i), "A"))
	}
	e, err := sqlfilter.Compile("price = 417 OR UNIQ_KEY = 'id-m7'")
	if err != nil {
		t.Fatal(err)
	}
	req := storage.ReadRequest{Topic: []byte("T"), MaxMessages: 32, Filter: e}
	var res storage.ReadResult
	if n := testing.AllocsPerRun(500, func() {
		s.Read(&req, &res)
		zerocopy.ReleaseAll(res.Regions)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if res.Messages != 1 {
		t.Errorf("%d messages", res.Messages)
	}
}

// BenchmarkReadFilter scans messages of 1 KB of which one in a hundred passes, in a log that is larger
// than the processor's caches; "ns/message" is the cost of one that is looked at.
func BenchmarkReadFilter(b *testing.B) {
	s := open(b, storage.DefaultConfig(b.TempDir()))
	const count = 100_000
	es := make([]storage.Entry, 1)
	for i := range count {
		d := draft("T", 0, strings.Repeat("x", 1024), "A")
		d.Properties = append(d.Properties, "KEYS\x01order-7\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02"+
			"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02region\x01eu-west\x02"...)
		d.Properties = record.AppendProperty(d.Properties, "price", fmt.Sprint(i%100))
		es[0].Draft = d
		if s.Append(es); es[0].Err != nil {
			b.Fatal(es[0].Err)
		}
	}
	for _, text := range []string{"price = 42", "region = 'eu-west' AND price BETWEEN 42 AND 42"} {
		b.Run(fmt.Sprintf("expression=%q", text), func(b *testing.B) {
			e, err := sqlfilter.Compile(text)
			if err != nil {
				b.Fatal(err)
			}
			req := storage.ReadRequest{Topic: []byte("T"), MaxMessages: 32, Filter: e}
			var res storage.ReadResult
			looked, passed := 0, 0
			for b.Loop() {
				s.Read(&req, &res)
				zerocopy.ReleaseAll(res.Regions)
				looked += int(res.Next - req.From)
				passed += res.Messages
				if req.From = res.Next; req.From >= count {
					req.From = 0
				}
			}
			if looked > 10000 && (passed*100 < looked/2 || passed*100 > looked*2) {
				b.Fatalf("%d of %d passed", passed, looked)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(looked), "ns/message")
		})
	}
}
