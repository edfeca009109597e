// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage"
)

// TestPending counts what RocketMQ left to be delivered later, says so, and touches nothing of it.
func TestPending(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]storage.PendingInfo{
		"plain":       {},
		"timer":       {Timer: 81},
		"timer-crash": {Timer: 11},
		"transaction": {},
		"retry":       {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := unpack(t, name)
			var notices []string
			cfg.Notice = func(msg string, _ ...any) { notices = append(notices, msg) }
			before := hidden(t, cfg.RootDir)
			s := open(t, cfg)
			if got := s.Info().Pending; got != want {
				t.Errorf("pending %+v, want %+v", got, want)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			said := strings.Contains(strings.Join(notices, "\n"), "delivered later")
			if said != (want != storage.PendingInfo{}) {
				t.Errorf("notices %q", notices)
			}
			if diff := cmp.Diff(before, hidden(t, cfg.RootDir)); diff != "" {
				t.Errorf("files that are not ours changed:\n%s", diff)
			}
		})
	}
}

// hidden reads the files of a store that only RocketMQ uses.
func hidden(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{
		"timerwheel", "timerlog/*", "config/*", "rocksdbstore/*", "compaction/*",
	} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if base := filepath.Base(path); base == "queueEnds" || base == "queueEnds.bak" {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[path] = string(text)
		}
	}
	return files
}
