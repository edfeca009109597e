// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// FileName is the name of the table's file in the configuration folder.
const FileName = "consumerOffset.json"

const (
	shardCount = 64
	// queuesMax bounds the queue ids of one group and topic: RocketMQ's clients may commit for any
	// id, and ids need not exist.
	queuesMax = 65536
	// versionStep is the number of commits that raise the table's version
	// (consumerOffsetUpdateVersionStep).
	versionStep = 500
	none        = -1 // no offset
)

// Config says where and how often the table is written. The zero value is RocketMQ's default.
type Config struct {
	Interval time.Duration // flushConsumerOffsetInterval, 5 s; time from a change to its write

	// AllowEmpty starts without offsets when every copy of the file is damaged.
	AllowEmpty bool

	Now    func() time.Time            // nil: time.Now
	Notice func(msg string, kv ...any) // nil: silent. Gets failed writes too
}

// Table is the offset table. All methods may be called from any goroutine.
type Table struct {
	path   string
	cfg    Config
	seed   maphash.Seed
	shards [shardCount]shard

	resets atomic.Int64 // pending resets in the table, so that a pull can pass them by
	dirty  atomic.Bool  // something is not in the file yet
	timer  *time.Timer  // set before Open returns, runs only while dirty

	// Guards version and the order of writes; it is held across I/O and never by Commit or Query.
	file    sync.Mutex
	version protocol.DataVersion
	closed  bool
}

// shard is the part of the table whose keys share a hash.
type shard struct {
	commits atomic.Int64

	mu      sync.RWMutex // guards the maps, not the numbers in the slots
	entries map[key]map[int32]*slot
}

type key struct{ group, topic string }

// slot is one queue as one group sees it.
type slot struct {
	committed atomic.Int64 // none: never
	pulled    atomic.Int64 // end of the last pull, memory only; none: never
	reset     atomic.Int64 // set by an operator, taken by the next pull; none: nothing pending
}

// shardOf hashes both names; the order within a key does not matter for spreading.
func (t *Table) shardOf(group, topic []byte) *shard {
	h := maphash.Bytes(t.seed, group)*31 + maphash.Bytes(t.seed, topic)
	return &t.shards[h%shardCount]
}

func (t *Table) slot(group, topic []byte, queue int32) *slot {
	s := t.shardOf(group, topic)
	s.mu.RLock()
	found := s.entries[key{string(group), string(topic)}][queue]
	s.mu.RUnlock()
	return found
}

// ensure returns the slot of a queue and makes it when it is new; nil when the entry is full.
func (t *Table) ensure(group, topic []byte, queue int32) *slot {
	if found := t.slot(group, topic, queue); found != nil {
		return found
	}
	s := t.shardOf(group, topic)
	k := key{string(group), string(topic)}
	s.mu.Lock()
	defer s.mu.Unlock()
	queues := s.entries[k]
	if found := queues[queue]; found != nil {
		return found
	}
	if len(queues) >= queuesMax {
		return nil
	}
	if queues == nil {
		queues = map[int32]*slot{}
		s.entries[k] = queues
	}
	made := newSlot()
	queues[queue] = made
	return made
}

func newSlot() *slot {
	s := &slot{}
	s.committed.Store(none)
	s.pulled.Store(none)
	s.reset.Store(none)
	return s
}

// Commit stores a group's offset. A smaller one than before is accepted. It does nothing and
// returns false while a reset is pending for the queue, which the next pull takes. No allocation
// for a queue that is known.
func (t *Table) Commit(group, topic []byte, queue int32, off int64) bool {
	s := t.ensure(group, topic, queue)
	if s == nil || s.reset.Load() != none {
		return false
	}
	t.store(t.shardOf(group, topic), s, off)
	return true
}

// store sets a committed offset and sees to it that it reaches the file. The offset is in place
// before the mark is looked at, and a write clears the mark before it reads offsets, so no commit
// is left out of both.
func (t *Table) store(in *shard, s *slot, off int64) {
	s.committed.Store(max(off, none))
	if in.commits.Add(1)%versionStep == 0 {
		t.raise()
	}
	t.touch()
}

func (t *Table) touch() {
	if !t.dirty.Load() && t.dirty.CompareAndSwap(false, true) {
		t.timer.Reset(t.cfg.Interval)
	}
}

