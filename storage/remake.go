// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// Names of folders while Rebuild works: the new ones before they take their place, the old ones
// after that.
const (
	rebuildingSuffix = ".rebuilding"
	replacedSuffix   = ".replaced"
)

// Rebuilt tells what Rebuild did.
type Rebuilt struct {
	From, End record.PhysicalOffset // of the log
	Records   int64                 // read
	Units     int64                 // written to queues
	Queues    int
	// IndexFiles is how many there are now.
	IndexFiles int
	Took       time.Duration
}

// Rebuild makes queues and index of a store anew, from its log alone: in folders of their own, which
// then take the place of the old ones. The log is only read, so a torn tail stays for the next start
// to cut; damage in the middle is an error unless Config.Damage says otherwise. What a queue had
// beyond the messages of the log, which is how far it once went, is kept.
//
// It holds the lock of the store, and fails with a *vfs.LockedError while a broker does. When it is
// interrupted or fails the store is as before, or the next start dispatches the whole log.
func Rebuild(ctx context.Context, cfg Config) (Rebuilt, error) {
	cfg.fill()
	lock, err := prepare(&cfg)
	if err != nil {
		if cfg.Lock != nil {
			_ = cfg.Lock.Close()
		}
		return Rebuilt{}, err
	}
	s := &Store{cfg: cfg, lock: lock, lastAt: -1, suffix: rebuildingSuffix}
	defer s.abandon()
	done, err := s.rebuild(ctx)
	if err != nil {
		return done, fmt.Errorf("storage: rebuild %s: %w", cfg.RootDir, err)
	}
	return done, nil
}

func (s *Store) rebuild(ctx context.Context) (done Rebuilt, err error) {
	began := time.Now()
	clean, err := s.lastStopClean()
	if err != nil {
		return done, err
	}
	if s.checkpoint, s.checkpointed, err = loadCheckpoint(s.path("checkpoint")); err != nil {
		return done, err
	}
	if err = s.loadDeleted(); err == nil {
		err = s.openLog(clean)
	}
	if err != nil {
		return done, err
	}
	if len(s.log.Segments()) == 0 {
		return done, errors.New("it has no log")
	}
	old, err := s.openOld()
	if err != nil {
		return done, err
	}
	defer old.close()
	s.cfg.BatchTopic = old.kinds(s.cfg.BatchTopic)
	s.maintainer = newMaintainer(s) // not started; queues tell it what they open
	for _, folder := range derivedFolders() {
		if err := s.removeTree(s.path(folder + rebuildingSuffix)); err != nil {
			return done, err
		}
	}
	if err := s.openQueues(); err != nil {
		return done, err
	}
	done, err = s.remake(ctx, old)
	if err == nil {
		err = s.replaceDerived()
	}
	done.Took = time.Since(began)
	return done, err
}

// derivedFolders are made from the log.
func derivedFolders() []string { return []string{"consumequeue", "batchconsumequeue", "index"} }

// remake fills the new queues and the new index; they are on disk when it returns.
func (s *Store) remake(ctx context.Context, old *oldQueues) (Rebuilt, error) {
	r := &recovery{s: s, clean: true, whole: true, from: s.log.Min(), lastAt: -1, light: old.light}
	done := Rebuilt{From: r.from}
	if old.extended {
		r.old = old.set
	}
	ends := old.ends
	for id, at := range s.knownEnds(s.log.Wrote()) {
		if isLight(id) && r.light[id] < at {
			r.light[id] = at
		}
	}
	if err := r.createLight(); err != nil {
		return done, err
	}
	var index *indexfile.Index
	if s.cfg.IndexEnable {
		var err error
		index, _, _, err = indexfile.Open(s.indexConfig(nil), indexfile.Bounds{
			Clean: true, LogMin: r.from, LogEnd: s.log.Wrote(),
		})
		if err != nil {
			return done, err
		}
		defer index.Close()
	}
	end, err := s.log.Recover(r.from, true, func(v record.View) error {
		if r.records%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.visit(v); err != nil {
			return err
		}
		if index != nil {
			return index.Put(v, v.PhysicalOffset())
		}
		return nil
	})
	if err == nil {
		err = r.putPending()
	}
	if err != nil {
		return done, err
	}
	for id, at := range s.knownEnds(end) {
		ends[id] = max(ends[id], at)
	}
	more, err := s.restoreEnds(ends)
	if err != nil {
		return done, err
	}
	done.End, done.Records, done.Units, done.Queues = end, r.records, r.units+more, len(s.allQueues())
	if _, err := s.flushUnits(0); err != nil {
		return done, err
	}
	if index == nil {
		return done, nil
	}
	done.IndexFiles = len(index.Files())
	if err := index.Close(); err != nil {
		return done, err
	}
	if done.IndexFiles == 0 {
		return done, nil
	}
	return done, s.cfg.fs().SyncDir(s.path("index" + rebuildingSuffix))
}

