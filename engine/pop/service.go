// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"container/heap"
	"net/netip"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Store is the store as pop sees it.
type Store interface {
	Read(req *storage.ReadRequest, res *storage.ReadResult)
	QueueBounds(topic []byte, queue int32) (low, end record.QueueOffset, ok bool)
	InMemory(topic []byte, queue int32, at record.QueueOffset) bool
	AppendAll(es []storage.Entry) (stored int)
	Flushed() record.PhysicalOffset
	Flush() error
}

// Timer is what delivers the records of the revive topic when they are due.
type Timer interface {
	// DoneMS is a time in milliseconds: what was due then is delivered. Wake brings it up to now.
	DoneMS() int64
	Wake()
}

// Config connects a Service to its surroundings.
type Config struct {
	Store   Store
	Topics  *topic.Table
	Groups  *group.Configs
	Offsets *offset.Table
	Orders  *Orders
	// Wake tells that messages of a group may be had again: with -1 from any queue.
	Wake  func(topic, group string, queue int32)
	Rules *delay.Rules
	Timer Timer

	ReviveTopic  string
	ReviveQueues int32
	Broker       string
	StoreHost    netip.AddrPort
	RetryV2      bool // enableRetryTopicV2
	FromMemory   bool // initPopOffsetByCheckMsgInMem
	SyncFlush    bool // what was written must be on disk before it is answered

	Now    func() time.Time
	Notice func(msg string, kv ...any)
}

const (
	// flightsMax bounds the checkpoints in memory. Beyond it pops find nothing until some are done.
	flightsMax = 1 << 20
	// earlyMax bounds the acknowledgements that came before their checkpoint was known.
	earlyMax = 1 << 16
	// earlyKeepMS is how long after the messages were due these are still taken from clients.
	earlyKeepMS = 60_000
	// learnedGraceMS is how long after they were due the messages of a checkpoint that was read back
	// are looked at: their acknowledgements were due with them.
	learnedGraceMS = 50
	// againMS is the pause after something could not be stored or is not complete yet.
	againMS = 500
)

// ckKey identifies a checkpoint (RocketMQ's merge key, without the broker's name).
type ckKey struct {
	topic, group string
	queue        int32
	start, popMS int64
}

// flight is a checkpoint some of whose messages are out.
type flight struct {
	ck          Checkpoint
	key         ckKey
	reviveQueue int32
	acked       uint32
	copied      []int64 // messages that were copied, which the log does not say yet
	place       int64   // in the revive queue; -1: not seen there
	learned     bool    // it was read back, so acknowledgements may still be on their way
	atMS        int64   // when to look at it
	slot        int     // in the heap; -1: not in it
	done        bool
	doneAt      record.PhysicalOffset // what made it done is durable when the log is up to here
}

// full is the bit map of all messages.
func (f *flight) full() uint32 { return uint32(1<<uint(f.ck.Num) - 1) }

// Service hands out messages and takes them back.
type Service struct {
	cfg    Config
	author author

	// Guards what follows. Never held while something is stored or read.
	mu      sync.Mutex
	flights map[ckKey]*flight
	due     flightHeap
	early   map[ckKey]*earlyAcks
	queues  map[queueKey]*queue
	waiting map[*queue]bool // those with commits that wait for the disk
	revive  []reviveQueue
	closed  bool

	timerMS  int64 // Timer.DoneMS before the revive topic was read; the goroutine's
	unread   bool  // there is more in the revive topic than was read; the goroutine's
	waitedMS int64 // since when something waits for the disk; the goroutine's

	kick chan struct{}
	stop chan struct{}
	done chan struct{}
}

// earlyAcks are acknowledgements of a checkpoint that is not known. They came in front of it when it
// waits in a timer that is late, because the disk is full or the broker was down, while what was
// acknowledged after its time went straight into the revive topic.
type earlyAcks struct {
	offsets []int64
	dueMS   int64
	queue   int32 // of the revive topic, and the first place there: it is not passed over for good
	place   int64 // before the checkpoint has come; -1: they were not read there
}

type queueKey struct {
	topic, group string
	queue        int32
}

