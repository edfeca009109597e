// SPDX-License-Identifier: Apache-2.0

// Package tablefile keeps the cost of a change to a table that is one JSON file small, however large
// the table: changes that come while a write is under way share the next one (Turns), and of the text
// only the entries that changed are encoded (Entries).
//
// The file is written whole, as RocketMQ reads and writes it, and nobody is answered before it is on
// disk. The package knows nothing of what the entries mean.
//
//	err := t.turns.Do(&change{apply: apply}, t.write) // in each caller
//	data, next := old.entries.With(head, tail, changed)
package tablefile

import (
	"errors"
	"sync"
)

// Turns has many callers share the work of one. The zero value is ready.
type Turns[T any] struct {
	mu      sync.Mutex // guards what follows; held for appends and swaps only
	waiting []*turn[T]
	busy    bool // some caller is at work
}

// turn is a caller that waits.
type turn[T any] struct {
	item T
	end  chan struct{} // capacity 1: done, or to do the work
	done bool
	err  error
}

// Do returns when work has been done with item among others: by this caller, who then does it for all who
// came while another was at work, or by another. Items come to work in the order of the calls, each
// once, and work is never called twice at the same time. It returns what work returned, to all
// of them.
func (t *Turns[T]) Do(item T, work func(items []T) error) error {
	me := &turn[T]{item: item, end: make(chan struct{}, 1)}
	t.mu.Lock()
	t.waiting = append(t.waiting, me)
	lead := !t.busy
	t.busy = true
	t.mu.Unlock()
	if !lead {
		<-me.end
		if me.done {
			return me.err
		}
	}
	t.lead(me, work)
	return me.err
}

// lead does the work of all who wait, me among them, and passes the lead on.
func (t *Turns[T]) lead(me *turn[T], work func(items []T) error) {
	t.mu.Lock()
	batch := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	items := make([]T, len(batch))
	for i, b := range batch {
		items[i] = b.item
	}
	err := errPanicked
	defer func() {
		for _, b := range batch {
			b.err, b.done = err, true
			if b != me {
				b.end <- struct{}{}
			}
		}
		t.mu.Lock()
		if t.busy = len(t.waiting) > 0; t.busy {
			t.waiting[0].end <- struct{}{}
		}
		t.mu.Unlock()
	}()
	err = work(items)
}

// errPanicked is what those get whose work was done together with what made it panic.
var errPanicked = errors.New("tablefile: a change that came at the same time failed")
