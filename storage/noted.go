// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"slices"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// noted is what the appender remembers of the newest records for the indexer: their keys, found while
// the records were in its caches. Reading them back from the log some 50 ms later cost a sixth of the
// broker's time with 1 KB messages and a quarter with batches, most of it cache misses. Whatever is not
// noted the indexer still reads from the log: what an earlier run wrote, and what came after the list
// was full.
//
// The put lock guards the store's; one that was taken is the indexer's.
type noted struct {
	from, to record.PhysicalOffset // every key of the records of [from, to) is in list
	list     []indexfile.Note      // in the order of the log
	full     bool                  // a record found no room: nothing more is noted
}

// notedMax bounds the list: half of it holds what comes in one indexDelay at 300 000 messages a second
// with one key each. At half the indexer is told to hurry.
const notedMax = 32 << 10

func newNoted() noted { return noted{list: make([]indexfile.Note, 0, notedMax)} }

// covers reports whether the keys of the record at an offset are noted.
func (n *noted) covers(at record.PhysicalOffset) bool { return n.from <= at && at < n.to }

// noteLocked notes the keys of one record, which was just written. Cost: no allocation.
func (s *Store) noteLocked(d *record.Draft, keys indexfile.Keys, at record.PhysicalOffset, now int64) {
	n := &s.noted
	if s.indexer == nil || n.full {
		return
	}
	before := len(n.list)
	if before+keys.Max() > notedMax {
		n.to, n.full = at, true
		return
	}
	n.list = s.noter.Append(n.list, d.SysFlag, d.Topic, keys, at, now)
	if before < notedMax/2 && len(n.list) >= notedMax/2 {
		signal(s.indexer.hurry)
	}
}

// notedLocked ends a round in which every record was noted, unless the list is full.
func (s *Store) notedLocked() {
	if n := &s.noted; !n.full {
		n.to = s.next
	}
}

// unnoteLocked forgets what a round noted whose records are not kept: the list had length notes, and
// the log ended at next.
func (s *Store) unnoteLocked(length int, next record.PhysicalOffset) {
	n := &s.noted
	n.list = n.list[:min(length, len(n.list))]
	n.to = min(n.to, next)
}

// takeNoted gives the indexer what is noted and begins anew, in the list that it brings.
func (s *Store) takeNoted(spare []indexfile.Note) noted {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.noted
	s.noted = noted{from: s.next, to: s.next, list: spare[:0]}
	return taken
}

// putNoted indexes what is noted of [x.next, end) and moves next.
func (x *indexer) putNoted(end record.PhysicalOffset) error {
	to := min(x.noted.to, end)
	list := x.noted.list
	stop, _ := slices.BinarySearchFunc(list, to, func(n indexfile.Note, at record.PhysicalOffset) int {
		return int(min(max(n.At-at, -1), 1))
	})
	if err := x.index.PutNotes(list[:max(stop, x.put)], &x.put); err != nil {
		return err
	}
	x.next.Store(int64(to))
	return nil
}
