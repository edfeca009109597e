// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/storage/record"
)

// asked is a producer that notes what it is asked in each call.
type asked struct{ calls [][]string }

// Ask implements transaction.Producer.
func (a *asked) Ask(checks []transaction.Check) {
	var bodies []string
	for _, c := range checks {
		v, err := record.Parse(c.Record)
		if err != nil || !v.CheckCRC() || int64(v.QueueOffset()) != c.Offset ||
			property(v, "UNIQ_KEY") != c.UniqueKey || property(v, "TRAN_MOVED") != "" {
			bodies = append(bodies, fmt.Sprint("broken: ", err))
			continue
		}
		bodies = append(bodies, string(v.Body()))
	}
	a.calls = append(a.calls, bodies)
}

// TestAskedTogether: what is due together is asked in few calls, of each producer in turn, each message
// once and as it is.
func TestAskedTogether(t *testing.T) {
	t.Parallel()
	const halves = 150
	producers, next := []*asked{{}, {}, {}}, 0
	b := newBench(t, func(c *transaction.Config) {
		c.Producer = func(string) (transaction.Producer, bool) {
			next++
			return producers[next%len(producers)], true
		}
	})
	for i := range halves {
		b.half(fmt.Sprint("message ", i))
	}
	b.after(7 * time.Second)
	seen := map[string]int{}
	for i, p := range producers {
		if len(p.calls) > 4 {
			t.Errorf("producer %d was asked in %d calls", i, len(p.calls))
		}
		n := 0
		for _, call := range p.calls {
			n += len(call)
			for _, body := range call {
				seen[body]++
			}
		}
		if n < halves/len(producers)-2 {
			t.Errorf("producer %d was asked about %d messages", i, n)
		}
	}
	for i := range halves {
		if n := seen[fmt.Sprint("message ", i)]; n != 1 {
			t.Errorf("message %d was asked about %d times", i, n)
		}
	}
	if len(seen) != halves {
		t.Errorf("asked about %d messages of %d", len(seen), halves)
	}
}

// TestStepGivesWay: a step that has worked long enough leaves the rest to the next one.
func TestStepGivesWay(t *testing.T) {
	t.Parallel()
	const halves = 150
	b := newBench(t, nil)
	for i := range halves {
		b.half(fmt.Sprint("message ", i))
	}
	b.mu.Lock()
	b.now = b.now.Add(7 * time.Second)
	b.mu.Unlock()
	steps, more := 0, true
	for total := 0; more; steps++ {
		var next time.Time
		next, more = b.service.StepFor(b.clock(), 0)
		n := len(b.checks())
		if total += n; more && (n == 0 || n == halves || next != b.clock()) {
			t.Fatalf("step %d asked about %d messages and wants to go on at %v", steps, n, next)
		}
		if !more && total != halves {
			t.Errorf("asked about %d messages of %d", total, halves)
		}
	}
	if steps < 3 {
		t.Errorf("%d steps", steps)
	}
}
