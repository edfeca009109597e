// SPDX-License-Identifier: Apache-2.0

package indexfile_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestGoldenFormatPage makes the file that the format page shows.
func TestGoldenFormatPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/format/indexfile.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```hex\n")
	shown, rest, _ := strings.Cut(rest, "```")
	var dump, explained []byte
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
	if !bytes.Equal(dump, explained) {
		t.Errorf("the table explains\n%x\nof\n%x", explained, dump)
	}
	dir := t.TempDir()
	ix, _ := openIndex(t, indexfile.Config{Dir: dir, Slots: 3, Entries: 5},
		indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
	for _, m := range []struct {
		at   record.PhysicalOffset
		ms   int64
		keys string
		tags string
	}{{4096, 1700000000005, "order7 eu", "TagA"}, {4300, 1700000003105, "order7", ""}} {
		d := record.Draft{Topic: []byte("Hello")}
		d.Properties = record.AppendProperty(d.Properties, "KEYS", m.keys)
		if m.tags != "" {
			d.Properties = record.AppendProperty(d.Properties, "TAGS", m.tags)
		}
		b := make([]byte, d.Size())
		d.Encode(b, record.Place{Physical: m.at, StoreMS: m.ms})
		v, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := ix.Put(v, m.at); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	got, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, dump) {
		t.Errorf("made\n%x\nthe page shows\n%x", got, dump)
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
