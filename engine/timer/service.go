// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Store is what the service needs of the store.
type Store interface {
	QueueBounds(topic []byte, queue int32) (lowest, end record.QueueOffset, ok bool)
	ReadUnits(
		topic []byte, queue int32, from record.QueueOffset, dst []consumequeue.Unit,
	) (int, error)
	RecordAt(at record.PhysicalOffset) (zerocopy.Region, error)
	Append(es []storage.Entry)
	Flush() error
	Info() storage.Info
}

// Config says what the service works with.
type Config struct {
	FS          vfs.FS
	Root        string // the store's directory
	Dir         string // the configuration folder
	Store       Store
	PrecisionMS int64 // length of a tick (timerPrecisionMs)
	FileSize    int64 // of a file of the timer log (mappedFileSizeTimerLog)
	// RollTicks is how many ticks ahead a message is filed at the most; from there on it is put into
	// the timer topic again halfway, so that it does not outlive its log file (timerRollWindowSlot).
	RollTicks int64
	// Interval is how long the checkpoint may be behind (timerFlushIntervalMs).
	Interval time.Duration
	// AllowEmpty goes on without the file timermetrics when every copy of it is damaged.
	AllowEmpty bool
	// Progress holds the position between the writes of the checkpoint, in slot 0.
	Progress *progress.File

	Now    func() time.Time
	Notice func(msg string, kv ...any)
	// Delivered counts messages that were appended to their real topic.
	Delivered func(topic []byte, messages, bytes int)
	// Place is asked about the place of every message that is due; nil: it is as the record says.
	Place delay.Place
}

const (
	batchMessages = 64
	batchBytes    = 1 << 20
	fileMessages  = 1024 // filed in one go

	// retryAfter is how long the service waits when the store or the disk refuses.
	retryAfter = time.Second
	// lookAgain bounds the sleep while messages wait: the clock may be set forward meanwhile.
	lookAgain = 5 * time.Second
	never     = math.MaxInt64

	// rollTicksMax is what RocketMQ makes of every value that makes no sense.
	rollTicksMax = 7*24*3600 - 60

	progressSlot = 0
)

// Service files and delivers timer messages. One goroutine owns it; Wake, Checkpoint, Metrics,
// Pending and Close may be called from any.
type Service struct {
	cfg   Config
	topic []byte

	kick   chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup
	closed sync.Once
	err    error

	// Confined to the goroutine.
	wheel   wheel
	log     unitLog
	queueAt record.QueueOffset    // the next message of the timer topic to be filed
	filedTo record.PhysicalOffset // behind the last record that was filed
	rebuild record.QueueOffset    // messages before this one may be delivered already
	resumed bool                  // the progress file says what is delivered
	odd     bool                  // a message without a time was seen
	failed  error                 // the wheel and the log disagree: nothing is filed until a restart
	now     current
	batch   batch
	batches int64 // delivered
	filings int64 // goes in which messages were filed
	units   [fileMessages]consumequeue.Unit
	staged  staged
	dirtyMS int64      // since when the checkpoint is behind; 0: it is not
	saving  chan error // of a checkpoint that is being written; nil: none is
	version protocol.DataVersion

	topicsMS int64 // when the numbers of waiting messages were written last

	pending atomic.Int64 // messages in the wheel
	behind  atomic.Int64 // messages of the topic that are not filed yet
	tickMS  atomic.Int64 // start of the tick that is being delivered
	doneMS  atomic.Int64 // what was due then is delivered

	// Guards what follows.
	mu     sync.Mutex
	saved  checkpoint
	topics topicCounts
}

// Open reads wheel, log and checkpoint and repairs what a crash left. It blocks for the disk and
// starts nothing.
func Open(cfg Config) (*Service, error) {
	if cfg.RollTicks < 2 || cfg.RollTicks > rollTicksMax {
		cfg.RollTicks = rollTicksMax
	}
	cfg.RollTicks = min(cfg.RollTicks, math.MaxInt32/cfg.PrecisionMS) // a unit holds it in ms
	s := &Service{
		cfg: cfg, topic: []byte(protocol.TimerTopic), kick: make(chan struct{}, 1),
		quit:  make(chan struct{}),
		wheel: wheel{fs: cfg.FS, path: filepath.Join(cfg.Root, WheelName)},
		log: unitLog{
			fs: cfg.FS, dir: filepath.Join(cfg.Root, LogName), fileSize: cfg.FileSize, blockAt: -1,
		},
	}
	s.staged.slots = map[int64]*slot{}
	if err := s.loadTopics(); err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// Start begins to file and deliver.
func (s *Service) Start() { s.done.Go(s.run) }

// Wake tells that messages came into the timer topic. It does not block.
func (s *Service) Wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Service) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		batches, filings := s.batches, s.filings
		next := s.Step(s.cfg.Now())
		grain := delay.NextGrain(s.cfg.Now().UnixMilli())
		if s.batches != batches && next != never {
			next = max(next, grain)
		}
		gather := min(next, grain)
		if s.batches == batches && s.filings == filings {
			gather = 0
		}
		if s.dirtyMS > 0 && s.saving == nil {
			next = min(next, s.dirtyMS+s.cfg.Interval.Milliseconds())
		}
		timer.Stop()
		if next != never {
			timer.Reset(min(s.until(next), lookAgain))
		}
		select {
		case <-s.quit:
			return
		case <-s.kick:
			if !s.gather(gather, timer) {
				return
			}
		case err := <-s.saving:
			s.settled(err)
		case <-timer.C:
		}
	}
}

