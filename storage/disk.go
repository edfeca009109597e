// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// lookAtDisk sets and clears the disk-full flag; between the two ratios it stays as it is.
func (s *Store) lookAtDisk() {
	used := s.measureDisks()
	s.diskPercent.Store(int64(used))
	switch {
	case used > s.cfg.DiskFullRatio:
		if s.diskFull.CompareAndSwap(false, true) {
			s.cfg.Notice("disk is full, messages are refused", "path", s.cfg.RootDir,
				"used", used, "limit", s.cfg.DiskFullRatio)
		}
	case used <= s.cfg.DiskFreeRatio:
		if s.diskFull.CompareAndSwap(true, false) {
			s.cfg.Notice("disk has space again, messages are taken", "path", s.cfg.RootDir,
				"used", used)
		}
	}
}

// measureDisks returns the used share, in percent, rounded up, of the emptiest disk of the log or of
// that of the queues, whichever is fuller (RocketMQ CleanCommitLogService.isSpaceToDelete); -1 when
// neither is known. It notes which directories of the log new files should avoid.
func (s *Store) measureDisks() int {
	log := -1
	var full []string
	dirs := s.cfg.logDirs()
	for _, dir := range dirs {
		used := usedPercent(dir)
		if used > s.cfg.DiskFreeRatio {
			full = append(full, dir)
		}
		if used >= 0 && (log < 0 || used < log) {
			log = used
		}
	}
	if len(dirs) > 1 {
		s.fullDirs.Store(&full)
	}
	return max(log, usedPercent(s.cfg.RootDir))
}

// fullLogDirs returns the directories of the log whose disks are nearly full.
func (s *Store) fullLogDirs() []string {
	if full := s.fullDirs.Load(); full != nil {
		return *full
	}
	return nil
}

// usedPercent returns the used share of the disk that holds a path, rounded up; -1: not known.
func usedPercent(path string) int {
	u, err := vfs.OS().Usage(filepath.Clean(path))
	if err != nil {
		return -1
	}
	percent := u.UsedRatio() * 100
	whole := int(percent)
	if percent > float64(whole) {
		whole++
	}
	return whole
}

// fullError tells path, ratio and limit.
func (s *Store) fullError() error {
	return fmt.Errorf("%w: %s is used to %d percent, the limit is %d", ErrDiskFull, s.cfg.RootDir,
		s.diskPercent.Load(), s.cfg.DiskFullRatio)
}
