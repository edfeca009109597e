// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"sync/atomic"

	"github.com/skylarkmq/skylark/storage/mappedfile"
)

// preparer is the goroutine that keeps work off the appender: it creates pages ahead of the cursor
// and, once a segment is half full, the next one with its first pages. The appender wakes it each
// time it has gone a step; without appends it sleeps.
type preparer struct {
	wake   chan struct{}
	tail   atomic.Pointer[segment] // what is appended to
	cursor atomic.Int64            // where, as of the last wake-up
	want   atomic.Int64            // base of the segment to create; 0: none
	ready  chan prepared           // the answer to want, at most one
}

// prepared is a new segment or why there is none.
type prepared struct {
	seg *segment
	err error
}

func (p *preparer) init() {
	p.wake = make(chan struct{}, 1)
	p.ready = make(chan prepared, 1)
}

// wakePreparer tells the preparer where the cursor is, and asks for the next segment in the second
// half of this one. Called by the appender.
func (l *Log) wakePreparer() {
	a := &l.app
	if !a.asked && a.cursor-a.tail.base >= l.size/2 {
		l.askNext(a.tail.base + l.size)
	}
	l.prepare.cursor.Store(a.cursor)
	l.prepare.kick()
	a.wakeAt = a.cursor + min(l.cfg.PopulateStep, l.size/4)
}

func (p *preparer) kick() {
	select {
	case p.wake <- struct{}{}:
	default: // it is awake and will look again
	}
}

// askNext lets the preparer create a segment. Called by the appender, which takes the answer before
// it asks again.
func (l *Log) askNext(base int64) {
	l.app.asked = true
	l.prepare.want.Store(base)
	l.prepare.kick()
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

// runPreparer is the goroutine. It ends with the log.
func (l *Log) runPreparer() {
	defer l.running.Done()
	p := &l.prepare
	for {
		select {
		case <-p.wake:
		case <-l.stop:
			return
		}
		l.populateAhead()
		if base := p.want.Swap(0); base != 0 {
			seg, err := l.create(base)
			if err != nil {
				l.cfg.Notice("next CommitLog segment could not be created", "err", err)
			}
			p.ready <- prepared{seg: seg, err: err}
		}
	}
}

// populateAhead creates the pages of the window ahead of the cursor. It looks again after each
// step, as the appender goes on meanwhile, and leaves when the next segment is wanted at once.
func (l *Log) populateAhead() {
	p := &l.prepare
	for {
		seg := p.tail.Load()
		at := int(p.cursor.Load() - seg.base)
		if at < 0 { // the tail is newer than the cursor
			at = 0
		}
		more, err := seg.file.Populate(at, at+int(l.cfg.PopulateWindow), int(l.cfg.PopulateStep))
		if err != nil {
			l.cfg.Notice("CommitLog pages are not created ahead any more", "err", err)
		}
		if !more || p.want.Load() != 0 {
			return
		}
		select {
		case <-l.stop:
			return
		default:
		}
	}
}

// create makes the segment at base, with its first pages. Its length and name are durable before it
// is used: a power loss must not leave a shorter or missing segment in front of a later one.
func (l *Log) create(base int64) (*segment, error) {
	file, err := mappedfile.Create(l.cfg.FS, l.path(base), int(l.size))
	if err != nil {
		return nil, err
	}
	if err := file.SyncAll(); err != nil {
		_ = file.Delete()
		return nil, err
	}
	for {
		more, err := file.Populate(0, int(l.cfg.PopulateWindow), int(l.cfg.PopulateStep))
		if err != nil {
			l.cfg.Notice("CommitLog pages are not created ahead any more", "err", err)
		}
		if !more {
			return &segment{base: base, file: file}, nil
		}
	}
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
