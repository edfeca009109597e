// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxFrame is the largest frame in bytes, the length field included, that RocketMQ's NettyDecoder
// accepts by default.
const MaxFrame = 16777216

// ProtocolVersion is what this implementation reports as its version: RocketMQ 5.5.0 in the
// numbering of MQVersion.
const ProtocolVersion = 513

// Frame layout. Big-endian. Positions count from the length field.
const (
	offLength    = 0 // uint32, bytes that follow this field
	offMark      = 4 // uint8, SerializeType
	offHeaderLen = 5 // uint24, bytes of the header
	offHeader    = 8 // the header, then the body up to the end of the frame

	lengthSize    = offMark
	markSize      = offHeader - offMark
	headerLenMax  = 1<<24 - 1
	remarkLenMax  = 32 << 10 // bytes of a remark that the Encoder writes; the rest is cut off
	fieldsMax     = 4096     // extension fields of one command
	scratchKeep   = 64 << 10 // bytes of scratch that a Command keeps between frames
	fieldsKeep    = 256      // fields whose space a Command keeps between frames
	binaryNameMax = 1<<15 - 1
	tolerantMax   = 1 << 20 // bytes of a header that the tolerant parser looks at
)

// Binary header layout. Big-endian. Positions count from the first byte of the header. The
// extension entries that follow are int16 name length, name, int32 value length, value.
const (
	offBinCode      = 0  // int16
	offBinLanguage  = 2  // uint8
	offBinVersion   = 3  // int16
	offBinOpaque    = 5  // int32
	offBinFlag      = 9  // int32
	offBinRemarkLen = 13 // int32, 0 when there is no remark
	offBinRemark    = 17 // the remark, then int32 bytes of the extension entries, then those

	binaryFieldsLen = 4 // bytes of the length of the entries
	binaryHeaderMin = offBinRemark + binaryFieldsLen
)

var (
	// ErrMalformed means that a frame cannot be read. The connection that brought it has lost its
	// framing or its mind and is closed, as RocketMQ does; nothing is answered.
	ErrMalformed = errors.New("malformed frame")
	// ErrFrameTooLarge means that a frame announces more than the limit.
	ErrFrameTooLarge = errors.New("frame too large")
)

// FrameSize returns the bytes of the frame that begins with head, its length field included.
//
// It needs four bytes and returns 0 while there are fewer. limit counts the bytes of a whole
// frame; 0 means MaxFrame. Nothing may be reserved by the returned size: the peer has announced
// the bytes, not sent them. Errors wrap ErrFrameTooLarge or ErrMalformed and end the connection.
func FrameSize(head []byte, limit int) (total int, err error) {
	if len(head) < lengthSize {
		return 0, nil
	}
	if limit <= 0 {
		limit = MaxFrame
	}
	// RocketMQ reads the length as unsigned, so a negative one is too large rather than negative.
	length := int64(binary.BigEndian.Uint32(head[offLength:]))
	if length+lengthSize > int64(limit) {
		return 0, fmt.Errorf("remoting: frame of %d bytes, limit %d: %w",
			length+lengthSize, limit, ErrFrameTooLarge)
	}
	if length < markSize {
		return 0, fmt.Errorf("remoting: frame with length field %d: %w", length, ErrMalformed)
	}
	return int(length) + lengthSize, nil
}
