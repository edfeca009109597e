// SPDX-License-Identifier: Apache-2.0

package client

import (
	"iter"
	"sync"
)

// fifo is a queue between goroutines whose length something else bounds. push never blocks.
type fifo[T any] struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	closed bool
	items  []T
}

func newFIFO[T any]() *fifo[T] { return &fifo[T]{wake: make(chan struct{}, 1)} }

// push appends an item. After close it is dropped.
func (f *fifo[T]) push(item T) {
	f.mu.Lock()
	if !f.closed {
		f.items = append(f.items, item)
	}
	f.mu.Unlock()
	f.signal()
}

func (f *fifo[T]) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// close ends the iteration of all once the queue is empty.
func (f *fifo[T]) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.signal()
}

// all yields items in order, waiting for them, until the queue is closed. One goroutine calls it.
func (f *fifo[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		var batch []T
		for {
			f.mu.Lock()
			batch, f.items = f.items, batch[:0]
			closed := f.closed
			f.mu.Unlock()
			for i, item := range batch {
				var zero T
				batch[i] = zero
				if !yield(item) {
					return
				}
			}
			if len(batch) == 0 {
				if closed {
					return
				}
				<-f.wake
			}
		}
	}
}
