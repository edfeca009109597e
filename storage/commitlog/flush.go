// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// flusher is the one goroutine that makes the log durable. Two reasons to wake it are two channels:
// "something is dirty" starts the period, "many bytes wait" ends it early. With one for both each
// append would end the period, and the disk would be flushed 70 times a second. While nothing is
// dirty it sleeps without a timer.
type flusher struct {
	dirty  chan struct{} // from idle
	bytes  chan struct{} // Config.FlushBytes are reached
	urgent chan struct{} // somebody waits, see NeedFlush
	idle   atomic.Bool   // it waits for dirty
	want   atomic.Int64  // flush up to here at once

	// Guards what follows; moved is on it. Never held across I/O or a callback.
	mu    sync.Mutex
	moved sync.Cond // flushed moved, or err was set, or the goroutine ended
	ended bool
	err   error // of the flush that failed

	failing sync.Once   // sets err
	failed  atomic.Bool // err is set
}

func (f *flusher) init() {
	f.dirty = make(chan struct{}, 1)
	f.bytes = make(chan struct{}, 1)
	f.urgent = make(chan struct{}, 1)
	f.moved.L = &f.mu
}

// notify sends without waiting; a signal that is pending already is enough.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// published is called after Log.published has moved. Cost: one atomic read as long as the flusher is busy.
func (f *flusher) published(many bool) {
	if f.idle.Load() && f.idle.CompareAndSwap(true, false) {
		notify(f.dirty)
	}
	if many {
		notify(f.bytes)
	}
}

// Err returns the error of the flush that failed, nil as long as none did. Such a failure is final:
// reads go on, writes do not.
func (l *Log) Err() error {
	if !l.flush.failed.Load() {
		return nil
	}
	l.flush.mu.Lock()
	defer l.flush.mu.Unlock()
	return l.flush.err
}

// NeedFlush asks for everything below end to be flushed without waiting for the period, and
// returns. OnFlushed tells when it is. In Sync mode it is not needed.
func (l *Log) NeedFlush(end record.PhysicalOffset) {
	for {
		was := l.flush.want.Load()
		if int64(end) <= was {
			break
		}
		if l.flush.want.CompareAndSwap(was, int64(end)) {
			break
		}
	}
	notify(l.flush.urgent)
}

// Flush blocks until what was published before the call is on disk, or cannot be.
func (l *Log) Flush() error {
	target := l.published.Load()
	l.NeedFlush(record.PhysicalOffset(target))
	f := &l.flush
	f.mu.Lock()
	defer f.mu.Unlock()
	for l.flushed.Load() < target && f.err == nil && !f.ended {
		f.moved.Wait()
	}
	if f.err == nil && l.flushed.Load() < target {
		return ErrClosed
	}
	return f.err
}

// runFlusher is the goroutine. When the log stops it flushes the rest.
func (l *Log) runFlusher() {
	defer l.running.Done()
	f := &l.flush
	timer := time.NewTimer(l.cfg.FlushInterval)
	timer.Stop()
	last := time.Now()
	for l.awaitWork(timer) {
		dirty := l.published.Load() - l.flushed.Load()
		due := l.cfg.Sync || f.want.Load() > l.flushed.Load() || dirty >= l.cfg.FlushBytes ||
			time.Since(last) >= l.cfg.FlushThorough || l.dirtyPages() >= l.cfg.FlushLeastPages
		if !due {
			continue
		}
		if l.flushAll() != nil {
			<-l.stop
			break
		}
		last = time.Now()
	}
	if l.Err() == nil {
		_ = l.flushAll() // Err has it
	}
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.moved.Broadcast()
}

// awaitWork waits until it is time to look at the log again; false: the log stops.
func (l *Log) awaitWork(timer *time.Timer) bool {
	f := &l.flush
	if l.published.Load() == l.flushed.Load() {
		f.idle.Store(true)
		// Publish stores published before it looks at idle, so one of the two sees the other.
		if l.published.Load() == l.flushed.Load() {
			select {
			case <-f.dirty:
			case <-l.stop:
				return false
			}
		}
		f.idle.Store(false)
	}
	if l.cfg.Sync || f.want.Load() > l.flushed.Load() {
		select {
		case <-l.stop:
			return false
		default:
			return true
		}
	}
	timer.Reset(l.cfg.FlushInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.bytes:
	case <-f.urgent:
	case <-l.stop:
		return false
	}
	return true
}

// dirtyPages counts as RocketMQ does (DefaultMappedFile.isAbleToFlush).
func (l *Log) dirtyPages() int {
	return int(l.published.Load()/vfs.PageSize - l.flushed.Load()/vfs.PageSize)
}

// flushAll flushes up to published, one segment at a time, and tells about each.
func (l *Log) flushAll() error {
	if err := l.Err(); err != nil { // of WriteOut
		return err
	}
	ms := l.publishedMS.Load() // before published: see Publish
	target := l.published.Load()
	for at := l.flushed.Load(); at < target; {
		seg := l.segments.Load().find(at, l.size)
		end := min(target, seg.base+l.size)
		if err := l.flushSegment(seg, at, end); err != nil {
			l.failFlush(err)
			return err
		}
		at = end
		if at == target && ms > 0 {
			l.flushedMS.Store(ms)
		}
		l.flush.mu.Lock() // so that nobody is between looking and waiting
		l.flushed.Store(at)
		l.flush.mu.Unlock()
		l.flush.moved.Broadcast()
		l.cfg.OnFlushed(record.PhysicalOffset(at))
	}
	return nil
}

// flushSegment makes the bytes [at, end) of the log durable, which lie in one segment. No byte of the
// next one is written before.
func (l *Log) flushSegment(seg *segment, at, end int64) error {
	if l.stage == nil {
		return seg.file.Flush(int(at-seg.base), int(end-seg.base))
	}
	if err := l.writeOut(end); err != nil {
		return err
	}
	return seg.file.SyncAll()
}

// failFlush makes the first failure known and final. The owner hears of it before anyone who waits
// does: who has seen a flush fail must not find the store still taking messages.
func (l *Log) failFlush(err error) {
	f := &l.flush
	f.failing.Do(func() {
		l.cfg.OnFlushError(err)
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
		f.failed.Store(true)
		f.moved.Broadcast()
	})
}
