// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// Bytes of an offset message id behind the address: int32 port, int64 physical offset.
const (
	offsetIDRest = 12
	offsetIDV4   = 2 * (4 + offsetIDRest)
	offsetIDV6   = 2 * (16 + offsetIDRest)
)

const upperHex = "0123456789ABCDEF"

// appendHex appends b in upper-case hex, the form of all message ids.
func appendHex(dst, b []byte) []byte {
	for _, c := range b {
		dst = append(dst, upperHex[c>>4], upperHex[c&0xF])
	}
	return dst
}

// AppendOffsetID appends the offset message id (RocketMQ MessageDecoder.createMessageId): store
// host and physical offset in upper-case hex, 32 characters for IPv4 and 56 for IPv6.
func AppendOffsetID(dst []byte, host netip.AddrPort, at PhysicalOffset) []byte {
	var b [16 + offsetIDRest]byte
	n := putHost(b[:], host)
	binary.BigEndian.PutUint64(b[n:], uint64(at))
	return appendHex(dst, b[:n+8])
}

// ParseOffsetID takes an offset message id apart. Lower-case hex is accepted too.
func ParseOffsetID(s string) (netip.AddrPort, PhysicalOffset, error) {
	var b [16 + offsetIDRest]byte
	if len(s) != offsetIDV4 && len(s) != offsetIDV6 {
		return netip.AddrPort{}, 0, fmt.Errorf("record: parse message id %.80q: it has %d "+
			"characters, must have %d or %d", s, len(s), offsetIDV4, offsetIDV6)
	}
	n, err := hex.Decode(b[:], []byte(s))
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("record: parse message id %q: %w", s, err)
	}
	port := binary.BigEndian.Uint32(b[n-offsetIDRest:])
	if port > math.MaxUint16 {
		return netip.AddrPort{}, 0, fmt.Errorf("record: parse message id %q: port %d", s, port)
	}
	at := PhysicalOffset(binary.BigEndian.Uint64(b[n-8:]))
	if at < 0 {
		return netip.AddrPort{}, 0, fmt.Errorf("record: parse message id %q: offset %d", s, at)
	}
	return host(b[:n-8]), at, nil
}

// UniqueIDs makes the ids that producers put into property UNIQ_KEY, in the form of RocketMQ's Java
// client (MessageClientIDSetter): address, process id, a constant of the generator, milliseconds
// since the local start of the month, counter; upper-case hex, 32 characters (56 for IPv6).
//
// It may be used from any goroutine. Two generators in one process differ by the random constant.
type UniqueIDs struct {
	prefix  []byte // hex of address, process id and constant
	now     func() time.Time
	counter atomic.Uint32
	month   atomic.Pointer[month]
}

// month is the one that ids count milliseconds in.
type month struct{ startMS, nextMS int64 }

// NewUniqueIDs returns a generator for a process at ip; the zero Addr counts as 0.0.0.0.
func NewUniqueIDs(ip netip.Addr) *UniqueIDs {
	return newUniqueIDs(ip, time.Now, uint16(os.Getpid()), rand.Uint32())
}

func newUniqueIDs(ip netip.Addr, now func() time.Time, pid uint16, constant uint32) *UniqueIDs {
	var b [16 + 4 + 2 + 4]byte
	n := putHost(b[:], netip.AddrPortFrom(ip, 0)) - 4
	binary.BigEndian.PutUint16(b[n:], pid)
	binary.BigEndian.PutUint32(b[n+2:], constant)
	u := &UniqueIDs{prefix: appendHex(nil, b[:n+6]), now: now}
	u.month.Store(monthOf(now()))
	return u
}

// Append appends the next id to dst. 65536 ids in one millisecond are distinct.
//
// Cost: no allocation, one reading of the clock.
func (u *UniqueIDs) Append(dst []byte) []byte {
	now := u.now()
	ms, m := now.UnixMilli(), u.month.Load()
	if ms >= m.nextMS {
		m = monthOf(now)
		u.month.Store(m)
	}
	var b [6]byte
	binary.BigEndian.PutUint32(b[:], uint32(max(0, ms-m.startMS))) // 0: the clock stepped back
	binary.BigEndian.PutUint16(b[4:], uint16(u.counter.Add(1)-1))
	dst = append(dst, u.prefix...)
	return appendHex(dst, b[:])
}

func monthOf(t time.Time) *month {
	start := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, t.Location())
	next := time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, t.Location())
	return &month{startMS: start.UnixMilli(), nextMS: next.UnixMilli()}
}
