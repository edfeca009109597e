// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
)

// Parse errors. They are plain values because recovery meets one per byte while it searches.
var (
	// ErrShort says that the bytes end before the record does.
	ErrShort = errors.New("record: parse: bytes end before the record")
	// ErrMagic says that no record begins here; a zero tail gives this.
	ErrMagic = errors.New("record: parse: unknown magic")
	// ErrBlank says that the filler of a segment begins here; the rest of the segment is unused.
	ErrBlank = errors.New("record: parse: end of segment")
	// ErrLength says that the lengths inside the record contradict its total size.
	ErrLength = errors.New("record: parse: lengths disagree with the total size")
)

// View is a parsed record. It and all it returns alias the bytes given to Parse and are valid as
// long as those are. The zero View is not a record.
type View struct {
	b         []byte // exactly the record
	behind    int32  // start of STORETIMESTAMP
	body      int32  // start of the body
	topic     int32  // start of the topic text
	props     int32  // start of the property text
	bodyLen   int32
	topicLen  int32
	storeSize int32 // bytes of STOREHOST
}

// Parse reads the record at the start of b; more may follow it. All lengths are checked, check sums
// are not (see CheckCRC), nor whether the record lies where it says. Cost: no allocation, the body
// is not touched.
//
// Errors are ErrShort, ErrMagic, ErrBlank and ErrLength.
func Parse(b []byte) (View, error) {
	if len(b) < BlankSize {
		return View{}, ErrShort
	}
	magic := binary.BigEndian.Uint32(b[offMagic:])
	switch magic {
	case magicV1, magicV2:
	case magicBlank:
		return View{}, ErrBlank
	default:
		return View{}, ErrMagic
	}
	size := int64(int32(binary.BigEndian.Uint32(b[offTotalSize:])))
	if size < MinSize {
		return View{}, ErrLength
	}
	if size > int64(len(b)) {
		return View{}, ErrShort
	}
	v := View{b: b[:size:size], behind: offBehindV4, storeSize: sizeHostV4}
	flag := v.SysFlag()
	if flag&SysBornHostV6 != 0 {
		v.behind += growV6
	}
	if flag&SysStoreHostV6 != 0 {
		v.storeSize = sizeHostV6
	}
	if !v.measure(magic) {
		return View{}, ErrLength
	}
	return v, nil
}

// measure finds body, topic and properties and reports whether they fill the record exactly.
func (v *View) measure(magic uint32) bool {
	be, size := binary.BigEndian, int64(len(v.b))
	p := int64(v.behind) + relStoreHost + int64(v.storeSize) // end of STOREHOST
	if p+relBody > size {
		return false
	}
	n := int64(int32(be.Uint32(v.b[p+relBodyLen:])))
	p += relBody
	v.body, v.bodyLen = int32(p), int32(n)
	p += n
	if n < 0 || p+2 > size {
		return false
	}
	if magic == magicV1 {
		n = int64(int8(v.b[p]))
		p++
	} else {
		n = int64(int16(be.Uint16(v.b[p:])))
		p += 2
	}
	v.topic, v.topicLen = int32(p), int32(n)
	p += n
	if n < 0 || p+2 > size {
		return false
	}
	n = int64(int16(be.Uint16(v.b[p:])))
	p += 2
	v.props = int32(p)
	return n >= 0 && p+n == size
}

// HeadSize is how many bytes from the start of a record Plausible looks at, at the most.
const HeadSize = sizeFixed + 2*growV6

// Plausible reports whether a record of the size it claims can begin with head, which holds
// HeadSize bytes or all that are left. It spares the reader of a damaged size field from reading a
// gigabyte; Parse decides.
func Plausible(head []byte) bool {
	size, blank, ok := PeekSize(head)
	if !ok || blank || size < MinSize {
		return false
	}
	if len(head) < offSysFlag+4 {
		return false
	}
	fixed := int64(sizeFixed)
	flag := int32(binary.BigEndian.Uint32(head[offSysFlag:]))
	if flag&SysBornHostV6 != 0 {
		fixed += growV6
	}
	if flag&SysStoreHostV6 != 0 {
		fixed += growV6
	}
	if int64(len(head)) < fixed {
		return false
	}
	body := int64(int32(binary.BigEndian.Uint32(head[fixed-4:])))
	text := int64(size) - fixed - body // topic and properties with their lengths
	return body >= 0 && text >= 1+2 && text <= 2+MaxTopic+2+MaxProperties
}

// Bytes returns the whole record.
func (v View) Bytes() []byte { return v.b }

// TotalSize returns the size of the record in bytes.
func (v View) TotalSize() int32 { return int32(len(v.b)) }

// V2 reports whether the topic length takes two bytes.
func (v View) V2() bool { return v.u32(offMagic) == magicV2 }

// BodyCRC returns the stored check sum of the body.
func (v View) BodyCRC() int32 { return int32(v.u32(offBodyCRC)) }

// QueueID returns the queue within the topic.
func (v View) QueueID() int32 { return int32(v.u32(offQueueID)) }

// Flag returns the producer's own flag.
func (v View) Flag() int32 { return int32(v.u32(offFlag)) }

