// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// LogName is the name of the timer log's folder in the store's directory.
const LogName = "timerlog"

// unitLog is the timer log: units in the order in which the messages came, in files of one size whose
// names are the position of their first byte. Files have their full length from the start and are
// not allocated. Confined to one goroutine.
type unitLog struct {
	fs       vfs.FS
	dir      string
	fileSize int64

	files []*unitFile // oldest first, adjacent
	end   int64       // position behind the last unit

	// A piece of the log that was read last: chains of one tick often lie close together.
	block   []byte
	blockAt int64 // position of its first byte, -1: none
}

type unitFile struct {
	base  int64
	file  vfs.File
	dirty bool // written since the last sync was ordered
}

// blockSize is how much of the log is read at once.
const blockSize = 1024 * unitSize

// open opens the files. ok is false when they do not fit together or have another size; they are
// closed again then.
func (l *unitLog) open() (ok bool, err error) {
	l.blockAt = -1
	entries, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return true, nil //nolint:nilerr // it is made when it is needed
	}
	for i, entry := range entries {
		path := filepath.Join(l.dir, entry.Name())
		base, err := strconv.ParseInt(entry.Name(), 10, 64)
		if err != nil || entry.IsDir() {
			continue
		}
		f, err := l.fs.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return false, fmt.Errorf("timer: open %s: %w", path, err)
		}
		size, err := f.Size()
		if err == nil && size == 0 && i == len(entries)-1 {
			_ = f.Close() // it was being made when the process died
			return true, l.fs.Remove(path)
		}
		l.files = append(l.files, &unitFile{base: base, file: f})
		n := len(l.files)
		if err != nil || size != l.fileSize || base%l.fileSize != 0 ||
			n > 1 && base != l.files[n-2].base+l.fileSize {
			l.close()
			return false, err
		}
	}
	if len(l.files) > 0 {
		l.end = l.files[0].base
	}
	return true, nil
}

// min is the position of the oldest unit that is kept.
func (l *unitLog) min() int64 {
	if len(l.files) == 0 {
		return l.end
	}
	return l.files[0].base
}

// scan shows the units from the start of the file that has a position, in order, until the first
// place that holds none, which becomes the end of the log, or until show returns false.
func (l *unitLog) scan(from int64, show func(at int64, u unit) bool) error {
	for i, f := range l.files {
		if f.base+l.fileSize <= from {
			continue
		}
		next, whole, err := l.scanFile(f, show)
		l.end = next
		if err != nil || !whole || i == len(l.files)-1 {
			return err
		}
	}
	return nil
}

// scanFile is scan for one file. whole says that the file ends with its end mark or is full, so that
// the next file goes on.
func (l *unitLog) scanFile(f *unitFile, show func(at int64, u unit) bool) (
	next int64, whole bool, err error,
) {
	buf := make([]byte, blockSize)
	for at := int64(0); ; {
		n := min(blockSize, (l.fileSize-at)/unitSize*unitSize)
		if n > 0 {
			if _, err := f.file.ReadAt(buf[:n], at); err != nil {
				return f.base + at, false, fmt.Errorf("timer: read %s: %w", f.file.Name(), err)
			}
		}
		for p := int64(0); p < n; p += unitSize {
			if l.fileSize-at-p < unitSize+blankRoom {
				return f.base + l.fileSize, true, nil
			}
			u, ok := decodeUnit(buf[p:])
			if !ok || !show(f.base+at+p, u) {
				return f.base + at + p, false, nil
			}
		}
		if at += n; l.fileSize-at < unitSize+blankRoom {
			return f.base + l.fileSize, true, nil
		}
	}
}

// truncate makes a position the end of the log: what lies behind it reads as zeros, so that nobody
// takes it for units later.
func (l *unitLog) truncate(end int64) error {
	l.blockAt = -1
	l.end = end
	for n := len(l.files); n > 0 && l.files[n-1].base > end; n = len(l.files) {
		f := l.files[n-1]
		l.files = l.files[:n-1]
		_ = f.file.Close()
		if err := l.fs.Remove(f.file.Name()); err != nil {
			return fmt.Errorf("timer: remove %s: %w", f.file.Name(), err)
		}
	}
	if len(l.files) == 0 {
		return nil
	}
	f := l.files[len(l.files)-1]
	rest := end - f.base
	if rest >= l.fileSize || f.file.NextData(rest) >= l.fileSize {
		return nil
	}
	zeros := make([]byte, blockSize)
	for at := rest; at < l.fileSize; at += blockSize {
		n := min(blockSize, l.fileSize-at)
		if next := f.file.NextData(at); next >= at+n {
			continue
		}
		if _, err := f.file.WriteAt(zeros[:n], at); err != nil {
			return fmt.Errorf("timer: write %s: %w", f.file.Name(), err)
		}
	}
	f.dirty = true
	return nil
}

