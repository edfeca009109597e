// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/storage/mappedfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// nameDigits is the length of a segment's name: its first offset in decimal, zero padded.
const nameDigits = 20

// segment is one file of the log.
type segment struct {
	base int64 // offset of its first byte
	file *mappedfile.File

	// Zeros were written ahead up to here, or never will be, see Log.prewrite. Raised by the holder of
	// zeroing, which is held while zeros are written.
	zeroed  atomic.Int64
	zeroing sync.Mutex
}

// list is an immutable snapshot of the segments, oldest first. An entry is nil where a segment is
// missing, which only DamageTruncate allows, until Truncate; the first and the last never are.
type list struct {
	first int64 // base of segs[0]
	segs  []*segment
}

// find returns the segment that holds offset at, nil if there is none.
func (s *list) find(at, size int64) *segment {
	if at < s.first {
		return nil
	}
	i := (at - s.first) / size
	if i >= int64(len(s.segs)) {
		return nil
	}
	return s.segs[i]
}

// end returns the offset behind the last segment.
func (s *list) end(size int64) int64 { return s.first + int64(len(s.segs))*size }

// from returns the segments from the one that holds at on.
func (s *list) from(at, size int64) []*segment {
	i := max(0, (at-s.first)/size)
	return s.segs[min(i, int64(len(s.segs))):]
}

// fileName returns the name of the segment at base.
func fileName(base int64) string { return fmt.Sprintf("%0*d", nameDigits, base) }

// load opens the segments in the directories.
func (l *Log) load() (*list, error) {
	files, err := l.list()
	if err != nil || len(files) == 0 {
		return &list{}, err
	}
	segs := &list{first: files[0].base}
	for i, f := range files {
		file, err := l.open(f.path, i == len(files)-1)
		if err == nil && file != nil {
			if err = l.fillGap(segs, f); err == nil {
				segs.segs = append(segs.segs, &segment{base: f.base, file: file})
				continue
			}
			_ = file.Close()
		}
		if err != nil {
			segs.close()
			return nil, err
		}
	}
	if len(segs.segs) == 0 { // the only one was empty
		segs.first = 0
	}
	return segs, nil
}

func (s *list) close() {
	for _, seg := range s.segs {
		if seg != nil {
			_ = seg.file.Close()
		}
	}
}

// parseName returns the offset that a segment's name says.
func parseName(name string) (base int64, ok bool) {
	if len(name) != nameDigits {
		return 0, false
	}
	for _, c := range []byte(name) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	base, err := strconv.ParseInt(name, 10, 64)
	return base, err == nil && base <= math.MaxInt64/2
}

// open opens one segment. An empty last one is deleted and gives nil: a crash leaves it between
// creating and allocating, and RocketMQ deletes it too. A short last one is extended.
func (l *Log) open(path string, last bool) (*mappedfile.File, error) {
	file, err := mappedfile.Open(l.cfg.FS, path, int(l.size))
	var size *mappedfile.SizeError
	if !errors.As(err, &size) {
		return file, err
	}
	switch {
	case last && size.Got == 0:
		l.cfg.Notice("empty last CommitLog segment deleted", "path", path)
		err = l.cfg.FS.Remove(path)
		if err == nil {
			err = l.cfg.FS.SyncDir(filepath.Dir(path))
		}
		if err != nil {
			return nil, fmt.Errorf("commitlog: delete empty %s: %w", path, err)
		}
		return nil, nil
	case last && size.Got < size.Want:
		l.cfg.Notice("short last CommitLog segment extended",
			"path", path, "bytes", size.Got, "want", size.Want)
		if err := mappedfile.Extend(l.cfg.FS, path, size.Want); err != nil {
			return nil, err
		}
		return mappedfile.Open(l.cfg.FS, path, int(l.size))
	}
	return nil, fmt.Errorf("commitlog: open %s: it has %d bytes, mappedFileSizeCommitLog is %d; "+
		"set that to the size the log was written with, or restore the file",
		path, size.Got, size.Want)
}

