// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"time"
)

// pauseMost bounds a pause, so that the end of a run is seen in time.
const pauseMost = 5 * time.Millisecond

// loop sends until the run stops, making the connection anew when it fails. The first connection
// exists. It returns when nothing is in flight any more, or nothing more is to be waited for.
func (s *sender) loop(ctx context.Context) {
	wait := redialFirst
	for {
		var err error
		before := s.run.sent.Load()
		if s.run.cfg.Rate > 0 {
			err = s.paced()
		} else {
			err = s.closed(ctx)
		}
		s.disconnect(err)
		if err == nil || s.run.stop.Load() {
			s.failUnsent()
			return
		}
		if s.run.sent.Load() > before {
			wait = redialFirst
		}
		for {
			if !s.sleep(ctx, wait) {
				s.failUnsent()
				return
			}
			wait = min(2*wait, redialMost)
			if s.connect(ctx) == nil {
				break
			}
		}
	}
}

// failUnsent counts what came due in the window and could not be sent any more.
func (s *sender) failUnsent() {
	if s.run.cfg.Rate == 0 || s.run.cfg.Count > 0 {
		return
	}
	n := int64(0)
	for due := s.sched.due(); s.run.window.holds(due); due = s.sched.due() {
		n += int64(s.run.cfg.Batch)
		s.sched.next++
	}
	s.rec.Begin()
	s.rec.UnansweredLocked("due and not sent", n)
	s.rec.End()
}

// sleep waits; false when the run stops meanwhile.
func (s *sender) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !s.run.stop.Load()
	case <-ctx.Done():
		return false
	}
}

// closed keeps InFlight requests without an answer: one write for as many as one read settled.
// nil means that the run stopped and everything was answered.
func (s *sender) closed(ctx context.Context) error {
	for {
		now := s.run.clock.Now()
		for s.inFlight.Load() < int64(s.run.cfg.InFlight) {
			if s.run.stop.Load() || !s.permit() {
				break
			}
			s.queue(now, now)
		}
		if s.inFlight.Load() == 0 {
			return nil
		}
		if err := s.write(); err != nil {
			return err
		}
		if err := s.read(); err != nil {
			return err
		}
		if s.answeredN > 0 && s.refusedN == s.answeredN {
			// A broker that refuses everything is not to be hammered.
			s.sleep(ctx, redialFirst)
		}
	}
}

// paced sends at the due moments of the schedule while a second goroutine reads answers.
func (s *sender) paced() error {
	failed := make(chan error, 1) // the reader's outcome; read once it has ended
	ended := make(chan struct{})  // closed when the writer sends no more
	go func() {
		var err error
		for err == nil {
			err = s.read()
			if s.drained(ended) {
				err = nil
				break
			}
		}
		failed <- err
	}()
	err := s.pacedWrites(failed)
	close(ended)
	if err != nil {
		_ = s.conn.Close() // ends the reader, which may have failed already
		return errors.Join(err, <-failed)
	}
	if s.inFlight.Load() == 0 {
		_ = s.conn.Close() // nothing will come: do not let the reader wait for its deadline
	}
	if err := <-failed; s.inFlight.Load() > 0 {
		return err
	}
	return nil
}

// drained reports whether the writer is through and every answer is there.
func (s *sender) drained(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return s.inFlight.Load() == 0
	default:
		return false
	}
}

// pacedWrites returns nil when the run stops, an error when the connection is of no more use.
func (s *sender) pacedWrites(failed chan error) error {
	full := int64(len(s.slots) - 1)
	for {
		select {
		case err := <-failed:
			failed <- err // for paced
			return err
		default:
		}
		now := s.run.clock.Now()
		due := s.sched.due()
		if s.run.stop.Load() && !s.run.window.holds(due) {
			return nil
		}
		for due <= now && len(s.out) < writeBuffer && s.inFlight.Load() < full {
			if !s.permit() {
				break
			}
			s.queue(due, now)
			s.sched.next++
			due = s.sched.due()
		}
		if len(s.out) > 0 {
			if err := s.write(); err != nil {
				return err
			}
			continue
		}
		if s.run.cfg.Count > 0 && s.run.budget.Load() < int64(s.run.cfg.Batch) {
			return nil
		}
		pause(min(max(time.Duration(due-now), 20*time.Microsecond), pauseMost))
	}
}
