// SPDX-License-Identifier: Apache-2.0

package nameserver

import "sync"

// workerQueue bounds the work that waits for one worker; what comes beyond is refused as busy.
const workerQueue = 1024

// worker runs what may block, one piece after the other, away from the loops.
type worker struct {
	mu     sync.Mutex
	closed bool
	queue  chan func()
	ended  chan struct{}
}

func newWorker() *worker {
	w := &worker{queue: make(chan func(), workerQueue), ended: make(chan struct{})}
	go w.run()
	return w
}

func (w *worker) run() {
	defer close(w.ended)
	for work := range w.queue {
		work()
	}
}

// submit queues work and returns false when the queue is full or closed. It does not block.
func (w *worker) submit(work func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	select {
	case w.queue <- work:
		return true
	default:
		return false
	}
}

// close runs what is queued and waits for it. It is idempotent.
func (w *worker) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	<-w.ended
}
