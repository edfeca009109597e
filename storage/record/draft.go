// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Draft is a message on its way into the log. The byte slices stay the caller's and are only read.
//
// The caller keeps Topic within MaxTopic, Properties (with the 20 bytes of PropertyCRC) within
// MaxProperties and the whole record within an int32; Encode relies on it.
type Draft struct {
	Topic   []byte
	QueueID int32
	// Flag is the producer's own value, stored and returned as it is.
	Flag int32
	// SysFlag are Sys bits. SysBornHostV6 and SysStoreHostV6 are ignored: Encode sets them from the
	// type of the hosts, since a bit that disagrees makes the record unreadable.
	SysFlag        int32
	ReconsumeTimes int32
	// BornMS is the clock of the producer in milliseconds.
	BornMS int64
	// BornHost and StoreHost are IPv4 or IPv6, in any combination; the zero value is 0.0.0.0:0.
	BornHost, StoreHost netip.AddrPort
	// PreparedOffset is the place of the half message this record commits, else 0.
	PreparedOffset int64
	// Body is stored as it is, compressed or not.
	Body []byte
	// Properties is property text, see AppendProperty.
	Properties []byte
	// PropertyCRC adds RocketMQ's property __CRC32# over the whole record (enabledAppendPropCRC) to
	// the end of Properties, for 20 bytes more. Properties must not hold one already, and must end
	// with a separator unless they are empty or come from a batch entry.
	PropertyCRC bool
	// TagsCode is not stored; it goes with the draft to the ConsumeQueue.
	TagsCode int64
}

// Place is what the log decides about a record, under its lock.
type Place struct {
	Queue    QueueOffset
	Physical PhysicalOffset
	StoreMS  int64 // milliseconds, clock of the broker
}

// Size returns how many bytes the record takes.
func (d *Draft) Size() int {
	size := sizeFixed + 1 + 2 + len(d.Body) + len(d.Topic) + len(d.Properties)
	if len(d.Topic) > MaxTopicV1 {
		size++
	}
	if isV6(d.BornHost.Addr()) {
		size += growV6
	}
	if isV6(d.StoreHost.Addr()) {
		size += growV6
	}
	if d.PropertyCRC {
		size += propertyCRCSize
	}
	return size
}

// Encode writes the record into dst, whose length must be Size(). It cannot fail.
//
// Cost: no allocation, one copy of the body, one CRC over it (two with PropertyCRC).
func (d *Draft) Encode(dst []byte, at Place) {
	be := binary.BigEndian
	magic := uint32(magicV1)
	if len(d.Topic) > MaxTopicV1 {
		magic = magicV2
	}
	be.PutUint32(dst[offTotalSize:], uint32(len(dst)))
	be.PutUint32(dst[offMagic:], magic)
	be.PutUint32(dst[offBodyCRC:], maskedCRC(d.Body))
	be.PutUint32(dst[offQueueID:], uint32(d.QueueID))
	be.PutUint32(dst[offFlag:], uint32(d.Flag))
	be.PutUint64(dst[offQueueOffset:], uint64(at.Queue))
	be.PutUint64(dst[offPhysicalOffset:], uint64(at.Physical))
	be.PutUint32(dst[offSysFlag:], uint32(d.sysFlag()))
	be.PutUint64(dst[offBornMS:], uint64(d.BornMS))
	p := offBornHost
	p += putHost(dst[p:], d.BornHost)
	be.PutUint64(dst[p+relStoreMS:], uint64(at.StoreMS))
	p += relStoreHost
	p += putHost(dst[p:], d.StoreHost)
	be.PutUint32(dst[p+relReconsumeTimes:], uint32(d.ReconsumeTimes))
	be.PutUint64(dst[p+relPreparedOffset:], uint64(d.PreparedOffset))
	be.PutUint32(dst[p+relBodyLen:], uint32(len(d.Body)))
	p += relBody
	p += copy(dst[p:], d.Body)
	if magic == magicV1 {
		dst[p] = byte(len(d.Topic))
		p++
	} else {
		be.PutUint16(dst[p:], uint16(len(d.Topic)))
		p += 2
	}
	p += copy(dst[p:], d.Topic)
	be.PutUint16(dst[p:], uint16(len(dst)-p-2)) // the rest, with PropertyCRC if there is one
	p += 2
	p += copy(dst[p:], d.Properties)
	if d.PropertyCRC {
		putPropertyCRC(dst[p:], maskedCRC(dst[:p]))
	}
}

// sysFlag returns SysFlag with the host bits as the hosts are.
func (d *Draft) sysFlag() int32 {
	flag := d.SysFlag &^ (SysBornHostV6 | SysStoreHostV6)
	if isV6(d.BornHost.Addr()) {
		flag |= SysBornHostV6
	}
	if isV6(d.StoreHost.Addr()) {
		flag |= SysStoreHostV6
	}
	return flag
}

// putHost writes address and port and returns how many bytes that took.
func putHost(dst []byte, host netip.AddrPort) int {
	addr, n := host.Addr(), 4
	switch {
	case isV6(addr):
		a := addr.As16()
		n = copy(dst, a[:])
	case addr.IsValid():
		a := addr.As4()
		copy(dst, a[:])
	default:
		clear(dst[:n])
	}
	binary.BigEndian.PutUint32(dst[n:], uint32(host.Port()))
	return n + 4
}

// maskedCRC is the check sum of RocketMQ (UtilAll.crc32): IEEE, top bit cleared so that it is never
// negative in Java.
func maskedCRC(b []byte) uint32 { return crc32.ChecksumIEEE(b) & 0x7FFFFFFF }

// PutBlank writes the filler that ends a segment: it claims size bytes, of which only the first
// BlankSize are written. dst must hold BlankSize bytes.
func PutBlank(dst []byte, size int) {
	binary.BigEndian.PutUint32(dst[offTotalSize:], uint32(size))
	binary.BigEndian.PutUint32(dst[offMagic:], magicBlank)
}
