// SPDX-License-Identifier: Apache-2.0

package consumequeue_test

import (
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// countingFS counts the syncs of each folder.
type countingFS struct {
	vfs.FS
	mu    sync.Mutex
	syncs map[string]int
}

func (c *countingFS) SyncDir(path string) error {
	c.mu.Lock()
	c.syncs[path]++
	c.mu.Unlock()
	return c.FS.SyncDir(path)
}

// TestFlushOfManyNewQueues has the folders above new queues synced once, not once for each queue:
// a start with 100 000 of them waits for the disk that much less.
func TestFlushOfManyNewQueues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys := &countingFS{FS: vfs.OS(), syncs: map[string]int{}}
	set, err := consumequeue.Open(consumequeue.Config{Dir: dir, FileSize: 200, FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	if _, _, err := set.Load(consumequeue.Bounds{LogEnd: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{dir: 1}
	for _, topic := range []string{"A", "B"} {
		want[filepath.Join(dir, topic)] = 1
		for id := range int32(50) {
			want[filepath.Join(dir, topic, strconv.Itoa(int(id)))] = 1
			q, err := set.Create(topic, id)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Prepare(1); err != nil {
				t.Fatal(err)
			}
			q.Append(0, consumequeue.Unit{At: 0, Size: 100})
			q.Publish()
		}
	}
	for range 2 { // the second one finds nothing to do
		if more, err := set.Flush(0); more || err != nil {
			t.Fatalf("more %v, %v", more, err)
		}
		if diff := cmp.Diff(want, fsys.syncs); diff != "" {
			t.Error(diff)
		}
	}
}
