// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime/debug"
	"sync"
)

// workers runs work that may block, off the event loops. Goroutines start when work comes, up to a
// limit, and stay blocked on the queue afterwards, which costs nothing.
type workers struct {
	limit    int
	bytesMax int
	queue    chan job

	mu      sync.Mutex
	running int // goroutines
	pending int // jobs queued or under way
	bytes   int // memory that these keep
	closed  bool
	wg      sync.WaitGroup
}

// job is work and the memory that it keeps until it has run.
type job struct {
	size int
	work func()
}

// waitingBytesMax bounds the commands that one pool keeps in memory: a count alone would let a few
// clients fill it with frames of 16 MiB.
const waitingBytesMax = 64 << 20

func newWorkers(limit, queueMax int) *workers {
	return &workers{limit: limit, bytesMax: waitingBytesMax, queue: make(chan job, queueMax)}
}

// hand queues work that keeps size bytes until it is done. False when too much is waiting or the
// pool is closed; it never blocks. Work of any size is taken by a pool that has nothing to do.
func (w *workers) hand(size int, work func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.fullLocked(size) {
		return false
	}
	select {
	case w.queue <- job{size, work}:
	default:
		return false
	}
	w.pending++
	w.bytes += size
	if w.pending > w.running && w.running < w.limit {
		w.running++
		w.wg.Add(1)
		go w.run()
	}
	return true
}

// full tells beforehand that hand would refuse so many bytes.
func (w *workers) full(size int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fullLocked(size)
}

func (w *workers) fullLocked(size int) bool {
	return w.bytes > 0 && w.bytes+size > w.bytesMax
}

func (w *workers) run() {
	defer w.wg.Done()
	// The store checks what it hands out; a file cut short while a worker reads it is one request's
	// error too (Broker.run), and not the end of the process.
	debug.SetPanicOnFault(true)
	for j := range w.queue {
		j.work()
		w.mu.Lock()
		w.pending--
		w.bytes -= j.size
		w.mu.Unlock()
	}
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
