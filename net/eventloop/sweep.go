// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"math"
	"time"
)

// sweepParts is how many sweeps fall into the shorter of the two timeouts: a timeout takes effect
// up to one such part late.
const sweepParts = 8

// sweeper closes idle connections of one loop. Instead of asking for the time with every event, a
// connection notes the number of the current sweep, and a timeout is a number of sweeps. The timer
// runs only while the loop has connections. All but the timer's own call happens on the loop.
type sweeper struct {
	every  time.Duration // 0: no timeouts
	idle   uint32        // sweeps without traffic after which a connection is closed
	frame  uint32        // sweeps after which an unfinished frame closes it
	timer  *time.Timer
	active bool
}

func (s *sweeper) init(l *Loop) {
	cfg := &l.srv.cfg
	shortest := time.Duration(math.MaxInt64)
	for _, d := range []time.Duration{cfg.IdleTimeout, cfg.FrameTimeout} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	if shortest == math.MaxInt64 {
		return
	}
	s.every = max(shortest/sweepParts, time.Millisecond)
	sweeps := func(d time.Duration) uint32 {
		if d <= 0 {
			return math.MaxUint32
		}
		return uint32(min((d+s.every-1)/s.every+1, math.MaxUint32/2))
	}
	s.idle, s.frame = sweeps(cfg.IdleTimeout), sweeps(cfg.FrameTimeout)
}

// start is called for each new connection.
func (s *sweeper) start() {
	if !s.active && s.timer != nil {
		s.active = true
		s.timer.Reset(s.every)
	}
}

// arm creates the timer, stopped, once the loop can be posted to.
func (s *sweeper) arm(l *Loop) {
	if s.every == 0 {
		return
	}
	s.timer = time.AfterFunc(math.MaxInt64, func() { l.do((*Loop).sweep) })
	s.timer.Stop()
}

// sweep closes what has been idle or unfinished for too long.
func (l *Loop) sweep() {
	l.tick++
	s := &l.sweeper
	for i := range l.slots {
		c := l.slots[i].conn
		switch {
		case c == nil || c.doomed:
		case len(c.acc) > 0 && !c.stopped && l.tick-c.frameAt >= s.frame:
			l.refuse(c, "connection closed: frame not completed in time", ErrFrameTimeout)
		case l.tick-c.idleAt >= s.idle && c.busy:
			l.tooSlow(c)
		case l.tick-c.idleAt >= s.idle:
			l.srv.idleClosed.Add(1)
			c.CloseWith(ErrIdle)
		}
	}
	l.bufs.trim()
	s.active = l.open.Load() > 0
	if s.active && !l.draining {
		s.timer.Reset(s.every)
	}
}