// queue is one queue as one group pops it.
type queue struct {
	key queueKey

	mu      sync.Mutex // held while messages are taken
	next    int64      // where to go on while commits wait
	commits []commit   // in order
}

// commit is an offset that may be committed when the log is durable up to at.
type commit struct {
	at   record.PhysicalOffset
	next int64
}

// New makes a service. Start begins to read the revive topic.
func New(cfg Config) *Service {
	s := &Service{
		cfg:     cfg,
		author:  author{topic: cfg.ReviveTopic, host: cfg.StoreHost, rules: cfg.Rules},
		flights: map[ckKey]*flight{}, early: map[ckKey]*earlyAcks{}, queues: map[queueKey]*queue{},
		waiting: map[*queue]bool{},
		revive:  make([]reviveQueue, cfg.ReviveQueues),
		kick:    make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	cfg.Orders.setPoke(s.wake)
	return s
}

// Start begins to take messages back.
func (s *Service) Start() {
	s.placeReaders()
	go s.run()
	s.wake()
}

// Close commits what is durable and ends the goroutine. The store is still open.
func (s *Service) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	close(s.stop)
	<-s.done
	err := s.cfg.Store.Flush()
	s.settleAll()
	s.commitRevived()
	return err
}

// Arrived is told what came into a queue of the revive topic.
func (s *Service) Arrived() { s.wake() }

// ReviveTopic names the topic of checkpoints.
func (s *Service) ReviveTopic() string { return s.cfg.ReviveTopic }

// InFlight is the number of checkpoints in memory.
func (s *Service) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights)
}

// RemoveTopic forgets what is out of a topic, which was deleted.
func (s *Service) RemoveTopic(name string) {
	s.forget(func(topic, _ string) bool { return topic == name })
	s.cfg.Orders.RemoveTopic(name)
}

func (s *Service) forget(gone func(topic, group string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		if gone(f.key.topic, f.key.group) {
			s.finishLocked(f, 0)
		}
	}
	for key := range s.queues {
		if gone(key.topic, key.group) {
			delete(s.queues, key)
		}
	}
}

func (s *Service) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run is the service's goroutine: it wakes for what is due and for what came into the revive topic.
func (s *Service) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := s.step()
		timer.Reset(wait)
		select {
		case <-s.stop:
			return
		case <-s.kick:
		case <-timer.C:
		}
	}
}

// step does what is due and returns how long nothing will be.
func (s *Service) step() time.Duration {
	s.timerMS = s.cfg.Timer.DoneMS()
	more := s.readRevive()
	s.unread = more
	for {
		f := s.nextDue()
		if f == nil {
			break
		}
		s.takeBack(f)
	}
	waiting := s.settleAll()
	waiting = s.commitRevived() || waiting
	s.flushWaiting(waiting)
	s.cfg.Orders.step(s.nowMS(), s.unblocked)
	return s.pause(more, waiting)
}

// flushWaiting has the disk take what offsets wait for, when the store's own flusher is in no hurry.
func (s *Service) flushWaiting(waiting bool) {
	now := s.nowMS()
	switch {
	case !waiting:
		s.waitedMS = 0
	case s.waitedMS == 0:
		s.waitedMS = now
	case now-s.waitedMS >= againMS:
		s.waitedMS = 0
		if err := s.cfg.Store.Flush(); err != nil {
			s.cfg.Notice("offsets of popped messages wait for the disk", "err", err)
		}
	}
}

// pause is the time until the next thing is due.
func (s *Service) pause(more, waiting bool) time.Duration {
	if more {
		return 0
	}
	now := s.nowMS()
	next := now + time.Hour.Milliseconds()
	if waiting {
		next = now + againMS
	}
	s.mu.Lock()
	if len(s.due) > 0 {
		next = min(next, s.due[0].atMS)
	}
	for key, e := range s.early {
		if s.timerMS >= e.dueMS && len(s.flights) < flightsMax { // its checkpoint was read, if there is one
			delete(s.early, key)
		}
	}
	for _, e := range s.early {
		next = min(next, max(e.dueMS, now+againMS))
		if e.dueMS <= now {
			s.cfg.Timer.Wake()
		}
	}
	s.mu.Unlock()
	if at := s.cfg.Orders.nextMS(); at > 0 {
		next = min(next, at)
	}
	return time.Duration(max(next-now, 0)) * time.Millisecond
}

