// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

const (
	readBuffer  = 256 << 10
	writeBuffer = 256 << 10 // a write is cut here, so that answers are read meanwhile
	slotsMin    = 1 << 6
	slotsOpen   = 1 << 16 // requests without an answer of one connection at a fixed rate, at most
	slotsAll    = 1 << 20 // the same of all connections
	redialFirst = 100 * time.Millisecond
	redialMost  = time.Second
)

var (
	errSilent = errors.New("no answer in time")
	errAlien  = errors.New("answer to nothing that was asked")
)

// slot remembers one request without an answer.
type slot struct {
	from   int64  // the moment latency counts from
	sent   int64  // the moment it was handed to the socket
	number uint64 // of the first message, when numbered
	target int32
	busy   bool
}

// producer is one producing load.
type producer struct {
	*timing
	cfg     *Produce
	own     part
	groups  []*group
	failed  []error // of groups; read once done is closed
	done    chan struct{}
	streams streams
	body    payload
	tags    int // templates for each target

	stopped atomic.Bool  // set once: send nothing new
	budget  atomic.Int64 // messages still to send, when Count is set
	sent    atomic.Int64
	lost    atomic.Int64 // messages without an answer, over the whole run
}

// sender is one connection of a producing run. Its group's goroutine owns it.
type sender struct {
	run     *producer
	group   *group
	index   int // in the run
	tag     int32
	addr    string
	targets []target

	templates []template
	slots     []slot // a power of two
	inFlight  int
	room      int       // requests it may have in flight
	streams   []*stream // of this life of the connection; nil unless numbered

	sock     socket // nil while there is no connection
	rest     []byte // read, and not a whole frame yet
	out      []byte
	outAt    int   // where what is still to be written begins
	redialAt int64 // moment of the next attempt, while sock is nil
	redial   time.Duration
	quietTo  int64 // send nothing before: the broker refuses everything
	finished bool  // sends nothing more
	over     bool  // finished, and nothing is in flight
	dialling bool
	sentLife int64 // messages of this life of the connection

	answered, refused int // requests settled by the last read

	sched  schedule // at a fixed rate
	queued bool     // in the group's heap of due moments
	place  uint32   // next slot to try
	turn   int      // next template
	id     uint64
	stamp  measure.Stamp // scratch
	bornAt int64         // moment of born
	born   [bornWidth]byte
}

