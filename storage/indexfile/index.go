// SPDX-License-Identifier: Apache-2.0

package indexfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Config says where and how the index is kept.
type Config struct {
	Dir string // the folder index/ of a store
	FS  vfs.FS // nil: the operating system's
	// Slots and Entries shape each file (maxHashSlotNum, maxIndexNum); 0 means RocketMQ's. They must
	// be those that the files have.
	Slots, Entries int32
	// Now gives new files their names; nil means time.Now.
	Now func() time.Time
	// OnFull, when set, is called after a full file was flushed, with the store time of its last
	// message, so that a later start trusts it (Bounds.SafeMS). It is called by the writer.
	OnFull func(endMS int64) error
}

// Bounds is what Open has to know.
type Bounds struct {
	Clean bool // the last stop was clean
	// Kept: all that was written before is in the files, flushed or not, since at most the process died.
	Kept bool
	// SafeMS: files whose last message was stored later are doubtful unless Clean or Kept (checkpoint
	// indexMsgTimestamp).
	SafeMS         int64
	LogMin, LogEnd record.PhysicalOffset
}

// Index is the index of one store.
type Index struct {
	cfg   Config
	shape shape

	// Guards what follows. The writer holds it while it puts the keys of one record, queries while
	// they walk one file.
	mu    sync.RWMutex
	files []*file // oldest first

	// The writer's own; done is constant.
	noter Noter
	notes []Note                // scratch of Put
	done  record.PhysicalOffset // records up to here were indexed by an earlier run
}

