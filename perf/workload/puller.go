// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	pullBuffer = 1 << 20     // bytes of a connection's read buffer, unless a frame is larger
	pullRetry  = time.Second // after a pull that was refused
	// pullTick is how often a connection without traffic looks around.
	pullTick = 500 * time.Millisecond
	// pullGrace is how long an answer may come after the broker's suspend time.
	pullGrace = 10 * time.Second
)

// consumer is one reading load.
type consumer struct {
	*timing
	cfg     *Consume
	own     part
	pullers []*puller
	cancel  context.CancelFunc // ends the loops
	done    chan struct{}

	stopped atomic.Bool
	// wholeRuns: it began to read before anything was sent, so every stream must begin with number 0.
	wholeRuns bool
	draining  atomic.Bool  // every queue's goal is set: end there
	budget    atomic.Int64 // messages still wanted, when Count is set

	mu     sync.Mutex
	failed []error // the last failure of each connection
}

// pullQueue is one queue that is read. At most one pull of it is under way, since the next one's
// offset stands in the answer.
type pullQueue struct {
	target target
	topic  []byte // of target, for requests
	broker []byte
	place  measure.Place
	next   int64
	end    int64        // queue end as last heard of
	asked  int64        // moment of the pull under way; 0: none
	retry  int64        // not before this moment
	goal   atomic.Int64 // offset to stop at, once the run drains
}

func newPullQueue(t *target, next, end int64) *pullQueue {
	return &pullQueue{
		target: *t, topic: []byte(t.topic), broker: []byte(t.broker), next: next, end: end,
		place: measure.Place{Topic: t.topic, Broker: t.broker, Queue: t.queue},
	}
}

// puller is one connection of a consuming run, with the pulls of all its queues under way at once.
// One goroutine owns it.
type puller struct {
	run     *consumer
	addr    string
	group   []byte
	filter  []byte
	kind    []byte       // of filter; nil: TAG
	queues  []*pullQueue // opaque is opaqueBase + index
	rec     *measure.Recorder
	checker *measure.Checker // nil unless verifying

	conn     net.Conn
	in       frameBuffer
	out      []byte
	command  remoting.Command
	response protocol.PullResponse
	header   protocol.PullRequest

	received int64        // messages, over the whole run
	behind   atomic.Int64 // messages known and not read
}

func newPuller(c *consumer, addr, group string) *puller {
	p := &puller{
		run: c, addr: addr, group: []byte(group), rec: measure.NewRecorder(&c.gate),
		filter: []byte(cmp.Or(c.cfg.Filter, "*")),
	}
	if c.cfg.FilterType != "" {
		p.kind = []byte(c.cfg.FilterType)
	}
	return p
}

func (p *puller) connect(ctx context.Context) error {
	d := net.Dialer{Timeout: 3 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("workload: connecting to broker %s: %w", p.addr, err)
	}
	p.conn = conn
	p.in.reset(pullBuffer)
	p.out = p.out[:0]
	for _, q := range p.queues {
		q.asked = 0
	}
	return nil
}

// loop pulls until the run stops, making the connection anew when it fails.
func (p *puller) loop(ctx context.Context) {
	if p.run.cfg.Verify {
		p.checker = p.run.newChecker()
	}
	wait := redialFirst
	for {
		before := p.received
		err := p.pull(ctx)
		_ = p.conn.Close()
		if err == nil || p.run.stopped.Load() {
			return
		}
		p.run.note(err)
		if p.received > before {
			wait = redialFirst
		}
		for {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return
			}
			wait = min(2*wait, redialMost)
			if err := p.connect(ctx); err == nil {
				break
			}
		}
	}
}

