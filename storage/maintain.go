// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
)

// idleRounds is how many rounds pass between two looks for queue files that nobody uses.
const idleRounds = 30

// maintainer flushes queues, writes the checkpoint, looks at the disk and closes idle queue files.
// It runs in rounds of Config.QueueFlushInterval while there is something to do, and then sleeps
// without a timer until something is written or a queue file is opened.
type maintainer struct {
	store *Store
	awake atomic.Bool
	kick  chan struct{}
	quit  chan struct{}
	done  sync.WaitGroup

	// Confined to its goroutine.
	rounds       int
	lastThorough time.Time
}

func newMaintainer(s *Store) *maintainer {
	return &maintainer{store: s, kick: make(chan struct{}, 1), quit: make(chan struct{})}
}

func (m *maintainer) start() { m.done.Go(m.run) }

// wake is called when something was written. Cost while it is awake: one load.
func (m *maintainer) wake() {
	if !m.awake.Load() && m.awake.CompareAndSwap(false, true) {
		signal(m.kick)
	}
}

func (m *maintainer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		select {
		case <-m.quit:
			return
		case <-m.kick:
		}
		m.lastThorough = time.Now()
		for more := true; more; {
			timer.Reset(m.store.cfg.QueueFlushInterval)
			select {
			case <-m.quit:
				return
			case <-timer.C:
			}
			// What is written after this wakes it again.
			m.awake.Store(false)
			more = m.round()
			if more {
				m.awake.Store(true)
			}
		}
	}
}

// round does what is due and reports whether another round is needed although nothing is written.
func (m *maintainer) round() bool {
	s := m.store
	m.rounds++
	s.ballast.look()
	s.lookAtDisk()
	if s.log.Wrote()-s.log.Min() > record.PhysicalOffset(s.cfg.SegmentSize) {
		s.cleaner.wake()
	}
	thorough := time.Since(m.lastThorough) >= s.cfg.QueueFlushThorough
	var more bool
	if thorough {
		m.lastThorough = time.Now()
		more = s.flushQueues()
	} else {
		s.flushMu.Lock()
		var err error
		more, err = s.flushUnits(int64(s.cfg.QueueFlushLeastPages))
		s.flushMu.Unlock()
		s.noteFlush(err)
	}
	open := s.queueFilesOpen()
	if m.rounds%idleRounds == 0 {
		open = s.queues.CloseIdle() + s.batches.CloseIdle()
	}
	return more || open > 0
}

func (m *maintainer) close() {
	close(m.quit)
	m.done.Wait()
}

// flushQueues brings every unit to disk that was written before the call, and then says so in the
// checkpoint. It reports whether new ones came meanwhile.
func (s *Store) flushQueues() bool {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	s.mu.Lock()
	lastAt, lastMS := s.lastAt, s.lastMS
	s.mu.Unlock()
	// The log first: the checkpoint must not name a record that a power loss can take away.
	if err := s.log.Flush(); err != nil {
		return true // logFailed has told
	}
	more, err := s.flushUnits(0)
	if err != nil {
		s.noteFlush(err)
		return more
	}
	if lastAt >= 0 {
		s.noteEnds()
	}
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	if lastAt >= 0 {
		s.checkpoint.LogicsAt, s.checkpoint.LogicsMS = lastAt, lastMS
		s.checkpoint.Own = true
	}
	if lastMS > 0 {
		s.checkpoint.PhysicMS = lastMS
	}
	s.noteCheckpoint(saveCheckpoint(s.cfg.fs(), s.path("checkpoint"), s.checkpoint))
	return more
}

// indexFull is called by the indexer when a full index file is on disk.
func (s *Store) indexFull(endMS int64) error {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	s.checkpoint.IndexMS = endMS
	return saveCheckpoint(s.cfg.fs(), s.path("checkpoint"), s.checkpoint)
}

// noteFlush stops writing after a failed flush: the kernel may have dropped the pages, so nothing
// that was not on disk before is known to be.
func (s *Store) noteFlush(err error) {
	if err != nil {
		s.stopWriting("flush of queues failed", err)
		s.forgetLife()
	}
}

// noteCheckpoint tells of a checkpoint that was not written; an old one only makes recovery longer.
func (s *Store) noteCheckpoint(err error) {
	if err != nil {
		s.cfg.Notice("checkpoint not written", "err", err)
	}
}

// Flush brings to disk what was appended before the call. It blocks for the disk.
func (s *Store) Flush() error { return s.log.Flush() }

// WriteOut brings what was appended before the call into the files of the log, where it survives the
// end of the process. Without Config.SyncFlush it is there already. It does not wait for the disk, but
// may for the file system.
func (s *Store) WriteOut() error { return s.log.WriteOut() }

// Flushed returns the offset up to which the log is on disk.
func (s *Store) Flushed() record.PhysicalOffset { return s.log.Flushed() }
