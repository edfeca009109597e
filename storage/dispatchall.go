// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"os"
	"path/filepath"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// dispatchAllFile is ours alone; RocketMQ does not look at it. As long as it exists queues may lack
// messages from anywhere in the log, and a start dispatches all of it.
const dispatchAllFile = "dispatchAll"

// noteDispatchAll makes the file, on disk.
func (s *Store) noteDispatchAll() error {
	if s.dispatchAllNoted() {
		return nil
	}
	return vfs.ReplaceFileIn(s.cfg.fs(), s.path("config", dispatchAllFile), []byte("1\n"))
}

func (s *Store) dispatchAllNoted() bool {
	_, err := os.Stat(s.path("config", dispatchAllFile))
	return err == nil
}

// forgetDispatchAll removes the file. The queues are on disk.
func (s *Store) forgetDispatchAll() error {
	if !s.dispatchAllNoted() {
		return nil
	}
	path := s.path("config", dispatchAllFile)
	if err := s.cfg.fs().Remove(path); err != nil {
		return err
	}
	return s.cfg.fs().SyncDir(filepath.Dir(path))
}
