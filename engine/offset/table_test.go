// SPDX-License-Identifier: Apache-2.0

package offset_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/net/protocol"
)

func open(t *testing.T, dir string, cfg offset.Config) *offset.Table {
	t.Helper()
	table, err := offset.Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var g, o = []byte("g"), []byte("Order")

func TestCommit(t *testing.T) {
	t.Parallel()
	table := open(t, t.TempDir(), offset.Config{})
	check := func(queue int32, want int64, known bool) {
		t.Helper()
		if off, ok := table.Query(g, o, queue); ok != known || ok && off != want {
			t.Fatalf("queue %d: %d, %v", queue, off, ok)
		}
	}
	check(0, 0, false)
	table.Commit(g, o, 0, 7)
	check(0, 7, true)
	table.Commit(g, o, 0, 3) // backwards is allowed
	check(0, 3, true)
	table.Commit(g, o, 99, 1) // so is a queue that does not exist
	check(99, 1, true)
	table.Commit(g, o, 0, -1)
	check(0, 0, false)
	table.SetPulled(g, o, 5, 12)
	check(5, 0, false)
	if off, ok := table.Pulled(g, o, 5); !ok || off != 12 {
		t.Fatal(off, ok)
	}
}

// TestReset: a pending reset is what queries see, outlives commits and is taken once.
func TestReset(t *testing.T) {
	t.Parallel()
	table := open(t, t.TempDir(), offset.Config{})
	if _, ok := table.TakeReset(g, o, 0); ok {
		t.Fatal("a reset from nowhere")
	}
	table.Commit(g, o, 0, 50)
	table.Reset(g, o, 0, 10)
	if table.Commit(g, o, 0, 60) {
		t.Fatal("a commit passed a pending reset")
	}
	if off, _ := table.Query(g, o, 0); off != 10 || !table.HasReset(g, o, 0) {
		t.Fatalf("query gives %d", off)
	}
	if off, ok := table.TakeReset(g, o, 0); !ok || off != 10 {
		t.Fatal(off, ok)
	}
	if _, ok := table.TakeReset(g, o, 0); ok {
		t.Fatal("taken twice")
	}
	if off, _ := table.Query(g, o, 0); off != 10 {
		t.Fatalf("after the reset %d", off)
	}
	if !table.Commit(g, o, 0, 11) {
		t.Fatal("no commit after the reset was taken")
	}
}

// TestResetOutlivesTheBroker: what no consumer has taken is pending again after a start, what one took is
// not, and neither is what lies behind the end of a queue that a crash cut.
func TestResetOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := open(t, dir, offset.Config{})
	for queue := range int32(3) {
		table.Commit(g, o, queue, 100)
		table.Reset(g, o, queue, int64(10*(queue+1)))
	}
	if _, ok := table.TakeReset(g, o, 2); !ok || !table.Commit(g, o, 2, 31) {
		t.Fatal("the reset of queue 2 was not taken")
	}
	if err := table.Persist(); err != nil {
		t.Fatal(err)
	}
	table = open(t, dir, offset.Config{}) // the other one died
	table.Cap(g, o, 1, 15)
	for queue, want := range []int64{10, 15, 31} {
		off, ok := table.Query(g, o, int32(queue))
		pending := queue < 2
		if !ok || off != want || table.HasReset(g, o, int32(queue)) != pending ||
			table.Commit(g, o, int32(queue), 99) == pending {
			t.Errorf("queue %d is at %d, pending: %v", queue, off, table.HasReset(g, o, int32(queue)))
		}
		taken, ok := table.TakeReset(g, o, int32(queue))
		if ok != pending || ok && taken != want {
			t.Errorf("queue %d: took %d %v", queue, taken, ok)
		}
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, offset.FileName))
	if err != nil || strings.Contains(string(text), "pendingResets") {
		t.Errorf("when all were taken the file says %s, %v", text, err)
	}
}

