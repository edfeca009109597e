// SPDX-License-Identifier: Apache-2.0

package topic_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
)

// held is a clock that the first change of a table waits at, so that others come meanwhile. The table
// asks for the time once for each write.
type held struct {
	gate  chan struct{}
	asked atomic.Int64
}

func (h *held) now() time.Time {
	if h.asked.Add(1) == 2 { // the first is Open's
		<-h.gate
	}
	return time.Now()
}

// TestChangesShareAWrite makes topics by many callers at once. They share one write of the file, each
// finds its topic there when it returns, and the version counts each change, as RocketMQ's does.
func TestChangesShareAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, clock := t.TempDir(), &held{gate: make(chan struct{})}
		cfg := config()
		cfg.Now = clock.now
		var told atomic.Int64
		cfg.OnChange = func(names []string) { told.Add(int64(len(names))) }
		table := open(t, dir, cfg)
		var wg sync.WaitGroup
		const count = 64
		for i := range count {
			wg.Go(func() {
				name := fmt.Sprintf("T%d", i)
				_, err := table.CreateOnSend(
					topic.CreateOnSend{Topic: name, DefaultTopic: "TBW102", DefaultQueues: 4})
				if err != nil {
					t.Error(err)
				}
				stored, err := os.ReadFile(filepath.Join(dir, topic.FileName))
				if err != nil || !strings.Contains(string(stored), `"`+name+`":{`) {
					t.Errorf("%s was answered for and is not in the file: %v", name, err)
				}
			})
		}
		synctest.Wait()
		close(clock.gate)
		wg.Wait()
		if n := clock.asked.Load() - 1; n != 2 {
			t.Errorf("%d writes of the file, want 2", n)
		}
		if table.Version().Counter != count || told.Load() != count {
			t.Errorf("version %+v, told of %d changes", table.Version(), told.Load())
		}
		again := open(t, dir, config())
		want, _ := table.All()
		got, version := again.All()
		if diff := cmp.Diff(want, got); diff != "" || version != table.Version() {
			t.Errorf("after a restart %+v: %s", version, diff)
		}
	})
}

// TestChangesTogether: of changes that share a write a refused one leaves nothing behind, also of what
// came before the fault in it, and does not hinder the others.
func TestChangesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := &held{gate: make(chan struct{})}
		cfg := config()
		cfg.Now = clock.now
		table := open(t, t.TempDir(), cfg)
		put := func(names string, attributes map[string]string) error {
			var list []*protocol.TopicConfig
			for name := range strings.SplitSeq(names, " ") {
				list = append(list, &protocol.TopicConfig{
					TopicName: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6,
					TopicFilterType: protocol.SingleTag,
				})
			}
			list[len(list)-1].Attributes = attributes
			return table.PutAll(list)
		}
		var wg sync.WaitGroup
		step := func(f func()) {
			wg.Go(f)
			synctest.Wait()
		}
		step(func() { _ = put("first", nil) })
		var bad, same, good, gone error
		step(func() { bad = put("A B", map[string]string{"+no.such": "1"}) })
		step(func() { good = put("C", nil) })
		step(func() { same = put("C", nil) })
		step(func() { gone = table.Delete("first") })
		close(clock.gate)
		wg.Wait()
		if bad == nil || good != nil || same != nil || gone != nil {
			t.Fatalf("bad %v, good %v, same %v, gone %v", bad, good, same, gone)
		}
		for name, want := range map[string]bool{"A": false, "B": false, "C": true, "first": false} {
			if _, ok := table.Find(name); ok != want {
				t.Errorf("%s is there: %v", name, ok)
			}
		}
		if table.Version().Counter != 3 {
			t.Errorf("version %+v, want three changes", table.Version())
		}
	})
}

// TestChangesFail: when the file cannot be written none of the changes is in force, and each caller is
// told.
func TestChangesFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, clock := filepath.Join(t.TempDir(), "config"), &held{gate: make(chan struct{})}
		cfg := config()
		cfg.Now = clock.now
		table := open(t, dir, cfg)
		if err := os.WriteFile(dir, nil, 0o644); err != nil { // a file where the folder must be
			t.Fatal(err)
		}
		var failed atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				if _, err := table.CreateRetry(fmt.Sprintf("%%RETRY%%%d", i/2), 1, 6, false, false); err != nil {
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		close(clock.gate)
		wg.Wait()
		if failed.Load() != 16 || table.Version().Counter != 0 || len(table.Names()) != 15 {
			t.Errorf("%d of 16 failed, topics %v", failed.Load(), table.Names())
		}
		// The next write has what is in force, and nothing of what failed.
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := table.Persist(); err != nil {
			t.Fatal(err)
		}
		if got := open(t, dir, config()).Names(); len(got) != 15 {
			t.Errorf("topics after a restart: %v", got)
		}
	})
}

// BenchmarkCreate is one creation beside so many topics, on the disk of the temporary folder.
func BenchmarkCreate(b *testing.B) {
	for _, count := range []int{100, 10_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			table, err := topic.Open(b.TempDir(), config())
			if err != nil {
				b.Fatal(err)
			}
			var list []*protocol.TopicConfig
			for i := range count {
				list = append(list, &protocol.TopicConfig{
					TopicName: fmt.Sprintf("topic-%d", i), ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6,
					TopicFilterType: protocol.SingleTag,
				})
			}
			if err := table.PutAll(list); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for n := range b.N {
				name := fmt.Sprintf("%%RETRY%%%d", n)
				if _, err := table.CreateRetry(name, 1, 6, false, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
