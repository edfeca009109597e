// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// addDirty notes that q has bytes to flush. Writer only.
func (s *Set) addDirty(q *Queue) {
	s.dirtyMu.Lock()
	if !q.dirty.Load() {
		q.dirty.Store(true)
		s.dirty = append(s.dirty, q)
	}
	s.dirtyMu.Unlock()
}

// Flush brings the units of every queue to disk that has at least leastPages pages of 4 KiB to
// flush; 0 means all. It returns whether any queue has bytes left to flush. One goroutine at a time
// calls it; it blocks for the disk. After an error the bytes may be lost and must not be counted as
// flushed.
//
// Cost: a sync for each queue, one more for its folder while that is new, and one for each folder
// above whatever the number of new queues. Many queues are synced by several goroutines, since a
// file system commits what waits at once in one go.
func (s *Set) Flush(leastPages int64) (more bool, err error) {
	s.dirtyMu.Lock()
	list := s.dirty
	s.dirty = nil
	for _, q := range list {
		q.dirty.Store(false)
	}
	s.dirtyMu.Unlock()
	steps := make([]flushStep, len(list))
	goroutines := 1
	if len(list) >= manyQueues {
		goroutines = flushers
	}
	atOnce(goroutines, len(list), func(i int) { steps[i] = list[i].sync(leastPages) })
	s.syncFolders(list, steps)
	for i, q := range list {
		switch step := &steps[i]; {
		case step.err != nil:
			if step.named {
				q.named.Store(false)
			}
			if err == nil {
				err = fmt.Errorf("consumequeue: flush queue %s: %w", q.id, step.err)
			}
		case step.synced:
			q.flushed.Store(step.upTo)
		}
		if q.flushed.Load() < q.written.Load() {
			s.addDirty(q)
			more = true
		}
	}
	return more, err
}

const (
	manyQueues = 64 // from so many on, several goroutines sync them
	flushers   = 16 // goroutines that do
)

// flushStep is what the flush of one queue has come to.
type flushStep struct {
	upTo   int64 // units that are on disk once the names are
	synced bool  // false: there was too little to flush
	named  bool  // names of new files are among it; the folders above wait for their sync
	err    error
}

// atOnce runs do for 0 to n-1 in several goroutines and waits for them.
func atOnce(goroutines, n int, do func(i int)) {
	if goroutines == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	all.Wait()
}

// sync syncs what was written since the last flush, when it is enough, and the queue's own folder.
func (q *Queue) sync(leastPages int64) flushStep {
	written := q.written.Load()
	from, to := q.flushed.Load()*q.set.unit, written*q.set.unit
	if to/pageSize-from/pageSize < leastPages {
		return flushStep{}
	}
	step := flushStep{upTo: written, synced: true}
	size := q.set.cfg.FileSize
	for base := from - from%size; base < to; base += size {
		err := q.flushFile(base, max(from-base, 0), min(to-base, size))
		if errors.Is(err, ErrDeleted) {
			return step
		}
		if err != nil {
			step.err = err
			return step
		}
	}
	if q.named.Swap(true) || q.Deleted() {
		return step
	}
	step.named = true
	if err := q.set.cfg.FS.SyncDir(q.dir()); err != nil && !q.Deleted() {
		step.err = err
	}
	return step
}

// syncFolders makes the names of new queues durable: each topic's folder once, then the one of all.
func (s *Set) syncFolders(list []*Queue, steps []flushStep) {
	var root error
	done := map[string]error{}
	for i, q := range list {
		if !steps[i].named || steps[i].err != nil || q.Deleted() {
			continue
		}
		if len(done) == 0 {
			root = s.cfg.FS.SyncDir(s.cfg.Dir)
		}
		err, known := done[q.id.Topic]
		if !known {
			err = s.cfg.FS.SyncDir(filepath.Dir(q.dir()))
			done[q.id.Topic] = err
		}
		if err = errors.Join(err, root); err != nil && !q.Deleted() {
			steps[i].err = err
		}
	}
}

// flushFile syncs a range of one file, through its mapping if there is one.
func (q *Queue) flushFile(base, from, to int64) error {
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return ErrDeleted
	}
	var s *segment
	for _, m := range q.mapped {
		if m.base == base {
			s = m
			m.refs.Add(1) // the table has one: it cannot be going away
		}
	}
	q.mu.Unlock()
	if s != nil {
		defer s.release()
		return s.file.Sync(int(from), int(to-from))
	}
	f, err := q.set.cfg.FS.OpenFile(filepath.Join(q.dir(), fileName(base)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
