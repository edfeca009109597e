// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/storage/vfs"
)

// ErrDeleted says that the topic of a queue was deleted.
var ErrDeleted = errors.New("consumequeue: queue was deleted")

// Config says where and how queues are kept. The zero values of numbers mean their defaults.
type Config struct {
	Dir string // the folder consumequeue/ of a store
	FS  vfs.FS // nil: the operating system's
	// Batch says that the queues are batch queues: their units have 46 bytes, see BatchUnit.
	Batch bool
	// FileSize is the length of each file in bytes, rounded up to whole units
	// (mappedFileSizeConsumeQueue, default 6 000 000; mapperFileSizeBatchConsumeQueue, default
	// 13 800 000). It must be the one the files have.
	FileSize int64
	// MaxOpen bounds the files mapped at rest (default 4096). More are mapped only while in use.
	MaxOpen int
	// OnOpen, when set, is called after a file was mapped, so that the owner can see to CloseIdle
	// being called. It must not block.
	OnOpen func()
}

// defaultMaxOpen keeps page tables and mappings of a broker with very many queues small.
const defaultMaxOpen = 4096

// Set is all queues of a store. Its methods may be called from any goroutine, except Load, which
// comes first, and Close, which comes last.
type Set struct {
	cfg  Config
	osFS bool
	unit int64 // bytes of a unit

	// Guards what follows. Never held across I/O.
	mu     sync.RWMutex
	queues map[ID]*Queue

	// Guards what follows. Taken after Queue.mu, never held across I/O.
	openMu sync.Mutex
	open   []*segment
	hand   int // of the clock that picks a file to give back

	dirtyMu sync.Mutex
	dirty   []*Queue

	keepLeft atomic.Int64 // bytes that Load may still keep
}

// Open returns a set without queues; Load reads what the folder holds.
func Open(cfg Config) (*Set, error) {
	unit, size := int64(UnitSize), int64(DefaultFileSize)
	if cfg.Batch {
		unit, size = BatchUnitSize, DefaultBatchFileSize
	}
	if cfg.FileSize == 0 {
		cfg.FileSize = size
	}
	if cfg.FileSize < unit {
		return nil, fmt.Errorf("consumequeue: open %s: file size %d is below one unit of %d bytes",
			cfg.Dir, cfg.FileSize, unit)
	}
	cfg.FileSize = (cfg.FileSize + unit - 1) / unit * unit
	osFS := cfg.FS == nil
	if osFS {
		cfg.FS = vfs.OS()
	}
	if cfg.MaxOpen == 0 {
		cfg.MaxOpen = defaultMaxOpen
	}
	return &Set{cfg: cfg, osFS: osFS, unit: unit, queues: map[ID]*Queue{}}, nil
}

// Lookup returns the queue, or nil. Cost: no allocation.
func (s *Set) Lookup(topic []byte, queue int32) *Queue {
	s.mu.RLock()
	q := s.queues[ID{Topic: string(topic), Queue: queue}]
	s.mu.RUnlock()
	return q
}

// Create returns the queue and makes it when it is not there; files come with the first message.
// The error says that the topic cannot be a folder name.
func (s *Set) Create(topic string, queue int32) (*Queue, error) {
	if topic == "" || topic == "." || topic == ".." || strings.ContainsAny(topic, "/\x00") {
		return nil, fmt.Errorf("consumequeue: create queue: topic %.80q is no folder name", topic)
	}
	if queue < 0 {
		return nil, fmt.Errorf("consumequeue: create queue: queue id %d is negative", queue)
	}
	id := ID{Topic: strings.Clone(topic), Queue: queue}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[id]
	if q == nil {
		q = &Queue{set: s, id: id}
		s.queues[id] = q
	}
	return q, nil
}

// All returns the queues, in no order.
func (s *Set) All() []*Queue {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*Queue, 0, len(s.queues))
	for _, q := range s.queues {
		all = append(all, q)
	}
	return all
}