// Open finds the files and decides which can be trusted: after an unclean stop those that were full
// and flushed, and all when only the process died; never one that points behind the log. Others are
// removed. resume is the offset
// from which on records must be put again; foreign lists files that are none of ours and stay.
func Open(
	cfg Config, b Bounds,
) (ix *Index, resume record.PhysicalOffset, foreign []string, err error) {
	if cfg.FS == nil {
		cfg.FS = vfs.OS()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	if cfg.Entries <= 1 {
		cfg.Entries = DefaultEntries
	}
	ix = &Index{cfg: cfg, shape: shape{slots: cfg.Slots, entries: cfg.Entries}}
	if foreign, err = ix.list(); err != nil {
		return nil, 0, nil, fmt.Errorf("indexfile: open: %w", err)
	}
	resume, err = ix.trust(b)
	if err != nil {
		return nil, 0, nil, fmt.Errorf("indexfile: open: %w", err)
	}
	return ix, resume, foreign, nil
}

// list reads the folder and the headers.
func (ix *Index) list() (foreign []string, err error) {
	entries, err := ix.cfg.FS.ReadDir(ix.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(ix.cfg.Dir, e.Name())
		if _, err := strconv.ParseInt(e.Name(), 10, 64); err != nil || e.IsDir() {
			foreign = append(foreign, path)
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		switch n := info.Size(); n {
		case ix.shape.size():
		case 0: // a crash came between making the file and giving it its length
			if err := ix.cfg.FS.Remove(path); err != nil {
				return nil, err
			}
			continue
		default:
			return nil, fmt.Errorf("%s has %d bytes, maxHashSlotNum and maxIndexNum make %d: start "+
				"with the values that the files were written with, or move the index folder away "+
				"to have it made anew", path, n, ix.shape.size())
		}
		f := &file{path: path}
		if err := f.mapFile(ix.cfg.FS, ix.shape.size(), false); err != nil {
			return nil, err
		}
		if err := f.unmap(); err != nil {
			return nil, err
		}
		ix.files = append(ix.files, f)
	}
	return foreign, nil
}

// trust removes the files that cannot be trusted and returns where to go on.
func (ix *Index) trust(b Bounds) (record.PhysicalOffset, error) {
	good := 0
	for ; good < len(ix.files); good++ {
		h := ix.files[good].header
		if h.Count <= 1 || h.Count > ix.shape.entries || h.EndAt >= b.LogEnd || h.BeginAt > h.EndAt {
			break
		}
		if !b.Clean && !b.Kept && h.EndMS > b.SafeMS {
			break
		}
	}
	complete := b.Clean && good == len(ix.files)
	for _, f := range ix.files[good:] {
		if err := ix.cfg.FS.Remove(f.path); err != nil {
			return 0, err
		}
	}
	ix.files = ix.files[:good]
	ix.done = -1
	if good == 0 {
		return b.LogMin, nil
	}
	last := ix.files[good-1]
	if !b.Clean && last.header.EndMS > b.SafeMS {
		if err := last.resume(ix.cfg.FS, ix.shape); err != nil {
			return 0, err
		}
	}
	ix.done = last.header.EndAt
	if !complete { // the keys of one record may lie on both sides of the border
		ix.done--
	}
	return max(b.LogMin, last.header.EndAt), nil
}

// Put indexes one record: its unique id, each of its keys, and its tags. Rollback marks, and records
// that an earlier run has indexed, are skipped. It blocks when a file is full and a new one is made.
func (ix *Index) Put(v record.View, at record.PhysicalOffset) error {
	if at <= ix.done {
		return nil
	}
	keys, put := FindKeys(v.Properties()), 0
	ix.notes = ix.noter.Append(ix.notes[:0], v.SysFlag(), v.Topic(), keys, at, v.StoreMS())
	return ix.PutNotes(ix.notes, &put)
}

// tailLocked returns the file to write to, mapped, making one when there is none or it is full.
func (ix *Index) tailLocked() (*file, error) {
	var last *file
	if n := len(ix.files); n > 0 {
		last = ix.files[n-1]
		if last.header.Count < ix.shape.entries {
			if last.mem == nil {
				if err := last.mapFile(ix.cfg.FS, ix.shape.size(), false); err != nil {
					return nil, fmt.Errorf("indexfile: open tail: %w", err)
				}
			}
			return last, nil
		}
		if err := ix.finishLocked(last); err != nil {
			return nil, err
		}
	}
	f, err := ix.createLocked()
	if err != nil {
		return nil, fmt.Errorf("indexfile: create file: %w", err)
	}
	if last != nil { // as RocketMQ: the first entry's time counts from the end of the file before
		f.header.BeginMS, f.header.EndMS = last.header.EndMS, last.header.EndMS
		f.header.BeginAt, f.header.EndAt = last.header.EndAt, last.header.EndAt
	}
	f.header.encode(f.mem)
	ix.files = append(ix.files, f)
	return f, nil
}

// finishLocked flushes a full file and tells that it is safe.
func (ix *Index) finishLocked(f *file) error {
	if f.mem == nil {
		return nil
	}
	if err := f.m.Sync(0, len(f.mem)); err != nil {
		return fmt.Errorf("indexfile: flush full file: %w", err)
	}
	if err := f.unmap(); err != nil {
		return fmt.Errorf("indexfile: close full file: %w", err)
	}
	if err := ix.cfg.FS.SyncDir(ix.cfg.Dir); err != nil {
		return fmt.Errorf("indexfile: flush name of full file: %w", err)
	}
	if ix.cfg.OnFull == nil {
		return nil
	}
	return ix.cfg.OnFull(f.header.EndMS)
}

// createLocked makes the next file. Its name is the time, moved on when that is taken.
func (ix *Index) createLocked() (*file, error) {
	if err := ix.cfg.FS.MkdirAll(ix.cfg.Dir); err != nil {
		return nil, err
	}
	now := ix.cfg.Now().Local()
	for {
		name := now.Format("20060102150405") + fmt.Sprintf("%03d", now.Nanosecond()/1e6)
		if n := len(ix.files); n > 0 && name <= filepath.Base(ix.files[n-1].path) {
			next, err := nextName(filepath.Base(ix.files[n-1].path))
			if err != nil {
				return nil, err
			}
			name = next
		}
		f := &file{path: filepath.Join(ix.cfg.Dir, name)}
		err := f.mapFile(ix.cfg.FS, ix.shape.size(), true)
		if errors.Is(err, fs.ErrExist) {
			now = now.Add(time.Millisecond)
			continue
		}
		return f, err
	}
}

// nextName returns a name behind name, for when the clock went back: order of names is order of
// files.
func nextName(name string) (string, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil || n == math.MaxInt64 {
		return "", fmt.Errorf("no name follows %s", name)
	}
	return fmt.Sprintf("%0*d", len(name), n+1), nil
}

// Last returns store time and offset of the newest indexed message; zeros when there is none.
func (ix *Index) Last() (endMS int64, at record.PhysicalOffset) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if n := len(ix.files); n > 0 {
		return ix.files[n-1].header.EndMS, ix.files[n-1].header.EndAt
	}
	return 0, 0
}

// DeleteBelow removes the oldest files whose messages all lie below logMin, but never the newest
// file, and returns how many.
func (ix *Index) DeleteBelow(logMin record.PhysicalOffset) (int, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	n := 0
	for len(ix.files) > 1 && ix.files[0].header.EndAt < logMin {
		if err := ix.files[0].unmap(); err != nil {
			return n, fmt.Errorf("indexfile: delete old: %w", err)
		}
		if err := ix.cfg.FS.Remove(ix.files[0].path); err != nil {
			return n, fmt.Errorf("indexfile: delete old: %w", err)
		}
		ix.files = slices.Delete(ix.files, 0, 1)
		n++
	}
	return n, nil
}

// Files returns the headers of all files, oldest first.
func (ix *Index) Files() []Header {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	headers := make([]Header, len(ix.files))
	for i, f := range ix.files {
		headers[i] = f.header
	}
	return headers
}

// Close flushes and unmaps the newest file. The index must not be used any more.
func (ix *Index) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	var first error
	for _, f := range ix.files {
		if f.mem == nil {
			continue
		}
		err := f.m.Sync(0, len(f.mem))
		if e := f.unmap(); err == nil {
			err = e
		}
		if err != nil && first == nil {
			first = fmt.Errorf("indexfile: close: %w", err)
		}
	}
	ix.files = nil
	return first
}
