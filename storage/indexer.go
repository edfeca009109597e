// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// indexDelay is how long the indexer lets messages gather before it wakes to index them. A query
// does not wait for it.
const indexDelay = 50 * time.Millisecond

// indexer follows the log and indexes every record below the dispatched watermark. What the appender
// noted of the newest records spares it reading them; of all others the log is the queue, of any
// length. So an appender never waits for it and no message can be left out; after a start it goes on
// where the files end, while the store is already serving.
type indexer struct {
	store *Store
	index *indexfile.Index

	next   atomic.Int64 // first record that is not indexed; its own, read by others
	failed atomic.Bool  // a file could not be written: nothing is indexed until the next start
	// stalled: the disk is full. Every wake tries again.
	stalled atomic.Bool

	// Its own: what it took of the appender's notes, and how many of them are put.
	noted noted
	put   int

	awake atomic.Bool   // between a wake and the moment it has caught up
	kick  chan struct{} // wakes it
	hurry chan struct{} // ends the delay
	quit  chan struct{}
	done  sync.WaitGroup

	// Guards and signals next to those who wait for it.
	mu       sync.Mutex
	progress *sync.Cond
}

func newIndexer(s *Store, index *indexfile.Index, from record.PhysicalOffset) *indexer {
	x := &indexer{
		store: s, index: index, kick: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		quit: make(chan struct{}), noted: newNoted(),
	}
	x.progress = sync.NewCond(&x.mu)
	x.next.Store(int64(from))
	return x
}

func (x *indexer) start() { x.done.Go(x.run) }

// wake is called after records became visible. Cost while it is awake: one load.
func (x *indexer) wake() {
	if !x.awake.Load() && x.awake.CompareAndSwap(false, true) {
		signal(x.kick)
	}
}

// signal sends without waiting.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (x *indexer) run() {
	timer := time.NewTimer(indexDelay)
	defer timer.Stop()
	for {
		select {
		case <-x.quit:
			return
		case <-x.kick:
		}
		timer.Reset(indexDelay)
		select {
		case <-x.quit:
			return
		case <-timer.C:
		case <-x.hurry:
		}
		x.awake.Store(false) // from here on a wake is about records that this round may miss
		x.follow()
	}
}

// follow indexes up to the dispatched watermark, once.
func (x *indexer) follow() {
	defer func() {
		x.mu.Lock()
		x.progress.Broadcast()
		x.mu.Unlock()
	}()
	if x.failed.Load() {
		return
	}
	end := record.PhysicalOffset(x.store.dispatched.Load())
	err := x.indexTo(end)
	switch {
	case err == nil:
		if x.stalled.Swap(false) {
			x.store.cfg.Notice("disk has space again, the index goes on", "from", x.next.Load())
		}
	case x.store.noSpace(err):
		if !x.stalled.Swap(true) {
			x.store.cfg.Notice("disk is full, the index stops until there is room", "err", err)
		}
	default:
		x.failed.Store(true)
		x.store.forgetLife() // the next start does not go on in this file
		x.store.cfg.Notice("index stops until the next start, which catches up", "err", err)
	}
}

// spaceLeast is how many bytes must be free for a memory fault to have another cause than a full disk.
const spaceLeast = 1 << 20