// raise bumps the version, at most a moment late when a write of the file is under way.
func (t *Table) raise() {
	if t.file.TryLock() {
		t.version.Next(t.cfg.Now().UnixMilli())
		t.file.Unlock()
	}
}

// Query returns a group's offset: the one of a pending reset, else the committed one. No
// allocation.
func (t *Table) Query(group, topic []byte, queue int32) (off int64, ok bool) {
	s := t.slot(group, topic, queue)
	if s == nil {
		return none, false
	}
	if off = s.reset.Load(); off != none {
		return off, true
	}
	off = s.committed.Load()
	return off, off != none
}

// Committed is Query without regard to pending resets.
func (t *Table) Committed(group, topic []byte, queue int32) (off int64, ok bool) {
	s := t.slot(group, topic, queue)
	if s == nil {
		return none, false
	}
	off = s.committed.Load()
	return off, off != none
}

// SetPulled remembers where the last pull of a queue ended. Memory only. No allocation for a queue
// that is known.
func (t *Table) SetPulled(group, topic []byte, queue int32, off int64) {
	if s := t.ensure(group, topic, queue); s != nil {
		s.pulled.Store(max(off, none))
	}
}

// Pulled returns what SetPulled stored last.
func (t *Table) Pulled(group, topic []byte, queue int32) (off int64, ok bool) {
	s := t.slot(group, topic, queue)
	if s == nil {
		return none, false
	}
	off = s.pulled.Load()
	return off, off != none
}

// Reset sets a queue's offset on behalf of an operator: it is committed, and it stays pending until
// TakeReset hands it to the next pull. Until then Query returns it and commits are ignored, also after
// a restart: members that are online commit what they had before, and would undo it. off must not be
// negative.
func (t *Table) Reset(group, topic []byte, queue int32, off int64) {
	s := t.ensure(group, topic, queue)
	if s == nil || off < 0 {
		return
	}
	if s.reset.Swap(off) == none {
		t.resets.Add(1)
	}
	t.store(t.shardOf(group, topic), s, off)
}

// HasReset tells whether a reset is pending for a queue.
func (t *Table) HasReset(group, topic []byte, queue int32) bool {
	if t.resets.Load() == 0 {
		return false
	}
	s := t.slot(group, topic, queue)
	return s != nil && s.reset.Load() != none
}

// TakeReset returns the pending reset of a queue and ends it. A death before the next write of the file
// has it taken once more, which repeats what was consumed since, as for every commit. It costs one
// atomic load while nothing is pending anywhere.
func (t *Table) TakeReset(group, topic []byte, queue int32) (off int64, ok bool) {
	if t.resets.Load() == 0 {
		return none, false
	}
	s := t.slot(group, topic, queue)
	if s == nil {
		return none, false
	}
	off = s.reset.Swap(none)
	if off == none {
		return none, false
	}
	t.resets.Add(-1)
	t.touch()
	return off, true
}

// Cap takes a queue's offset, and a pending reset, back to end when they lie behind it.
func (t *Table) Cap(group, topic []byte, queue int32, end int64) {
	s := t.slot(group, topic, queue)
	if s == nil {
		return
	}
	if off := s.reset.Load(); off > end {
		s.reset.CompareAndSwap(off, end)
	}
	if s.committed.Load() > end {
		t.store(t.shardOf(group, topic), s, end)
	}
}

// RemoveTopic forgets every group's offsets of a topic, pending resets and pull offsets included.
func (t *Table) RemoveTopic(topic string) {
	t.remove(func(k key) bool { return k.topic == topic })
}

// RemoveGroup forgets a group's offsets of every topic.
func (t *Table) RemoveGroup(group string) {
	t.remove(func(k key) bool { return k.group == group })
}

func (t *Table) remove(matches func(key) bool) {
	removed := false
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k, queues := range s.entries {
			if !matches(k) {
				continue
			}
			for _, q := range queues {
				if q.reset.Load() != none {
					t.resets.Add(-1)
				}
			}
			delete(s.entries, k)
			removed = true
		}
		s.mu.Unlock()
	}
	if removed {
		t.raise()
		t.touch()
	}
}
