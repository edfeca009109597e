// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

// Periods of a group's look at what no socket tells it.
const (
	lookEvery   = 20 * time.Millisecond // whether the run has stopped, at the latest
	lookDialing = 2 * time.Millisecond  // the same while a connection is being made
)

// group drives many connections from one goroutine: it waits for all of them at once, reads the
// answers of those that are ready, and then gives each as many new requests as it has room for, in one
// write. A goroutine for each connection costs a wake-up and a read that finds nothing for
// each answer when a connection has one request in flight.
type group struct {
	run     *producer
	poll    poller
	senders []*sender
	rec     *measure.Recorder
	command remoting.Command // scratch
	buf     []byte           // what was read last, over all connections
	ready   []*sender        // with answers read since the last flush
	due     dueHeap          // at a fixed rate: connected senders with room, by due moment
	sent    int64            // messages not yet added to the run's counter
	waiting int64            // requests without an answer
	backlog atomic.Int64     // the same, and what is due and not sent, for whoever reports

	dialled  chan dialled // results of attempts to connect
	dialling int
	live     int   // senders that are not over
	lookAt   int64 // moment of the next look
	silentAt int64 // moment of the next search for requests that wait for too long
}

type dialled struct {
	sender *sender
	conn   *net.TCPConn // nil: it failed
}

func newGroup(p *producer, senders []*sender) (*group, error) {
	poll, err := newPoller(p.cfg.Driver)
	if err != nil {
		return nil, err
	}
	g := &group{
		run: p, poll: poll, senders: senders, rec: measure.NewRecorder(&p.gate),
		buf: make([]byte, readBuffer), dialled: make(chan dialled, len(senders)), live: len(senders),
	}
	for i, s := range senders {
		s.group, s.tag = g, int32(i)
	}
	return g, nil
}

// alone reports whether one goroutine does all the work of the group.
func (g *group) alone() bool {
	_, portable := g.poll.(*netPoller)
	return !portable
}

// connect makes all connections.
func (g *group) connect(ctx context.Context) error {
	for _, s := range g.senders {
		conn, err := dialBroker(ctx, s.addr)
		if err != nil {
			return err
		}
		sock, err := g.poll.adopt(conn, s.tag)
		if err != nil {
			return err
		}
		s.connected(sock)
	}
	return nil
}

// close ends what is left of connections and the poller.
func (g *group) close() {
	g.rec.Begin()
	for _, s := range g.senders {
		s.disconnectLocked(nil)
	}
	g.rec.End()
	for ; g.dialling > 0; g.dialling-- {
		if d := <-g.dialled; d.conn != nil {
			_ = d.conn.Close()
		}
	}
	g.poll.close()
}

// loop sends until the run stops, making connections anew when they fail. It returns when nothing is
// in flight any more, or nothing more is to be waited for. An error means that waiting failed.
func (g *group) loop(ctx context.Context) error {
	if g.run.cfg.paced() {
		defer preciseTimers()()
	}
	g.begin()
	for g.live > 0 {
		now := g.run.clock.Now()
		if now >= g.lookAt {
			g.look(ctx, now)
		}
		if g.run.cfg.paced() {
			g.pace(now)
		}
		events, err := g.poll.wait(g.patience())
		if err != nil {
			return err
		}
		if len(events) > 0 {
			g.handle(events)
		}
	}
	g.count()
	return nil
}

// begin gives every connection its first requests.
func (g *group) begin() {
	now := g.run.clock.Now()
	for _, s := range g.senders {
		g.proceed(s, now)
	}
	g.count()
}

// patience is how long the next wait may take.
func (g *group) patience() time.Duration {
	now := g.run.clock.Now()
	until := g.lookAt
	if s := g.due.first(); s != nil {
		until = min(until, s.sched.due())
	}
	return time.Duration(until - now)
}

