// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"runtime/debug"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

const (
	queryRounds = 3
	// queryWait bounds how long a query waits for the indexer to reach what was visible before it.
	queryWait = time.Second
)

// QueryRequest asks for messages by key.
type QueryRequest struct {
	Topic, Key     string
	Tags           bool // Key is a complete tag string
	Max            int
	BeginMS, EndMS int64 // store time, milliseconds
}

// QueryResult is what a query found.
type QueryResult struct {
	// Regions are the records, one each, by physical offset. They are candidates: the index knows
	// only hashes of keys. The caller releases each.
	Regions []zerocopy.Region
	// LastUpdateMS and LastUpdateAt are store time and place of the newest indexed message.
	LastUpdateMS int64
	LastUpdateAt record.PhysicalOffset
}

// Query finds messages by key or unique id (RocketMQ DefaultMessageStore.queryMessage). All that
// was visible before the call is found, unless the indexer is far behind after a start. It blocks
// for the disk and must not be called on an event loop.
func (s *Store) Query(topic, key string, limit int, beginMS, endMS int64) (QueryResult, error) {
	return s.Find(QueryRequest{Topic: topic, Key: key, Max: limit, BeginMS: beginMS, EndMS: endMS})
}

// Find is Query with all its parameters.
func (s *Store) Find(req QueryRequest) (res QueryResult, err error) {
	if s.closed.Load() {
		return res, ErrClosed
	}
	if s.indexer == nil {
		return res, nil
	}
	s.indexer.catchUp(queryWait)
	defer faulted(debug.SetPanicOnFault(true), &err)
	index := s.indexer.index
	endMS := req.EndMS
	for range queryRounds {
		offsets, err := index.Find(indexfile.Query{
			Topic: req.Topic, Key: req.Key, Tags: req.Tags, Max: req.Max,
			BeginMS: req.BeginMS, EndMS: endMS,
		})
		res.LastUpdateMS, res.LastUpdateAt = index.Last()
		if err != nil {
			return res, err
		}
		if len(offsets) == 0 {
			break
		}
		slices.Sort(offsets)
		offsets = slices.Compact(offsets)
		oldest := int64(-1)
		for _, at := range offsets {
			region, err := s.RecordAt(at)
			if err != nil {
				continue // deleted with its log file, or an entry of a record that a crash took
			}
			v, err := record.Parse(region.Mem)
			if err != nil || string(v.Topic()) != req.Topic {
				region.Release()
				continue
			}
			if oldest < 0 {
				oldest = v.StoreMS()
			}
			res.Regions = append(res.Regions, region)
		}
		if len(res.Regions) > 0 || oldest < req.BeginMS {
			break
		}
		endMS = oldest
	}
	return res, nil
}
