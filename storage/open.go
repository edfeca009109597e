// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/foreign"
	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// LockDir takes the lock of a store directory, creating the directory when it is not there. It is for
// callers that read or write other files of the store before Open; another process that holds it is
// named by a *vfs.LockedError. Before it touches anything it refuses, with a *foreign.Error, a store
// that only RocketMQ can read as a whole.
func LockDir(root string) (*vfs.Lock, error) {
	if err := foreign.Check(root); err != nil {
		return nil, fmt.Errorf("storage: open %s: %w", root, err)
	}
	if err := vfs.OS().MkdirAll(root); err != nil {
		return nil, fmt.Errorf("storage: open %s: %w", root, err)
	}
	lock, err := vfs.LockFile(filepath.Join(root, "lock"))
	if err != nil {
		return nil, fmt.Errorf("storage: open %s: %w", root, err)
	}
	return lock, nil
}

// Open locks, loads and recovers the store in cfg.RootDir, creating it when it is not there. It
// blocks for the disk; how long depends on what recovery has to read, see RecoveryInfo.
//
// Errors name the file and what to do: the store is in use (*vfs.LockedError names the process),
// files have other sizes than configured, the log is damaged in the middle
// (*commitlog.CorruptionError; see Config.Damage), or parts of the store are kept where only
// RocketMQ finds them (*foreign.Error).
func Open(cfg Config) (*Store, error) {
	cfg.fill()
	lock, err := prepare(&cfg)
	if err != nil {
		if cfg.Lock != nil {
			_ = cfg.Lock.Close()
		}
		return nil, err
	}
	s := &Store{
		cfg: cfg, lock: lock, round: 1, lastAt: -1,
		dispatches: make(chan *dispatch, 16),
		parkedSet:  map[*consumequeue.Queue]bool{},
	}
	s.diskPercent.Store(-1)
	if err := s.open(); err != nil {
		s.abandon()
		return nil, fmt.Errorf("storage: open %s: %w", cfg.RootDir, err)
	}
	return s, nil
}

// prepare checks the configuration and makes and locks the directories.
func prepare(cfg *Config) (*vfs.Lock, error) {
	if err := cfg.valid(); err != nil {
		return nil, err
	}
	if err := foreign.Check(cfg.RootDir); err != nil { // before the directories are made
		return nil, fmt.Errorf("storage: open %s: %w", cfg.RootDir, err)
	}
	if err := cfg.fs().MkdirAll(cfg.RootDir); err != nil {
		return nil, fmt.Errorf("storage: open %s: %w", cfg.RootDir, err)
	}
	if cfg.Lock != nil {
		return cfg.Lock, nil
	}
	return LockDir(cfg.RootDir)
}

// valid refuses what cannot work.
func (c *Config) valid() error {
	switch {
	case c.RootDir == "":
		return errors.New("storage: open: no directory is given")
	case len(c.logDirs()) == 0:
		return fmt.Errorf("storage: open: storePathCommitLog %q names no directory that "+
			"readOnlyCommitLogStorePaths %q leaves writable", c.CommitLogDir, c.CommitLogReadOnly)
	case c.MaxMessageSize <= 0 || int64(c.recordMax())+record.BlankSize > c.SegmentSize &&
		c.SegmentSize > 2*recordSlack:
		return fmt.Errorf("storage: open: maxMessageSize %d does not fit into log files of %d bytes "+
			"(mappedFileSizeCommitLog)", c.MaxMessageSize, c.SegmentSize)
	}
	return nil
}

// open does the work of Open behind the lock.
func (s *Store) open() (err error) {
	defer faulted(debug.SetPanicOnFault(true), &err)
	clean, err := s.lastStopClean()
	if err != nil {
		return err
	}
	if s.checkpoint, s.checkpointed, err = loadCheckpoint(s.path("checkpoint")); err != nil {
		return err
	}
	if err := s.loadDeleted(); err != nil {
		return err
	}
	if err := s.openLog(clean); err != nil {
		return err
	}
	if len(s.log.Segments()) == 0 {
		if err := s.setDerivedAside(); err != nil {
			return err
		}
	}
	if err := s.endRebuilding(); err != nil {
		return err
	}
	s.maintainer, s.cleaner, s.ballast = newMaintainer(s), newCleaner(s), newBallast(s)
	if err := s.openQueues(); err != nil {
		return err
	}
	if clean {
		if err := writeAbort(s.cfg.fs(), s.path("abort")); err != nil {
			return err
		}
	}
	if err := s.recover(clean); err != nil {
		if clean { // nothing was served: the next start may trust the last stop as this one did
			_ = removeAbort(s.cfg.fs(), s.path("abort"))
		}
		return err
	}
	if !clean {
		if err := writeAbort(s.cfg.fs(), s.path("abort")); err != nil {
			return err
		}
	}
	err = s.start(clean)
	if err != nil && clean {
		_ = removeAbort(s.cfg.fs(), s.path("abort"))
	}
	return err
}

func (s *Store) indexConfig(onFull func(endMS int64) error) indexfile.Config {
	return indexfile.Config{
		FS: s.cfg.FS, Dir: s.path("index" + s.suffix), Slots: s.cfg.IndexSlots,
		Entries: s.cfg.IndexEntries, Now: s.cfg.Now, OnFull: onFull,
	}
}

