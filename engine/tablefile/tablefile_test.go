// SPDX-License-Identifier: Apache-2.0

package tablefile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/tablefile"
)

func entry(name string, value int) []byte {
	return fmt.Appendf(nil, `"%s":{"v":%d}`, name, value)
}

// TestEntries makes random changes and holds the file to a map.
func TestEntries(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	type value struct {
		V int `json:"v"`
	}
	want := map[string]value{}
	var entries *tablefile.Entries
	for round := range 500 {
		var changes []tablefile.Change
		for range rng.IntN(6) {
			name := fmt.Sprintf("n%d", rng.IntN(40))
			if rng.IntN(3) == 0 {
				changes = append(changes, tablefile.Change{Name: name})
				delete(want, name)
				continue
			}
			n := rng.IntN(1_000_000)
			changes = append(changes, tablefile.Change{Name: name, Text: entry(name, n)})
			want[name] = value{n}
		}
		var file []byte
		file, entries = entries.With([]byte(`{"table":{`), []byte("}}"), changes)
		var got struct{ Table map[string]value }
		if err := json.Unmarshal(file, &got); err != nil {
			t.Fatalf("round %d: %v in %s", round, err, file)
		}
		if diff := cmp.Diff(want, got.Table); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
		sorted, _ := json.Marshal(map[string]any{"table": want})
		if string(sorted) != string(file) { // in the order of their names
			t.Fatalf("round %d: %s, want %s", round, file, sorted)
		}
	}
}

// TestEntriesKeepTheOld proves that a state that was not published leaves the one before it alone.
func TestEntriesKeepTheOld(t *testing.T) {
	t.Parallel()
	_, one := (*tablefile.Entries)(nil).With(nil, nil, []tablefile.Change{
		{Name: "b", Text: entry("b", 1)}, {Name: "a", Text: entry("a", 1)},
	})
	_, _ = one.With([]byte("other"), []byte("end"), []tablefile.Change{
		{Name: "a", Text: entry("a", 2)}, {Name: "b"},
	})
	file, _ := one.With(nil, nil, []tablefile.Change{{Name: "c", Text: entry("c", 3)}})
	if got, want := string(file), `"a":{"v":1},"b":{"v":1},"c":{"v":3}`; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}

// TestTurns has many callers come while one is at work: one more time of work serves them all, in the
// order of their coming, and none returns before it was done.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns tablefile.Turns[int]
		gate := make(chan struct{})
		var calls [][]int
		work := func(items []int) error {
			if len(calls) == 0 {
				<-gate
			}
			calls = append(calls, slices.Clone(items))
			return nil
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := turns.Do(i, work); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		if len(calls) != 2 || len(calls[0]) != 1 || len(calls[1]) != 49 || !slices.IsSorted(calls[1]) {
			t.Fatalf("work was done as %v", calls)
		}
		if err := turns.Do(50, work); err != nil || len(calls) != 3 {
			t.Fatalf("afterwards: %v, %v", err, calls)
		}
	})
}

// TestTurnsFail gives an error of work to all who were served by it, and to nobody else. After a panic
// the others go on.
func TestTurnsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns tablefile.Turns[string]
		gate := make(chan struct{})
		full := errors.New("disk full")
		work := func(items []string) error {
			if items[0] == "first" {
				<-gate
				panic("a fault")
			}
			if slices.Contains(items, "bad") {
				return full
			}
			return nil
		}
		errs := map[string]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		do := func(name string) {
			wg.Go(func() {
				defer func() { _ = recover() }()
				err := turns.Do(name, work)
				mu.Lock()
				defer mu.Unlock()
				errs[name] = err
			})
			synctest.Wait()
		}
		do("first")
		do("good")
		do("bad")
		close(gate)
		wg.Wait()
		do("later")
		wg.Wait()
		want := map[string]error{"good": full, "bad": full, "later": nil}
		if !maps.Equal(errs, want) {
			t.Fatalf("%v, want %v", errs, want)
		}
	})
}