// room makes sure that the next unit fits into the last file and returns its position and how many
// more units fit behind it.
func (l *unitLog) room() (at int64, more int, err error) {
	if n := len(l.files); n > 0 {
		left := l.files[n-1].base + l.fileSize - l.end
		if left >= unitSize+blankRoom {
			return l.end, int((left-blankRoom)/unitSize) - 1, nil
		}
		if left >= blankRoom {
			if err := l.write(appendBlank(nil, left)); err != nil {
				return 0, 0, err
			}
		}
		l.end = l.files[n-1].base + l.fileSize
	}
	base := l.end - l.end%l.fileSize
	path := filepath.Join(l.dir, fmt.Sprintf("%020d", base))
	if err := l.create(path, base); err != nil {
		return 0, 0, fmt.Errorf("timer: create %s: %w", path, err)
	}
	l.end = base
	return base, int((l.fileSize-blankRoom)/unitSize) - 1, nil
}

func (l *unitLog) create(path string, base int64) error {
	if err := l.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	f, err := l.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err = f.Truncate(l.fileSize); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	l.files = append(l.files, &unitFile{base: base, file: f, dirty: true})
	return nil
}

// write appends bytes to the last file, which has room for them, without moving the end.
func (l *unitLog) write(b []byte) error {
	f := l.files[len(l.files)-1]
	f.dirty = true
	if l.blockAt >= 0 && l.end < l.blockAt+int64(len(l.block)) {
		l.blockAt = -1
	}
	if _, err := f.file.WriteAt(b, l.end-f.base); err != nil {
		return fmt.Errorf("timer: write %s: %w", f.file.Name(), err)
	}
	return nil
}

// unit reads the unit at a position; ok is false when there is none.
func (l *unitLog) unit(at int64) (u unit, ok bool, err error) {
	if at < l.min() || at+unitSize > l.end {
		return unit{}, false, nil
	}
	if l.blockAt < 0 || at < l.blockAt || at+unitSize > l.blockAt+int64(len(l.block)) {
		if err := l.readBlock(at); err != nil {
			return unit{}, false, err
		}
	}
	u, ok = decodeUnit(l.block[at-l.blockAt:])
	return u, ok, nil
}

// readBlock reads the piece of the log that ends with the unit at a position: chains go backward.
func (l *unitLog) readBlock(at int64) error {
	f := l.files[(at-l.min())/l.fileSize]
	from := max(f.base, at+unitSize-blockSize)
	if cap(l.block) < blockSize {
		l.block = make([]byte, blockSize)
	}
	l.block, l.blockAt = l.block[:at+unitSize-from], from
	if _, err := f.file.ReadAt(l.block, from-f.base); err != nil {
		l.blockAt = -1
		return fmt.Errorf("timer: read %s: %w", f.file.Name(), err)
	}
	return nil
}

// dirty returns the files that were written since the last call.
func (l *unitLog) dirty() []vfs.File {
	var files []vfs.File
	for _, f := range l.files {
		if f.dirty {
			files = append(files, f.file)
			f.dirty = false
		}
	}
	return files
}

// expire deletes the oldest files whose last record is gone from the CommitLog, never the last file
// (RocketMQ TimerMessageStore.isStopped, section of the files' clean-up).
func (l *unitLog) expire(logMin record.PhysicalOffset) error {
	for len(l.files) > 1 {
		f := l.files[0]
		var b [unitSize]byte
		last := (l.fileSize-blankRoom)/unitSize*unitSize - unitSize
		if _, err := f.file.ReadAt(b[:], last); err != nil {
			return fmt.Errorf("timer: read %s: %w", f.file.Name(), err)
		}
		if u, ok := decodeUnit(b[:]); !ok || u.at >= logMin {
			return nil
		}
		l.files = l.files[1:]
		l.blockAt = -1
		err := f.file.Close()
		if rmErr := l.fs.Remove(f.file.Name()); err == nil {
			err = rmErr
		}
		if err != nil {
			return fmt.Errorf("timer: delete %s: %w", f.file.Name(), err)
		}
	}
	return nil
}

func (l *unitLog) close() {
	for _, f := range l.files {
		_ = f.file.Close()
	}
	l.files = nil
}

// setAside renames a file or folder that cannot be used, if it is there.
func setAside(fsys vfs.FS, path string, nowMS int64) error {
	_, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = fsys.Rename(path, fmt.Sprintf("%s.damaged-%d", path, nowMS))
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("timer: set %s aside: %w", path, err)
	}
	return nil
}