// openLog opens the files of the log, without reading them.
func (s *Store) openLog(clean bool) (err error) {
	s.pagesKept = clean || s.sameLife()
	s.log, err = commitlog.Open(commitlog.Config{
		FS: s.cfg.FS, Dirs: splitPaths(s.cfg.CommitLogDir),
		ReadOnlyDirs: splitPaths(s.cfg.CommitLogReadOnly), FullDirs: s.fullLogDirs,
		SegmentSize: s.cfg.SegmentSize,
		BulkLeast:   s.cfg.BulkLeast,
		Sync:        s.cfg.SyncFlush, Prewrite: s.cfg.Prewrite, FlushInterval: s.cfg.FlushInterval,
		FlushThorough: s.cfg.FlushThorough, FlushLeastPages: s.cfg.FlushLeastPages,
		PagesKept: s.pagesKept, OnDisk: s.onDisk(),
		Damage: s.cfg.Damage, DamagedDir: s.path("damaged"), Now: s.cfg.Now,
		OnFlushed: s.flushed, OnFlushError: s.logFailed, Notice: s.cfg.Notice,
		Progress: s.progress(),
	})
	return err
}

// progress returns what tells how far the reading of the log is.
func (s *Store) progress() func(done, total int64) {
	if s.cfg.Progress != nil {
		return s.cfg.Progress
	}
	const every = 2 * time.Second
	began, told := time.Now(), time.Now()
	return func(done, total int64) {
		if time.Since(told) < every {
			return
		}
		told = time.Now()
		rate := float64(done) / time.Since(began).Seconds()
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		s.cfg.Notice("reading the log", "MB", done/1e6, "of", total/1e6, "MB/s", int64(rate/1e6),
			"left", left.Round(time.Second).String())
	}
}

// start opens the index and starts the goroutines.
func (s *Store) start(clean bool) error {
	// Written now, so that a full disk later cannot keep it from existing.
	if err := saveCheckpoint(s.cfg.fs(), s.path("checkpoint"), s.checkpoint); err != nil {
		return err
	}
	if err := s.cfg.fs().SyncDir(s.cfg.RootDir); err != nil {
		return err
	}
	if s.cfg.IndexEnable {
		index, from, foreign, err := indexfile.Open(s.indexConfig(s.indexFull), indexfile.Bounds{
			Clean: clean, Kept: s.pagesKept && s.checkpointed, SafeMS: s.checkpoint.IndexMS,
			LogMin: s.log.Min(), LogEnd: s.log.Wrote(),
		})
		if err != nil {
			return err
		}
		for _, path := range foreign {
			s.cfg.Notice("file is no index file and ignored", "path", path)
		}
		s.indexer = newIndexer(s, index, from)
		s.takeNoted(newNoted().list) // from here on
	}
	if err := s.saveLife(); err != nil { // what an earlier life lost is repaired or gone
		return err
	}
	memory := MemoryTotal()
	s.inMemory = record.PhysicalOffset(memory / 100 * int64(s.cfg.AccessInMemoryMaxRatio))
	s.hotBytes = record.PhysicalOffset(s.cfg.HotBytes)
	if s.hotBytes == 0 {
		s.hotBytes = record.PhysicalOffset(memory / 4)
	}
	s.hotFrom = s.log.Wrote()
	s.lookAtDisk()
	s.maintainer.start()
	s.cleaner.start()
	if s.indexer != nil {
		s.indexer.start()
	}
	s.wakeWorkers()
	return nil
}

// abandon gives back what a failed open holds.
func (s *Store) abandon() {
	s.closed.Store(true)
	if s.queues != nil {
		s.queues.Close()
	}
	if s.batches != nil {
		s.batches.Close()
	}
	if s.log != nil {
		_ = s.log.Close()
	}
	_ = s.lock.Close()
}

// logFailed is told by the log that a flush failed.
func (s *Store) logFailed(err error) {
	if s.readOnly.CompareAndSwap(false, true) {
		s.cfg.Notice("flush of the log failed, store is read-only until the next start", "err", err)
		s.forgetLife()
	}
}

// lastStopClean reports whether the file abort is absent.
func (s *Store) lastStopClean() (bool, error) {
	_, err := os.Stat(s.path("abort"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// writeAbort makes the file that says, as long as it exists, that the last stop was not clean. It
// holds the process id (RocketMQ DefaultMessageStore.createTempFile).
func writeAbort(fsys vfs.FS, path string) error {
	return vfs.ReplaceFileIn(fsys, path, []byte(strconv.Itoa(os.Getpid())))
}

func removeAbort(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// setDerivedAside renames queues and index of a store whose log is gone. RocketMQ deletes them.
func (s *Store) setDerivedAside() error {
	suffix := ".without-log." + strconv.FormatInt(s.cfg.Now().UnixMilli(), 10)
	for _, dir := range []string{"consumequeue", "consumequeue_ext", "batchconsumequeue", "index"} {
		path := s.path(dir)
		entries, err := os.ReadDir(path)
		if err != nil || len(entries) == 0 {
			continue
		}
		if err := os.Rename(path, path+suffix); err != nil {
			return err
		}
		s.cfg.Notice("the log is gone, what was made from it is set aside", "path", path+suffix)
	}
	return s.cfg.fs().SyncDir(s.cfg.RootDir)
}
