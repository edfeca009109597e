// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Store is one open store. Its methods may be called from any goroutine.
type Store struct {
	// Set before Open returns, then constant.
	cfg        Config
	lock       *vfs.Lock
	log        *commitlog.Log
	queues     *consumequeue.Set // in consumequeue/
	batches    *consumequeue.Set // in batchconsumequeue/
	indexer    *indexer          // nil without an index
	maintainer *maintainer
	cleaner    *cleaner
	ballast    *ballast
	inMemory   record.PhysicalOffset // bytes at the end of the log that are taken to be in memory
	hotBytes   record.PhysicalOffset // bytes at the end of the log that are known to be
	hotFrom    record.PhysicalOffset // where this run of the store began to write
	recovered  RecoveryInfo
	suffix     string // of the folders of queues and index, while Rebuild makes new ones
	pagesKept  bool   // at most the process before this one died
	// checkpointed says that the file checkpoint was there.
	checkpointed bool
	commits      []record.PhysicalOffset // that recovery found, for RecoveredCommits
	dispatches   chan *dispatch          // lists that are not in use

	// The put lock: one appender at a time. Guards what follows.
	mu      sync.Mutex
	round   uint64 // number of the batch; consumequeue.Queue.Mark holds it
	touched []*consumequeue.Queue
	element record.Draft // scratch for batches
	next    record.PhysicalOffset
	lastAt  record.PhysicalOffset // start of the last record, -1 when there is none
	lastMS  int64                 // its store time
	inner   []byte                // scratch: properties of an inner batch
	deleted map[string]record.PhysicalOffset
	noter   indexfile.Noter
	noted   noted

	// Watermark in bytes: every record below it is in its queue and visible. One writer.
	dispatched atomic.Int64

	closed      atomic.Bool
	readOnly    atomic.Bool
	diskFull    atomic.Bool
	diskPercent atomic.Int64
	fullDirs    atomic.Pointer[[]string] // directories of the log that are nearly full

	// With SyncFlush: queues with messages that are not visible yet.
	parkedMu  sync.Mutex
	parked    []*consumequeue.Queue
	parkedSet map[*consumequeue.Queue]bool // of parked and ready
	// Confined to the flusher.
	ready []*consumequeue.Queue
	told  []Dispatched

	// One flush of the queues at a time: the maintainer's or the cleaner's. Held across I/O.
	flushMu sync.Mutex

	// Guards the file config/queueEnds. Held across I/O.
	endsMu    sync.Mutex
	deletions atomic.Int64 // of topics; moves before forgetEnds

	checkpointMu sync.Mutex
	checkpoint   Checkpoint

	puts, gets counters
	colds      struct{ reads, bytes, units atomic.Int64 }
	warmed     sync.Pool // of *[warmStep]byte, which Warm reads into

	closing  sync.Once
	closeErr error
}

// counters count since the start.
type counters struct{ reads, messages, bytes atomic.Int64 }

// Counters are messages and bytes since the start.
type Counters struct{ Messages, Bytes int64 }

// ColdCounters count reads since the start that the page cache could not serve.
type ColdCounters struct {
	Reads int64 // of the log, that waited for the disk
	Bytes int64 // of their messages
	Units int64 // of a queue, whose units may have had to come from the disk
}

// Info describes the state of a store.
type Info struct {
	Min, Wrote, Flushed, Dispatched record.PhysicalOffset
	Indexed                         record.PhysicalOffset // equals Dispatched without an index
	LastStoreMS                     int64
	DiskUsedPercent                 int // -1: unknown
	DiskFull, ReadOnly              bool
	Ballast                         int64 // bytes of the ballast file, 0 when it is not there
	Queues, QueueFilesOpen          int
	Put, Got                        Counters
	Reads                           int64
	Cold                            ColdCounters
	Recovery                        RecoveryInfo
	Checkpoint                      Checkpoint
}

// path returns a path in the store's directory.
func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.cfg.RootDir}, parts...)...)
}

