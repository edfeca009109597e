// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/record"
)

// spanMax is how far, in offsets, the newest message fetched may be from the oldest that is not
// done (consumeConcurrentlyMaxSpan), so that one message in long work bounds what comes again.
const spanMax = 2000

// delivery is one message on its way through a consumer. The deliveries of one answer share an
// array. All but m and ctx are guarded by Consumer.mu.
type delivery struct {
	m   Received
	ctx handlerContext

	view     record.View // as stored; aliases the answer
	offset   int64       // in the queue
	size     int         // bytes that count against the bounds
	key      string      // of ordered-by-key consumption
	receipt  string      // of pop
	expires  time.Time   // of pop: others may have it from then on
	started  bool        // a handler has or had it
	done     bool
	detached bool // what happens to it does not count any more
	inflated bool
}

// queue is one queue that a consumer holds. Its fields are guarded by Consumer.mu unless they say
// otherwise.
type queue struct {
	k     *Consumer
	id    Queue
	lane  *lane
	group []byte // of requests, as brokers know it
	topic []byte
	name  []byte // of the broker

	decoder  decoder // the lane's own
	brokerID int64   // where to read, as the last answer suggested; the lane's own

	sub     *protocol.SubscriptionData
	dropped bool // nothing is fetched or started any more
	lost    bool // what handlers return does not count any more
	wanted  bool // assigned again while it was leaving
	frozen  bool // its position is being reset

	next     int64 // to fetch
	pull     *pull // under way; an answer to any other is ignored
	waiting  bool  // an alarm will fetch
	full     bool  // waits for room
	failures int   // pulls that failed in a row
	pulledAt time.Time
	tookAt   time.Time

	entries list[*delivery] // by offset, from the first that is not done
	ready   list[*delivery] // to be handed out
	listed  bool            // in crew.ready
	count   int             // entries that are not done
	bytes   int
	active  int           // deliveries that handlers have
	calm    chan struct{} // closed when active gets 0; nil: nobody waits

	busy      bool                   // ordered: a handler has the head
	suspended bool                   // ordered: an alarm will go on
	keys      map[string][]*delivery // by key: those behind the one that is ready or at work
	lockedAt  time.Time

	committed int64         // as stored; -1: unknown
	forced    bool          // the position may go down
	saving    chan struct{} // closed when the store that is under way has ended; nil: none
}

// newQueue makes a queue that begins at an offset. stored says that the group has this position.
func (k *Consumer) newQueue(id Queue, at int64, stored bool) *queue {
	topic := k.client.onWire(id.Topic)
	q := &queue{
		k: k, id: id, next: at, committed: -1,
		group: []byte(k.client.onWire(k.group)), topic: []byte(topic), name: []byte(id.Broker),
		decoder: newDecoder(id, topic, k.client.offWire),
	}
	if stored {
		q.committed = at
	}
	if k.cfg.byKey {
		q.keys = map[string][]*delivery{}
	}
	return q
}

// positionLocked is the offset that may be stored: everything before it is done or filtered.
func (q *queue) positionLocked() int64 {
	if q.entries.len() > 0 {
		return min(q.entries.at(0).offset, q.next)
	}
	return q.next
}

// arriveLocked takes the messages of an answer.
func (q *queue) arriveLocked(ds []*delivery, next int64) {
	k := q.k
	for _, d := range ds {
		q.entries.push(d)
		q.count++
		q.bytes += d.size
		k.held++
		k.bytes += d.size
		q.offerLocked(d)
	}
	q.next = next
	k.listLocked(q)
}

// offerLocked makes a message ready, or lines it up behind its key.
func (q *queue) offerLocked(d *delivery) {
	if q.keys != nil && d.key != "" {
		if behind, at := q.keys[d.key]; at {
			q.keys[d.key] = append(behind, d)
			return
		}
		q.keys[d.key] = nil
	}
	q.ready.push(d)
}

// passLocked makes the next message of a key ready after d is through.
func (q *queue) passLocked(d *delivery) {
	if q.keys == nil || d.key == "" {
		return
	}
	behind := q.keys[d.key]
	if len(behind) == 0 {
		delete(q.keys, d.key)
		return
	}
	q.keys[d.key] = behind[1:]
	q.ready.push(behind[0])
}

// settleLocked notes that a message is done.
func (q *queue) settleLocked(d *delivery) {
	if d.done || d.detached || q.lost {
		return
	}
	d.done = true
	q.shrinkLocked(d)
	for q.entries.len() > 0 && q.entries.at(0).done {
		q.entries.pop()
	}
	if q.full && q.roomyLocked() {
		q.full = false
		q.fetchLocked()
	}
	q.k.uncrowdLocked()
}

func (q *queue) shrinkLocked(d *delivery) {
	q.count--
	q.bytes -= d.size
	q.k.held--
	q.k.bytes -= d.size
}

// Limits of one queue and of the consumer. A queue that was full is fetched again below four fifths.
const (
	totalMessages = 16 // times those of a queue
	totalBytes    = 4
)

func below(n, limit int) bool { return n == 0 || n/4 < limit/5 || n*5 < limit*4 }

// fullLocked says why a queue is not to be fetched now; empty when it is.
func (q *queue) fullLocked() string {
	c := &q.k.cfg
	switch {
	case q.count >= c.prefetch:
		return "messages"
	case q.bytes >= c.prefetchBytes:
		return "bytes"
	case !c.ordered && !c.pop && q.spanLocked() > spanMax:
		return "span"
	}
	return ""
}

