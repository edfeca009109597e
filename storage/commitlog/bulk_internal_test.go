// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/skylarkmq/skylark/storage/record"
)

// openBulk opens a log whose large reservations are those of 2000 bytes.
func openBulk(t *testing.T, dir string, visit func(v record.View) error) *Log {
	t.Helper()
	l, err := Open(Config{
		Dir: dir, SegmentSize: 256 << 10, PopulateWindow: 64 << 10, PopulateStep: 16 << 10, BulkLeast: 2000,
	})
	if err != nil {
		t.Fatal(err)
	}
	end, err := l.Recover(0, true, visit)
	if err == nil {
		err = l.Truncate(end)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBulk appends small and large records, many rounds of one kind and then mixed ones, over the ends of
// segments. They are the same to readers, whichever way they went, and after a start.
func TestBulk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openBulk(t, dir, func(record.View) error { return nil })
	rng := rand.New(rand.NewPCG(3, 4))
	type stored struct {
		at   record.PhysicalOffset
		data []byte
	}
	var all []stored
	bulks, maps := 0, 0
	for phase := range 12 {
		for range 150 {
			var round []stored
			var end record.PhysicalOffset
			for range 1 + rng.IntN(4) {
				size := 1 + rng.IntN(300)
				if large := phase % 3; large == 1 || large == 2 && rng.IntN(2) == 0 {
					size = 2000 + rng.IntN(20_000)
				}
				d := record.Draft{Topic: []byte("T"), Body: make([]byte, size)}
				for i := range d.Body {
					d.Body[i] = byte(i + size)
				}
				n := d.Size()
				dst, at, err := l.Reserve(n)
				if err != nil {
					t.Fatal(err)
				}
				if l.app.bulk.used > 0 {
					bulks++
				} else {
					maps++
				}
				d.Encode(dst, record.Place{Physical: at, StoreMS: 1})
				round, end = append(round, stored{at, bytes.Clone(dst)}), at+record.PhysicalOffset(n)
			}
			if err := l.Commit(); err != nil {
				t.Fatal(err)
			}
			l.Publish(end, 1)
			all = append(all, round...)
			for _, s := range round {
				r, err := l.Region(s.at, int32(len(s.data)))
				if err != nil || !bytes.Equal(r.Mem, s.data) {
					t.Fatalf("record at %d differs, %v", s.at, err)
				}
				r.Release()
				b := make([]byte, len(s.data))
				if err := l.ReadAt(b, s.at); err != nil || !bytes.Equal(b, s.data) {
					t.Fatalf("record at %d differs in the file, %v", s.at, err)
				}
			}
		}
	}
	if bulks < 500 || maps < 500 {
		t.Errorf("%d records went by writes and %d by stores, want many of both", bulks, maps)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	l = openBulk(t, dir, func(v record.View) error {
		if n < len(all) && (v.PhysicalOffset() != all[n].at || !bytes.Equal(v.Bytes(), all[n].data)) {
			t.Errorf("record %d differs after a start", n)
		}
		n++
		return nil
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n != len(all) {
		t.Errorf("%d records after a start, want %d", n, len(all))
	}
}