// Info returns the state of the store.
func (s *Store) Info() Info {
	s.mu.Lock()
	lastMS := s.lastMS
	s.mu.Unlock()
	s.checkpointMu.Lock()
	checkpoint := s.checkpoint
	s.checkpointMu.Unlock()
	info := Info{
		Min: s.log.Min(), Flushed: s.log.Flushed(), Wrote: s.log.Wrote(),
		Dispatched:  record.PhysicalOffset(s.dispatched.Load()),
		LastStoreMS: lastMS, DiskUsedPercent: int(s.diskPercent.Load()),
		DiskFull: s.diskFull.Load(), ReadOnly: s.readOnly.Load(),
		Ballast: s.ballast.held(),
		Queues:  s.queues.Len() + s.batches.Len(), QueueFilesOpen: s.queueFilesOpen(),
		Put:   Counters{s.puts.messages.Load(), s.puts.bytes.Load()},
		Got:   Counters{s.gets.messages.Load(), s.gets.bytes.Load()},
		Reads: s.gets.reads.Load(),
		Cold: ColdCounters{
			Reads: s.colds.reads.Load(), Bytes: s.colds.bytes.Load(), Units: s.colds.units.Load(),
		},
		Recovery: s.recovered, Checkpoint: checkpoint,
	}
	info.Indexed = info.Dispatched
	if s.indexer != nil {
		info.Indexed = record.PhysicalOffset(s.indexer.next.Load())
	}
	return info
}

// Topics returns the topics that have queues, sorted.
func (s *Store) Topics() []string {
	seen := map[string]bool{}
	for _, q := range s.allQueues() {
		seen[q.ID().Topic] = true
	}
	topics := make([]string, 0, len(seen))
	for topic := range seen {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	return topics
}

// Queues returns the queue ids of a topic that exist, sorted.
func (s *Store) Queues(topic string) []int32 {
	var ids []int32
	for _, q := range s.allQueues() {
		if id := q.ID(); id.Topic == topic {
			ids = append(ids, id.Queue)
		}
	}
	slices.Sort(ids)
	return ids
}

// DeleteTopic removes the queues of a topic. Its records stay in the log until their files are
// deleted, but neither readers nor a later recovery find them. Appends wait meanwhile.
func (s *Store) DeleteTopic(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return ErrClosed
	}
	if err := s.noteDeletedLocked(topic); err != nil {
		return err
	}
	s.deletions.Add(1)
	if err := s.forgetEnds(topic); err != nil {
		return err
	}
	return s.deleteQueues(topic)
}

// wakeWorkers is called after something was appended or became visible.
func (s *Store) wakeWorkers() {
	s.maintainer.wake()
	if s.indexer != nil {
		s.indexer.wake()
	}
}

// Close flushes everything, writes the checkpoint and, when every message is in its queue and on
// disk, removes the file abort, which makes the stop a clean one. Appends fail from now on; the
// caller stops reading before. Further calls return the first one's error.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

// close works in this order: no more appends; the log is on disk, and with it what is visible; the
// index follows; the queues and then the checkpoint are on disk; abort goes; the lock goes.
func (s *Store) close() error {
	s.mu.Lock()
	s.closed.Store(true)
	s.mu.Unlock()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	keep(s.log.Flush())
	s.cleaner.close()
	s.maintainer.close()
	if s.indexer != nil {
		behind := s.dispatched.Load() - s.indexer.next.Load()
		keep(s.indexer.close(behind <= indexAtClose))
	}
	keep(s.log.Close())
	_, err := s.flushUnits(0)
	keep(err)
	clean := first == nil && !s.readOnly.Load() &&
		record.PhysicalOffset(s.dispatched.Load()) == s.log.Wrote()
	if clean {
		s.checkpointMu.Lock()
		if s.lastAt >= 0 {
			s.checkpoint.LogicsAt, s.checkpoint.LogicsMS = s.lastAt, s.lastMS
			s.checkpoint.Own = true
			s.checkpoint.PhysicMS = s.lastMS
		}
		keep(saveCheckpoint(s.cfg.fs(), s.path("checkpoint"), s.checkpoint))
		s.checkpointMu.Unlock()
		if err := s.saveManifest(); err != nil {
			s.cfg.Notice("list of queue ends not written", "err", err)
		}
	}
	s.queues.Close()
	s.batches.Close()
	if clean && first == nil {
		keep(removeAbort(s.cfg.fs(), s.path("abort")))
	}
	keep(s.lock.Close())
	if first != nil {
		return fmt.Errorf("storage: close %s: %w", s.cfg.RootDir, first)
	}
	return nil
}

// indexAtClose is how many bytes of log the indexer may be behind and still be waited for at Close;
// from further back it goes on after the next start.
const indexAtClose = 64 << 20
