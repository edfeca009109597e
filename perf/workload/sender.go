// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

const (
	readBuffer  = 64 << 10
	writeBuffer = 256 << 10 // a write is cut here, so that answers are read meanwhile
	slotsMin    = 1 << 10
	openSlots   = 1 << 16 // requests without an answer of one connection at a fixed rate
	redialFirst = 100 * time.Millisecond
	redialMost  = time.Second
)

var (
	errSilent = errors.New("no answer in time")
	errAlien  = errors.New("answer to nothing that was asked")
)

// slot remembers one request without an answer. The writer fills it and then sets busy; the reader
// clears busy when it is through with it.
type slot struct {
	busy   atomic.Uint32
	target int32
	from   int64  // the moment latency counts from
	number uint64 // of the first message, when numbered
}

// producer is one producing run.
type producer struct {
	cfg     *Produce
	clock   measure.Clock
	gate    measure.Gate
	window  window
	streams streams
	body    payload
	tags    int // templates for each target

	stop   atomic.Bool  // set once: send nothing new
	budget atomic.Int64 // messages still to send, when Count is set
	sent   atomic.Int64
	lost   atomic.Int64 // messages without an answer, over the whole run
}

// sender is one connection of a producing run. In a closed loop one goroutine owns it all; at a
// fixed rate a second one owns the writing side: out, place, id and the next of each stream.
type sender struct {
	run     *producer
	index   int
	addr    string
	targets []target
	rec     *measure.Recorder

	templates []template
	slots     []slot
	inFlight  atomic.Int64
	streams   []*stream // of this life of the connection; nil unless numbered

	conn      net.Conn
	in        frameBuffer
	command   remoting.Command
	deadline  int64 // read deadline that is set, on the run's clock
	answeredN int   // requests answered by the last read
	refusedN  int   // of these, refused

	sched  schedule // at a fixed rate
	out    []byte
	place  uint32 // next slot to try
	turn   int    // next template
	id     uint64
	stamp  measure.Stamp // scratch
	bornAt int64         // moment of born
	born   [bornWidth]byte
}

func newSender(p *producer, index int, targets []target, prefix string) *sender {
	s := &sender{run: p, index: index, addr: targets[0].addr, targets: targets, turn: index}
	s.rec = measure.NewRecorder(&p.gate)
	m := frameMaker{cfg: p.cfg, prefix: prefix}
	if p.body.bytes == nil {
		panic("workload: newSender before the payload")
	}
	s.bodyOf(&m)
	size := slotsMin
	if p.cfg.Rate > 0 {
		size = openSlots
	}
	for size < 2*p.cfg.InFlight {
		size *= 2
	}
	s.slots = make([]slot, size)
	s.id = uint64(p.clock.Wall(0).UnixMilli()) << 16
	return s
}

// bodyOf encodes a template for each queue and tag.
func (s *sender) bodyOf(m *frameMaker) {
	for i := range s.targets {
		for tag := range s.run.tags {
			if s.run.cfg.Tags == 0 || s.run.cfg.Batch > 1 {
				tag = -1
			}
			t := m.head(i, &s.targets[i], tag, len(s.run.body.bytes))
			s.templates = append(s.templates, t)
		}
	}
}

// connect makes the connection and starts new streams.
func (s *sender) connect(ctx context.Context) error {
	d := net.Dialer{Timeout: 3 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("workload: connecting to broker %s: %w", s.addr, err)
	}
	s.conn = conn
	s.in.reset(readBuffer)
	s.deadline = 0
	if s.run.cfg.Verify {
		s.streams = s.run.streams.open(s.targets)
	}
	return nil
}

// disconnect ends the life of a connection, because of err: what has no answer failed.
func (s *sender) disconnect(err error) {
	_ = s.conn.Close()
	var lost int64
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.busy.Load() == 0 {
			continue
		}
		lost += int64(s.run.cfg.Batch)
		if s.streams != nil {
			s.streams[sl.target].miss(sl.number, uint64(s.run.cfg.Batch))
		}
		sl.busy.Store(0)
	}
	s.inFlight.Store(0)
	s.out = s.out[:0]
	s.run.streams.close(s.streams)
	s.streams = nil
	if lost > 0 {
		s.run.lost.Add(lost)
		s.rec.Begin()
		s.rec.UnansweredLocked(cause(err), lost)
		s.rec.End()
	}
}

// cause says in few words why there was no answer.
func cause(err error) string {
	switch {
	case err == nil:
		return "run ended"
	case errors.Is(err, errSilent):
		return "no answer in time"
	case errors.Is(err, errAlien):
		return "unexpected answer"
	}
	return "connection lost"
}

