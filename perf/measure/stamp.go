// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Layout of a numbered body, big-endian. What follows the head is filler, or with flagEnd the
// list of numbers that were never acknowledged.
const (
	offMagic  = 0  // uint32, stampMagic
	offCRC    = 4  // uint32, CRC-32C of everything from offLength on
	offLength = 8  // uint32, the whole body in bytes
	offStream = 12 // uint32, number of the stream within the run
	offRun    = 16 // uint64, random number of the producing run
	offNumber = 24 // uint64, from 0, without a gap within the stream
	offFloor  = 32 // uint64, every number below it was acknowledged when this one was sent
	offFlags  = 40 // uint32, flagEnd and so on
	offDue    = 44 // int64, see Stamp.Due
	offRanges = 52 // with flagEnd: pairs of uint64, first and count

	stampMagic = 0x534B5956 // "SKYV"
	flagEnd    = 1
	flagAgain  = 2

	// StampSize is the smallest body that can be numbered, in bytes.
	StampSize = 52
)

// Range is a run of numbers [First, First+Count).
type Range struct{ First, Count uint64 }

// Stamp is what a numbered body carries. A stream is what one connection sends to one queue.
type Stamp struct {
	Run    uint64
	Stream uint32
	Number uint64
	Floor  uint64
	// Due is the moment the message was due, or in a closed loop was sent, in nanoseconds of the
	// producer's wall clock since 1970; 0: not told.
	Due int64
	// Again marks a message that was sent before and got no answer: it may be stored twice, and
	// behind messages that were sent after it.
	Again bool
	// End marks the last body of a stream: Number is the count of messages before it, and Missing
	// those of them that were never acknowledged, so that their absence is no loss.
	End     bool
	Missing []Range
}

var (
	errForeign = errors.New("measure: body carries no number")
	errChanged = errors.New("measure: body differs from what was sent")
	castagnoli = crc32.MakeTable(crc32.Castagnoli) // built once, never written
)

// Put numbers body, which is at least StampSize long, in place: head first, then the checksum over
// head and filler. It allocates nothing. End and Missing are not written; see AppendEnd.
func (s *Stamp) Put(body []byte) {
	flags := uint32(0)
	if s.Again {
		flags = flagAgain
	}
	s.putHead(body, flags)
	binary.BigEndian.PutUint32(body[offCRC:], crc32.Checksum(body[offLength:], castagnoli))
}

// AppendEnd appends the last body of a stream to dst.
func (s *Stamp) AppendEnd(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, StampSize)...)
	for _, r := range s.Missing {
		dst = binary.BigEndian.AppendUint64(dst, r.First)
		dst = binary.BigEndian.AppendUint64(dst, r.Count)
	}
	body := dst[at:]
	s.putHead(body, flagEnd)
	binary.BigEndian.PutUint32(body[offCRC:], crc32.Checksum(body[offLength:], castagnoli))
	return dst
}

func (s *Stamp) putHead(body []byte, flags uint32) {
	binary.BigEndian.PutUint32(body[offMagic:], stampMagic)
	binary.BigEndian.PutUint32(body[offLength:], uint32(len(body)))
	binary.BigEndian.PutUint32(body[offStream:], s.Stream)
	binary.BigEndian.PutUint64(body[offRun:], s.Run)
	binary.BigEndian.PutUint64(body[offNumber:], s.Number)
	binary.BigEndian.PutUint64(body[offFloor:], s.Floor)
	binary.BigEndian.PutUint32(body[offFlags:], flags)
	binary.BigEndian.PutUint64(body[offDue:], uint64(s.Due))
}

// parseStamp reads the number of a body. errForeign: not ours; errChanged: ours, but damaged.
func parseStamp(body []byte, s *Stamp) error {
	if len(body) < StampSize || binary.BigEndian.Uint32(body[offMagic:]) != stampMagic {
		return errForeign
	}
	if int(binary.BigEndian.Uint32(body[offLength:])) != len(body) {
		return errChanged
	}
	if crc32.Checksum(body[offLength:], castagnoli) != binary.BigEndian.Uint32(body[offCRC:]) {
		return errChanged
	}
	s.Stream = binary.BigEndian.Uint32(body[offStream:])
	s.Run = binary.BigEndian.Uint64(body[offRun:])
	s.Number = binary.BigEndian.Uint64(body[offNumber:])
	s.Floor = binary.BigEndian.Uint64(body[offFloor:])
	flags := binary.BigEndian.Uint32(body[offFlags:])
	s.End, s.Again = flags&flagEnd != 0, flags&flagAgain != 0
	s.Due = int64(binary.BigEndian.Uint64(body[offDue:]))
	s.Missing = nil
	if !s.End {
		return nil
	}
	rest := body[offRanges:]
	if len(rest)%16 != 0 {
		return fmt.Errorf("%w: %d bytes of ranges", errChanged, len(rest))
	}
	for ; len(rest) > 0; rest = rest[16:] {
		s.Missing = append(s.Missing, Range{
			First: binary.BigEndian.Uint64(rest), Count: binary.BigEndian.Uint64(rest[8:]),
		})
	}
	return nil
}