// unblocked wakes who waits for a queue whose order no longer holds it.
func (s *Service) unblocked(topic, group string, queue int32) {
	s.cfg.Wake(topic, group, queue)
}

func (s *Service) nowMS() int64 { return s.cfg.Now().UnixMilli() }

// addLocked puts a checkpoint into memory; false: there is one with its key.
func (s *Service) addLocked(f *flight) bool {
	if s.flights[f.key] != nil {
		return false
	}
	s.flights[f.key] = f
	return true
}

// armLocked has a checkpoint looked at when it is due.
func (s *Service) armLocked(f *flight) {
	if e := s.early[f.key]; e != nil && !f.done {
		delete(s.early, f.key)
		for _, off := range e.offsets {
			f.mark(off)
		}
		if f.acked == f.full() {
			s.finishLocked(f, 0)
		}
	}
	if f.done {
		return
	}
	if len(s.due) == 0 || f.atMS < s.due[0].atMS {
		s.wake()
	}
	heap.Push(&s.due, f)
}

// mark notes that one message is acknowledged.
func (f *flight) mark(offset int64) {
	if i := f.ck.index(offset); i >= 0 {
		f.acked |= 1 << uint(i)
	}
}

// finishLocked takes a checkpoint out of memory; at says up to where the log must be durable before
// it counts.
func (s *Service) finishLocked(f *flight, at record.PhysicalOffset) {
	if f.done {
		return
	}
	f.done, f.doneAt = true, at
	delete(s.flights, f.key)
	if f.slot >= 0 {
		heap.Remove(&s.due, f.slot)
	}
}

// markLocked notes acknowledgements.
func (s *Service) markLocked(key ckKey, offsets []int64, at record.PhysicalOffset) (known bool) {
	f := s.flights[key]
	if f == nil {
		return false
	}
	for _, off := range offsets {
		f.mark(off)
	}
	if f.acked == f.full() && len(f.copied) == 0 {
		s.finishLocked(f, at)
	}
	return true
}

// nextDue takes the next checkpoint that is due out of the heap; it stays in the table.
func (s *Service) nextDue() *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 || s.due[0].atMS > s.nowMS() {
		return nil
	}
	select {
	case <-s.stop:
		return nil
	default:
	}
	return heap.Pop(&s.due).(*flight)
}

// later puts a checkpoint back into the heap.
func (s *Service) later(f *flight, ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.done {
		f.atMS = s.nowMS() + ms
		heap.Push(&s.due, f)
	}
}

// flightHeap has the earliest first, and tells each its slot.
type flightHeap []*flight

func (h flightHeap) Len() int           { return len(h) }
func (h flightHeap) Less(i, j int) bool { return h[i].atMS < h[j].atMS }
func (h flightHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

// Push implements heap.Interface.
func (h *flightHeap) Push(x any) {
	f := x.(*flight)
	f.slot = len(*h)
	*h = append(*h, f)
}

// Pop implements heap.Interface.
func (h *flightHeap) Pop() any {
	old := *h
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	f.slot = -1
	return f
}

// release gives regions back.
func release(rs []zerocopy.Region) {
	for i := range rs {
		rs[i].Release()
	}
}

// retryConfig makes sure that a retry topic exists and that its group begins at its start.
func (s *Service) retryConfig(name, groupName string) error {
	if _, ok := s.cfg.Topics.Find(name); ok {
		return nil
	}
	const readWrite = protocol.PermRead | protocol.PermWrite
	if _, err := s.cfg.Topics.CreateRetry(name, 1, readWrite, false, false); err != nil {
		return err
	}
	if _, ok := s.cfg.Offsets.Committed([]byte(groupName), []byte(name), 0); !ok {
		s.cfg.Offsets.Commit([]byte(groupName), []byte(name), 0, 0)
	}
	return nil
}