// queue appends one request to out. from is the moment its latency counts from, now the time of
// the run's clock. There must be a free slot.
func (s *sender) queue(from, now int64) {
	mask := uint32(len(s.slots) - 1)
	for s.slots[s.place&mask].busy.Load() != 0 {
		s.place++
	}
	at := s.place & mask
	s.place++
	t := &s.templates[s.turn%len(s.templates)]
	s.turn++
	sl := &s.slots[at]
	sl.from, sl.target = from, int32(t.target)
	p := patch{opaque: opaqueBase + int32(at), id: s.id}
	s.id += uint64(s.run.cfg.Batch)
	s.setBorn(now)
	p.bornMS = s.born
	if s.streams != nil {
		st := s.streams[t.target]
		s.stamp = measure.Stamp{
			Run: s.run.streams.run, Stream: st.number, Number: st.next, Floor: st.floor.Load(),
		}
		sl.number = st.next
		st.next += uint64(s.run.cfg.Batch)
		p.stamp = &s.stamp
	}
	s.out = appendFrame(s.out, t, &s.run.body, &p)
	sl.busy.Store(1)
	s.inFlight.Add(1)
	s.run.sent.Add(int64(s.run.cfg.Batch))
}

// setBorn renders the wall clock, at most once a millisecond.
func (s *sender) setBorn(now int64) {
	if now-s.bornAt < int64(time.Millisecond) && s.bornAt != 0 {
		return
	}
	s.bornAt = now
	putDecimal(s.born[:], s.run.clock.Wall(now).UnixMilli())
}

// permit takes a batch out of the run's budget; false: it is used up.
func (s *sender) permit() bool {
	if s.run.cfg.Count == 0 {
		return true
	}
	return s.run.budget.Add(-int64(s.run.cfg.Batch)) >= 0
}

func (s *sender) write() error {
	for out := s.out; len(out) > 0; {
		n := min(len(out), writeBuffer)
		_ = s.conn.SetWriteDeadline(time.Now().Add(time.Duration(s.run.cfg.Timeout)))
		if _, err := s.conn.Write(out[:n]); err != nil {
			return err
		}
		out = out[n:]
	}
	s.out = s.out[:0]
	return nil
}

// read waits for bytes, at most until the run's timeout, and handles each complete answer.
func (s *sender) read() error {
	now := s.run.clock.Now()
	timeout := int64(s.run.cfg.Timeout)
	if s.deadline < now+timeout*3/4 { // moved rarely: each move costs a timer
		s.deadline = now + timeout + timeout/4
		_ = s.conn.SetReadDeadline(s.run.clock.Wall(s.deadline))
	}
	if err := s.in.fill(s.conn); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return s.silent()
		}
		return err
	}
	now = s.run.clock.Now()
	s.answeredN, s.refusedN = 0, 0
	open := s.rec.Begin()
	defer s.rec.End()
	for {
		frame, err := s.in.next()
		if err != nil {
			return err
		}
		if frame == nil {
			return nil
		}
		if err := s.answerLocked(frame, now, open); err != nil {
			return err
		}
	}
}

// silent decides, when the read deadline has passed, whether a request waits for too long.
func (s *sender) silent() error {
	now := s.run.clock.Now()
	s.deadline = 0
	for i := range s.slots {
		sl := &s.slots[i]
		if sl.busy.Load() != 0 && now-sl.from >= int64(s.run.cfg.Timeout) {
			return errSilent
		}
	}
	return nil
}

// answerLocked settles the request that frame answers.
func (s *sender) answerLocked(frame []byte, now int64, open bool) error {
	a, err := answerOf(frame, &s.command)
	if err != nil {
		return err
	}
	at := int(a.opaque) - opaqueBase
	if at < 0 || at >= len(s.slots) {
		return nil // a request of the broker
	}
	sl := &s.slots[at]
	if sl.busy.Load() == 0 {
		return fmt.Errorf("workload: opaque %d: %w", a.opaque, errAlien)
	}
	s.answeredN++
	batch := int64(s.run.cfg.Batch)
	stored := isStored(a.code)
	latency := now - sl.from
	switch {
	case !stored:
		s.refusedN++
		s.rec.RefusedLocked(remoting.ResponseCode(a.code).String(), batch)
	case s.run.cfg.Rate == 0:
		if open {
			s.rec.AnsweredLocked(batch, batch*int64(s.run.cfg.Size), latency)
		}
	default:
		// At a fixed rate the figures of a window are of the messages due in it, whenever their
		// answer comes.
		if open {
			s.rec.CountedLocked(batch, batch*int64(s.run.cfg.Size))
		}
		if s.run.window.holds(sl.from) {
			s.rec.LatencyLocked(batch, latency)
		}
	}
	if s.streams != nil {
		st := s.streams[sl.target]
		if !stored {
			st.miss(sl.number, uint64(batch))
		}
		st.done(sl.number, uint64(batch))
	}
	sl.busy.Store(0)
	s.inFlight.Add(-1)
	return nil
}

// isStored reports whether a send was stored: success, or stored with flush or replica unconfirmed.
func isStored(code int32) bool {
	switch remoting.ResponseCode(code) {
	case remoting.Success, remoting.FlushDiskTimeout, remoting.FlushSlaveTimeout,
		remoting.SlaveNotAvailable:
		return true
	default:
		return false
	}
}
