// SPDX-License-Identifier: Apache-2.0

package engine

import "testing"

func TestWorkersRefuseWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	w := newWorkers(1, 2)
	block, began := make(chan struct{}), make(chan struct{})
	if !w.hand(1, func() { close(began); <-block }) {
		t.Fatal("refused the first")
	}
	<-began
	ran := make(chan int, 4)
	for i := range 2 {
		if !w.hand(1, func() { ran <- i }) {
			t.Fatalf("refused %d of a queue of 2", i)
		}
	}
	if w.hand(1, func() {}) {
		t.Error("took more than the queue holds")
	}
	close(block)
	w.close()
	if len(ran) != 2 {
		t.Errorf("close finishes what is queued: %d of 2 ran", len(ran))
	}
	if w.hand(1, func() {}) {
		t.Error("took work after close")
	}
	w.close()
}

// TestWorkersRefuseMemory: what waits is bounded in bytes as well, but a pool without work takes
// anything.
func TestWorkersRefuseMemory(t *testing.T) {
	t.Parallel()
	w := newWorkers(1, 100)
	began, block := make(chan struct{}), make(chan struct{})
	if !w.hand(w.bytesMax+1, func() { close(began); <-block }) {
		t.Error("an idle pool refuses")
	}
	<-began
	if !w.full(1) || w.hand(1, func() {}) {
		t.Error("a full pool takes more")
	}
	close(block)
	w.close()
	if w.full(w.bytesMax) {
		t.Errorf("%d bytes are still counted", w.bytes)
	}
}
