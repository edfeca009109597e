// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage"
)

// TestGoldenCheckpointPage decodes and encodes the dump of the format page.
func TestGoldenCheckpointPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/format/checkpoint.md")
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
	want := storage.Checkpoint{
		PhysicMS: 1795976699921, LogicsMS: 1795976700403, IndexMS: 1795976700357, LogicsAt: 3525922,
	}
	if got := storage.DecodeCheckpoint(dump); got != want {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
	got := make([]byte, 48)
	want.Encode(got)
	if !bytes.Equal(got, dump) {
		t.Errorf("encoded\n%x\nwant\n%x", got, dump)
	}
	if old := storage.DecodeCheckpoint(dump[:40]); old.LogicsAt != 0 || old.IndexMS != want.IndexMS {
		t.Errorf("checkpoint of an older release %+v", old)
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
