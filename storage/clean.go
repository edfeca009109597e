// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/storage/commitlog"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// manualRuns is how many runs DeleteExpired asks for (RocketMQ CleanCommitLogService).
const manualRuns = 20

// Retention says when files of the log are deleted. Names in brackets are RocketMQ's.
type Retention struct {
	// Keep is how long a file stays after it was last written to (fileReservedTime).
	Keep time.Duration
	// Hours are those of the day, local time, in which files older than that go (deleteWhen).
	Hours []int
	// MaxUsedRatio is the used share of the disk, in percent, from which on they go at any time
	// (diskMaxUsedSpaceRatio).
	MaxUsedRatio int
	// Forcibly deletes younger files too when the disk is used above Config.DiskFreeRatio
	// (cleanFileForciblyEnable).
	Forcibly bool
	// Every is the time between two looks (cleanResourceInterval).
	Every time.Duration
	// Pause lies between two deletions, so that the file system's work does not hold up appends
	// (deleteCommitLogFilesInterval); Batch is how many files one look deletes
	// (deleteFileBatchMax).
	Pause time.Duration
	Batch int
	// Unread, when set, is asked before each file goes: upTo is where the file ends. True keeps it, and
	// those behind it. It is called by the cleaner and may wait for the disk.
	Unread func(upTo record.PhysicalOffset) (keep bool)
}

// DefaultRetention returns RocketMQ's defaults.
func DefaultRetention() Retention {
	return Retention{
		Keep: 72 * time.Hour, Hours: []int{4}, MaxUsedRatio: 75, Forcibly: true,
		Every: 10 * time.Second, Pause: 100 * time.Millisecond, Batch: 10,
	}
}

// ParseHours reads the hours of a day as deleteWhen has them: numbers from 0 to 23 between
// semicolons.
func ParseHours(text string) ([]int, error) {
	var hours []int
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 23 {
			return nil, fmt.Errorf("storage: deleteWhen %q: %q is no hour from 00 to 23", text, part)
		}
		hours = append(hours, n)
	}
	return hours, nil
}

// cleaner deletes old files of the log, and then what queues and index have of them. It wakes every
// Retention.Every while the log has more than one file; a store with one file has nothing to delete.
type cleaner struct {
	store  *Store
	awake  atomic.Bool
	manual atomic.Int32 // runs that an operator asked for
	kick   chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup

	// Confined to its goroutine.
	cleaned record.PhysicalOffset // queues and index were cleaned up to here
	clock   clockJump
}

func newCleaner(s *Store) *cleaner {
	return &cleaner{
		store: s, kick: make(chan struct{}, 1), quit: make(chan struct{}),
		clock: clockJump{steady: s.cfg.Steady},
	}
}

func (c *cleaner) start() {
	c.cleaned = c.store.log.Min()
	c.clock.look(c.store.cfg.Now())
	c.done.Go(c.run)
}

func (c *cleaner) close() {
	close(c.quit)
	c.done.Wait()
}

// wake has the cleaner look from now on. Cost while it is awake: one load.
func (c *cleaner) wake() {
	if !c.awake.Load() && c.awake.CompareAndSwap(false, true) {
		signal(c.kick)
	}
}

func (c *cleaner) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		select {
		case <-c.quit:
			return
		case <-c.kick:
		}
		for more := true; more; {
			timer.Reset(c.store.cfg.Retention.Every)
			if c.manual.Load() == manualRuns {
				timer.Reset(0) // the operator's was the kick that woke it
			}
			select {
			case <-c.quit:
				return
			case <-c.kick: // an operator does not want to wait
			case <-timer.C:
			}
			c.awake.Store(false)
			if more = c.look(c.store.cfg.Now()); more {
				c.awake.Store(true)
			}
		}
	}
}

// look deletes what is due and reports whether there is something left to look after.
func (c *cleaner) look(now time.Time) (more bool) {
	s := c.store
	defer func(old bool) {
		debug.SetPanicOnFault(old)
		if fault := vfs.Fault(recover()); fault != nil {
			s.cfg.Notice("old files not deleted, a queue cannot be read", "err", fault)
			more = true
		}
	}(debug.SetPanicOnFault(true))
	why, atOnce := c.due(now)
	if why != "" {
		c.deleteFront(now, why, atOnce)
	}
	if low := s.log.Min(); low > c.cleaned && c.settled() && c.follow(low) {
		c.cleaned = low
	}
	return s.log.Min() > c.cleaned || s.log.Wrote()-s.log.Min() > record.PhysicalOffset(s.cfg.SegmentSize)
}

// settled makes what was deleted of the log durable before queues and index follow: if a power loss
// brought it back they would hide it.
func (c *cleaner) settled() bool {
	if err := c.store.log.SettleFront(); err != nil {
		c.store.cfg.Notice("deletion of old files of the log is not on disk yet", "err", err)
		return false
	}
	return true
}

