// SPDX-License-Identifier: Apache-2.0

package group

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// LocksFileName is the name of the file of Locks in the configuration folder. It is ours: RocketMQ
// keeps its locks in memory only, and leaves the file alone.
const LocksFileName = "queueLocks.json"

const (
	// restoredTime is how long a lock of before a restart lives without renewal. Clients renew every
	// 20 s and connect anew within seconds.
	restoredTime = 25 * time.Second
	// ownTime is how long a client itself trusts a lock that it cannot renew (RocketMQ ProcessQueue,
	// rocketmq.client.rebalance.lockMaxLiveTime).
	ownTime = 30 * time.Second
	// savedMax bounds the locks in the file; more than that are not remembered.
	savedMax = 65536
	// locksSaveDelay collects changes: while a group finds its balance there are many.
	locksSaveDelay = 100 * time.Millisecond
)

// locksFile is the file. Who holds a queue is written when it changes, not when a lock is renewed.
type locksFile struct {
	ClosedMS int64      `json:"closedTimestamp"` // 0: the broker runs, or was killed
	Held     []heldLock `json:"locks"`
}

type heldLock struct {
	Group  string                  `json:"consumerGroup"`
	Client string                  `json:"clientId"`
	Queues []protocol.MessageQueue `json:"mqSet"`
}

// OpenLocks makes a table that outlives the broker: a holder that goes on working while the broker
// starts anew must not find that another one was given its queue. Locks from the file in dir are given
// away after 25 s without renewal. A lock that was taken less than 100 ms before a kill may be missing.
// Where every copy of the file is damaged it fails and names them, unless allowEmpty. now and notice may
// be nil.
func OpenLocks(
	dir string, allowEmpty bool, now func() time.Time, notice func(msg string, kv ...any),
) (*Locks, error) {
	l := NewLocks(now)
	l.path = filepath.Join(dir, LocksFileName)
	l.notice = notice
	if notice == nil {
		l.notice = func(string, ...any) {}
	}
	var f locksFile
	loaded, err := vfs.LoadTable(vfs.Table{
		Path: l.path, What: "queue locks of before", AllowEmpty: allowEmpty, Notice: l.notice,
	}, func(data []byte) error {
		f = locksFile{}
		return protocol.Unmarshal(data, &f)
	})
	if err != nil {
		return nil, fmt.Errorf("group: load %s: %w", l.path, err)
	}
	if loaded {
		l.restore(&f)
	}
	return l, nil
}

func (l *Locks) restore(f *locksFile) {
	begun := l.now()
	if f.ClosedMS > 0 && begun.Sub(time.UnixMilli(f.ClosedMS)) > ownTime {
		return // their holders have stopped by themselves
	}
	at := begun.Add(restoredTime - LockTime)
	for _, h := range f.Held {
		if h.Group == "" || h.Client == "" || len(l.groups) >= groupsMax {
			continue
		}
		held := l.groups[h.Group]
		if held == nil {
			held = map[protocol.MessageQueue]lock{}
			l.groups[h.Group] = held
		}
		for _, q := range h.Queues {
			if len(held) < queuesMax {
				held[q] = lock{client: h.Client, at: at}
			}
		}
	}
}

// changedLocked has the file written soon.
func (l *Locks) changedLocked() {
	if l.path == "" || l.closed || l.armed {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(locksSaveDelay, l.save)
	} else {
		l.timer.Reset(locksSaveDelay)
	}
}

func (l *Locks) save() {
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	l.armed = false
	closed := l.closed
	f := l.snapshotLocked()
	l.mu.Unlock()
	if closed {
		return // Close has written, or will
	}
	if err := l.write(f); err != nil {
		l.notice("queue locks not written, a restart forgets them", "err", err)
	}
}

// Close writes the locks as they are and remembers no later change: connections that the end of the
// broker closes give nothing up. The table can still be used.
func (l *Locks) Close() error {
	l.mu.Lock()
	if l.path == "" || l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	f := l.snapshotLocked()
	l.mu.Unlock()
	f.ClosedMS = l.now().UnixMilli()
	l.saving.Lock() // a save under way must not come after this one
	defer l.saving.Unlock()
	return l.write(f)
}

func (l *Locks) write(f *locksFile) error {
	if err := vfs.WriteFileAtomic(l.path, protocol.MarshalFastJSON(f)); err != nil {
		return fmt.Errorf("group: write %s: %w", l.path, err)
	}
	return nil
}

// snapshotLocked lists the live locks, sorted.
func (l *Locks) snapshotLocked() *locksFile {
	type holder struct{ group, client string }
	now, left := l.now(), savedMax
	byHolder := map[holder][]protocol.MessageQueue{}
	for group, held := range l.groups {
		for q, k := range held {
			if left > 0 && !k.expired(now) {
				byHolder[holder{group, k.client}] = append(byHolder[holder{group, k.client}], q)
				left--
			}
		}
	}
	f := &locksFile{Held: make([]heldLock, 0, len(byHolder))}
	for h, queues := range byHolder {
		slices.SortFunc(queues, func(a, b protocol.MessageQueue) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.BrokerName, b.BrokerName),
				cmp.Compare(a.QueueID, b.QueueID))
		})
		f.Held = append(f.Held, heldLock{Group: h.group, Client: h.client, Queues: queues})
	}
	slices.SortFunc(f.Held, func(a, b heldLock) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Client, b.Client))
	})
	return f
}
