// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// zeroStep returns how many bytes of zeros are written at once.
func (l *Log) zeroStep() int64 {
	return max(vfs.PageSize, min(l.cfg.PopulateStep, l.size/8)&^(vfs.PageSize-1))
}

// prewrite writes zeros ahead of the position at of a segment. The populator calls it for the tail, and
// the creator for a segment that is not in use yet.
//
// Blocks that fallocate reserved are marked as unwritten, and the first flush of each has to change that
// through the journal of the file system: it waits for a commit, behind whatever else is being
// committed. Blocks of zeros only wait for the device.
func (l *Log) prewrite(seg *segment, at int64) {
	if !l.cfg.Prewrite || l.noPrewriting.Load() {
		return
	}
	step := l.zeroStep()
	end := min(at+2*l.cfg.PopulateWindow, l.size)
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		more, err := seg.writeZeros(step, end)
		if err != nil && !errors.Is(err, vfs.ErrNotSupported) {
			l.cfg.Notice("CommitLog blocks are not written ahead any more", "err", err)
		}
		if err != nil {
			l.noPrewriting.Store(true)
			return
		}
		if !more {
			return
		}
	}
}

// writeZeros writes one step of zeros and reports whether more are missing below end.
func (s *segment) writeZeros(step, end int64) (more bool, err error) {
	s.zeroing.Lock()
	defer s.zeroing.Unlock()
	from := s.zeroed.Load()
	if from >= end || from+step > int64(s.file.Size()) {
		return false, nil
	}
	if err := s.file.WriteZeros(int(from), int(from+step)); err != nil {
		return false, err
	}
	s.zeroed.Store(from + step)
	return from+step < end, nil
}

// claim keeps zeros away from the bytes below the position to, which are about to be written. It waits
// for zeros that are being written where the writer has caught up with them.
func (s *segment) claim(to, step int64) {
	if to <= s.zeroed.Load() {
		return
	}
	s.zeroing.Lock()
	defer s.zeroing.Unlock()
	s.zeroed.Store(max(s.zeroed.Load(), (to+step-1)/step*step))
}