// TestRemove: nothing of a deleted topic or group is left, of whatever kind.
func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := open(t, dir, offset.Config{})
	other := []byte("Other")
	for _, topic := range [][]byte{o, other} {
		table.Commit(g, topic, 0, 1000)
		table.SetPulled(g, topic, 0, 1000)
		table.Reset(g, topic, 1, 5)
	}
	table.RemoveTopic("Order")
	if _, ok := table.Query(g, o, 0); ok {
		t.Fatal("offset left")
	}
	if _, ok := table.Pulled(g, o, 0); ok {
		t.Fatal("pull offset left")
	}
	if _, ok := table.TakeReset(g, o, 1); ok || table.HasReset(g, o, 1) {
		t.Fatal("reset left")
	}
	if off, ok := table.TakeReset(g, other, 1); !ok || off != 5 {
		t.Fatal("the other topic lost its reset")
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if topics := open(t, dir, offset.Config{}).Topics("g"); !slices.Equal(topics, []string{"Other"}) {
		t.Fatalf("after a restart %v", topics)
	}
	table.RemoveGroup("g")
	if topics := table.Topics("g"); len(topics) != 0 {
		t.Fatal(topics)
	}
}

func TestListsAndClone(t *testing.T) {
	t.Parallel()
	table := open(t, t.TempDir(), offset.Config{})
	table.Commit(g, o, 0, 1)
	table.Commit(g, o, 1, 2)
	table.Commit([]byte("h"), o, 0, 9)
	table.SetPulled([]byte("puller"), o, 0, 9)
	if got := table.Groups("Order"); !slices.Equal(got, []string{"g", "h"}) {
		t.Fatal(got)
	}
	table.Clone("g", "h", "Order")
	if d := cmp.Diff(map[int32]int64{0: 1, 1: 2}, table.Queues("h", "Order")); d != "" {
		t.Fatal(d)
	}
}

// TestPersist: the file is written an interval after the first change and not again without one.
func TestPersist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, offset.FileName)
		table := open(t, dir, offset.Config{Interval: 5 * time.Second})
		exists := func() bool { _, err := os.Stat(path); return err == nil }
		<-time.After(time.Minute)
		if exists() {
			t.Fatal("written without a change")
		}
		table.Commit(g, o, 0, 1)
		<-time.After(4 * time.Second)
		if exists() {
			t.Fatal("written too early")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !exists() {
			t.Fatal("not written")
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if exists() {
			t.Fatal("written again without a change")
		}
		if err := table.Close(); err != nil || exists() {
			t.Fatal("close wrote without a change", err)
		}
	})
}

