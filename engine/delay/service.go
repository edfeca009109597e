// SPDX-License-Identifier: Apache-2.0

package delay

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Store is what the service needs of the store.
type Store interface {
	QueueBounds(topic []byte, queue int32) (lowest, end record.QueueOffset, ok bool)
	ReadUnits(
		topic []byte, queue int32, from record.QueueOffset, dst []consumequeue.Unit,
	) (int, error)
	Queues(topic string) []int32
	RecordAt(at record.PhysicalOffset) (zerocopy.Region, error)
	Append(es []storage.Entry)
	Flush() error
}

// Config says what the service works with.
type Config struct {
	Dir    string // the configuration folder
	Store  Store
	Levels Levels
	// Interval is how long delayOffset.json may be behind (flushDelayOffsetInterval).
	Interval time.Duration
	// AllowEmpty starts with nothing delivered when every copy of delayOffset.json is damaged.
	AllowEmpty bool
	// Progress holds the positions between the writes of delayOffset.json; the slots are the levels.
	Progress *progress.File

	Now    func() time.Time
	Notice func(msg string, kv ...any)
	// Delivered counts a message that was appended to its real topic.
	Delivered func(topic []byte, messages, bytes int)
	// Place is asked about the place of every message that is due; nil: it is as the record says.
	Place Place
}

const (
	batchMessages = 64
	batchBytes    = 1 << 20

	// retryAfter is how long the service waits when the store takes no message.
	retryAfter = time.Second
	never      = math.MaxInt64

	// lookAgain bounds the sleep while messages wait: the clock may be set forward meanwhile.
	lookAgain = 5 * time.Second

	// grainMS is a fifth of the lateness that is promised (docs/delivery.md).
	grainMS = 20
)

// NextGrain is when a service that delivered something at a moment, in milliseconds, delivers again at
// the earliest. A message that comes due alone is delivered in its millisecond; of many, those due within
// a grain share a wake-up, an append and the answers to consumers. Grains end at the same moments for all
// who deliver, so that their wake-ups and those of the consumers fall together: with hundreds of messages a
// second it is the wake-ups that cost.
func NextGrain(nowMS int64) int64 { return nowMS - nowMS%grainMS + grainMS }

// Service delivers the messages of the delay levels. One goroutine owns the levels; Wake, Offsets
// and Close may be called from any.
type Service struct {
	cfg   Config
	topic []byte

	// nextMS is the time for which the goroutine sleeps, never when nothing waits.
	nextMS atomic.Int64
	kick   chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup
	closed sync.Once
	err    error

	// Confined to the goroutine; levels[i] is level i+1. Its length is constant.
	levels  []level
	batch   batch
	passed  int64      // messages that positions have passed
	dirtyMS int64      // since when delayOffset.json is behind; 0: it is not
	saving  chan error // of a file that is being written; nil: none is

	// Guards what follows: what delayOffset.json says or will say.
	mu      sync.Mutex
	offsets map[int32]int64
	version protocol.DataVersion
}

// level is one queue of SCHEDULE_TOPIC_XXXX.
type level struct {
	queue   int32
	delayMS int64 // 0: a queue beyond the table, whose units are believed
	at      record.QueueOffset
	nextMS  int64 // when the message at at is due, 0 when that is not known
	known   bool  // at is a position, and goes to the file
	proof   progress.Proof
	done    []record.QueueOffset // behind at and delivered already, after a failure in a batch
}

