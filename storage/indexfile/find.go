// SPDX-License-Identifier: Apache-2.0

package indexfile

import (
	"fmt"

	"github.com/skylarkmq/skylark/storage/record"
)

// QueryMax is the greatest number of offsets a query returns (RocketMQ maxMsgsNumBatch).
const QueryMax = 64

// Query says what to look for.
type Query struct {
	Topic, Key string
	// Tags looks for the complete tag string Key instead of a key or unique id.
	Tags bool
	// Max bounds the result; it is cut to QueryMax.
	Max            int
	BeginMS, EndMS int64 // store time, milliseconds, both included
}

// Find returns the physical offsets of candidates, newest first. Offsets of records that are gone
// may be among them, and records with other keys of the same hash. It may block for the disk.
func (ix *Index) Find(q Query) ([]record.PhysicalOffset, error) {
	text := q.Topic + "#" + q.Key
	if q.Tags {
		text = q.Topic + "#T#" + q.Key
	}
	h, limit := hash(0, []byte(text)), min(q.Max, QueryMax)
	var found []record.PhysicalOffset
	for i := ix.count() - 1; i >= 0 && len(found) < limit; i-- {
		more, err := ix.findIn(i, &found, h, limit, q)
		if err != nil {
			return found, fmt.Errorf("indexfile: find %q: %w", text, err)
		}
		if !more {
			break
		}
	}
	return found, nil
}

func (ix *Index) count() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return len(ix.files)
}

// findIn looks into one file and reports whether older ones may hold more. An old file is mapped
// for the time of the search.
func (ix *Index) findIn(i int, found *[]record.PhysicalOffset, h int32, limit int, q Query) (
	more bool, err error,
) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if i >= len(ix.files) {
		return true, nil // files were removed meanwhile
	}
	f := ix.files[i]
	if f.header.BeginMS <= q.EndMS && f.header.EndMS >= q.BeginMS {
		reader := f
		if f.mem == nil {
			reader = &file{path: f.path}
			if err := reader.mapFile(ix.cfg.FS, ix.shape.size(), false); err != nil {
				return false, err
			}
			defer func() {
				if e := reader.unmap(); err == nil {
					err = e
				}
			}()
		}
		*found = reader.find(*found, ix.shape, h, limit, q.BeginMS, q.EndMS)
	}
	return f.header.BeginMS >= q.BeginMS, nil
}