// replaceDerived puts the new folders in the place of the old ones. A crash in between leaves no
// queue that a start would trust.
func (s *Store) replaceDerived() error {
	if err := s.noteDispatchAll(); err != nil {
		return err
	}
	s.queues.Close()
	s.batches.Close()
	fsys := s.cfg.fs()
	for _, folder := range derivedFolders() {
		if err := s.removeTree(s.path(folder + replacedSuffix)); err != nil {
			return err
		}
		for _, move := range [][2]string{
			{folder, folder + replacedSuffix}, {folder + rebuildingSuffix, folder},
		} {
			err := fsys.Rename(s.path(move[0]), s.path(move[1]))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if err := fsys.SyncDir(s.cfg.RootDir); err != nil {
		return err
	}
	if err := s.forgetDispatchAll(); err != nil {
		return err
	}
	for _, folder := range derivedFolders() {
		if err := s.removeTree(s.path(folder + replacedSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a folder of queue or index files with all that is in it.
func (s *Store) removeTree(dir string) error {
	fsys := s.cfg.fs()
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = s.removeTree(path)
		} else {
			err = fsys.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// endRebuilding ends an interrupted Rebuild: the old queues come back where they had gone and the new
// ones were not in their place yet, since they may tell ends that the log does not; a start then
// dispatches the whole log anyway. What else it left goes: nothing reads it.
func (s *Store) endRebuilding() error {
	for _, folder := range derivedFolders() {
		if err := s.restoreReplaced(folder); err != nil {
			return err
		}
		for _, suffix := range []string{rebuildingSuffix, replacedSuffix} {
			if _, err := os.Stat(s.path(folder + suffix)); err != nil {
				continue
			}
			if err := s.removeTree(s.path(folder + suffix)); err != nil {
				s.cfg.Notice("what an interrupted rebuild left is not removed",
					"path", s.path(folder+suffix), "err", err)
			}
		}
	}
	return nil
}

func (s *Store) restoreReplaced(folder string) error {
	_, err := os.Stat(s.path(folder))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(s.path(folder + replacedSuffix)); err != nil {
		return nil //nolint:nilerr // there is none
	}
	if err := s.cfg.fs().Rename(s.path(folder+replacedSuffix), s.path(folder)); err != nil {
		return err
	}
	return s.cfg.fs().SyncDir(s.cfg.RootDir)
}

// Stored reports how a store directory says it was written, for those who have no configuration of
// it: the sizes of the files that are there, zero where there is none.
func Stored(cfg Config) (segment, queueFile, indexFile int64) {
	cfg.fill()
	size := func(pattern string) int64 {
		files, err := filepath.Glob(pattern)
		for _, path := range files {
			if info, statErr := os.Stat(path); err == nil && statErr == nil && info.Size() > 0 {
				return info.Size()
			}
		}
		return 0
	}
	return size(filepath.Join(cfg.CommitLogDir, "[0-9]*")),
		size(filepath.Join(cfg.RootDir, "consumequeue", "*", "*", "[0-9]*")),
		size(filepath.Join(cfg.RootDir, "index", "[0-9]*"))
}

// IndexFileSize returns the size of an index file in bytes.
func IndexFileSize(cfg Config) int64 { return indexfile.FileSize(cfg.IndexSlots, cfg.IndexEntries) }