// QueueOffset returns the position in the queue; 0 for prepared and rollback records.
func (v View) QueueOffset() QueueOffset { return QueueOffset(v.u64(offQueueOffset)) }

// PhysicalOffset returns where the record says it lies in the log.
func (v View) PhysicalOffset() PhysicalOffset { return PhysicalOffset(v.u64(offPhysicalOffset)) }

// SysFlag returns the Sys bits.
func (v View) SysFlag() int32 { return int32(v.u32(offSysFlag)) }

// BornMS returns the producer's time stamp in milliseconds.
func (v View) BornMS() int64 { return int64(v.u64(offBornMS)) }

// BornHost returns the producer's address.
func (v View) BornHost() netip.AddrPort {
	return host(v.b[offBornHost : offBornHost+int(v.behind)-offBehindV4+sizeHostV4])
}

// StoreMS returns the broker's time stamp in milliseconds.
func (v View) StoreMS() int64 { return int64(v.u64(int(v.behind) + relStoreMS)) }

// StoreHost returns the broker's address.
func (v View) StoreHost() netip.AddrPort {
	at := v.behind + relStoreHost
	return host(v.b[at : at+v.storeSize])
}

// ReconsumeTimes returns how often the message was sent back.
func (v View) ReconsumeTimes() int32 {
	return int32(v.u32(int(v.body) - relBody + relReconsumeTimes))
}

// PreparedOffset returns the place of the half message that this record commits, else 0.
func (v View) PreparedOffset() int64 {
	return int64(v.u64(int(v.body) - relBody + relPreparedOffset))
}

// Body returns the body as stored; empty, not nil, when there is none.
func (v View) Body() []byte { return v.slice(v.body, v.body+v.bodyLen) }

// Topic returns the physical topic.
func (v View) Topic() []byte { return v.slice(v.topic, v.topic+v.topicLen) }

// Properties returns the property text, see Property.
func (v View) Properties() []byte { return v.slice(v.props, int32(len(v.b))) }

// CheckCRC reports whether the body matches its check sum. A record without a body has none, as in
// RocketMQ.
func (v View) CheckCRC() bool {
	return v.bodyLen == 0 || uint32(v.BodyCRC()) == maskedCRC(v.Body())
}

// CheckPropertyCRC looks for the check sum over the whole record that RocketMQ adds with
// enabledAppendPropCRC, and reports whether there is one and whether it matches.
func (v View) CheckPropertyCRC() (present, ok bool) {
	if len(v.b)-int(v.props) < propertyCRCSize {
		return false, false
	}
	tail := v.b[len(v.b)-propertyCRCSize:]
	sum, present := parsePropertyCRC(tail)
	if !present {
		return false, false
	}
	return true, sum == uint64(maskedCRC(v.b[:len(v.b)-propertyCRCSize]))
}

// tornRun is a run of zero bytes that no property text has and a lost page leaves.
const tornRun = 64

// LooksTorn reports whether the text of the record looks as a crash leaves it when pages of it were
// never written: its properties end with a zero byte or hold a long run of them. RocketMQ writes
// neither, but a peer could, so this only decides about a record that nothing valid follows.
func (v View) LooksTorn() bool {
	props := v.Properties()
	if len(props) > 0 && props[len(props)-1] == 0 {
		return true
	}
	var zeros [tornRun]byte
	return bytes.Contains(props, zeros[:]) || bytes.IndexByte(v.Topic(), 0) >= 0
}

// Draft returns a draft that encodes to the same record, given the same Place. It aliases v.
func (v View) Draft() Draft {
	return Draft{
		Topic: v.Topic(), QueueID: v.QueueID(), Flag: v.Flag(), SysFlag: v.SysFlag(),
		ReconsumeTimes: v.ReconsumeTimes(), BornMS: v.BornMS(), BornHost: v.BornHost(),
		StoreHost: v.StoreHost(), PreparedOffset: v.PreparedOffset(), Body: v.Body(),
		Properties: v.Properties(),
	}
}

// Place returns the part of the record that the log decided.
func (v View) Place() Place {
	return Place{Queue: v.QueueOffset(), Physical: v.PhysicalOffset(), StoreMS: v.StoreMS()}
}

// PeekSize returns the total size that b claims, when b starts with the magic of a record, and
// whether it is the blank at the end of a segment. ok is false when it is neither.
func PeekSize(b []byte) (size int32, blank, ok bool) {
	if len(b) < BlankSize {
		return 0, false, false
	}
	size = int32(binary.BigEndian.Uint32(b[offTotalSize:]))
	switch binary.BigEndian.Uint32(b[offMagic:]) {
	case magicV1, magicV2:
		return size, false, true
	case magicBlank:
		return size, true, true
	}
	return 0, false, false
}

func (v View) u32(at int) uint32 { return binary.BigEndian.Uint32(v.b[at:]) }

func (v View) u64(at int) uint64 { return binary.BigEndian.Uint64(v.b[at:]) }

func (v View) slice(from, to int32) []byte { return v.b[from:to:to] }

// host reads address and port; the port is cut to its 16 bits.
func host(b []byte) netip.AddrPort {
	n := len(b) - 4
	addr, _ := netip.AddrFromSlice(b[:n])
	return netip.AddrPortFrom(addr, uint16(binary.BigEndian.Uint32(b[n:])))
}
