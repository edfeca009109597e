// SPDX-License-Identifier: Apache-2.0

// Package zerocopy owns file regions: ranges of a file that travel to a socket without a copy in
// this process, and the system calls that carry them.
//
// A Region is a value with one owner at a time. The owner releases it exactly once, on every path,
// from any goroutine; handing it to another component hands over that duty. The package knows
// neither who made a region (the store) nor who sends it (the event loop), so that these two need
// not know each other.
//
//	regions = zerocopy.Merge(regions)
//	for i := range regions {
//		n, err := zerocopy.Sendfile(sock, &regions[i], regions[i].Size)
//		...
//		regions[i].Release()
//	}
package zerocopy

import "io"

// Holder keeps in place what a Region points at: the mapping stays mapped and the descriptor stays
// open until Release. Release may be called from any goroutine and must not block.
type Holder interface{ Release() }

// Region is a range of a file, the same bytes in memory, or both. It has one owner, who releases it
// exactly once. The bytes must not change while anybody owns the region, and not before the peer
// has acknowledged them either: sendfile queues references to pages, not copies.
type Region struct {
	FD     int    // open descriptor for sendfile, or -1
	Off    int64  // first byte in the file
	Mem    []byte // the same bytes through a mapping; nil when only the file range is known
	Size   int    // bytes
	Holder Holder // nil: nothing to release
}

// Bytes returns a region over memory of the caller. The garbage collector keeps it alive; the
// caller must not change it until the region was sent, which only a Holder can tell.
func Bytes(b []byte) Region {
	return Region{FD: -1, Mem: b, Size: len(b)}
}

// Release gives up the hold. A second call on the same value does nothing; a copy of the value is a
// different owner, which must not exist.
func (r *Region) Release() {
	if h := r.Holder; h != nil {
		r.Holder = nil
		h.Release()
	}
}

// Advance drops the first n bytes of the region, which must not be more than Size.
func (r *Region) Advance(n int) {
	r.Off += int64(n)
	r.Size -= n
	if r.Mem != nil {
		r.Mem = r.Mem[n:]
	}
}

// Merge joins neighbours that are physically adjacent in one file and returns the shortened slice,
// which shares the array of rs. Surplus holds are released, since one hold per descriptor keeps the
// whole file in place; empty regions are released and dropped. The elements behind the result are
// cleared.
//
// Regions that know their mapping are joined only if the mapping goes on too, that is if the
// capacity of the first slice reaches over the second. Memory without a file is never joined.
func Merge(rs []Region) []Region {
	kept := 0
	for i := range rs {
		r := rs[i]
		if r.Size == 0 {
			r.Release()
			continue
		}
		if kept > 0 && rs[kept-1].join(&r) {
			continue
		}
		rs[kept] = r
		kept++
	}
	clear(rs[kept:])
	return rs[:kept]
}

// ReleaseAll releases every region of rs.
func ReleaseAll(rs []Region) {
	for i := range rs {
		rs[i].Release()
	}
}

// join appends next to r if it follows directly in the same file, and takes over its hold.
func (r *Region) join(next *Region) bool {
	if r.FD < 0 || r.FD != next.FD || r.Off+int64(r.Size) != next.Off {
		return false
	}
	switch {
	case r.Mem != nil && next.Mem != nil:
		size := len(r.Mem) + len(next.Mem)
		if cap(r.Mem) < size || &r.Mem[:size][len(r.Mem)] != &next.Mem[0] {
			return false
		}
		r.Mem = r.Mem[:size]
	default:
		r.Mem = nil
	}
	r.Size += next.Size
	if r.Holder == nil {
		r.Holder, next.Holder = next.Holder, nil
	}
	next.Release()
	return true
}

// short turns a count into what io.ReaderAt promises.
func short(got, want int) (int, error) {
	if got < want {
		return got, io.EOF
	}
	return got, nil
}
