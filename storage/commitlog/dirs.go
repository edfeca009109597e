// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
)

// all returns every directory that may hold segments, each once, sorted.
func (c *Config) all() []string {
	dirs := slices.Concat(c.Dirs, c.ReadOnlyDirs)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// makeDirs creates the directories that are written to. A missing one that is only read is an error:
// with it a part of the log would be missing, and at the front nobody would notice.
func (c *Config) makeDirs() error {
	writable := 0
	for _, dir := range c.all() {
		if slices.Contains(c.ReadOnlyDirs, dir) {
			if _, err := c.FS.Stat(dir); err != nil {
				return fmt.Errorf("commitlog: open read-only directory: %w", err)
			}
			continue
		}
		writable++
		if err := c.FS.MkdirAll(dir); err != nil {
			return fmt.Errorf("commitlog: open %s: %w", dir, err)
		}
	}
	if writable == 0 {
		return fmt.Errorf("commitlog: open: every directory of the log is read-only: %s",
			strings.Join(c.all(), ", "))
	}
	return nil
}

// places returns the directories in which the segment at base may be created, in order of
// preference. The first is where RocketMQ puts it (MultiPathMappedFileQueue.tryCreateMappedFile):
// segments go round over the sorted directories that are neither read-only nor nearly full, over
// nearly full ones too when there are no others. The rest are for a directory that fails.
func (c *Config) places(base int64) []string {
	var writable, room, full []string
	nearly := c.full()
	for _, dir := range c.all() {
		switch {
		case slices.Contains(c.ReadOnlyDirs, dir):
			continue
		case slices.Contains(nearly, dir):
			full = append(full, dir)
		default:
			room = append(room, dir)
		}
		writable = append(writable, dir)
	}
	if len(room) == 0 {
		room, full = writable, nil
	}
	first := int(base / c.SegmentSize % int64(len(room)))
	return slices.Concat(room[first:], room[:first], full)
}

func (c *Config) full() []string {
	if c.FullDirs == nil || len(c.Dirs) < 2 {
		return nil
	}
	return c.FullDirs()
}

// create makes the segment at base in the first directory that takes it. A failure of the directory
// (no space, read-only, I/O error) tries the next one: RocketMQ would refuse messages until its look
// at the disk moves it on.
func (l *Log) create(base int64) (*segment, error) {
	var failed error
	for _, dir := range l.cfg.places(base) {
		seg, err := l.createIn(dir, base)
		if err == nil {
			if failed != nil {
				l.cfg.Notice("CommitLog segment created in another directory than its turn",
					"path", seg.file.Path(), "err", failed)
			}
			return seg, nil
		}
		failed = errors.Join(failed, err)
		// What was made of it is gone for good before another directory gets the name, or a power
		// loss could leave two files of one name. Best effort: load copes with both.
		_ = l.cfg.FS.SyncDir(dir)
	}
	return nil, failed
}

// found is a file of a directory whose name says that it is a segment.
type found struct {
	base int64
	path string
}

// list finds the segments of all directories, in order of their offsets.
func (l *Log) list() ([]found, error) {
	var all []found
	for _, dir := range l.cfg.all() {
		entries, err := l.cfg.FS.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("commitlog: list %s: %w", dir, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			base, ok := parseName(e.Name())
			switch {
			case e.IsDir():
			case !ok:
				l.cfg.Notice("file in the CommitLog directory is no segment and ignored", "path", path)
			default:
				all = append(all, found{base, path})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return strings.Compare(filepath.Base(a.path), filepath.Base(b.path))
	})
	for i := 1; i < len(all); i++ {
		if all[i].base != all[i-1].base {
			continue
		}
		keep, err := l.twice(all[i-1], all[i])
		if err != nil {
			return nil, err
		}
		all[i-1] = keep
		all = slices.Delete(all, i, i+1)
		i--
	}
	return all, nil
}

// twice decides about two files of one name in two directories. A crash leaves them when a segment
// could not be created in one directory and was in another; the first one was then never written to
// and is set aside. Two with content are for an operator to decide about.
func (l *Log) twice(a, b found) (found, error) {
	used := func(f found) bool {
		var head [record.BlankSize]byte
		file, err := l.cfg.FS.OpenFile(f.path, 0, 0)
		if err != nil {
			return true
		}
		defer func() { _ = file.Close() }()
		n, err := file.Size()
		if err != nil || n == 0 {
			return err != nil
		}
		_, err = file.ReadAt(head[:min(n, record.BlankSize)], 0)
		return err != nil || head != [record.BlankSize]byte{}
	}
	keep, aside := a, b
	switch usedA, usedB := used(a), used(b); {
	case usedA && usedB:
		return a, fmt.Errorf("commitlog: open: %s and %s are the same part of the log; move the one "+
			"that does not belong to it away", a.path, b.path)
	case usedB:
		keep, aside = b, a
	}
	to := fmt.Sprintf("%s.unused-%d", aside.path, time.Now().UnixMilli())
	err := l.cfg.FS.Rename(aside.path, to)
	if err == nil {
		err = l.cfg.FS.SyncDir(filepath.Dir(to))
	}
	if err != nil {
		return a, fmt.Errorf("commitlog: set %s aside: %w", aside.path, err)
	}
	l.cfg.Notice("CommitLog segment is there twice, the one never written to is set aside",
		"path", keep.path, "aside", to)
	return keep, nil
}

// syncDirs makes removals in the directories of some segments durable.
func (l *Log) syncDirs(segs []*segment) error {
	var dirs []string
	for _, seg := range segs {
		if seg != nil {
			dirs = append(dirs, filepath.Dir(seg.file.Path()))
		}
	}
	slices.Sort(dirs)
	var err error
	for _, dir := range slices.Compact(dirs) {
		err = errors.Join(err, l.cfg.FS.SyncDir(dir))
	}
	return err
}

// readOnlyTail says what to do about a log whose end lies where nothing can be written.
func readOnlyTail(path string) error {
	return fmt.Errorf("%s is the end of the log and cannot be written; make it writable, or move the "+
		"file to a writable directory of storePathCommitLog", path)
}