// pull keeps a pull of each queue under way. nil: the run stopped or there is no more to read.
func (p *puller) pull(ctx context.Context) error {
	// A read that waits for a long poll ends with the run.
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	tick := int64(0)
	for !p.run.stopped.Load() {
		if p.run.cfg.UntilEnd && p.drained() || p.run.draining.Load() && p.reached() {
			return nil
		}
		now := p.run.clock.Now()
		p.ask(now)
		if len(p.out) > 0 {
			_ = p.conn.SetWriteDeadline(time.Now().Add(pullGrace))
			if _, err := p.conn.Write(p.out); err != nil {
				return err
			}
			p.out = p.out[:0]
		}
		if next := p.nextPull(); next > 0 && next < now+int64(pullTick) {
			tick = next
			_ = p.conn.SetReadDeadline(p.run.clock.Wall(tick))
		} else if tick < now+int64(pullTick) {
			tick = now + 2*int64(pullTick)
			_ = p.conn.SetReadDeadline(p.run.clock.Wall(tick))
		}
		err := p.in.fill(p.conn)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			tick = 0
			if p.silent() {
				return errSilent
			}
			continue
		case err != nil:
			return err
		}
		if err := p.answers(); err != nil {
			return err
		}
	}
	return nil
}

// drained reports whether every queue was read to the end it had when last heard of.
func (p *puller) drained() bool {
	for _, q := range p.queues {
		if q.next < q.end {
			return false
		}
	}
	return true
}

// reached reports whether every queue was read to its goal.
func (p *puller) reached() bool {
	for _, q := range p.queues {
		if q.next < q.goal.Load() {
			return false
		}
	}
	return true
}

// nextPull is the moment of the next pull that was put off; 0 when there is none.
func (p *puller) nextPull() int64 {
	next := int64(0)
	for _, q := range p.queues {
		if q.asked == 0 && q.retry > 0 && (next == 0 || q.retry < next) {
			next = q.retry
		}
	}
	return next
}

// silent reports whether a pull has no answer long after its suspend time.
func (p *puller) silent() bool {
	limit := p.run.clock.Now() - int64(p.run.cfg.Suspend) - int64(pullGrace)
	for _, q := range p.queues {
		if q.asked != 0 && q.asked < limit {
			return true
		}
	}
	return false
}

// ask appends a pull for each queue that has none under way.
func (p *puller) ask(now int64) {
	for i, q := range p.queues {
		if q.asked != 0 || q.retry > now || p.run.cfg.UntilEnd && q.next >= q.end {
			continue
		}
		q.asked, q.retry = now, 0
		p.appendPull(i, q)
	}
}

func (p *puller) appendPull(at int, q *pullQueue) {
	cfg := p.run.cfg
	flags := protocol.PullSuspend | protocol.PullSubscription
	h := &p.header
	*h = protocol.PullRequest{
		Group: p.group, Topic: q.topic, QueueID: q.target.queue,
		QueueOffset: q.next, MaxMessages: int32(cfg.PullBatch), SysFlag: flags,
		SuspendMS: time.Duration(cfg.Suspend).Milliseconds(), Subscription: p.filter,
		ExpressionType: p.kind, MaxBytes: -1, RequestSource: -1, BrokerName: q.broker,
	}
	if cfg.Commit {
		h.SysFlag |= protocol.PullCommitOffset
		h.CommitOffset = q.next
	}
	rh := remoting.NewRequest(remoting.PullMessage, remoting.Opaque(opaqueBase+at))
	if cfg.Binary {
		rh.Serialize = remoting.Binary
	}
	if cfg.Credentials != nil {
		p.out = cfg.Credentials.appendSigned(p.out, rh, h)
		return
	}
	e := remoting.Begin(p.out, rh)
	h.AppendFields(&e)
	p.out = e.End(nil)
}

// answers handles every complete frame that was read.
func (p *puller) answers() error {
	now := p.run.clock.Now()
	wallMS := p.run.clock.Wall(now).UnixMilli()
	open := p.rec.Begin()
	defer p.rec.End()
	defer p.tellBehind()
	for {
		frame, err := p.in.next()
		if err != nil {
			return err
		}
		if frame == nil {
			return nil
		}
		if err := p.command.Decode(frame); err != nil {
			return err
		}
		at := int(p.command.Opaque) - opaqueBase
		if !p.command.IsResponse() {
			continue // a request of the broker
		}
		if at < 0 || at >= len(p.queues) || p.queues[at].asked == 0 {
			return fmt.Errorf("workload: opaque %d: %w", p.command.Opaque, errAlien)
		}
		if err := p.answerLocked(p.queues[at], now, wallMS, open); err != nil {
			return err
		}
	}
}