// handle reads what is ready and answers it with new requests.
func (g *group) handle(events []event) {
	open := g.rec.Begin()
	g.ready = g.ready[:0]
	for _, e := range events {
		s := g.senders[e.tag]
		if s.sock == nil {
			continue // an event from before its end
		}
		var err error
		if e.readable {
			err = g.readLocked(s, open)
		}
		if err != nil {
			g.failLocked(s, err)
			continue
		}
		g.ready = append(g.ready, s)
	}
	g.rec.End()
	now := g.run.clock.Now()
	for _, s := range g.ready {
		if s.answered > 0 && s.refused == s.answered {
			// A broker that refuses everything is not to be hammered.
			s.quietTo = now + int64(redialFirst)
		}
		s.answered, s.refused = 0, 0
		if g.run.cfg.paced() {
			g.again(s, now)
			g.flush(s)
			g.enqueue(s)
			g.through(s)
			continue
		}
		g.refill(s, now)
	}
	g.count()
}

// readLocked reads once and settles every whole answer.
func (g *group) readLocked(s *sender, open bool) error {
	had := copy(g.buf, s.rest)
	n, err := s.sock.read(g.buf[had:])
	if errors.Is(err, errAgain) {
		return nil
	}
	if err != nil {
		return err
	}
	now := g.run.clock.Now()
	s.redial = redialFirst
	b := g.buf[:had+n]
	for len(b) >= 4 {
		total, err := remoting.FrameSize(b, frameMax)
		if err != nil {
			return err
		}
		if total > len(b) {
			if total > len(g.buf) {
				g.buf = append(g.buf, make([]byte, total)...)
			}
			break
		}
		if err := s.settleLocked(b[4:total], now, open); err != nil {
			return err
		}
		b = b[total:]
	}
	s.rest = append(s.rest[:0], b...)
	return nil
}

// refill gives a connection of a closed loop as many requests as it may have, in one write.
func (g *group) refill(s *sender, now int64) {
	if s.sock == nil {
		return
	}
	g.again(s, now)
	if !s.finished && len(s.out) == 0 && s.quietTo <= now {
		for !s.full() {
			if g.run.stopped.Load() || !s.permit() {
				s.finished = true
				break
			}
			s.queue(now, now)
		}
	}
	g.flush(s)
	g.through(s)
}

// again queues what is to be sent again, as far as there is room.
func (g *group) again(s *sender, now int64) {
	if s.sock == nil || s.quietTo > now || g.run.stopped.Load() {
		return
	}
	for len(s.again) > 0 && s.inFlight < s.room && len(s.out) < writeBuffer {
		s.queueAgain(now)
	}
}

func (g *group) flush(s *sender) {
	if len(s.out) == 0 || s.sock == nil {
		return
	}
	if err := s.flush(); err != nil {
		g.fail(s, err)
	}
}

// through ends a sender that has nothing to do any more.
func (g *group) through(s *sender) {
	if !s.finished || s.inFlight > 0 || s.sock == nil {
		return
	}
	if len(s.again) > 0 && !g.run.stopped.Load() {
		return
	}
	g.rec.Begin()
	s.disconnectLocked(nil)
	s.giveUpLocked()
	g.rec.End()
	g.end(s)
}

// end takes a sender out of the loop.
func (g *group) end(s *sender) {
	s.finished = true
	if !s.over {
		s.over = true
		g.live--
	}
}

func (g *group) fail(s *sender, err error) {
	g.rec.Begin()
	g.failLocked(s, err)
	g.rec.End()
}

// failLocked ends a connection that is of no more use and has it made anew, unless the run is over.
func (g *group) failLocked(s *sender, err error) {
	g.due.remove(s)
	s.disconnectLocked(err)
	if s.finished && len(s.again) == 0 || g.run.stopped.Load() {
		s.giveUpLocked()
		g.failUnsentLocked(s)
		g.end(s)
		return
	}
	if s.sentLife > 0 {
		s.redial = redialFirst
	}
	s.redialAt = g.run.clock.Now() + int64(s.redial)
	s.redial = min(2*s.redial, redialMost)
}

// failUnsentLocked counts what came due in the window and could not be sent any more.
func (g *group) failUnsentLocked(s *sender) {
	if !g.run.cfg.paced() || g.run.cfg.Count > 0 {
		return
	}
	n := int64(0)
	for due := s.sched.due(); g.run.window.holds(due); due = s.sched.due() {
		n += int64(g.run.cfg.Batch)
		s.sched.next++
	}
	g.rec.UnansweredLocked("due and not sent", n)
}

