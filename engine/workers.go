// SPDX-License-Identifier: Apache-2.0

package engine

import "sync"

// workers runs work that may block, off the event loops. Goroutines start when work comes, up to a
// limit, and stay blocked on the queue afterwards, which costs nothing.
type workers struct {
	limit int
	queue chan func()

	mu      sync.Mutex
	running int
	idle    int
	closed  bool
	wg      sync.WaitGroup
}

func newWorkers(limit, queueMax int) *workers {
	return &workers{limit: limit, queue: make(chan func(), queueMax)}
}

// hand queues work. False when the queue is full or the pool closed; it never blocks.
func (w *workers) hand(work func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	select {
	case w.queue <- work:
	default:
		return false
	}
	if len(w.queue) > w.idle && w.running < w.limit {
		w.running++
		w.wg.Add(1)
		go w.run()
	}
	return true
}

func (w *workers) run() {
	defer w.wg.Done()
	for {
		w.setIdle(1)
		work, ok := <-w.queue
		w.setIdle(-1)
		if !ok {
			return
		}
		work()
	}
}

func (w *workers) setIdle(n int) {
	w.mu.Lock()
	w.idle += n
	w.mu.Unlock()
}

// close refuses more work, finishes what is queued and waits for it.
func (w *workers) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	w.wg.Wait()
}
