// SPDX-License-Identifier: Apache-2.0

// Package inspect reads the files of a store directory without locking, mapping or changing any of
// them, so that a directory of a running broker, ours or RocketMQ's, can be looked at as it is.
//
// Everything is read through descriptors: a file that is cut short meanwhile is an error, not a
// fault. What a running broker writes during the look may or may not be seen.
//
//	d, err := inspect.Open("/var/lib/skylark")
//	defer d.Close()
//	end, err := d.Records(ctx, d.Min(), nil, func(e inspect.Entry) error { ... })
//	report, err := d.Verify(ctx, nil)
package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/skylarkmq/skylark/storage/record"
)

// ErrNoStore is returned for a directory without a CommitLog.
var ErrNoStore = errors.New("inspect: no store here")

// Progress is told how many bytes of all have been looked at. It is called from the goroutine that
// asked, some times a second at most.
type Progress func(done, total int64)

// Dir is a store directory opened for looking. It may be used by one goroutine at a time.
type Dir struct {
	root     string
	segments []*segment
}

// segment is one file of the CommitLog.
type segment struct {
	base int64
	size int64
	file *os.File
}

// Open finds the files of the store in root, and those of its log in logDirs, or in the folder
// commitlog when none are named. ErrNoStore when the log has no file.
func Open(root string, logDirs ...string) (*Dir, error) {
	d := &Dir{root: root}
	if len(logDirs) == 0 {
		logDirs = []string{filepath.Join(root, "commitlog")}
	}
	var files []numberedFile
	for _, dir := range logDirs {
		found, err := numbered(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		files = append(files, found...)
	}
	sortFiles(files)
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: %s has no commitlog folder with log files; name the directory "+
			"that storePathRootDir or --data names, and with --commitlog where its log lies if elsewhere", ErrNoStore, root)
	}
	for _, n := range files {
		f, err := os.Open(n.path)
		if err != nil {
			_ = d.Close()
			return nil, fmt.Errorf("inspect: %w", err)
		}
		d.segments = append(d.segments, &segment{base: n.number, size: n.size, file: f})
	}
	return d, nil
}

// Close closes the files. The second call does nothing.
func (d *Dir) Close() error {
	var errs []error
	for _, s := range d.segments {
		errs = append(errs, s.file.Close())
	}
	d.segments = nil
	return errors.Join(errs...)
}

// Root is the directory.
func (d *Dir) Root() string { return d.root }

// Min is where the oldest file of the log begins.
func (d *Dir) Min() record.PhysicalOffset { return record.PhysicalOffset(d.segments[0].base) }

// Max is where the newest file of the log ends; most of that file may be unused.
func (d *Dir) Max() record.PhysicalOffset {
	last := d.segments[len(d.segments)-1]
	return record.PhysicalOffset(last.base + last.size)
}

// find returns the file that holds an offset, nil when none does.
func (d *Dir) find(at int64) *segment {
	i, _ := slices.BinarySearchFunc(d.segments, at, func(s *segment, at int64) int {
		switch {
		case s.base+s.size <= at:
			return -1
		case s.base > at:
			return 1
		}
		return 0
	})
	if i == len(d.segments) || at < d.segments[i].base {
		return nil
	}
	return d.segments[i]
}

// numberedFile is a file whose name is a number, as those of the log and the queues are.
type numberedFile struct {
	path   string
	number int64
	size   int64
}

// numbered lists such files of a folder in order, those of size 0 left out.
func numbered(dir string) ([]numberedFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []numberedFile
	for _, e := range entries {
		n, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || n < 0 || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err != nil || info.Size() == 0 {
			continue
		}
		list = append(list, numberedFile{filepath.Join(dir, e.Name()), n, info.Size()})
	}
	sortFiles(list)
	return list, nil
}

func sortFiles(list []numberedFile) {
	slices.SortFunc(list, func(a, b numberedFile) int { return cmp.Compare(a.number, b.number) })
}