// New loads the positions. It starts nothing.
func New(cfg Config) (*Service, error) {
	s := &Service{
		cfg: cfg, topic: []byte(protocol.ScheduleTopic), kick: make(chan struct{}, 1),
		quit: make(chan struct{}),
	}
	s.nextMS.Store(never)
	if err := s.load(); err != nil {
		return nil, err
	}
	queues := len(cfg.Levels)
	for _, id := range cfg.Store.Queues(protocol.ScheduleTopic) {
		queues = max(queues, int(id)+1)
	}
	s.levels = make([]level, min(queues, levelsMax))
	for i := range s.levels {
		l := &s.levels[i]
		l.queue = int32(i)
		if i < len(cfg.Levels) {
			l.delayMS = cfg.Levels[i].Milliseconds()
		}
		if err := s.place(l); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// place finds where a level goes on: where delayOffset.json says, or behind that when the progress
// file says so and the log proves it.
func (s *Service) place(l *level) error {
	number := l.queue + 1
	off, known := s.offsets[number]
	l.at, l.known = record.QueueOffset(off), known
	values, proof, ok, err := s.cfg.Progress.Read(int(number))
	if err != nil {
		return err
	}
	at := record.QueueOffset(values[0])
	_, end, exists := s.cfg.Store.QueueBounds(s.topic, l.queue)
	if ok && exists && at > l.at && at <= end && s.holds(proof) {
		l.at, l.known, l.proof = at, true, proof
		s.offsets[number] = int64(at)
	}
	if !exists {
		return nil
	}
	// What the file says now must not be believed after a later loss of records: it is replaced by
	// what was just decided.
	return s.note(l)
}

func (s *Service) holds(p progress.Proof) bool {
	if p.Sum == 0 {
		return true
	}
	region, err := s.cfg.Store.RecordAt(p.At)
	if err != nil {
		return false
	}
	defer region.Release()
	v, err := record.Parse(region.Mem)
	return p.Holds(v, err == nil)
}

func (s *Service) note(l *level) error {
	return s.cfg.Progress.Write(int(l.queue)+1, progress.Values{int64(l.at)}, l.proof)
}

// Start begins to deliver.
func (s *Service) Start() { s.done.Go(s.run) }

// Wake tells that messages were added to a queue of SCHEDULE_TOPIC_XXXX. It does not block. Cost
// when they are due later than what the service sleeps for: one load.
func (s *Service) Wake(queue int32) {
	due := int64(0)
	if int(queue) < len(s.cfg.Levels) {
		due = s.cfg.Now().UnixMilli() + s.cfg.Levels[queue].Milliseconds()
	}
	if due >= s.nextMS.Load() {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Service) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.nextMS.Store(never) // from here on every message that comes leaves a kick
		before := s.passed
		next := s.Step(s.cfg.Now())
		if s.passed != before && next != never {
			next = max(next, NextGrain(s.cfg.Now().UnixMilli()))
		}
		s.nextMS.Store(next)
		if s.dirtyMS > 0 && s.saving == nil {
			next = min(next, s.dirtyMS+s.cfg.Interval.Milliseconds())
		}
		timer.Stop()
		if next != never {
			wait := time.Duration(max(next-s.cfg.Now().UnixMilli(), 0)) * time.Millisecond
			timer.Reset(min(wait, lookAgain))
		}
		select {
		case <-s.quit:
			return
		case <-s.kick:
		case err := <-s.saving:
			s.saved(err)
		case <-timer.C:
		}
	}
}

// Step delivers what is due at now, writes the positions if that is due, and returns the next time
// in milliseconds at which something is due, math.MaxInt64 when nothing waits. Only the goroutine of
// Start calls it, or a test that does not start one.
func (s *Service) Step(now time.Time) (nextMS int64) {
	ms := now.UnixMilli()
	for more := true; more; {
		more, nextMS = false, never
		for i := range s.levels {
			if s.quitting() {
				return never
			}
			next, again := s.deliver(&s.levels[i], ms)
			nextMS = min(nextMS, next)
			more = more || again
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

// deliver appends one batch of due messages of a level to their topics. It returns when the next
// message is due, and whether there may be more that are due now.
func (s *Service) deliver(l *level, nowMS int64) (nextMS int64, more bool) {
	// The first message of a level is due first. A time further off than the level's delay says that
	// the clock was set back.
	if l.nextMS > nowMS && (l.delayMS == 0 || l.nextMS <= nowMS+l.delayMS) {
		return l.nextMS, false
	}
	l.nextMS = 0
	lowest, end, ok := s.cfg.Store.QueueBounds(s.topic, l.queue)
	if !ok {
		return never, false
	}
	switch {
	case l.at < lowest:
		s.cfg.Notice("delayed messages were deleted with their log files before they were due",
			"level", l.queue+1, "from", l.at, "to", lowest)
		s.moved(l, lowest, nowMS)
	case l.at > end:
		s.cfg.Notice("a delay level's position is behind its last message", "level", l.queue+1,
			"offset", l.at, "end", end)
		s.moved(l, end, nowMS)
	}
	nextMS, failed := s.batch.collect(s, l, nowMS)
	defer s.batch.release()
	if s.batch.next == l.at && failed == nil {
		if nextMS != never {
			l.nextMS = nextMS
		}
		return nextMS, false
	}
	if failed == nil {
		failed = s.batch.append(s, l)
	}
	if s.batch.reached > l.at {
		s.moved(l, s.batch.reached, nowMS)
	}
	if failed != nil {
		s.cfg.Notice("delayed messages cannot be delivered now", "level", l.queue+1,
			"offset", s.batch.reached, "err", failed)
		return nowMS + retryAfter.Milliseconds(), false
	}
	return nextMS, nextMS == nowMS
}

// moved notes a level's new position.
func (s *Service) moved(l *level, at record.QueueOffset, nowMS int64) {
	s.passed += max(int64(at-l.at), 0)
	l.at, l.known = at, true
	l.done = slices.DeleteFunc(l.done, func(o record.QueueOffset) bool { return o < at })
	if err := s.note(l); err != nil {
		s.cfg.Notice("progress of a delay level not noted", "level", l.queue+1, "err", err)
	}
	if s.dirtyMS == 0 {
		s.dirtyMS = nowMS
	}
}

// Offsets returns the positions as delayOffset.json has them: the next message of each level.
func (s *Service) Offsets() protocol.DelayOffsetWrapper {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.version
	offsets := make(map[int32]int64, len(s.offsets))
	for level, at := range s.offsets {
		offsets[level] = at
	}
	return protocol.DelayOffsetWrapper{DataVersion: &version, OffsetTable: offsets}
}

// Text is how RocketMQ shows a level's position: it, a comma, and the end of the level's queue.
func (s *Service) Text(level int32, at int64) string {
	_, end, _ := s.cfg.Store.QueueBounds(s.topic, level-1)
	return strconv.FormatInt(at, 10) + "," + strconv.FormatInt(int64(end), 10)
}

// Close stops the delivery and writes the positions. The store must still be open. Further calls
// return the first one's error.
func (s *Service) Close() error {
	s.closed.Do(func() {
		close(s.quit)
		s.done.Wait()
		if s.saving != nil {
			s.saved(<-s.saving)
		}
		if s.dirtyMS > 0 {
			s.err = s.persist(s.snapshot(s.cfg.Now().UnixMilli()))
		}
	})
	return s.err
}
