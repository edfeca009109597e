// SPDX-License-Identifier: Apache-2.0

package indexfile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestCrashKeptIndex ends the process at each of its stores into the file of the index, for every record.
// What was written is still in the file. The index goes on from there, and knows every record as often
// as it should, also when power goes after the file became full.
func TestCrashKeptIndex(t *testing.T) {
	t.Parallel()
	const headerSize, slotsEnd = 40, 40 + 7*4
	read := func(dir string) map[string][]byte {
		files := map[string][]byte{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[e.Name()] = b
		}
		return files
	}
	for n := 1; n < 45; n++ {
		dir := t.TempDir()
		cfg := config(dir)
		safe := int64(0)
		cfg.OnFull = func(ms int64) error { safe = ms; return nil }
		ix, _ := openIndex(t, cfg, indexfile.Bounds{Clean: true, LogEnd: 1 << 40})
		put(t, ix, 1, n)
		before := read(dir)
		put(t, ix, n, n+1)
		after, safeThen := read(dir), safe
		if err := ix.Close(); err != nil {
			t.Fatal(err)
		}
		for stage, kept := range map[string]int{ // how many bytes of the newest file are as before the put
			"all": 0, "without count": headerSize, "only the entry": slotsEnd,
		} {
			died := t.TempDir()
			for name, b := range after {
				b = slices.Clone(b)
				if old, ok := before[name]; ok {
					copy(b[:kept], old[:kept])
				} else {
					clear(b[:kept]) // made by this put
				}
				if err := os.WriteFile(filepath.Join(died, name), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg.Dir, safe = died, safeThen
			ix, resume := openIndex(t, cfg, indexfile.Bounds{Kept: true, SafeMS: safeThen, LogEnd: 1 << 40})
			if n > 2 && int(resume) < (n-2)*100 {
				t.Fatalf("%d, %s: it goes on at %d", n, stage, resume)
			}
			put(t, ix, max(int(resume/100), 1), 60)
			all := findAll(t, ix)
			if len(all) != 59 {
				t.Fatalf("%d, %s: it knows %d records: %v", n, stage, len(all), all)
			}
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
			if safe < 56_000 { // one record may be in it twice
				t.Fatalf("%d, %s: files are known to be on disk up to %d", n, stage, safe)
			}
		}
	}
}

func findAll(t *testing.T, ix *indexfile.Index) (all []record.PhysicalOffset) {
	t.Helper()
	for _, key := range []string{"k0", "k1", "k2", "k3", "k4"} {
		all = append(all, find(t, ix, indexfile.Query{Topic: "T", Key: key, Max: 64, EndMS: 1 << 40})...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
