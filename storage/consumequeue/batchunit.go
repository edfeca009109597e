// SPDX-License-Identifier: Apache-2.0

package consumequeue

import (
	"encoding/binary"

	"github.com/skylarkmq/skylark/storage/record"
)

// Layout of a unit of a batch queue (RocketMQ BatchConsumeQueue): first what a Unit has, then this.
const (
	offStoreMS   = 20 // int64, store time of the record
	offBase      = 28 // int64, queue offset of the first message
	offCount     = 36 // int16, messages of the record
	offCompacted = 38 // int32, -1: place in a compacted log, which these files never are
	offReserved  = 42 // int32, 0

	// BatchUnitSize is the size of a unit of a batch queue in bytes.
	BatchUnitSize = 46
	// DefaultBatchFileSize is RocketMQ's mapperFileSizeBatchConsumeQueue: 300 000 units.
	DefaultBatchFileSize = 300_000 * BatchUnitSize
	// MaxBatchCount is how many messages a record can have.
	MaxBatchCount = 1<<15 - 1

	notCompacted = -1
)

// BatchUnit is the entry of one record in a batch queue. The record holds Count messages, which have
// the queue offsets from Base on.
type BatchUnit struct {
	Unit
	StoreMS int64
	Base    record.QueueOffset
	Count   int16
}

// Behind returns the queue offset behind the last message of the record.
func (u BatchUnit) Behind() record.QueueOffset { return u.Base + record.QueueOffset(u.Count) }

// valid reports whether u can be an entry (RocketMQ BatchConsumeQueue.recover).
func (u BatchUnit) valid() bool { return u.At >= 0 && u.Size > 0 && u.Base >= 0 && u.Count > 0 }

// DecodeBatchUnit reads the unit at the start of b, which must hold BatchUnitSize bytes.
func DecodeBatchUnit(b []byte) BatchUnit {
	b = b[:BatchUnitSize]
	return BatchUnit{
		Unit:    DecodeUnit(b),
		StoreMS: int64(binary.BigEndian.Uint64(b[offStoreMS:])),
		Base:    record.QueueOffset(binary.BigEndian.Uint64(b[offBase:])),
		Count:   int16(binary.BigEndian.Uint16(b[offCount:])),
	}
}

// Encode writes u to the first BatchUnitSize bytes of b.
func (u BatchUnit) Encode(b []byte) {
	b = b[:BatchUnitSize]
	u.Unit.Encode(b)
	binary.BigEndian.PutUint64(b[offStoreMS:], uint64(u.StoreMS))
	binary.BigEndian.PutUint64(b[offBase:], uint64(u.Base))
	binary.BigEndian.PutUint16(b[offCount:], uint16(u.Count))
	compacted := int32(notCompacted)
	binary.BigEndian.PutUint32(b[offCompacted:], uint32(compacted))
	binary.BigEndian.PutUint32(b[offReserved:], 0)
}