func newSender(p *producer, index int, targets []target, prefix string) *sender {
	s := &sender{
		run: p, index: index, addr: targets[0].addr, targets: targets, turn: index,
		room: p.cfg.InFlight, redial: redialFirst,
	}
	m := frameMaker{cfg: p.cfg, prefix: prefix}
	if p.body.bytes == nil {
		panic("workload: newSender before the payload")
	}
	s.bodyOf(&m)
	size := slotsMin
	if p.cfg.paced() {
		s.room = min(max(slotsAll/p.cfg.Connections, p.cfg.InFlight), slotsOpen)
	}
	for size < 2*s.room {
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

// connected begins a life of the connection, with new streams.
func (s *sender) connected(sock socket) {
	s.sock = sock
	s.rest, s.out, s.outAt = s.rest[:0], s.out[:0], 0
	s.sentLife = 0
	if s.run.cfg.Verify {
		s.streams = s.run.streams.open(s.targets)
	}
}

// disconnectLocked ends the life of a connection, because of err: what has no answer failed. The
// group's recorder is locked.
func (s *sender) disconnectLocked(err error) {
	if s.sock == nil {
		return
	}
	s.sock.close()
	s.sock = nil
	batch := uint64(s.run.cfg.Batch)
	var lost int64
	for i := range s.slots {
		sl := &s.slots[i]
		if !sl.busy {
			continue
		}
		lost += int64(batch)
		if s.streams != nil {
			s.streams[sl.target].miss(sl.number, batch)
		}
		sl.busy = false
	}
	s.group.waiting -= int64(s.inFlight)
	s.inFlight = 0
	s.run.streams.close(s.streams)
	s.streams = nil
	if lost > 0 {
		s.run.lost.Add(lost)
		s.group.rec.UnansweredLocked(cause(err), lost)
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
	for s.slots[s.place&mask].busy {
		s.place++
	}
	at := s.place & mask
	s.place++
	if s.turn >= len(s.templates) {
		s.turn %= len(s.templates)
	}
	t := &s.templates[s.turn]
	s.turn++
	sl := &s.slots[at]
	sl.from, sl.sent, sl.target = from, now, int32(t.target)
	p := patch{opaque: opaqueBase + int32(at), id: s.id}
	s.id += uint64(s.run.cfg.Batch)
	s.setBorn(now)
	p.bornMS = s.born
	if s.streams != nil {
		st := s.streams[t.target]
		s.stamp = measure.Stamp{
			Run: s.run.streams.run, Stream: st.number, Number: st.next, Floor: st.floor,
			Due: s.run.wallNS(from),
		}
		sl.number = st.next
		st.next += uint64(s.run.cfg.Batch)
		p.stamp = &s.stamp
	}
	s.out = appendFrame(s.out, t, &s.run.body, &p)
	sl.busy = true
	s.inFlight++
	s.group.waiting++
	s.group.sent += int64(s.run.cfg.Batch)
	s.sentLife += int64(s.run.cfg.Batch)
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

// flush writes what is queued, as far as the socket has room.
func (s *sender) flush() error {
	for s.outAt < len(s.out) {
		n, err := s.sock.write(s.out[s.outAt:min(len(s.out), s.outAt+writeBuffer)])
		if errors.Is(err, errAgain) {
			return s.sock.watchWrites(true)
		}
		if err != nil {
			return err
		}
		s.outAt += n
	}
	s.out, s.outAt = s.out[:0], 0
	return s.sock.watchWrites(false)
}

// settleLocked settles the request that frame answers. open: the window is.
func (s *sender) settleLocked(frame []byte, now int64, open bool) error {
	a, ok := scanAnswer(frame)
	if !ok {
		var err error
		if a, err = answerOf(frame, &s.group.command); err != nil {
			return err
		}
	}
	at := int(a.opaque) - opaqueBase
	if at < 0 || at >= len(s.slots) {
		return nil // a request of the broker
	}
	sl := &s.slots[at]
	if !sl.busy {
		return fmt.Errorf("workload: opaque %d: %w", a.opaque, errAlien)
	}
	s.answered++
	batch := int64(s.run.cfg.Batch)
	rec := s.group.rec
	stored := isStored(a.code)
	switch latency := now - sl.from; {
	case !stored:
		s.refused++
		rec.RefusedLocked(remoting.ResponseCode(a.code).String(), batch)
	case !s.run.cfg.paced():
		if open {
			rec.AnsweredLocked(batch, batch*int64(s.run.cfg.Size), latency)
		}
	default:
		// At a fixed rate the figures of a window are of the messages due in it, whenever their
		// answer comes.
		if open {
			rec.CountedLocked(batch, batch*int64(s.run.cfg.Size))
		}
		if s.run.window.holds(sl.from) {
			rec.LatencyLocked(batch, latency)
		}
	}
	if s.streams != nil {
		st := s.streams[sl.target]
		if !stored {
			st.miss(sl.number, uint64(batch))
		}
		st.done(sl.number, uint64(batch))
	}
	sl.busy = false
	s.inFlight--
	s.group.waiting--
	return nil
}

// silent reports whether a request waits for too long.
func (s *sender) silent(now int64) bool {
	limit := now - int64(s.run.cfg.Timeout)
	if s.inFlight == 0 {
		return false
	}
	for i := range s.slots {
		if sl := &s.slots[i]; sl.busy && sl.sent <= limit {
			return true
		}
	}
	return false
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
