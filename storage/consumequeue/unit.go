// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"encoding/binary"
	"math"

	"github.com/skylarkmq/skylark/storage/record"
)

// Layout of a unit (RocketMQ ConsumeQueue). Big-endian. Only this file knows positions.
const (
	offAt       = 0  // int64, physical offset of the record
	offSize     = 8  // int32, total size of the record in bytes
	offTagsCode = 12 // int64, see Unit.TagsCode

	// UnitSize is the size of a unit in bytes.
	UnitSize = 20
	// DefaultFileSize is RocketMQ's mappedFileSizeConsumeQueue: 300 000 units.
	DefaultFileSize = 300_000 * UnitSize

	// fillerSize marks a unit in front of the first message of a queue that does not start at 0.
	fillerSize = math.MaxInt32

	// extAddressMax is the greatest tags code that is the address of an extension record.
	extAddressMax = math.MinInt32 - 1
)

// Unit is the entry of one message in its queue.
type Unit struct {
	At   record.PhysicalOffset // start of the record in the log
	Size int32                 // of the record, in bytes
	// TagsCode is the Java hash of the message's tag, sign-extended; 0 without one. In
	// SCHEDULE_TOPIC_XXXX it is the delivery time in milliseconds.
	TagsCode int64
}

// End returns the physical offset behind the record.
func (u Unit) End() record.PhysicalOffset { return u.At + record.PhysicalOffset(u.Size) }

// Filler reports whether u only keeps the place of a message that is not there.
func (u Unit) Filler() bool { return u.Size == fillerSize && u.At == 0 }

// Zero reports whether u was never written.
func (u Unit) Zero() bool { return u == Unit{} }

// Ext reports whether TagsCode is the address of a ConsumeQueueExt record, so that the tag of the
// message is not known here.
func (u Unit) Ext() bool { return u.TagsCode <= extAddressMax }

// DecodeUnit reads the unit at the start of b, which must hold UnitSize bytes.
func DecodeUnit(b []byte) Unit {
	b = b[:UnitSize]
	return Unit{
		At:       record.PhysicalOffset(binary.BigEndian.Uint64(b[offAt:])),
		Size:     int32(binary.BigEndian.Uint32(b[offSize:])),
		TagsCode: int64(binary.BigEndian.Uint64(b[offTagsCode:])),
	}
}

// Encode writes u to the first UnitSize bytes of b.
func (u Unit) Encode(b []byte) {
	b = b[:UnitSize]
	binary.BigEndian.PutUint64(b[offAt:], uint64(u.At))
	binary.BigEndian.PutUint32(b[offSize:], uint32(u.Size))
	binary.BigEndian.PutUint64(b[offTagsCode:], uint64(u.TagsCode))
}

// fill writes fillers over all of b, whose length is a multiple of UnitSize.
func fill(b []byte) {
	for ; len(b) > 0; b = b[UnitSize:] {
		Unit{Size: fillerSize}.Encode(b)
	}
}
