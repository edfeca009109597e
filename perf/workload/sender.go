// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

const (
	readBuffer  = 256 << 10
	writeBuffer = 256 << 10 // a write is cut here, so that answers are read meanwhile
	slotsMin    = 1 << 6    // of a connection's table to begin with, at least
	slotsOpen   = 1 << 16   // requests without an answer of one connection at a fixed rate, at most
	slotsAll    = 1 << 20   // the same of all connections
	redialFirst = 100 * time.Millisecond
	redialMost  = time.Second
)

var (
	errSilent = errors.New("no answer in time")
	errAlien  = errors.New("answer to nothing that was asked")
)

// slot remembers one request without an answer.
type slot struct {
	from    int64   // the moment latency counts from
	sent    int64   // the moment it was handed to the socket
	stream  *stream // nil unless numbered
	number  uint64  // of the first message, when numbered
	content int32   // bytes of its messages' bodies
	tries   int32   // how often it was sent before
	busy    bool
}

// resend is a numbered request that is to be sent again.
type resend struct {
	stream *stream
	number uint64
	from   int64
	tries  int32
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
	bodies  []payload
	tags    int // templates for each target

	stopped atomic.Bool  // set once: send nothing new
	budget  atomic.Int64 // messages still to send, when Count is set
	sent    atomic.Int64
	lost    atomic.Int64 // messages without an answer, over the whole run
	retried atomic.Int64 // messages sent again
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
	slots     []slot // a power of two: twice the most that was in flight, see slotsMin
	inFlight  int
	room      int       // requests it may have in flight, or waiting in again
	streams   []*stream // of this life of the connection; nil unless numbered
	again     []resend  // to be sent before anything new

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
	body   int      // next of the run's bodies
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
	s.makeTemplates(&m)
	s.body = index * len(p.bodies) / max(p.cfg.Connections, 1)
	size := slotsMin
	if p.cfg.paced() {
		s.room = min(max(slotsAll/p.cfg.Connections, p.cfg.InFlight), slotsOpen)
	}
	for size < 2*p.cfg.InFlight {
		size *= 2
	}
	s.slots = make([]slot, size)
	s.id = uint64(p.clock.Wall(0).UnixMilli()) << 16
	return s
}

// makeTemplates encodes a template for each queue and tag.
func (s *sender) makeTemplates(m *frameMaker) {
	for i := range s.targets {
		for tag := range s.run.tags {
			if s.run.cfg.Tags == 0 || s.run.cfg.Batch > 1 {
				tag = -1
			}
			s.templates = append(s.templates, m.head(i, &s.targets[i], tag))
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
		sl.busy = false
		if s.sendAgain(sl) {
			continue
		}
		lost += int64(batch)
		if sl.stream != nil {
			sl.stream.miss(sl.number, batch)
		}
	}
	// Messages that are sent again keep the order they have among themselves.
	slices.SortStableFunc(s.again, func(a, b resend) int {
		return cmp.Or(cmp.Compare(a.stream.number, b.stream.number), cmp.Compare(a.number, b.number))
	})
	s.group.waiting -= int64(s.inFlight)
	s.inFlight = 0
	s.run.streams.close(s.streams)
	s.streams = nil
	if lost > 0 {
		s.run.lost.Add(lost)
		s.group.rec.UnansweredLocked(cause(err), lost)
	}
}

// sendAgain notes that a request is to be sent again; false when it is not.
func (s *sender) sendAgain(sl *slot) bool {
	if int(sl.tries) >= s.run.cfg.Retries || s.run.stopped.Load() {
		return false
	}
	s.again = append(s.again, resend{
		stream: sl.stream, number: sl.number, from: sl.from, tries: sl.tries + 1,
	})
	return true
}

// giveUpLocked counts what was to be sent again and will not be.
func (s *sender) giveUpLocked() {
	batch := uint64(s.run.cfg.Batch)
	for i := range s.again {
		s.again[i].stream.miss(s.again[i].number, batch)
	}
	lost := int64(len(s.again)) * int64(batch)
	s.again = nil
	s.run.lost.Add(lost)
	s.group.rec.UnansweredLocked(cause(nil), lost)
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

// queue appends one new request to out. from is the moment its latency counts from, now the time of
// the run's clock. There must be a free slot.
func (s *sender) queue(from, now int64) {
	if s.turn >= len(s.templates) {
		s.turn %= len(s.templates)
	}
	t := &s.templates[s.turn]
	s.turn++
	sl := slot{from: from}
	if s.streams != nil {
		sl.stream = s.streams[t.target]
		sl.number = sl.stream.next
		sl.stream.next += uint64(s.run.cfg.Batch)
	}
	s.append(t, sl, now)
	s.group.sent += int64(s.run.cfg.Batch)
	s.sentLife += int64(s.run.cfg.Batch)
}

// queueAgain is queue for the oldest request that is to be sent again.
func (s *sender) queueAgain(now int64) {
	r := s.again[0]
	s.again = s.again[1:]
	t := &s.templates[r.stream.index*s.run.tags]
	s.append(t, slot{from: r.from, stream: r.stream, number: r.number, tries: r.tries}, now)
	s.run.retried.Add(int64(s.run.cfg.Batch))
}

func (s *sender) append(t *template, sl slot, now int64) {
	if 2*s.inFlight >= len(s.slots) {
		// At a fixed rate far more may be in flight than ever is, and a place is used again only when
		// its turn comes: a table of all that may be would be touched to its end within seconds.
		s.slots = append(s.slots, make([]slot, len(s.slots))...)
	}
	mask := uint32(len(s.slots) - 1)
	for s.slots[s.place&mask].busy {
		s.place++
	}
	at := s.place & mask
	s.place++
	p := patch{opaque: opaqueBase + int32(at), id: s.id}
	s.id += uint64(s.run.cfg.Batch)
	s.setBorn(now)
	p.bornMS = s.born
	if sl.stream != nil {
		s.stamp = measure.Stamp{
			Run: s.run.streams.run, Stream: sl.stream.number, Number: sl.number,
			Floor: sl.stream.floor, Due: s.run.wallNS(sl.from), Again: sl.tries > 0,
		}
		p.stamp = &s.stamp
	}
	if s.body >= len(s.run.bodies) {
		s.body = 0
	}
	body := &s.run.bodies[s.body]
	s.body++
	s.out = appendFrame(s.out, t, body, &p)
	sl.sent, sl.busy, sl.content = now, true, int32(body.content)
	s.slots[at] = sl
	s.inFlight++
	s.group.waiting++
}

// full reports whether nothing new may be sent before an answer comes. What is to be sent again has
// its place already, so that a broker that refuses everything does not fill the memory with it.
func (s *sender) full() bool { return s.inFlight+len(s.again) >= s.room }

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
	case !stored && s.sendAgain(sl):
		s.refused++
	case !stored:
		s.refused++
		if sl.stream != nil {
			sl.stream.miss(sl.number, uint64(batch))
		}
		rec.RefusedLocked(remoting.ResponseCode(a.code).String(), batch)
	case !s.run.cfg.paced():
		if open {
			rec.AnsweredLocked(batch, int64(sl.content), latency)
		}
	default:
		// At a fixed rate the figures of a window are of the messages due in it, whenever their
		// answer comes.
		if open {
			rec.CountedLocked(batch, int64(sl.content))
		}
		if s.run.window.holds(sl.from) {
			rec.LatencyLocked(batch, latency)
		}
	}
	if sl.stream != nil && sl.tries == 0 {
		sl.stream.done(sl.number, uint64(batch))
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