// Delete removes all queues of a topic and their files. Readers finish with what they hold; the
// caller keeps the writer away.
func (s *Set) Delete(topic string) error {
	var gone []*Queue
	s.mu.Lock()
	for id, q := range s.queues {
		if id.Topic == topic {
			gone = append(gone, q)
			delete(s.queues, id)
		}
	}
	s.mu.Unlock()
	for _, q := range gone {
		q.close(true)
	}
	if topic == "" || strings.ContainsAny(topic, "/\x00") || topic == "." || topic == ".." {
		return nil
	}
	if err := removeAll(s.cfg.FS, filepath.Join(s.cfg.Dir, topic)); err != nil {
		return fmt.Errorf("consumequeue: delete topic %s: %w", topic, err)
	}
	err := s.cfg.FS.SyncDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("consumequeue: delete topic %s: %w", topic, err)
	}
	return nil
}

// removeAll removes a folder with all that is in it; one that is not there is no error.
func removeAll(fsys vfs.FS, dir string) error {
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
			err = removeAll(fsys, path)
		} else {
			err = fsys.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fsys.Remove(dir)
}

// close gives the mappings of q back.
func (q *Queue) close(deleted bool) {
	q.letGo()
	q.mu.Lock()
	q.deleted = q.deleted || deleted
	mapped := q.mapped
	q.mapped = nil
	q.mu.Unlock()
	for _, s := range mapped {
		q.set.closed(s)
		s.release()
	}
}

// makeDir creates the folder of q. It is not synced: a queue that a crash takes away is dispatched
// again.
func (s *Set) makeDir(q *Queue) error {
	if s.osFS {
		return os.MkdirAll(q.dir(), 0o755)
	}
	return s.cfg.FS.MkdirAll(q.dir())
}

// opened counts a file that was mapped, and gives the least used ones back beyond MaxOpen.
func (s *Set) opened(seg *segment) {
	s.openMu.Lock()
	s.open = append(s.open, seg)
	var victim *segment
	if len(s.open) > s.cfg.MaxOpen {
		victim = s.victimLocked(seg)
	}
	s.openMu.Unlock()
	if victim != nil {
		victim.queue.forget(victim)
	}
	if s.cfg.OnOpen != nil {
		s.cfg.OnOpen()
	}
}

// victimLocked takes one file off the list: the next that was not used since the clock's hand
// passed it, else any but keep.
func (s *Set) victimLocked(keep *segment) *segment {
	for range 2 * len(s.open) {
		if s.hand >= len(s.open) {
			s.hand = 0
		}
		seg := s.open[s.hand]
		if seg != keep && !seg.used.Swap(false) {
			s.removeLocked(s.hand)
			return seg
		}
		s.hand++
	}
	return nil
}

func (s *Set) removeLocked(i int) {
	last := len(s.open) - 1
	s.open[i] = s.open[last]
	s.open[last] = nil
	s.open = s.open[:last]
}

// closed takes seg off the list of open files.
func (s *Set) closed(seg *segment) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for i, o := range s.open {
		if o == seg {
			s.removeLocked(i)
			return
		}
	}
}

// OpenFiles returns how many files are mapped, apart from those in use at this moment only.
func (s *Set) OpenFiles() int {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return len(s.open)
}

// CloseIdle unmaps the files that nobody used since its last call and returns how many stay.
// Unflushed bytes of an unmapped file stay in the page cache and are flushed through the file.
func (s *Set) CloseIdle() int {
	var idle []*segment
	s.openMu.Lock()
	for i := 0; i < len(s.open); {
		if s.open[i].used.Swap(false) {
			i++
			continue
		}
		idle = append(idle, s.open[i])
		s.removeLocked(i)
	}
	left := len(s.open)
	s.openMu.Unlock()
	for _, seg := range idle {
		seg.queue.forget(seg)
	}
	return left
}

// Close unmaps everything. It does not flush.
func (s *Set) Close() {
	for _, q := range s.All() {
		q.close(false)
	}
}

// parseQueue reads the name of a queue's folder.
func parseQueue(name string) (int32, bool) {
	n, err := strconv.ParseInt(name, 10, 32)
	return int32(n), err == nil && n >= 0 && strconv.Itoa(int(n)) == name
}

// Len returns how many queues there are.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.queues)
}
