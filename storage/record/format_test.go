// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage/record"
)

// TestGoldenFormatPage decodes the hex dump of the format page, so that the page cannot drift from
// the code, and takes the bytes in its explanation together.
func TestGoldenFormatPage(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/format/commitlog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, dump, _ := strings.Cut(string(b), "```hex\n")
	dump, explained, _ := strings.Cut(dump, "```")
	var page []byte
	for line := range strings.Lines(dump) {
		_, text, _ := strings.Cut(line, "  ")
		page = append(page, unhex(t, text)...)
	}
	d, at := sample()
	if !bytes.Equal(page, encode(&d, at)) {
		t.Fatalf("the page shows\n%x\nencoded is\n%x", page, encode(&d, at))
	}
	v, err := record.Parse(page)
	if err != nil || !v.CheckCRC() || v.PhysicalOffset() != 4096 || string(v.Topic()) != "Hello" {
		t.Errorf("parsed: %v", err)
	}
	if got := explainedBytes(t, explained); !bytes.Equal(got, page) {
		t.Errorf("the table explains\n%x\nof\n%x", got, page)
	}
	id := string(record.AppendOffsetID(nil, v.StoreHost(), v.PhysicalOffset()))
	if !strings.Contains(explained, "`"+id+"`") {
		t.Errorf("the page does not show the id %s", id)
	}
}

// explainedBytes collects the bytes of the rows "| `offset` hex | field | value |" and checks that
// each row stands at its offset.
func explainedBytes(t *testing.T, text string) []byte {
	t.Helper()
	var all []byte
	for line := range strings.Lines(text) {
		row, ok := strings.CutPrefix(line, "| `")
		if !ok {
			continue
		}
		offset, rest, _ := strings.Cut(row, "` ")
		cell, _, _ := strings.Cut(rest, " |")
		if len(offset) != 4 {
			break // the next table
		}
		if at := unhex(t, offset); int(at[0])<<8|int(at[1]) != len(all) {
			t.Errorf("row %q stands behind %d bytes", strings.TrimSpace(line), len(all))
		}
		all = append(all, unhex(t, cell)...)
	}
	return all
}
