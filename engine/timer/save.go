// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"fmt"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// snapshot is a checkpoint and the files that must be on disk before it.
type snapshot struct {
	check checkpoint
	files []vfs.File
}

// changed notes that the checkpoint is behind.
func (s *Service) changed(nowMS int64) {
	if s.dirtyMS == 0 {
		s.dirtyMS = max(nowMS, 1)
	}
}

// saveIfDue has the checkpoint written by a goroutine of its own: deliveries do not wait for a disk.
func (s *Service) saveIfDue(nowMS int64) {
	if s.saving != nil {
		select {
		case err := <-s.saving:
			s.settled(err)
		default:
			return
		}
	}
	wait := s.dirtyMS + s.cfg.Interval.Milliseconds() - nowMS
	if s.dirtyMS == 0 || wait > 0 && wait <= s.cfg.Interval.Milliseconds() {
		return
	}
	if err := s.log.expire(s.cfg.Store.Info().Min); err != nil {
		s.cfg.Notice("old files of the timer log are not deleted", "err", err)
	}
	snap := s.snapshot(nowMS)
	s.dirtyMS = 0
	topics := nowMS-s.topicsMS >= topicsEvery.Milliseconds() || nowMS < s.topicsMS
	if topics {
		s.topicsMS = nowMS
	}
	saving := make(chan error, 1)
	s.saving = saving
	s.done.Go(func() {
		err := s.save(snap)
		if topics && err == nil {
			err = s.saveTopics()
		}
		saving <- err
	})
}

// settled takes the outcome of a checkpoint.
func (s *Service) settled(err error) {
	s.saving = nil
	if err != nil {
		s.cfg.Notice("checkpoint of the timers not written", "err", err)
		s.changed(s.cfg.Now().UnixMilli())
	}
}

// snapshot says where the service is now.
func (s *Service) snapshot(nowMS int64) snapshot {
	s.version.Next(nowMS)
	snap := snapshot{
		check: checkpoint{
			readMS: s.startMS(s.now.tick), logEnd: s.log.end, queueAt: int64(s.queueAt),
			version: s.version, began: s.now.began,
		},
		files: s.log.dirty(),
	}
	if s.wheel.file != nil {
		snap.files = append(snap.files, s.wheel.file)
	}
	return snap
}

// save writes a checkpoint when everything that it promises is on disk: the units and slots that it
// covers, and the copies of the messages that it calls delivered.
func (s *Service) save(snap snapshot) error {
	for _, f := range snap.files {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("timer: sync %s: %w", f.Name(), err)
		}
	}
	if err := s.cfg.Store.Flush(); err != nil {
		return fmt.Errorf("timer: flush the log: %w", err)
	}
	if err := saveCheck(s.cfg.FS, filepath.Join(s.cfg.Dir, CheckName), snap.check); err != nil {
		return err
	}
	s.mu.Lock()
	s.saved = snap.check
	s.mu.Unlock()
	return nil
}