func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := open(t, dir, offset.Config{})
	for i := range int64(1200) {
		table.Commit(g, []byte("%RETRY%g"), 0, i)
	}
	if got := table.Version().Counter; got != 2 {
		t.Fatalf("version %d after 1200 commits, want 2", got)
	}
	if err := table.Persist(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, offset.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"%RETRY%g@g":{0:1199}`) {
		t.Fatalf("the file: %s", text)
	}
	again := open(t, dir, offset.Config{})
	if off, ok := again.Query(g, []byte("%RETRY%g"), 0); !ok || off != 1199 {
		t.Fatal(off, ok)
	}
	if !again.Version().Equal(table.Version()) {
		t.Fatal(again.Version(), table.Version())
	}
}

// TestFileOfRocketMQ reads what 5.5.0 writes, with derived tables and unquoted keys.
func TestFileOfRocketMQ(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "{\n\t\"dataVersion\":{\"counter\":9,\"stateVersion\":0,\"timestamp\":17},\n" +
		"\t\"groupTopicMap\":{\"g-order\":[\"Order\"]},\n" +
		"\t\"offsetTable\":{\n\t\t\"Order@g-order\":{0:120,1:98},\"rubbish\":{0:1}\n\t},\n" +
		"\t\"pullOffsetTable\":{\"Order@g-order\":{0:121}}\n}"
	if err := os.WriteFile(filepath.Join(dir, offset.FileName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	table := open(t, dir, offset.Config{})
	if d := cmp.Diff(map[int32]int64{0: 120, 1: 98}, table.Queues("g-order", "Order")); d != "" {
		t.Fatal(d)
	}
	if table.Version().Counter != 9 {
		t.Fatal(table.Version())
	}
}

// TestDamagedFile: offsets come from any valid copy and are never taken as zero.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	damages := map[string]func(valid []byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"half":  func(valid []byte) []byte { return valid[:len(valid)/2] },
		"zeros": func(valid []byte) []byte { return make([]byte, len(valid)) },
		"tail":  func(valid []byte) []byte { return append(valid, valid[10:]...) },
		"null":  func([]byte) []byte { return []byte("null") },
	}
	for name, damage := range damages {
		for _, backup := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/backup=%v", name, backup), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				path := filepath.Join(dir, offset.FileName)
				table := open(t, dir, offset.Config{})
				for i := range int64(2) {
					table.Commit(g, o, 0, 7+i)
					if err := table.Persist(); err != nil {
						t.Fatal(err)
					}
				}
				valid, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(slices.Clone(valid)), 0o644); err != nil {
					t.Fatal(err)
				}
				if backup {
					if off, ok := open(t, dir, offset.Config{}).Query(g, o, 0); !ok || off != 7 {
						t.Fatal(off, ok)
					}
					return
				}
				if err := os.Remove(path + ".bak"); err != nil {
					t.Fatal(err)
				}
				if _, err := offset.Open(dir, offset.Config{}); err == nil ||
					!strings.Contains(err.Error(), path) {
					t.Fatalf("start with a damaged file: %v", err)
				}
				empty := open(t, dir, offset.Config{AllowEmpty: true})
				if _, ok := empty.Query(g, o, 0); ok {
					t.Fatal("an offset from nowhere")
				}
			})
		}
	}
}

// TestModel compares the table with a map under random operations.
func TestModel(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	table := open(t, dir, offset.Config{})
	type key struct {
		group, topic string
		queue        int32
	}
	model, pending := map[key]int64{}, map[key]int64{}
	for i := range 5000 {
		k := key{fmt.Sprint("g", r.IntN(3)), fmt.Sprint("t", r.IntN(3)), int32(r.IntN(3))}
		group, topic := []byte(k.group), []byte(k.topic)
		switch op := r.IntN(100); {
		case op < 60:
			table.Commit(group, topic, k.queue, int64(i))
			if _, ok := pending[k]; !ok {
				model[k] = int64(i)
			}
		case op < 70:
			table.Reset(group, topic, k.queue, int64(i))
			model[k], pending[k] = int64(i), int64(i)
		case op < 95:
			off, ok := table.TakeReset(group, topic, k.queue)
			if want, wantOK := pending[k]; ok != wantOK || ok && off != want {
				t.Fatalf("seed %d, step %d: reset %d %v, want %d %v", seed, i, off, ok, want, wantOK)
			}
			delete(pending, k)
		case op < 97:
			table.RemoveTopic(k.topic)
			for m := range model {
				if m.topic == k.topic {
					delete(model, m)
					delete(pending, m)
				}
			}
		case op < 98:
			if err := table.Close(); err != nil {
				t.Fatal(err)
			}
			table = open(t, dir, offset.Config{})
		}
		off, ok := table.Query(group, topic, k.queue)
		if want, wantOK := model[k]; ok != wantOK || ok && off != want {
			t.Fatalf("seed %d, step %d: %d %v, want %d %v", seed, i, off, ok, want, wantOK)
		}
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := open(t, dir, offset.Config{Interval: time.Millisecond})
	var wg sync.WaitGroup
	for queue := range int32(4) {
		wg.Go(func() {
			for i := range int64(2000) {
				table.Commit(g, o, queue, i)
				table.Query(g, o, queue)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if err := table.Persist(); err != nil {
				t.Error(err)
			}
			table.Reset(g, []byte("Other"), 0, 1)
			table.RemoveTopic("Other")
		}
	})
	wg.Wait()
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[int32]int64{0: 1999, 1: 1999, 2: 1999, 3: 1999}
	if d := cmp.Diff(want, open(t, dir, offset.Config{}).Queues("g", "Order")); d != "" {
		t.Fatal(d)
	}
}

func TestAllocsCommitQuery(t *testing.T) {
	table := open(t, t.TempDir(), offset.Config{})
	table.Commit(g, o, 0, 1)
	n := testing.AllocsPerRun(1000, func() {
		table.Commit(g, o, 0, 2)
		table.Query(g, o, 0)
		table.SetPulled(g, o, 0, 2)
		table.TakeReset(g, o, 0)
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestGoldenFile reads a table of RocketMQ 5.5.0 and writes it back with the same state.
func TestGoldenFile(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(filepath.Join("testdata", offset.FileName))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, offset.FileName)
	if err := os.WriteFile(path, golden, 0o644); err != nil {
		t.Fatal(err)
	}
	table := open(t, dir, offset.Config{})
	table.Commit([]byte("GID_tag"), []byte("CfgTopic"), 0, 6) // as it was, so that there is a write
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	var want, got struct {
		DataVersion protocol.DataVersion       `json:"dataVersion"`
		OffsetTable map[string]map[int32]int64 `json:"offsetTable"`
	}
	if err := protocol.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := protocol.Unmarshal(written, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" || len(want.OffsetTable) != 2 {
		t.Fatal(d)
	}
}
