// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"sync"

	"github.com/skylarkmq/skylark/perf/measure"
)

// missingMost bounds the runs of numbers that one stream lists as never answered: its closing
// message carries them, 16 bytes each, and a checker remembers no more holes either.
const missingMost = 1 << 16

// stream numbers what one life of a connection sends to one queue.
type stream struct {
	number uint32
	target target
	index  int // of target, among those of the connection
	next   uint64
	floor  uint64 // every number below was answered

	answered map[uint64]uint64 // count by first number, of answers above floor
	missing  []measure.Range   // refused, or without an answer when the connection died
	unlisted uint64            // numbers that missing had no room for
}

// done marks numbers as answered and moves the floor.
func (s *stream) done(first, count uint64) {
	floor := s.floor
	if first != floor {
		s.answered[first] = count
		return
	}
	floor += count
	for len(s.answered) > 0 {
		n, ok := s.answered[floor]
		if !ok {
			break
		}
		delete(s.answered, floor)
		floor += n
	}
	s.floor = floor
}

func (s *stream) miss(first, count uint64) {
	if n := len(s.missing); n > 0 && s.missing[n-1].First+s.missing[n-1].Count == first {
		s.missing[n-1].Count += count
		return
	}
	if len(s.missing) == missingMost {
		s.unlisted += count
		return
	}
	s.missing = append(s.missing, measure.Range{First: first, Count: count})
}

// streams hands out stream numbers of a run and keeps those that ended with their connection, so
// that each gets its closing message.
type streams struct {
	run uint64

	mu    sync.Mutex
	last  uint32
	ended []*stream
}

// open starts one stream for each target.
func (ss *streams) open(targets []target) []*stream {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	list := make([]*stream, len(targets))
	for i := range targets {
		ss.last++
		list[i] = &stream{
			number: ss.last, target: targets[i], index: i, answered: map[uint64]uint64{},
		}
	}
	return list
}

// close keeps the streams of a connection that is gone.
func (ss *streams) close(list []*stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, s := range list {
		s.answered = nil // nothing of it is in flight any more
		if s.next > 0 {
			ss.ended = append(ss.ended, s)
		}
	}
}
