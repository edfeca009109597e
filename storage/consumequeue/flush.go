// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
func (s *Set) Flush(leastPages int64) (more bool, err error) {
	s.dirtyMu.Lock()
	list := s.dirty
	s.dirty = nil
	for _, q := range list {
		q.dirty.Store(false)
	}
	s.dirtyMu.Unlock()
	for _, q := range list {
		if e := q.flush(leastPages); e != nil && err == nil {
			err = e
		}
		if q.flushed.Load() < q.written.Load() {
			s.addDirty(q)
			more = true
		}
	}
	return more, err
}

// flush syncs what was written since the last flush, when it is enough.
func (q *Queue) flush(leastPages int64) error {
	written := q.written.Load()
	from, to := q.flushed.Load()*UnitSize, written*UnitSize
	if to/pageSize-from/pageSize < leastPages {
		return nil
	}
	size := q.set.cfg.FileSize
	for base := from - from%size; base < to; base += size {
		err := q.flushFile(base, max(from-base, 0), min(to-base, size))
		if errors.Is(err, ErrDeleted) {
			break
		}
		if err != nil {
			return fmt.Errorf("consumequeue: flush queue %s: %w", q.id, err)
		}
	}
	if err := q.syncNames(); err != nil {
		return fmt.Errorf("consumequeue: flush queue %s: %w", q.id, err)
	}
	q.flushed.Store(written)
	return nil
}

// syncNames makes the names of new files durable, and those of the folders above them.
func (q *Queue) syncNames() error {
	if q.named.Swap(true) || q.Deleted() {
		return nil
	}
	dir := q.dir()
	for _, path := range []string{dir, filepath.Dir(dir), q.set.cfg.Dir} {
		if err := q.set.cfg.FS.SyncDir(path); err != nil && !q.Deleted() {
			q.named.Store(false)
			return err
		}
	}
	return nil
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