// tellBehind tells whoever reports how many messages are known and not read.
func (p *puller) tellBehind() {
	n := int64(0)
	for _, q := range p.queues {
		n += max(q.end-q.next, 0)
	}
	p.behind.Store(n)
}

// answerLocked takes the answer of one pull.
func (p *puller) answerLocked(q *pullQueue, now, wallMS int64, open bool) error {
	asked := q.asked
	q.asked = 0
	code := remoting.ResponseCode(p.command.Code)
	switch code {
	case remoting.Success, remoting.PullNotFound, remoting.PullRetryImmediately,
		remoting.PullOffsetMoved:
	default:
		p.rec.RefusedLocked(code.String(), 1)
		q.retry = now + int64(pullRetry)
		return nil
	}
	if err := p.response.Decode(&p.command); err != nil {
		return err
	}
	q.end = p.response.MaxOffset
	if code == remoting.Success {
		if open {
			p.rec.PulledLocked()
		}
		n, err := p.recordsLocked(q, p.command.Body, now, wallMS, open)
		if err != nil {
			return err
		}
		if delay := int64(p.run.cfg.Delay); delay > 0 {
			q.retry = now + n*delay
		}
	} else if p.response.NextOffset == q.next && now-asked < int64(time.Millisecond) {
		q.retry = now + int64(10*time.Millisecond) // the broker does not hold pulls: do not spin
	}
	q.next = p.response.NextOffset
	return nil
}

// age is how long a message took to here, or into the store when it was born before this run.
func (p *puller) age(v record.View, wallMS int64) time.Duration {
	end := wallMS
	if v.BornMS() < p.run.clock.Wall(0).UnixMilli() {
		end = v.StoreMS()
	}
	return time.Duration(end-v.BornMS()) * time.Millisecond
}

// recordsLocked counts, and with a checker judges, the records of one answer where they lie. It
// returns how many there were.
func (p *puller) recordsLocked(
	q *pullQueue, body []byte, now, wallMS int64, open bool,
) (n int64, err error) {
	for ; len(body) > 0; n++ {
		v, err := record.Parse(body)
		if err != nil {
			return n, fmt.Errorf("workload: queue %s: record behind offset %d: %w", q.place, q.next, err)
		}
		size := int64(v.TotalSize())
		body = body[size:]
		q.next = int64(v.QueueOffset()) + 1 // should the next one be damaged, this one is not read again
		if p.run.cfg.Count > 0 && p.run.budget.Add(-1) < 0 {
			p.run.stopped.Store(true)
			return n, nil
		}
		var due int64
		switch {
		case p.checker != nil:
			p.checker.Offset(q.place, int64(v.QueueOffset()))
			due = p.checker.Body(q.place, v.Body(), v.CheckCRC())
			p.checker.Age(q.place, int64(v.QueueOffset()), p.age(v, wallMS))
		case p.run.cfg.EndToEnd:
			due = measure.DueOf(v.Body())
		}
		switch {
		case p.run.cfg.EndToEnd:
			p.arrivedLocked(due, size, now, open)
		case open && p.run.cfg.FailRate > 0 && rand.Float64() < p.run.cfg.FailRate:
			p.rec.RefusedLocked("failed on purpose", 1)
		case open:
			p.rec.ReceivedLocked(size, (wallMS-v.StoreMS())*1e6, (wallMS-v.BornMS())*1e6)
		}
	}
	p.received += n
	return n, nil
}

// arrivedLocked counts a message that tells when it was due. Like the producer's at a fixed rate,
// the latencies of a window are of the messages due in it, whenever they come.
func (p *puller) arrivedLocked(due, size, now int64, open bool) {
	if due == 0 {
		return // a closing message, or somebody else's
	}
	if open {
		p.rec.CountedLocked(1, size)
	}
	from := p.run.fromWall(due)
	if p.run.window.holds(from) || open && !p.run.wholeRuns {
		p.rec.LatencyLocked(1, now-from) // another process's messages: all that came in the window
	}
}
