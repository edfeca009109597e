// SPDX-License-Identifier: Apache-2.0

package consumequeue_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// page returns the bytes of a format page's dump and of the table that explains them.
func page(t *testing.T, path string) (dump, explained []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```hex\n")
	shown, rest, _ := strings.Cut(rest, "```")
	for line := range strings.Lines(shown) {
		_, line, _ = strings.Cut(line, "  ")
		dump = append(dump, unhex(t, line)...)
	}
	for line := range strings.Lines(rest) {
		row, ok := strings.CutPrefix(line, "| `")
		if offset, rest, _ := strings.Cut(row, "` "); ok && len(offset) == 4 {
			cell, _, _ := strings.Cut(rest, " |")
			explained = append(explained, unhex(t, cell)...)
		}
	}
	return dump, explained
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenFormatPage decodes and encodes the dump of the format page.
func TestGoldenFormatPage(t *testing.T) {
	t.Parallel()
	dump, explained := page(t, "../docs/format/consumequeue.md")
	if !bytes.Equal(dump, explained) {
		t.Errorf("the table explains\n%x\nof\n%x", explained, dump)
	}
	want := []consumequeue.Unit{
		{At: 0, Size: 1463, TagsCode: record.TagsCode([]byte("TagA"))},
		{At: 6649, Size: 1977},
		{At: 15382, Size: 2513, TagsCode: record.TagsCode([]byte("标签"))},
		{Size: math.MaxInt32},
	}
	var got []consumequeue.Unit
	var again []byte
	for b := dump; len(b) > 0; b = b[consumequeue.UnitSize:] {
		u := consumequeue.DecodeUnit(b)
		got = append(got, u)
		again = append(again, make([]byte, consumequeue.UnitSize)...)
		u.Encode(again[len(again)-consumequeue.UnitSize:])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got[3].Filler() || got[0].Filler() {
		t.Error("the last unit alone is a filler")
	}
	if !bytes.Equal(again, dump) {
		t.Errorf("encoded\n%x\nwant\n%x", again, dump)
	}
}

// TestGoldenBatchFormatPage does so with the page of batch queues.
func TestGoldenBatchFormatPage(t *testing.T) {
	t.Parallel()
	dump, explained := page(t, "../docs/format/batchconsumequeue.md")
	if !bytes.Equal(dump, explained) {
		t.Errorf("the table explains\n%x\nof\n%x", explained, dump)
	}
	want := consumequeue.BatchUnit{
		Unit:    consumequeue.Unit{At: 826, Size: 647, TagsCode: record.TagsCode([]byte("inner"))},
		StoreMS: 1795977306011, Base: 1, Count: 3,
	}
	got := consumequeue.DecodeBatchUnit(dump)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again := make([]byte, consumequeue.BatchUnitSize)
	got.Encode(again)
	if !bytes.Equal(again, dump) {
		t.Errorf("encoded\n%x, want\n%x", again, dump)
	}
}
