// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"sync"
)

// buffer bounds what SendAsync holds and knows when all of it is settled. Sends that wait are let
// in by order of arrival.
type buffer struct {
	maxCount, maxBytes int

	mu      sync.Mutex
	closed  bool
	count   int
	bytes   int
	waiting []*admission
	open    int // synchronous sends under way
	epoch   uint64
	epochs  []epochCount // unsettled sends by the epoch they began in, oldest first
	idle    []*idleWait
}

type admission struct {
	bytes int
	ready chan struct{}
	epoch uint64
	in    bool
}

type epochCount struct {
	epoch uint64
	count int
}

// idleWait is somebody who waits until what began in some epochs is settled.
type idleWait struct {
	until uint64 // epochs up to here
	ready chan struct{}
}

func newBuffer(count, bytes int) *buffer {
	return &buffer{maxCount: count, maxBytes: bytes}
}

func (b *buffer) fitsLocked(bytes int) bool {
	return b.count == 0 || b.count < b.maxCount && b.bytes+bytes <= b.maxBytes
}

func (b *buffer) admitLocked(bytes int) uint64 {
	b.count++
	b.bytes += bytes
	if n := len(b.epochs); n > 0 && b.epochs[n-1].epoch == b.epoch {
		b.epochs[n-1].count++
	} else {
		b.epochs = append(b.epochs, epochCount{b.epoch, 1})
	}
	return b.epoch
}

// level returns what is held.
func (b *buffer) level() (count, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count, b.bytes
}

// acquire takes room for one message, waiting as long as ctx allows.
func (b *buffer) acquire(ctx context.Context, bytes int) (epoch uint64, err error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, errProducerClosed()
	}
	if len(b.waiting) == 0 && b.fitsLocked(bytes) {
		epoch = b.admitLocked(bytes)
		b.mu.Unlock()
		return epoch, nil
	}
	a := &admission{bytes: bytes, ready: make(chan struct{})}
	b.waiting = append(b.waiting, a)
	b.mu.Unlock()
	select {
	case <-a.ready:
	case <-ctx.Done():
		b.mu.Lock()
		if !a.in {
			for i, w := range b.waiting {
				if w == a {
					b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
					break
				}
			}
			b.wakeLocked() // the one in front may have been the reason to wait
			b.mu.Unlock()
			return 0, fmt.Errorf("client: waiting for buffer space: %w", context.Cause(ctx))
		}
		b.mu.Unlock()
	}
	if !a.in { // written before ready was closed
		return 0, errProducerClosed()
	}
	return a.epoch, nil
}

func errProducerClosed() error { return fmt.Errorf("client: producer: %w", ErrClosed) }

// tryAcquire is acquire without waiting.
func (b *buffer) tryAcquire(bytes int) (epoch uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, errProducerClosed()
	}
	if len(b.waiting) > 0 || !b.fitsLocked(bytes) {
		return 0, fmt.Errorf("client: %d messages, %d bytes: %w", b.count, b.bytes, ErrBufferFull)
	}
	return b.admitLocked(bytes), nil
}

// release gives the room of settled messages back that began in one epoch.
func (b *buffer) release(epoch uint64, count, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count -= count
	b.bytes -= bytes
	for i := range b.epochs {
		if b.epochs[i].epoch != epoch {
			continue
		}
		if b.epochs[i].count -= count; b.epochs[i].count == 0 {
			b.epochs = append(b.epochs[:i], b.epochs[i+1:]...)
			b.settledLocked()
		}
		break
	}
	b.wakeLocked()
}

// enter counts a synchronous send, so that Close waits for it; leave ends it.
func (b *buffer) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errProducerClosed()
	}
	b.open++
	return nil
}

func (b *buffer) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	b.settledLocked()
}

func (b *buffer) wakeLocked() {
	for len(b.waiting) > 0 && b.fitsLocked(b.waiting[0].bytes) {
		a := b.waiting[0]
		b.waiting = b.waiting[1:]
		a.epoch, a.in = b.admitLocked(a.bytes), true
		close(a.ready)
	}
}

// settledLocked wakes those whose sends are all settled.
func (b *buffer) settledLocked() {
	if len(b.idle) == 0 {
		return
	}
	kept := b.idle[:0]
	for _, w := range b.idle {
		if b.settledUpToLocked(w.until) {
			close(w.ready)
		} else {
			kept = append(kept, w)
		}
	}
	b.idle = kept
}

func (b *buffer) settledUpToLocked(until uint64) bool {
	if len(b.epochs) > 0 && b.epochs[0].epoch <= until {
		return false
	}
	return !b.closed || b.open == 0
}

// mark begins a new epoch and returns a wait for what began before; after close also for all
// synchronous sends. forget ends it.
func (b *buffer) mark() *idleWait {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &idleWait{until: b.epoch, ready: make(chan struct{})}
	b.epoch++
	if b.settledUpToLocked(w.until) {
		close(w.ready)
		return w
	}
	b.idle = append(b.idle, w)
	return w
}

func (b *buffer) forget(w *idleWait) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.idle {
		if x == w {
			b.idle = append(b.idle[:i], b.idle[i+1:]...)
			return
		}
	}
}

// close refuses new sends and turns those that wait away.
func (b *buffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, a := range b.waiting {
		close(a.ready)
	}
	b.waiting = nil
}