func (q *queue) spanLocked() int64 {
	n := q.entries.len()
	if n == 0 {
		return 0
	}
	return q.entries.at(n-1).offset - q.entries.at(0).offset
}

func (q *queue) roomyLocked() bool {
	c := &q.k.cfg
	return below(q.count, c.prefetch) && below(q.bytes, c.prefetchBytes) &&
		(c.ordered || c.pop || q.spanLocked() <= spanMax*4/5)
}

func (k *Consumer) crowdedLocked() bool {
	return k.held >= totalMessages*k.cfg.prefetch || k.bytes >= totalBytes*k.cfg.prefetchBytes
}

// uncrowdLocked has queues fetched that waited for the consumer as a whole.
func (k *Consumer) uncrowdLocked() {
	if len(k.crowded) == 0 || !below(k.held, totalMessages*k.cfg.prefetch) ||
		!below(k.bytes, totalBytes*k.cfg.prefetchBytes) {
		return
	}
	waiting := k.crowded
	k.crowded = nil
	for _, q := range waiting {
		q.full = false
		q.fetchLocked()
	}
}

func (q *queue) pausedLocked() bool { return q.k.allStop || q.k.paused[q.id.Topic] }

// fetchLocked starts a pull unless one is under way or something speaks against it: then reason may
// say what. What stopped it calls fetchLocked again when it is over.
func (q *queue) fetchLocked() (reason string) {
	k := q.k
	if q.pull != nil || q.dropped || q.frozen || q.waiting || q.full || q.pausedLocked() {
		return ""
	}
	if reason = q.fullLocked(); reason != "" {
		q.full = true
		return reason
	}
	if k.crowdedLocked() {
		q.full = true
		k.crowded = append(k.crowded, q)
		return "consumer"
	}
	p := &pull{
		q: q, at: q.next, version: q.sub.SubVersion, sql: !q.sub.IsTag(), expr: q.sub.SubString,
	}
	q.pull = p
	q.lane.events.push(p)
	return ""
}

// fetchLaterLocked starts a pull after d.
func (q *queue) fetchLaterLocked(d time.Duration) {
	if q.waiting || q.dropped {
		return
	}
	q.waiting = true
	q.k.alarms.after(d, func() {
		q.k.mu.Lock()
		defer q.k.mu.Unlock()
		q.waiting = false
		q.fetchLocked()
	})
}

// moveLocked continues a queue at offset and makes that its position, whatever was done or fetched
// from there on. Messages before it that are not done keep the position back.
func (q *queue) moveLocked(offset int64) {
	kept := list[*delivery]{}
	for q.entries.len() > 0 {
		d := q.entries.pop()
		switch {
		case d.offset < offset:
			kept.push(d)
		case !d.done:
			d.detached = true
			q.shrinkLocked(d)
			q.forgetLocked(d)
		}
	}
	for kept.len() > 0 && kept.at(0).done {
		kept.pop()
	}
	q.entries = kept
	q.ready.filter(func(d *delivery) bool { return !d.detached })
	q.next, q.forced = offset, true
	q.pull = nil
	q.k.uncrowdLocked()
	if q.full && q.roomyLocked() {
		q.full = false
	}
	q.fetchLocked()
}

// forgetLocked takes a message that is not to be handed out from the line of its key.
func (q *queue) forgetLocked(d *delivery) {
	if q.keys == nil || d.key == "" || d.started {
		return
	}
	behind, at := q.keys[d.key]
	if !at {
		return
	}
	for i, o := range behind {
		if o == d {
			q.keys[d.key] = append(behind[:i:i], behind[i+1:]...)
			return
		}
	}
	q.passLocked(d) // it was at the head, in ready
}

// refilterLocked changes the filter and drops what is cached and does not fit it.
func (q *queue) refilterLocked(sub *protocol.SubscriptionData) {
	q.sub = sub
	if sub.IsTag() {
		for i := range q.entries.len() {
			if d := q.entries.at(i); !d.started && !d.done && !wants(sub, tagOf(d.view)) {
				d.detached, d.done = true, true
				q.shrinkLocked(d)
				q.forgetLocked(d)
			}
		}
		q.ready.filter(func(d *delivery) bool { return !d.detached })
		for q.entries.len() > 0 && q.entries.at(0).done {
			q.entries.pop()
		}
	}
	q.pull = nil // it was made with the old filter
	q.full = false
	q.fetchLocked()
}

// list is a queue of values in memory that is used again.
type list[T any] struct {
	items []T
	head  int
}

func (l *list[T]) len() int { return len(l.items) - l.head }

func (l *list[T]) at(i int) T { return l.items[l.head+i] }

func (l *list[T]) push(v T) {
	if l.head > 0 && len(l.items) == cap(l.items) && l.head >= len(l.items)/2 {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, v)
}

func (l *list[T]) pop() T {
	var zero T
	v := l.items[l.head]
	l.items[l.head] = zero
	if l.head++; l.head == len(l.items) {
		l.items, l.head = l.items[:0], 0
	}
	return v
}

// putBack inserts values at the front, in order.
func (l *list[T]) putBack(vs []T) {
	if l.head >= len(vs) {
		l.head -= len(vs)
		copy(l.items[l.head:], vs)
		return
	}
	items := make([]T, 0, len(vs)+l.len())
	items = append(items, vs...)
	l.items, l.head = append(items, l.items[l.head:]...), 0
}

func (l *list[T]) filter(keep func(T) bool) {
	kept := l.items[:0]
	for _, v := range l.items[l.head:] {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	clear(l.items[len(kept):])
	l.items, l.head = kept, 0
}
