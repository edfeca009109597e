// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
)

// TestLedger fills a ledger from a real broker and makes it untrue in each way that a check must see.
func TestLedger(t *testing.T) {
	t.Parallel()
	l := newLedger(enginetest.Start(t).Broker())
	t.Cleanup(l.close)
	for i := range 20 {
		if !l.send(t.Context(), kept, int32(i%queues), strings.Repeat("k", i+1), i*30) ||
			!l.send(t.Context(), deleted, int32(i%queues), "r0/", i) {
			t.Fatalf("message %d is not taken", i)
		}
	}
	var since time.Time
	check := func(want string) {
		t.Helper()
		f, err := l.check(t.Context(), since)
		if want == "" && (err != nil || f.compared == 0) || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v, %v, want %q", f, err, want)
		}
	}
	check("")
	at := place{0, 2}
	was := l.acked[kept][at]
	l.acked[kept][at] = proof{was.sum + 1, was.at, was.when}
	check("altered")
	l.acked[kept][at] = was
	l.acked[kept][place{0, 5}] = was
	check("lost")
	delete(l.acked[kept], place{0, 5})
	// A message that may be lost: only behind all that are there, and only a late one.
	since = time.Now()
	l.acked[kept][place{0, 5}] = proof{was.sum, 1 << 40, since.Add(-time.Hour)}
	check("lost")
	l.acked[kept][place{0, 5}] = proof{was.sum, 1 << 40, since.Add(time.Second)}
	check("")
	l.acked[kept][place{0, 5}] = proof{was.sum, was.at, since.Add(time.Second)}
	check("is lost, though")
	since = time.Time{}
	l.round = 1
	check("came back")
	l.round = 0
	if err := l.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("")
	if acked, deletions := l.counts(); acked != 40 || deletions != 1 {
		t.Errorf("%d acknowledged, %d deletions", acked, deletions)
	}
}