// noSpace reports whether an error of the index comes of a full disk: a store into its sparse files is
// a memory fault then.
func (s *Store) noSpace(err error) bool {
	var fault *vfs.FaultError
	if errors.As(err, &fault) {
		u, err := vfs.OS().Usage(s.cfg.RootDir)
		return err == nil && u.Total > 0 && u.Avail < spaceLeast
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// indexWindow is how many bytes of log are held in place at once, and how often the indexer looks
// whether it should stop.
const indexWindow = 4 << 20

// indexTo indexes [next, end). Memory faults become errors.
func (x *indexer) indexTo(end record.PhysicalOffset) (err error) {
	defer faulted(debug.SetPanicOnFault(true), &err)
	for {
		at := record.PhysicalOffset(x.next.Load())
		if at >= end {
			return nil
		}
		select {
		case <-x.quit:
			return nil
		default:
		}
		if err := x.indexSome(at, end); err != nil {
			return err
		}
	}
}

// indexSome indexes some of [at, end), from notes where there are any, and moves next.
func (x *indexer) indexSome(at, end record.PhysicalOffset) error {
	if at >= x.noted.to {
		x.noted, x.put = x.store.takeNoted(x.noted.list), 0
	}
	if x.noted.covers(at) {
		return x.putNoted(end)
	}
	if at < x.noted.from {
		end = min(end, x.noted.from)
	}
	return x.indexRun(at, end)
}

// indexRun indexes records of one log file, as far as the window reaches, and moves next. It always
// gets on. Cost: one hold on the file, no allocation.
func (x *indexer) indexRun(at, end record.PhysicalOffset) error {
	s := x.store
	if oldest := s.log.Min(); at < oldest {
		x.next.Store(int64(oldest)) // deleted before it was indexed: nobody can find it any more
		return nil
	}
	segment := record.PhysicalOffset(s.cfg.SegmentSize)
	nextSegment := at - at%segment + segment
	// A record that is longer than the window is taken alone.
	size := min(max(indexWindow, record.PhysicalOffset(s.cfg.recordMax())), end-at, nextSegment-at)
	region, err := s.log.Region(at, int32(size))
	if err != nil {
		x.next.Store(int64(nextSegment)) // a missing file, which recovery was told to skip
		return nil
	}
	defer region.Release()
	for rest := region.Mem; len(rest) >= record.BlankSize; {
		v, err := record.Parse(rest)
		switch {
		case errors.Is(err, record.ErrBlank):
			x.next.Store(int64(nextSegment))
			return nil
		case errors.Is(err, record.ErrShort) && len(rest) < min(len(region.Mem), s.cfg.recordMax()):
			return nil // the window ends in it
		case err != nil || v.PhysicalOffset() != at:
			x.next.Store(int64(x.skipDamage(at, nextSegment)))
			return nil
		}
		if err := x.index.Put(v, at); err != nil {
			return err
		}
		at += record.PhysicalOffset(v.TotalSize())
		x.next.Store(int64(at))
		rest = rest[v.TotalSize():]
	}
	if at+record.BlankSize > min(nextSegment, end) {
		x.next.Store(int64(min(nextSegment, max(end, at))))
	}
	return nil
}

// skipDamage returns where the next record begins behind a place without one, which recovery passed
// over because it was told to (Config.Damage).
func (x *indexer) skipDamage(at, limit record.PhysicalOffset) record.PhysicalOffset {
	for at++; at < limit; at++ {
		region, err := x.store.RecordAt(at)
		if err == nil {
			region.Release()
			return at
		}
	}
	return limit
}

// catchUp waits until everything visible now is indexed, or the time is over.
func (x *indexer) catchUp(wait time.Duration) bool {
	end := x.store.dispatched.Load()
	if x.next.Load() >= end {
		return true
	}
	late := false
	timer := time.AfterFunc(wait, func() {
		x.mu.Lock()
		late = true
		x.progress.Broadcast()
		x.mu.Unlock()
	})
	defer timer.Stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.next.Load() < end && !late && !x.failed.Load() && !x.store.closed.Load() {
		x.wake()
		signal(x.hurry)
		x.progress.Wait()
		if x.stalled.Load() {
			break // tried once; with the disk full it would only be tried again
		}
	}
	return x.next.Load() >= end
}

// close stops the indexer. all says that it first indexes everything visible.
func (x *indexer) close(all bool) error {
	close(x.quit)
	x.done.Wait()
	if all && !x.failed.Load() {
		end := record.PhysicalOffset(x.store.dispatched.Load())
		x.quit = make(chan struct{})
		if err := x.indexTo(end); err != nil {
			x.store.cfg.Notice("index is behind the log, the next start catches up", "err", err)
		}
	}
	return x.index.Close()
}
