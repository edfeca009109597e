// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Group is the consumer group whose offsets are the positions (RocketMQ MixAll.CID_SYS_RMQ_TRANS).
const Group = "CID_RMQ_SYS_TRANS"

// Store is what the service needs of a message store.
type Store interface {
	AppendAll(es []storage.Entry) (stored int)
	QueueBounds(topic []byte, queue int32) (lowest, end record.QueueOffset, ok bool)
	Unit(topic []byte, queue int32, at record.QueueOffset) (consumequeue.Unit, bool)
	RecordAt(at record.PhysicalOffset) (zerocopy.Region, error)
	RecoveredCommits() []record.PhysicalOffset
	Flushed() record.PhysicalOffset
	Flush() error
}

// Offsets keeps the positions.
type Offsets interface {
	Committed(group, topic []byte, queue int32) (off int64, ok bool)
	Commit(group, topic []byte, queue int32, off int64) bool
}

// Config connects a Service to its surroundings. Zero numbers take RocketMQ's defaults.
type Config struct {
	Store     Store
	Offsets   Offsets
	StoreHost netip.AddrPort // of op records

	TimeOut   time.Duration // transactionTimeOut, 6 s: age at the first check
	Interval  time.Duration // transactionCheckInterval, 30 s: from one check to the next
	CheckMax  int           // transactionCheckMax, 15: checks before a message is given up
	OpMaxSize int           // transactionOpMsgMaxSize, 4096: bytes of an op record's body
	KeepFor   time.Duration // fileReservedTime: age at which a message is given up in any case; 0: 72 h

	// WaitingMax bounds the undecided half messages that are held in memory, 24 bytes each; checks of
	// those behind them wait. 0: 1 048 576.
	WaitingMax int
	// Window is how far, in messages, the oldest undecided half message may lie behind the end of its
	// queue before it is stored again at the end, so that what a start reads stays bounded.
	// 0: 1 048 576.
	Window int64

	// Place returns the queue of a topic in which a message for one of its queues is stored, false when
	// there is no such topic: messages are not committed to one that was deleted.
	Place func(topic []byte, queue int32) (stored int32, ok bool)
	// GiveUpTopic makes sure that TRANS_CHECK_MAX_TIME_TOPIC exists. It may block.
	GiveUpTopic func() error
	// Producer chooses a connected producer of a group; ok is false when there is none.
	Producer func(group string) (p Producer, ok bool)
	// Counts are told of half messages that are stored and settled; nil: they are not counted.
	Counts *Counts
	// Stored counts messages that became visible; bytes are those of the body. nil: nobody counts.
	Stored func(topic []byte, messages, bytes int)

	Now    func() time.Time            // nil: time.Now
	Notice func(msg string, kv ...any) // nil: silent
}

// Prepared counts a half message that a producer sent for a topic.
func (s *Service) Prepared(topic []byte) { s.cfg.Counts.Add(topic, 1) }

// Producer is a connected producer. Two values are the same one when they compare equal.
type Producer interface {
	// Ask sends checks in one go. It does not block and keeps nothing of them.
	Ask(checks []Check)
}

// Check is a question about one half message.
type Check struct {
	Offset    int64                 // in the queue of half messages
	At        record.PhysicalOffset // in the log
	UniqueKey string
	StoreHost netip.AddrPort // of the half message
	Record    []byte         // the message, with the topic and queue that it shall go to; borrowed
}

// Service ends and checks half messages. Its methods may be called from any goroutine; Stored does
// not block and may be called from an event loop, the others wait for the store.
//
// A kill or a power loss at any moment delivers nothing twice that was stored once: a commit and its
// op record are stored in one step, and where the log ends between the two the commit itself tells,
// when the log is recovered. Delivered twice, with the same UNIQ_KEY, can only be a message that is
// committed by an answer to a check which was repeated, when the broker was started anew less than a second before the answer.
type Service struct {
	cfg Config

	queueMu sync.Mutex // a leaf
	queue   []*ending  // ends that wait for their turn

	timerMu sync.Mutex // a leaf
	timer   *time.Timer
	closed  bool
	armedMS atomic.Int64 // when the timer fires; 0: it does not run

	stepping sync.Mutex // held by Step; taken before mu
	asks     asks       // of one slice of a step

	// Guards what follows. Held while the store appends.
	mu      sync.Mutex
	base    int64 // every half message before it is settled
	scanned int64 // every half message before it is settled or waits
	marks   marks // of half messages, also before base for a while
	waiting waiting
	lonely  map[string]bool // groups that had no producer when one was to be asked
	wakeMS  int64           // when the next half message that was not scanned yet is due; 0: none
	later   map[int64]int64 // copy -> later copy, as long as that is undecided
	earlier map[int64]int64 // the reverse
	ops     opTrail
	owed    []int64 // ended, and their op records could not be stored
	entries []storage.Entry

	// Unique keys of messages that were committed shortly before the start, to know copies of them
	// among the half messages before loaded. nil when these were looked at.
	keys   map[string]bool
	loaded int64

	lastEnd        record.PhysicalOffset // end of what was stored last
	candidate      int64                 // a base to be committed when the log is on disk up to needs
	needs          record.PhysicalOffset
	committed      int64 // base as it stands in Offsets: what settles the messages before it is on disk
	committedMS    int64
	opCommitted    int64
	lonelyNoticeMS int64
}

