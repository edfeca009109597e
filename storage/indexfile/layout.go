// SPDX-License-Identifier: Apache-2.0

package indexfile

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/skylarkmq/skylark/storage/record"
)

// Layout of a file (RocketMQ IndexHeader, IndexFile). All numbers are big-endian. Only this file
// knows positions.
const (
	offBeginMS   = 0  // int64, store time of the first indexed message, milliseconds
	offEndMS     = 8  // int64, store time of the last one
	offBeginAt   = 16 // int64, physical offset of the first indexed message
	offEndAt     = 24 // int64, physical offset of the last one
	offSlotsUsed = 32 // int32, slots that are not empty
	offCount     = 36 // int32, number of the next entry; they start at 1, and 0 reads as 1
	headerSize   = 40

	slotSize = 4 // int32, number of the newest entry of the chain, 0 none

	entHash   = 0  // int32, hash of topic#key, not negative
	entAt     = 4  // int64, physical offset of the message
	entDelta  = 12 // int32, seconds between the file's begin and the store time
	entPrev   = 16 // int32, number of the next older entry of the chain, 0 none
	entrySize = 20

	// DefaultSlots and DefaultEntries are RocketMQ's maxHashSlotNum and maxIndexNum.
	DefaultSlots   = 5_000_000
	DefaultEntries = 20_000_000
)

// Header is the head of a file.
type Header struct {
	BeginMS, EndMS int64 // milliseconds
	BeginAt, EndAt record.PhysicalOffset
	SlotsUsed      int32
	Count          int32 // number of the next entry, at least 1
}

// entry is one indexed key.
type entry struct {
	hash  int32
	at    record.PhysicalOffset
	delta int32 // seconds
	prev  int32
}

// shape is what the configuration says about all files.
type shape struct{ slots, entries int32 }

func (s shape) size() int64 {
	return headerSize + int64(s.slots)*slotSize + int64(s.entries)*entrySize
}

func (s shape) slot(hash int32) int64 { return headerSize + int64(hash%s.slots)*slotSize }

func (s shape) entry(n int32) int64 {
	return headerSize + int64(s.slots)*slotSize + int64(n)*entrySize
}

// ReadHeader reads the head of a file, for those who only look at it.
func ReadHeader(r io.ReaderAt) (Header, error) {
	var b [headerSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return Header{}, fmt.Errorf("indexfile: read the head: %w", err)
	}
	return decodeHeader(b[:]), nil
}

func decodeHeader(b []byte) Header {
	be := binary.BigEndian
	return Header{
		BeginMS: int64(be.Uint64(b[offBeginMS:])), EndMS: int64(be.Uint64(b[offEndMS:])),
		BeginAt:   record.PhysicalOffset(be.Uint64(b[offBeginAt:])),
		EndAt:     record.PhysicalOffset(be.Uint64(b[offEndAt:])),
		SlotsUsed: int32(be.Uint32(b[offSlotsUsed:])),
		Count:     max(int32(be.Uint32(b[offCount:])), 1),
	}
}

func (h Header) encode(b []byte) {
	be := binary.BigEndian
	be.PutUint64(b[offBeginMS:], uint64(h.BeginMS))
	be.PutUint64(b[offEndMS:], uint64(h.EndMS))
	be.PutUint64(b[offBeginAt:], uint64(h.BeginAt))
	be.PutUint64(b[offEndAt:], uint64(h.EndAt))
	be.PutUint32(b[offSlotsUsed:], uint32(h.SlotsUsed))
	be.PutUint32(b[offCount:], uint32(h.Count))
}

func decodeEntry(b []byte) entry {
	be := binary.BigEndian
	return entry{
		hash: int32(be.Uint32(b[entHash:])), at: record.PhysicalOffset(be.Uint64(b[entAt:])),
		delta: int32(be.Uint32(b[entDelta:])), prev: int32(be.Uint32(b[entPrev:])),
	}
}

func (e entry) encode(b []byte) {
	be := binary.BigEndian
	be.PutUint32(b[entHash:], uint32(e.hash))
	be.PutUint64(b[entAt:], uint64(e.at))
	be.PutUint32(b[entDelta:], uint32(e.delta))
	be.PutUint32(b[entPrev:], uint32(e.prev))
}

// hash is what files are searched by: the absolute value of Java's String hash, which begins with that
// of a prefix; the one value that has none is 0.
func hash(prefix int32, text []byte) int32 {
	h := record.HashMore(prefix, text)
	return max(max(h, -h), 0)
}

// FileSize returns the size in bytes of a file of so many slots and entries.
func FileSize(slots, entries int32) int64 { return shape{slots, entries}.size() }
