// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

// forget drops a store's log from the page cache.
func forget(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "commitlog", "0*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		f, err := vfs.OS().OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := f.Forget(0, size); err != nil {
			t.Fatal(err)
		}
		if resident, err := f.Resident(0, 64<<10); err != nil || resident {
			t.Skipf("this kernel or file system does not drop pages on request: %v %v", resident, err)
		}
		_ = f.Close()
	}
}

// TestColdReads proves that a read says when its bytes are not in memory, for one stretch and for
// scattered records, and that Warm brings them in.
func TestColdReads(t *testing.T) {
	t.Parallel()
	cfg := storage.DefaultConfig(t.TempDir())
	cfg.SegmentSize, cfg.MaxMessageSize = 64<<20, 1<<20
	cfg.IndexEnable = false
	cfg.HotBytes = 1
	s := open(t, cfg)
	body := strings.Repeat("x", 20000)
	for range 32 {
		send(t, s, draft("scattered", 0, body, ""))
		send(t, s, draft("scattered", 1, body, ""))
	}
	for range 32 {
		send(t, s, draft("together", 0, body, ""))
	}
	for range 400 { // pages near the end are mapped and cannot be dropped
		send(t, s, draft("after", 0, body, ""))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	for _, topic := range []string{"scattered", "together"} {
		forget(t, cfg.RootDir) // read-ahead for the topic before brings in this one's records
		var res storage.ReadResult
		req := storage.ReadRequest{Topic: []byte(topic), MaxMessages: 8}
		s.Read(&req, &res)
		if res.Status != storage.Found || !res.Cold {
			t.Fatalf("%s: %v, cold %v after the pages were dropped", topic, res.Status, res.Cold)
		}
		if err := s.Warm(res.Regions); err != nil {
			t.Fatal(err)
		}
		zerocopy.ReleaseAll(res.Regions)
		s.Read(&req, &res)
		if res.Cold {
			t.Errorf("%s: still cold after Warm", topic)
		}
		zerocopy.ReleaseAll(res.Regions)
	}
}
