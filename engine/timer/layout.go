// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"encoding/binary"

	"github.com/skylarkmq/skylark/storage/record"
)

// Only this file knows positions. All numbers are big-endian.
//
// A slot of the wheel (RocketMQ Slot): the messages of one tick.
const (
	slotSize     = 32
	offSlotTick  = 0  // int64, time of the tick in ticks
	offSlotFirst = 8  // int64, position in the timer log of its first unit, -1
	offSlotLast  = 16 // int64, of its last
	offSlotCount = 24 // int32, units that deliver a message less those that recall one

	// slotsTotal is how many slots the wheel has, whatever the precision: a tick lies in slot
	// tick % slotsTotal (RocketMQ TimerMessageStore.TIMER_WHEEL_TTL_DAY, twice).
	slotsTotal = 2 * 7 * 24 * 3600
	wheelSize  = slotsTotal * slotSize
)

// A unit of the timer log (RocketMQ TimerLog): one message in its slot.
const (
	unitSize    = 52
	offUnitSize = 0  // int32, unitSize
	offUnitPrev = 4  // int64, position of the unit before in the same slot, -1
	offUnitBits = 12 // int32
	offUnitTime = 16 // int64, tick in which it was written, in milliseconds
	offUnitWait = 24 // int32, time of the slot less that
	offUnitAt   = 28 // int64, place of the record in the CommitLog
	offUnitLen  = 36 // int32, size of the record
	offUnitHash = 40 // int32, Java hash of the real topic

	bitUnit   = 1 // every unit
	bitRoll   = 2 // not due yet: to be put into the timer topic again
	bitDelete = 4 // recalls another message
	bitsKnown = 0xF

	// blankRoom is what must be left behind a unit in its file, for the end mark.
	blankRoom  = 16
	blankMagic = 0xCBD43194
)

type slot struct {
	tick        int64
	first, last int64
	count       int32
}

func decodeSlot(b []byte) slot {
	be := binary.BigEndian
	return slot{
		tick: int64(be.Uint64(b[offSlotTick:])), first: int64(be.Uint64(b[offSlotFirst:])),
		last: int64(be.Uint64(b[offSlotLast:])), count: int32(be.Uint32(b[offSlotCount:])),
	}
}

func (s slot) encode(b []byte) {
	be := binary.BigEndian
	be.PutUint64(b[offSlotTick:], uint64(s.tick))
	be.PutUint64(b[offSlotFirst:], uint64(s.first))
	be.PutUint64(b[offSlotLast:], uint64(s.last))
	be.PutUint32(b[offSlotCount:], uint32(s.count))
	be.PutUint32(b[offSlotCount+4:], 0)
}

type unit struct {
	prev    int64
	bits    uint32
	writeMS int64
	waitMS  int32
	at      record.PhysicalOffset
	size    int32
	hash    int32
}

// dueMS is the time of the unit's slot.
func (u unit) dueMS() int64 { return u.writeMS + int64(u.waitMS) }

// decodeUnit reads a unit; ok is false for what is none.
func decodeUnit(b []byte) (u unit, ok bool) {
	be := binary.BigEndian
	u = unit{
		prev: int64(be.Uint64(b[offUnitPrev:])), bits: be.Uint32(b[offUnitBits:]),
		writeMS: int64(be.Uint64(b[offUnitTime:])), waitMS: int32(be.Uint32(b[offUnitWait:])),
		at:   record.PhysicalOffset(be.Uint64(b[offUnitAt:])),
		size: int32(be.Uint32(b[offUnitLen:])), hash: int32(be.Uint32(b[offUnitHash:])),
	}
	ok = be.Uint32(b[offUnitSize:]) == unitSize && u.bits&bitUnit != 0 && u.bits&^bitsKnown == 0 &&
		u.at >= 0 && u.size >= record.MinSize && u.prev >= -1
	return u, ok
}

func (u unit) append(dst []byte) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, unitSize)
	dst = be.AppendUint64(dst, uint64(u.prev))
	dst = be.AppendUint32(dst, u.bits)
	dst = be.AppendUint64(dst, uint64(u.writeMS))
	dst = be.AppendUint32(dst, uint32(u.waitMS))
	dst = be.AppendUint64(dst, uint64(u.at))
	dst = be.AppendUint32(dst, uint32(u.size))
	dst = be.AppendUint32(dst, uint32(u.hash))
	return be.AppendUint64(dst, 0)
}

// appendBlank ends a file that has so many bytes left.
func appendBlank(dst []byte, left int64) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(left))
	dst = be.AppendUint64(dst, 0)
	return be.AppendUint32(dst, blankMagic)
}