// New makes a service that knows nothing of the store yet; see Load.
func New(cfg Config) *Service {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&cfg.TimeOut, 6*time.Second)
	set(&cfg.Interval, 30*time.Second)
	set(&cfg.KeepFor, 72*time.Hour)
	if cfg.CheckMax <= 0 {
		cfg.CheckMax = 15
	}
	if cfg.OpMaxSize <= 0 {
		cfg.OpMaxSize = 4096
	}
	if cfg.WaitingMax <= 0 {
		cfg.WaitingMax = 1 << 20
	}
	if cfg.Window <= 0 {
		cfg.Window = 1 << 20
	}
	if cfg.Stored == nil {
		cfg.Stored = func([]byte, int, int) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string, ...any) {}
	}
	return &Service{cfg: cfg, lonely: map[string]bool{}, later: map[int64]int64{}, earlier: map[int64]int64{}}
}

// Load reads the positions and the op records behind them and arms the timer if half messages wait.
// It is called once, before anything else. Its cost is that of the op records since the oldest half
// message that is not settled.
func (s *Service) Load() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lowest, end := s.bounds(protocol.HalfTopic)
	s.base = s.position(protocol.HalfTopic, lowest, end)
	s.scanned, s.committed, s.candidate = s.base, s.base, s.base
	opLowest, opEnd := s.bounds(protocol.OpHalfTopic)
	s.opCommitted = s.position(protocol.OpHalfTopic, opLowest, opEnd)
	for at := max(opLowest, s.opCommitted-opsBack); at < opEnd; at++ {
		highest := s.loadOp(at, end)
		if at >= s.opCommitted {
			s.ops.add(at, highest)
		}
	}
	s.healLocked(lowest, end)
	s.advanceLocked()
	if s.base > s.committed {
		_ = s.cfg.Store.Flush() // what was just read may be in the page cache only
	}
	if s.base < end || len(s.owed) > 0 {
		s.arm(s.cfg.Now().UnixMilli() + firstLookMS)
	}
}

// healLocked finds what the last process stored without coming to the op record: commits that
// recovery met in the log, and copies at the end of the half queue. RocketMQ writes op records up to
// 3 s late and meanwhile copies and checks what was committed: such copies are known by their unique
// key when they are looked at.
func (s *Service) healLocked(lowest, end int64) {
	keys := map[string]bool{}
	for _, at := range s.cfg.Store.RecoveredCommits() {
		region, err := s.cfg.Store.RecordAt(at)
		if err != nil {
			continue
		}
		if h, ok := parseHalf(region.Mem, s.cfg.TimeOut); ok && s.marks.known(h.offset, s.base) {
			if h.offset >= s.base && s.marks.of(h.offset) == pending {
				s.owed = append(s.owed, h.offset)
			}
			s.marks.set(h.offset, ended)
			if len(h.unique) > 0 && s.base < end {
				keys[string(h.unique)] = true
			}
		}
		region.Release()
	}
	if len(keys) > 0 {
		s.keys, s.loaded = keys, end
	}
	for at := max(lowest, s.base, end-sliceMax-1); at < end; at++ {
		region, ok := s.read(protocol.HalfTopic, at)
		if !ok {
			continue
		}
		h, ok := parseHalf(region.Mem, s.cfg.TimeOut)
		if ok && h.movedAt >= s.base && h.movedAt < at && s.marks.of(h.movedAt) == pending {
			s.marks.set(h.movedAt, moved)
			s.owed = append(s.owed, h.movedAt)
		}
		region.Release()
	}
}

// firstLookMS is how long after the start half messages are first looked at: their producers connect
// anew meanwhile.
const firstLookMS = 1000