// due says why files may be deleted now, "" if they may not, and whether that concerns young ones
// too.
func (c *cleaner) due(now time.Time) (why string, atOnce bool) {
	s, r := c.store, &c.store.cfg.Retention
	s.lookAtDisk()
	used := int(s.diskPercent.Load())
	jumped, believe := c.clock.look(now)
	if jumped > 0 {
		s.cfg.Notice("clock was set forward, old files are kept for a day unless the disk fills",
			"by", jumped.Round(time.Second).String())
	}
	switch {
	case used > s.cfg.DiskFreeRatio:
		return "disk is used above diskSpaceCleanForciblyRatio", r.Forcibly
	case c.takeManual():
		return "an operator asked for it", false
	case !believe:
		return "", false
	case used > r.MaxUsedRatio:
		return "disk is used above diskMaxUsedSpaceRatio", false
	case slices.Contains(r.Hours, now.Local().Hour()):
		return "the hour of deleteWhen", false
	}
	return "", false
}

func (c *cleaner) takeManual() bool {
	if c.manual.Load() <= 0 {
		return false
	}
	c.manual.Add(-1)
	return true
}

// deleteFront deletes files of the log from the oldest on, as long as they are due.
func (c *cleaner) deleteFront(now time.Time, why string, atOnce bool) {
	s, r := c.store, &c.store.cfg.Retention
	segments := s.log.Segments()
	deleted := 0
	for i := 0; i < len(segments)-1 && deleted < r.Batch; i++ {
		if deleted > 0 && !c.pause() {
			return
		}
		age, ok := c.age(now, segments[i])
		if !ok || age < r.Keep && !atOnce {
			break
		}
		if r.Unread != nil && r.Unread(segments[i+1].Base) {
			break
		}
		if !s.queuesOnDisk(segments[i+1].Base) {
			break
		}
		n, err := s.log.DeleteFront(segments[i+1].Base)
		if err != nil {
			s.cfg.Notice("old file of the log not deleted", "path", segments[i].Path, "err", err)
			return
		}
		if n == 0 {
			break // not flushed yet
		}
		deleted += n
		s.cfg.Notice("old file of the log deleted", "path", segments[i].Path, "reason", why,
			"age", age.Round(time.Second).String())
		if atOnce && c.roomAgain() {
			break
		}
	}
}

// queuesOnDisk reports whether the units of all records before an offset are on disk, and flushes the
// queues if not. A queue whose records are gone has nothing but its units to tell how far it went: if
// a power loss took them, its next message would get an offset that consumers are past.
func (s *Store) queuesOnDisk(upTo record.PhysicalOffset) bool {
	vouched := func() bool {
		s.checkpointMu.Lock()
		defer s.checkpointMu.Unlock()
		return s.checkpoint.LogicsAt >= upTo
	}
	if !vouched() {
		s.flushQueues()
	}
	return vouched()
}

// roomAgain reports whether the disk has so much space that young files may stay.
func (c *cleaner) roomAgain() bool {
	c.store.lookAtDisk()
	return int(c.store.diskPercent.Load()) <= c.store.cfg.DiskFreeRatio
}

// pause waits between two deletions; false when the store closes.
func (c *cleaner) pause() bool {
	timer := time.NewTimer(c.store.cfg.Retention.Pause)
	defer timer.Stop()
	select {
	case <-c.quit:
		return false
	case <-timer.C:
		return true
	}
}

// age is the time since a file was last written to, by the file system's clock.
func (c *cleaner) age(now time.Time, seg commitlog.SegmentInfo) (time.Duration, bool) {
	info, err := os.Stat(seg.Path)
	if err != nil {
		return 0, false
	}
	return now.Sub(info.ModTime()), true
}

// follow deletes what queues and index have of the log below low, and reports whether that was all.
func (c *cleaner) follow(low record.PhysicalOffset) (all bool) {
	s := c.store
	all = true
	for _, q := range s.allQueues() {
		select {
		case <-c.quit:
			return false
		default:
		}
		done, err := q.DeleteBelow(low)
		if err != nil {
			s.cfg.Notice("old file of a queue not deleted", "err", err)
		}
		all = all && done
	}
	if s.indexer != nil {
		if _, err := s.indexer.index.DeleteBelow(low); err != nil {
			s.cfg.Notice("old index file not deleted", "err", err)
			return false
		}
	}
	return all
}

// DeleteExpired has files that are older than Retention.Keep deleted soon, whatever the hour
// (RocketMQ executeDeleteFilesManually). It does not wait.
func (s *Store) DeleteExpired() {
	s.cleaner.manual.Store(manualRuns)
	s.cleaner.awake.Store(true)
	signal(s.cleaner.kick)
}

// CleanQueues deletes at once the files of queues and index whose messages the log no longer has. It
// blocks for the disk.
func (s *Store) CleanQueues() (err error) {
	defer faulted(debug.SetPanicOnFault(true), &err)
	low := s.log.Min()
	for _, q := range s.allQueues() {
		if _, err := q.DeleteBelow(low); err != nil {
			return err
		}
	}
	return nil
}
