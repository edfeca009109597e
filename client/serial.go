// SPDX-License-Identifier: Apache-2.0

package client

import "sync"

// keepItems is how long an emptied list may be to be used again.
const keepItems = 4096

// serial handles items one at a time, in order, on a goroutine that exists only while there are
// some. Something else bounds how many there are. push never blocks.
type serial[T any] struct {
	handle func(T)
	wg     *sync.WaitGroup // of the owner, who waits for the goroutine
	run    func()          // the goroutine; one value, so that starting it allocates nothing

	// Guards what follows. Never held while an item is handled.
	mu      sync.Mutex
	items   []T
	spare   []T
	running bool
}

func newSerial[T any](wg *sync.WaitGroup, handle func(T)) *serial[T] {
	s := &serial[T]{handle: handle, wg: wg}
	s.run = func() {
		defer wg.Done()
		for s.drain() {
		}
	}
	return s
}

// push appends an item.
func (s *serial[T]) push(item T) {
	s.mu.Lock()
	s.items = append(s.items, item)
	running := s.running
	s.running = true
	if !running {
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if !running {
		go s.run()
	}
}

// idle reports whether no item waits or is being handled.
func (s *serial[T]) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.running
}

// drain handles what is there; false: there was nothing, and the goroutine ends.
func (s *serial[T]) drain() bool {
	s.mu.Lock()
	batch := s.items
	if len(batch) == 0 {
		s.running = false
		s.mu.Unlock()
		return false
	}
	s.items, s.spare = s.spare[:0], nil
	s.mu.Unlock()
	for i, item := range batch {
		var none T
		batch[i] = none
		s.handle(item)
	}
	if cap(batch) > keepItems {
		batch = nil
	}
	s.mu.Lock()
	s.spare = batch[:0]
	s.mu.Unlock()
	return true
}