// opsBack is how many op records before their position a start reads as well, to know an end that
// comes twice.
const opsBack = 1024

func (s *Service) bounds(topic string) (lowest, end int64) {
	lo, hi, ok := s.cfg.Store.QueueBounds([]byte(topic), 0)
	if !ok {
		return 0, 0
	}
	return max(int64(lo), 0), max(int64(hi), 0)
}

// position is a committed offset as far as it can be true: a log that lost its end may have fewer
// messages than it says.
func (s *Service) position(topic string, lowest, end int64) int64 {
	at, ok := s.cfg.Offsets.Committed([]byte(Group), []byte(topic), 0)
	if !ok {
		return lowest
	}
	return min(max(at, lowest), end)
}

// loadOp takes in one op record and returns the highest half offset that it settles. Offsets at and
// beyond the end of the half queue are of messages that a power loss took.
func (s *Service) loadOp(at, end int64) (highest int64) {
	region, ok := s.read(protocol.OpHalfTopic, at)
	if !ok {
		return 0
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	if err != nil {
		return 0
	}
	if tag, _ := record.Property(v.Properties(), propTags); string(tag) != opTag {
		return 0
	}
	to := ended
	if _, copied := record.Property(v.Properties(), propMoved); copied {
		to = moved
	}
	eachOffset(v.Body(), func(offset int64) {
		if offset < end && s.marks.known(offset, s.base) {
			highest = max(highest, offset)
			if s.marks.of(offset) != ended {
				s.marks.set(offset, to)
			}
		}
	})
	return highest
}

// read returns the record of one message of a system topic's queue; the caller releases it.
func (s *Service) read(topic string, at int64) (zerocopy.Region, bool) {
	unit, ok := s.cfg.Store.Unit([]byte(topic), 0, record.QueueOffset(at))
	if !ok {
		return zerocopy.Region{}, false
	}
	region, err := s.cfg.Store.RecordAt(unit.At)
	return region, err == nil
}

// advanceLocked moves base over what is settled.
func (s *Service) advanceLocked() {
	before := s.base
	for s.marks.of(s.base) != pending {
		s.base++
	}
	s.scanned = max(s.scanned, s.base)
	if before/chunkOffsets != s.base/chunkOffsets {
		s.marks.forget(s.base)
	}
}

// Stored tells that half messages were stored. It does not block; while the timer runs it costs a
// look at the clock and a load.
func (s *Service) Stored() { s.arm(s.cfg.Now().Add(s.cfg.TimeOut).UnixMilli()) }

// arm has the service step at a moment, or earlier if it was armed for an earlier one.
func (s *Service) arm(atMS int64) {
	if armed := s.armedMS.Load(); armed != 0 && armed <= atMS {
		return
	}
	s.timerMu.Lock()
	defer s.timerMu.Unlock()
	if armed := s.armedMS.Load(); s.closed || armed != 0 && armed <= atMS {
		return
	}
	s.armedMS.Store(atMS)
	wait := time.Duration(max(atMS-s.cfg.Now().UnixMilli(), 0)) * time.Millisecond
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.fire)
		return
	}
	s.timer.Reset(wait)
}

// fire runs on the timer.
func (s *Service) fire() {
	s.timerMu.Lock()
	closed := s.closed
	s.armedMS.Store(0)
	s.timerMu.Unlock()
	if closed {
		return
	}
	next, more := s.step(s.cfg.Now(), stepFor)
	nowMS := s.cfg.Now().UnixMilli()
	switch {
	case more:
		s.arm(nowMS + stepPauseMS)
	case !next.IsZero():
		s.arm(max(next.UnixMilli(), nowMS+stepGrainMS))
	}
}

const (
	// stepGrainMS is the least time between two steps: checks that are due closer together share one.
	stepGrainMS = 50
	// stepFor is how long a step works before it lets others have the processor and the log for
	// stepPauseMS: thousands of half messages that were stored together are due together.
	stepFor     = 5 * time.Millisecond
	stepPauseMS = 10
)

// Waiting is the number of half messages that were found undecided when they were due at the
// latest, and are not decided yet.
func (s *Service) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Len()
}

// Close stops the timer, waits for a step that runs, and commits the positions. The store must be
// open still. Ends must not come any more.
func (s *Service) Close() {
	s.timerMu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timerMu.Unlock()
	s.stepping.Lock()
	defer s.stepping.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cfg.Store.Flush(); err != nil {
		return // the positions stay behind, and the next start reads more
	}
	s.commitLocked(s.base)
	s.ops.settle(s.base)
	s.commitOpsLocked()
}