// fillGap makes the list reach to base, or says what is missing.
func (l *Log) fillGap(segs *list, f found) error {
	base, end := f.base, segs.end(l.size)
	if base == end {
		return nil
	}
	if base < end || (base-end)%l.size != 0 {
		return fmt.Errorf("commitlog: open %s: its name is not a multiple of "+
			"mappedFileSizeCommitLog = %d behind the first; set that to the size the log was "+
			"written with", f.path, l.size)
	}
	switch l.cfg.Damage {
	case DamageSkip:
		return l.bridge(segs, base)
	case DamageTruncate:
		if l.gap < 0 {
			l.gap = end
		}
		for ; end < base; end += l.size {
			segs.segs = append(segs.segs, nil)
		}
		return nil
	case DamageStop:
	}
	return fmt.Errorf("commitlog: open %s: %d bytes are missing before it, from %s on; restore them, "+
		"or start with --recover=skip to do without them, or with --recover=truncate to end the log "+
		"in front of them", f.path, base-end, fileName(end))
}

// bridge makes segments without records up to base, so that no later start, RocketMQ's neither,
// misses them again.
func (l *Log) bridge(segs *list, base int64) error {
	end := segs.end(l.size)
	l.cfg.Notice("missing CommitLog segments replaced by empty ones", "path", fileName(end),
		"bytes", base-end)
	for ; end < base; end += l.size {
		var blank [record.BlankSize]byte
		record.PutBlank(blank[:], int(l.size))
		dir := l.cfg.places(end)[0]
		path := filepath.Join(dir, fileName(end))
		err := mappedfile.Write(l.cfg.FS, path, l.size, blank[:])
		if err == nil {
			err = l.cfg.FS.SyncDir(dir)
		}
		if err != nil {
			return fmt.Errorf("commitlog: bridge a gap: %w", err)
		}
		file, err := mappedfile.Open(l.cfg.FS, path, int(l.size))
		if err != nil {
			return err
		}
		segs.segs = append(segs.segs, &segment{base: end, file: file})
	}
	return nil
}

// appendSegment adds a segment behind the last.
func (l *Log) appendSegment(seg *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.segments.Load()
	next := &list{first: old.first}
	if len(old.segs) == 0 {
		next.first = seg.base
	}
	next.segs = append(append(next.segs, old.segs...), seg)
	l.segments.Store(next)
}

// SegmentInfo describes one segment for retention.
type SegmentInfo struct {
	Base record.PhysicalOffset // of its first byte
	Path string
}

// Segments lists the segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	var infos []SegmentInfo
	for _, seg := range l.segments.Load().segs {
		if seg != nil {
			infos = append(infos, SegmentInfo{
				Base: record.PhysicalOffset(seg.base), Path: seg.file.Path(),
			})
		}
	}
	return infos
}

// DeleteFront deletes the oldest segments as long as all their bytes lie below upTo and are
// flushed; the last segment always stays. It returns how many it deleted. Min moves at once, the
// space comes back when the last region of a deleted segment is released. It blocks on the disk.
func (l *Log) DeleteFront(upTo record.PhysicalOffset) (int, error) {
	old := l.segments.Load()
	limit := min(int64(upTo), l.flushed.Load())
	n, deleted := 0, 0
	var err error
	for n < len(old.segs)-1 && (old.segs[n] == nil || old.segs[n].base+l.size <= limit) {
		if seg := old.segs[n]; seg != nil {
			err = l.cfg.FS.Remove(seg.file.Path())
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				break // and those behind it stay, or the next start would find a gap
			}
			deleted++
		}
		n++
		err = nil
	}
	l.mu.Lock()
	now := l.segments.Load()
	l.segments.Store(&list{first: now.first + int64(n)*l.size, segs: now.segs[n:]})
	l.mu.Unlock()
	for _, seg := range old.segs[:n] {
		if seg != nil {
			err = errors.Join(err, seg.file.Close())
		}
	}
	l.removed = append(l.removed, old.segs[:n]...)
	err = errors.Join(err, l.SettleFront())
	if err != nil {
		return deleted, fmt.Errorf("commitlog: delete segments below %d: %w", upTo, err)
	}
	return deleted, nil
}

// SettleFront makes the deletions of DeleteFront durable as far as they are not, because a directory
// could not be synced. Until it succeeds a power loss may bring the segments back. The goroutine that
// calls DeleteFront calls it.
func (l *Log) SettleFront() error {
	if len(l.removed) == 0 {
		return nil
	}
	if err := l.syncDirs(l.removed); err != nil {
		return fmt.Errorf("commitlog: sync after deleting segments: %w", err)
	}
	l.removed = nil
	return nil
}
