// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/skylarkmq/skylark/storage/mappedfile"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// coldSpan is the most bytes between the first and the last record of a read that are asked about
// together.
const coldSpan = 4 << 20

// cold reports whether regions of the log, in ascending order from offset first on, may have to be
// read from disk; last is in the last of them. Bytes near the end that this run wrote are known to
// be in memory. About others the kernel is asked: about everything from the first to the last at
// once, and only when some of that is missing about each. Where it cannot tell they are cold.
func (s *Store) cold(first, last record.PhysicalOffset, regions []zerocopy.Region) bool {
	if len(regions) == 0 || s.Hot(first) {
		return false
	}
	segment := record.PhysicalOffset(s.cfg.SegmentSize)
	base := first - first%segment
	end := record.PhysicalOffset(regions[len(regions)-1].Off) + base +
		record.PhysicalOffset(regions[len(regions)-1].Size)
	if last < base+segment && end-first <= coldSpan && len(regions) > 1 {
		if resident, err := s.log.Resident(first, int32(end-first)); err == nil && resident {
			return false
		}
	}
	before := int64(-1)
	for i := range regions {
		if regions[i].Off < before {
			base += segment
		}
		before = regions[i].Off
		at := base + record.PhysicalOffset(before)
		if resident, err := s.log.Resident(at, int32(regions[i].Size)); err != nil || !resident {
			return true
		}
	}
	return false
}

// warmStep is how much Warm reads at once, in bytes.
const warmStep = 256 << 10

// Bounds of what is read ahead behind a cold read, in bytes.
const prefetchMin, prefetchMax = 256 << 10, 4 << 20

// Warm brings regions of one read into the page cache by reading them, and has the kernel fetch what
// the next reads of the same queue will find behind them. It blocks for the disk, so it belongs into a
// reader pool and not on an event loop. The regions stay the caller's.
func (s *Store) Warm(rs []zerocopy.Region) error {
	if len(rs) == 0 {
		return nil
	}
	s.colds.reads.Add(1)
	buf, _ := s.warmed.Get().(*[warmStep]byte)
	if buf == nil {
		buf = new([warmStep]byte)
	}
	defer s.warmed.Put(buf)
	for i := range rs {
		r := &rs[i]
		s.colds.bytes.Add(int64(r.Size))
		for at := 0; at < r.Size; at += warmStep {
			n := min(warmStep, r.Size-at)
			if _, err := r.ReadAt(buf[:n], int64(at)); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("storage: read %d bytes from disk: %w", n, err)
			}
		}
	}
	last := &rs[len(rs)-1]
	if file, ok := last.Holder.(*mappedfile.File); ok {
		// Messages of other queues lie between: the next read spans about as much as this one.
		span := last.Off + int64(last.Size) - rs[0].Off
		file.Prefetch(int(last.Off)+last.Size, int(min(max(2*span, prefetchMin), prefetchMax)))
	}
	return nil
}
