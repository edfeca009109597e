// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"os"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// lifeFile is ours alone; RocketMQ does not look at it. It holds the name of the life of the page
// cache (vfs.FS.Life) in which the store was last recovered: all that was lost before is repaired.
const lifeFile = "lastBoot"

// sameLife reports whether the system has not died since the store was last recovered, so that
// every page is as the process left it and a hole in the log is no trace of a power loss.
func (s *Store) sameLife() bool {
	life := s.life()
	if life == "" {
		return false
	}
	text, err := os.ReadFile(s.path("config", lifeFile))
	return err == nil && string(text) == life+"\n"
}

// life names the life of the page cache above all folders of the log; empty when one is not known.
func (s *Store) life() string {
	var lives []string
	for _, dir := range splitPaths(s.cfg.CommitLogDir + "," + s.cfg.CommitLogReadOnly) {
		life := s.cfg.fs().Life(dir)
		if life == "" {
			return ""
		}
		lives = append(lives, life)
	}
	slices.Sort(lives)
	return strings.Join(slices.Compact(lives), ", ")
}

// saveLife notes that all is repaired that an earlier life may have lost.
func (s *Store) saveLife() error {
	life := s.life()
	if life == "" || s.sameLife() {
		return nil
	}
	return vfs.ReplaceFileIn(s.cfg.fs(), s.path("config", lifeFile), []byte(life+"\n"))
}

// forgetLife is called when a flush failed: pages may be lost though the system lives on.
func (s *Store) forgetLife() { _ = s.cfg.fs().Remove(s.path("config", lifeFile)) }

// onDisk returns an offset such that every record that begins below was on disk before this start;
// -1 when nothing is known.
//
// The record that the checkpoint names is: Skylark flushes the log first. RocketMQ flushes queues
// and log apart, so there it is only when the log's time is not older.
func (s *Store) onDisk() record.PhysicalOffset {
	c := &s.checkpoint
	switch {
	case !s.checkpointed:
		return -1
	case c.LogicsAt <= 0 || c.PhysicMS < c.LogicsMS:
		return 0
	}
	return c.LogicsAt + 1
}
