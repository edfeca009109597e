// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestIndexNoted holds that the index made of what the appender noted is, byte by byte, the one that a
// start makes of the log. More comes at once than is noted, so both ways and their borders are in it.
func TestIndexNoted(t *testing.T) {
	t.Parallel()
	cfg := small(filepath.Join(t.TempDir(), "store"))
	cfg.SegmentSize, cfg.MaxMessageSize = 4<<20, 64<<10
	cfg.IndexSlots, cfg.IndexEntries = 1009, 60_000
	s, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for round, batches := range []int{1, 400, 3, 500, 20} {
		appendKeyed(t, s, round, batches)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	noted := indexFiles(t, cfg.RootDir)
	if len(noted) < 2 {
		t.Fatalf("%d index files, the test wants several", len(noted))
	}
	if err := os.RemoveAll(filepath.Join(cfg.RootDir, "index")); err != nil {
		t.Fatal(err)
	}
	if s, err = storage.Open(cfg); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is indexed", func() bool { i := s.Info(); return i.Indexed >= i.Dispatched })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	scanned := indexFiles(t, cfg.RootDir)
	if len(noted) != len(scanned) {
		t.Fatalf("%d index files from notes, %d from the log", len(noted), len(scanned))
	}
	for i := range noted {
		if !bytes.Equal(noted[i], scanned[i]) {
			t.Errorf("index file %d of %d differs", i, len(noted))
		}
	}
}

// appendKeyed appends, at once, so many client batches of 100 messages, and between them single
// messages with several keys, of another topic, half of them marks of a rollback.
func appendKeyed(t *testing.T, s *storage.Store, round, batches int) {
	t.Helper()
	var es []storage.Entry
	for i := range batches {
		var body []byte
		for j := range 100 {
			props := record.AppendProperty(nil, "UNIQ_KEY", fmt.Sprintf("u-%d-%d-%d", round, i, j))
			body = record.AppendBatchEntry(body, 0, []byte("b"), props)
		}
		batch := draft("T", 0, "", "")
		batch.Body, batch.Properties = body, nil
		single := draft("other", 1, fmt.Sprintf("s-%d-%d", round, i), "häß")
		single.Properties = record.AppendProperty(single.Properties, "KEYS", fmt.Sprintf("k%d  x k%d", i, round))
		if i%2 == 1 {
			single.SysFlag = record.SysRollback
		}
		es = append(es, storage.Entry{Draft: batch, Batch: true}, storage.Entry{Draft: single})
	}
	s.Append(es)
	for i := range es {
		if es[i].Err != nil {
			t.Fatal(es[i].Err)
		}
	}
}

// indexFiles returns the contents of the index files, oldest first.
func indexFiles(t *testing.T, root string) (list [][]byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "index", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}
