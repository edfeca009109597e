// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/storage/mappedfile"
)

// preparer is two goroutines that keep work off the appender. One creates pages ahead of the cursor;
// the appender wakes it each time it has gone a step. The other creates the next segment, with its
// first pages, once this one is half full; it may wait long for the disk, and the pages must not.
// Without appends both sleep.
type preparer struct {
	wake   chan struct{}
	tail   atomic.Pointer[segment] // what is appended to
	cursor atomic.Int64            // where, as of the last wake-up
	want   chan int64              // base of the segment to create, at most one
	ready  chan prepared           // the answer to want, at most one
	pace   pace
}

// prepared is a new segment or why there is none.
type prepared struct {
	seg *segment
	err error
}

func (p *preparer) init() {
	p.wake = make(chan struct{}, 1)
	p.want = make(chan int64, 1)
	p.ready = make(chan prepared, 1)
}

// wakePreparer tells the populator where the cursor is, and asks for the next segment in the second
// half of this one. Called by the appender.
func (l *Log) wakePreparer() {
	a := &l.app
	if !a.asked && a.cursor-a.tail.base >= l.size/2 {
		l.askNext(a.tail.base + l.size)
	}
	l.chooseBulk()
	l.prepare.cursor.Store(a.cursor)
	notify(l.prepare.wake)
	a.wakeAt = a.cursor + l.step()
}

// step is how far the appender goes between two wake-ups of the populator.
func (l *Log) step() int64 { return min(l.cfg.PopulateStep, l.size/4) }

// askNext lets a segment be created. Called by the appender, which takes the answer before it asks
// again, so that this never waits.
func (l *Log) askNext(base int64) {
	l.app.asked = true
	l.prepare.want <- base
}

// takeNext returns the segment at base, waiting until it is there. The error of an earlier try is
// not returned: the disk may have room again.
func (l *Log) takeNext(base int64) (*segment, error) {
	a := &l.app
	fresh := !a.asked
	for {
		if !a.asked {
			l.askNext(base)
		}
		var got prepared
		select {
		case got = <-l.prepare.ready:
		case <-l.stop:
			return nil, ErrClosed
		}
		a.asked = false
		if got.err == nil || fresh {
			return got.seg, got.err
		}
		fresh = true
	}
}

// runPopulator is the first goroutine. It ends with the log.
func (l *Log) runPopulator() {
	defer l.running.Done()
	for {
		select {
		case <-l.prepare.wake:
			l.prepare.pace.wake(time.Now())
			l.populateAhead()
		case <-l.stop:
			return
		}
	}
}

// createNoticeEvery is how often a failure to make the next segment is told while it lasts: each send
// tries again, and a full disk is no place for a line of log each.
const createNoticeEvery = time.Minute

// runCreator is the second goroutine. It ends with the log.
func (l *Log) runCreator() {
	defer l.running.Done()
	var told time.Time // when the last failure was told; zero: none since the last success
	for {
		select {
		case base := <-l.prepare.want:
			seg, err := l.create(base)
			switch {
			case err == nil:
				told = time.Time{}
				if l.stage != nil {
					l.prewrite(seg, 0)
				}
			case told.IsZero() || time.Since(told) >= createNoticeEvery:
				told = time.Now()
				l.cfg.Notice("next CommitLog segment could not be created", "err", err)
			}
			l.prepare.ready <- prepared{seg: seg, err: err}
		case <-l.stop:
			return
		}
	}
}

// populateAhead creates the pages of the window ahead of the cursor. It looks again after each
// step, as the appender goes on meanwhile. In bulk the writes make the pages.
func (l *Log) populateAhead() {
	p := &l.prepare
	if l.stage != nil { // nothing is stored into the mapping; each flush would write the pages' zeros
		seg := p.tail.Load()
		l.prewrite(seg, p.cursor.Load()-seg.base)
		return
	}
	for !l.app.bulk.on.Load() {
		seg := p.tail.Load()
		at := int(p.cursor.Load() - seg.base)
		if at < 0 { // the tail is newer than the cursor
			at = 0
		}
		if !l.populateStep(seg, at) {
			return
		}
		select {
		case <-l.stop:
			return
		default:
		}
	}
}

// slowStep is the least time in which a writer goes a step that is populated gently: at 64 MB/s that
// takes 6 % of a processor. Faster writers pay for the waits of populating at once with less than the
// gentle way costs them; see mappedfile.File.PopulateGently.
const slowStep = 16 * time.Millisecond

// pace is how fast the writer is. Confined to the populator.
type pace struct {
	woken time.Time
	slow  bool // the writer took his time for the last step
}

// wake notes that the writer has gone another step.
func (p *pace) wake(now time.Time) {
	p.slow = now.Sub(p.woken) >= slowStep
	p.woken = now
}

// populateStep creates the pages of one step of the window at a place of the tail, and reports whether more
// is left to do.
func (l *Log) populateStep(seg *segment, at int) (more bool) {
	populate := seg.file.Populate
	if l.prepare.pace.slow {
		populate = seg.file.PopulateGently
	}
	more, err := populate(at, at+int(l.cfg.PopulateWindow), int(l.cfg.PopulateStep))
	if err != nil {
		l.cfg.Notice("CommitLog pages are not created ahead any more", "err", err)
	}
	return more
}

// createIn makes the segment at base in a directory, with its first pages. Its length and name are durable before it
// is used: a power loss must not leave a shorter or missing segment in front of a later one.
func (l *Log) createIn(dir string, base int64) (*segment, error) {
	path := filepath.Join(dir, fileName(base))
	file, err := mappedfile.Create(l.cfg.FS, path, int(l.size))
	if err != nil {
		return nil, err
	}
	if err := file.SyncAll(); err != nil {
		_ = file.Delete()
		return nil, err
	}
	for l.stage == nil && !l.app.bulk.on.Load() {
		more, err := file.PopulateGently(0, int(l.cfg.PopulateWindow), int(l.cfg.PopulateStep))
		if err != nil {
			l.cfg.Notice("CommitLog pages are not created ahead any more", "err", err)
		}
		if !more {
			break
		}
	}
	return &segment{base: base, file: file}, nil
}

// dropPrepared deletes the segment that was created and not used, as RocketMQ does.
func (l *Log) dropPrepared() error {
	select {
	case got := <-l.prepare.ready:
		if got.seg != nil {
			return got.seg.file.Delete()
		}
	default:
	}
	return nil
}
