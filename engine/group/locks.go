// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// LockTime is how long a queue lock lives without renewal (RocketMQ RebalanceLockManager).
const LockTime = 60 * time.Second

// queuesMax bounds the locks that one group may hold, and groupsMax the groups that hold any:
// a client names queues freely, and they need not exist.
const (
	queuesMax = 65536
	groupsMax = 65536
)

// Locks is the table of queue locks of ordered consumers. All methods may be called from any
// goroutine.
type Locks struct {
	now    func() time.Time
	path   string // of the file; "": the table lives in memory only
	notice func(msg string, kv ...any)

	saving sync.Mutex // guards the file; taken before mu
	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	armed  bool // the file will be written
	closed bool

	groups   map[string]map[protocol.MessageQueue]lock
	channels map[Channel]map[string]bool // groups in which a connection took locks
}

type lock struct {
	client string
	ch     Channel // over which it was taken or renewed last
	at     time.Time
}

func (l lock) expired(now time.Time) bool { return now.Sub(l.at) > LockTime }

// NewLocks makes an empty table without a file. now may be nil, then it is time.Now.
func NewLocks(now func() time.Time) *Locks {
	if now == nil {
		now = time.Now
	}
	return &Locks{
		now: now, groups: map[string]map[protocol.MessageQueue]lock{},
		channels: map[Channel]map[string]bool{},
	}
}

// LockBatch locks queues for the client behind a connection and returns those it now holds, in the order of the request:
// a queue is granted when nobody holds it, when its lock expired and when the client holds it
// already, which renews it. A queue beyond the bounds of the table is not granted.
func (l *Locks) LockBatch(
	group, client string, ch Channel, queues []protocol.MessageQueue,
) []protocol.MessageQueue {
	now := l.now()
	granted := make([]protocol.MessageQueue, 0, len(queues))
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.groups[group]
	if held == nil {
		if len(queues) == 0 || len(l.groups) >= groupsMax && !l.sweepLocked(now) {
			return granted
		}
		held = map[protocol.MessageQueue]lock{}
		l.groups[group] = held
	}
	for _, q := range queues {
		old, taken := held[q]
		if taken && old.client != client && !old.expired(now) || !taken && len(held) >= queuesMax {
			continue
		}
		held[q] = lock{client: client, ch: ch, at: now}
		if old.client != client {
			l.changedLocked()
		}
		granted = append(granted, q)
	}
	if len(granted) > 0 {
		in := l.channels[ch]
		if in == nil {
			in = map[string]bool{}
			l.channels[ch] = in
		}
		in[group] = true
	}
	return granted
}

// Release gives up the locks of a connection that has closed, except those that their client has
// renewed over another one. RocketMQ lets them lapse, which takes up to LockTime.
func (l *Locks) Release(ch Channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for group := range l.channels[ch] {
		l.dropLocked(group, func(_ protocol.MessageQueue, k lock) bool { return k.ch == ch })
	}
	delete(l.channels, ch)
}

// ReleaseClient gives up the locks of a client that leaves a group.
func (l *Locks) ReleaseClient(group, client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(group, func(_ protocol.MessageQueue, k lock) bool { return k.client == client })
}

// RemoveTopic forgets the locks of a topic's queues.
func (l *Locks) RemoveTopic(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for group := range l.groups {
		l.dropLocked(group, func(q protocol.MessageQueue, _ lock) bool { return q.Topic == topic })
	}
}

func (l *Locks) dropLocked(group string, gone func(protocol.MessageQueue, lock) bool) {
	held := l.groups[group]
	before := len(held)
	maps.DeleteFunc(held, gone)
	if len(held) != before {
		l.changedLocked()
	}
	if len(held) == 0 {
		delete(l.groups, group)
	}
}

// UnlockBatch gives up the client's locks among queues; locks of others stay.
func (l *Locks) UnlockBatch(group, client string, queues []protocol.MessageQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.groups[group]
	for _, q := range queues {
		if held[q].client == client {
			delete(held, q)
			l.changedLocked()
		}
	}
	if len(held) == 0 {
		delete(l.groups, group)
	}
}

// HasUnexpired tells whether anybody holds a live lock in the group, which is how the broker knows
// that a group consumes in order.
func (l *Locks) HasUnexpired(group string) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.groups[group] {
		if !k.expired(now) {
			return true
		}
	}
	return false
}

// RemoveGroup forgets the locks of a group that was deleted.
func (l *Locks) RemoveGroup(group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.groups[group]) > 0 {
		l.changedLocked()
	}
	delete(l.groups, group)
}

// sweepLocked drops groups without a live lock and tells whether there is room now.
func (l *Locks) sweepLocked(now time.Time) bool {
	for name, held := range l.groups {
		for q, k := range held {
			if k.expired(now) {
				delete(held, q)
			}
		}
		if len(held) == 0 {
			delete(l.groups, name)
		}
	}
	return len(l.groups) < groupsMax
}