// look does what no socket asks for: it ends senders once the run has stopped, makes connections
// anew, lets senders go on that were told to be quiet, and gives up on answers that do not come.
func (g *group) look(ctx context.Context, now int64) {
	stopped := g.run.stopped.Load()
	timeouts := now >= g.silentAt
	if timeouts {
		g.silentAt = now + int64(g.run.cfg.Timeout)/4
	}
	for ; g.dialling > 0; g.dialling-- {
		select {
		case d := <-g.dialled:
			g.redialled(d, now)
			continue
		default:
		}
		break
	}
	late := int64(0)
	for _, s := range g.senders {
		if g.run.cfg.paced() && !stopped {
			late += s.sched.late(now)
		}
		switch {
		case s.over:
		case s.sock == nil:
			g.lookAtMissing(ctx, s, now, stopped)
		case timeouts && s.silent(now):
			g.fail(s, errSilent)
		case stopped && (!g.run.cfg.paced() || !g.run.window.holds(s.sched.due())):
			s.finished = true
			g.through(s)
		case s.quietTo > 0 && s.quietTo <= now:
			s.quietTo = 0
			g.proceed(s, now)
		}
	}
	if g.run.cfg.paced() {
		g.backlog.Store(g.waiting + late)
	}
	g.lookAt = now + int64(lookEvery)
	if g.dialling > 0 {
		g.lookAt = now + int64(lookDialing)
	}
}

func (g *group) lookAtMissing(ctx context.Context, s *sender, now int64, stopped bool) {
	switch {
	case stopped:
		g.rec.Begin()
		s.giveUpLocked()
		g.failUnsentLocked(s)
		g.rec.End()
		g.end(s)
	case now >= s.redialAt && !s.dialling:
		s.dialling = true
		g.dialling++
		go func() {
			conn, err := dialBroker(ctx, s.addr)
			if err != nil {
				conn = nil
			}
			g.dialled <- dialled{sender: s, conn: conn} // has room for all senders
		}()
	}
}

// redialled takes the outcome of an attempt to connect.
func (g *group) redialled(d dialled, now int64) {
	s := d.sender
	s.dialling = false
	var sock socket
	var err error
	if d.conn != nil {
		sock, err = g.poll.adopt(d.conn, s.tag)
	}
	switch {
	case sock == nil || err != nil:
		s.redialAt = now + int64(s.redial)
		s.redial = min(2*s.redial, redialMost)
	case s.over:
		sock.close()
	default:
		s.connected(sock)
		g.proceed(s, now)
	}
}

// proceed has a connection send what it may.
func (g *group) proceed(s *sender, now int64) {
	if g.run.cfg.paced() {
		g.again(s, now)
		g.flush(s)
		g.enqueue(s)
		return
	}
	g.refill(s, now)
}

// count adds what was sent to the run's counter, and tells how much waits.
func (g *group) count() {
	if g.sent > 0 {
		g.run.sent.Add(g.sent)
		g.sent = 0
	}
	if !g.run.cfg.paced() {
		g.backlog.Store(g.waiting)
	}
}

// pace sends what has come due.
func (g *group) pace(now int64) {
	for {
		s := g.due.first()
		if s == nil || s.sched.due() > now {
			break
		}
		stopped := g.run.stopped.Load()
		for due := s.sched.due(); due <= now; due = s.sched.due() {
			if stopped && !g.run.window.holds(due) || !s.permit() {
				s.finished = true
				break
			}
			s.queue(due, now)
			s.sched.next++
			if s.full() || len(s.out) >= writeBuffer {
				break
			}
		}
		g.due.remove(s)
		g.flush(s)
		g.enqueue(s)
		g.through(s)
	}
	g.count()
}

// enqueue puts a sender that could send into the heap of due moments.
func (g *group) enqueue(s *sender) {
	if s.queued || s.finished || s.sock == nil || len(s.out) > 0 || s.full() {
		return
	}
	if due := s.sched.due(); due != math.MaxInt64 {
		g.due.push(s)
	}
}