// until is the time from now to a moment.
func (s *Service) until(ms int64) time.Duration {
	return time.Duration(max(ms-s.cfg.Now().UnixMilli(), 0)) * time.Millisecond
}

// gather waits until a moment, so that what comes with the message that woke the service is filed with
// it. false: the service ends.
func (s *Service) gather(untilMS int64, timer *time.Timer) bool {
	wait := s.until(untilMS)
	if wait == 0 {
		return true
	}
	timer.Reset(wait)
	select {
	case <-s.quit:
		return false
	case <-timer.C:
		return true
	}
}

// Step files what came, delivers what is due at now, has the checkpoint written if that is due, and
// returns the next time in milliseconds at which something is due, math.MaxInt64 when nothing
// waits. Only the goroutine of Start calls it, or a test that does not start one.
func (s *Service) Step(now time.Time) (nextMS int64) {
	ms := now.UnixMilli()
	for !s.quitting() {
		// What comes meanwhile is filed between two batches only when nothing is due: the progress
		// counts on messages being delivered in their order.
		next, did, err := s.deliver(ms)
		came := false
		if err == nil && did != delivered {
			came, err = s.file(ms)
		}
		if err != nil {
			s.cfg.Notice("timer messages cannot be filed or delivered now", "err", err)
			nextMS = min(next, ms+retryAfter.Milliseconds())
			break
		}
		if nextMS = next; !came && did == idle {
			s.doneMS.Store(ms)
			break
		}
		ms = max(ms, s.cfg.Now().UnixMilli())
	}
	s.saveIfDue(ms)
	return nextMS
}

func (s *Service) quitting() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

// tick is the tick of a time.
func (s *Service) tick(ms int64) int64 { return ms / s.cfg.PrecisionMS }

// startMS is the time of a tick.
func (s *Service) startMS(tick int64) int64 { return tick * s.cfg.PrecisionMS }

// Pending is the number of messages that wait in the wheel.
func (s *Service) Pending() int64 { return s.pending.Load() }

// Behind is the number of messages of the timer topic that are not in the wheel yet, and TickMS the
// start of the tick that is being delivered.
func (s *Service) Behind() int64 { return s.behind.Load() }

// TickMS is the start of the tick that is being delivered, in milliseconds; while nothing waits it
// stands still.
func (s *Service) TickMS() int64 { return s.tickMS.Load() }

// DoneMS is a time, in milliseconds: all messages that were due then are delivered. It stands still
// while nothing is due; Wake brings it up to now.
func (s *Service) DoneMS() int64 { return s.doneMS.Load() }

// Checkpoint is the body of GET_TIMER_CHECK_POINT.
func (s *Service) Checkpoint() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved.encode()
}

// Close stops the delivery and writes the checkpoint. The store must still be open. Further calls
// return the first one's error.
func (s *Service) Close() error {
	s.closed.Do(func() {
		close(s.quit)
		s.done.Wait()
		if s.saving != nil {
			s.settled(<-s.saving)
		}
		if s.used() {
			s.endTick(s.cfg.Now().UnixMilli())
			s.err = s.save(s.snapshot(s.cfg.Now().UnixMilli()))
			if err := s.saveTopics(); s.err == nil {
				s.err = err
			}
		}
		s.release()
	})
	return s.err
}

// used reports whether there ever was a timer message.
func (s *Service) used() bool { return s.wheel.file != nil || len(s.log.files) > 0 }

func (s *Service) release() {
	if err := s.wheel.close(); err != nil && s.err == nil {
		s.err = fmt.Errorf("timer: close: %w", err)
	}
	s.log.close()
}
