// SPDX-License-Identifier: Apache-2.0

package consumequeue_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// TestSmallQueueStaysSmallInThePageCache has a queue with one unit. Its first page must not bring
// the rest of its file into the page cache, which is one hole: a fault in the mapping once read all
// 6 MB of it, so that a thousand new queues took 6 GB of page cache and seconds of CPU, and so did
// the first messages after a restart.
func TestSmallQueueStaysSmallInThePageCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unit := func(set *consumequeue.Set) {
		t.Helper()
		q, err := set.Create("T", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Prepare(1); err != nil {
			t.Fatal(err)
		}
		q.Append(q.Written(), consumequeue.Unit{At: record.PhysicalOffset(100 * q.Written()), Size: 100})
		q.Publish()
	}
	fsys := vfs.OS()
	path := filepath.Join(dir, "T", "0", "00000000000000000000")
	check := func(when string) {
		t.Helper()
		f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		const far = 1 << 20 // no small read-ahead reaches that far
		for at := int64(far); at < consumequeue.DefaultFileSize; at += far {
			in, err := f.Resident(at, vfs.PageSize)
			if errors.Is(err, vfs.ErrNotSupported) {
				t.Skip("this kernel does not tell what is in the page cache")
			}
			if err != nil || in {
				t.Fatalf("%s: byte %d is in the page cache: %v, %v", when, at, in, err)
			}
		}
		if in, err := f.Resident(0, 1); err != nil || !in {
			t.Fatalf("%s: the unit is not in the page cache: %v, %v", when, in, err)
		}
	}
	set, _ := openSet(t, dir, consumequeue.DefaultFileSize/consumequeue.UnitSize)
	unit(set)
	check("new")
	if _, err := set.Flush(0); err != nil {
		t.Fatal(err)
	}
	set.Close()
	again, _ := openSet(t, dir, consumequeue.DefaultFileSize/consumequeue.UnitSize)
	check("loaded")
	unit(again)
	check("used after a restart")
}
