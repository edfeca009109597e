// SPDX-License-Identifier: Apache-2.0

package record

import "net/netip"

// PhysicalOffset is a byte position in the CommitLog, counted over all its segments.
type PhysicalOffset int64

// QueueOffset is the position of a message in one queue: messages, not bytes, from 0.
type QueueOffset int64

// Only this file knows positions. All numbers are big-endian. Positions behind offBornHost move by
// 12 when BORNHOST is IPv6, those behind the store host by 12 more when STOREHOST is.
const (
	offTotalSize      = 0  // int32, the whole record in bytes, this field included
	offMagic          = 4  // uint32, magicV1, magicV2, or magicBlank for the filler of a segment
	offBodyCRC        = 8  // int32, CRC-32 (IEEE) of the body as stored, top bit cleared
	offQueueID        = 12 // int32
	offFlag           = 16 // int32, the producer's, never read by the broker
	offQueueOffset    = 20 // int64, messages, not bytes
	offPhysicalOffset = 28 // int64, bytes; must equal the place it was read from
	offSysFlag        = 36 // int32, Sys... bits
	offBornMS         = 40 // int64, milliseconds, clock of the producer
	offBornHost       = 48 // 4 or 16 bytes of address, int32 port

	sizeHostV4   = 8
	sizeHostV6   = 20
	growV6       = sizeHostV6 - sizeHostV4
	offBehindV4  = offBornHost + sizeHostV4 // STORETIMESTAMP, and with it the rest, at the least
	relStoreMS   = 0                        // int64, milliseconds, clock of the broker
	relStoreHost = 8                        // as BORNHOST

	// Behind STOREHOST, from its end.
	relReconsumeTimes = 0  // int32
	relPreparedOffset = 4  // int64, CommitLog offset of the half message of a commit, else 0
	relBodyLen        = 12 // int32, then the body, then the topic length and so on
	relBody           = 16

	sizeFixed = 88 // up to and including the body length, both hosts IPv4
)

const (
	magicV1    = 0xDAA320A7 // topic length takes one byte
	magicV2    = 0xDAA320AB // topic length takes two bytes
	magicBlank = 0xCBD43194
)

// Bits of SYSFLAG (RocketMQ MessageSysFlag).
const (
	SysCompressed      int32 = 0x001 // the body is compressed
	SysMultiTags       int32 = 0x002 // the topic filters on several tags
	SysTransactionMask int32 = 0x00C // transaction type
	SysPrepared        int32 = 0x004 // half message
	SysCommit          int32 = 0x008 // committed message
	SysRollback        int32 = 0x00C // rollback mark
	SysBornHostV6      int32 = 0x010 // BORNHOST takes 20 bytes
	SysStoreHostV6     int32 = 0x020 // STOREHOST takes 20 bytes
	SysNeedUnwrap      int32 = 0x040 // the body holds several messages, the consumer unwraps it
	SysInnerBatch      int32 = 0x080 // one record that takes many queue offsets
	SysCompressionMask int32 = 0x700 // 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB, 0 ZLIB of old clients
)

const (
	// MaxTopicV1 is the longest topic, in bytes, of a V1 record; a longer one makes it a V2 record,
	// which old RocketMQ clients cannot read.
	MaxTopicV1 = 127
	// MaxTopic is the longest topic, in bytes, that a record can hold.
	MaxTopic = 32767
	// MaxProperties is the longest property text, in bytes, that a record or batch entry can hold.
	MaxProperties = 32767
	// MinSize is the size, in bytes, of the smallest record: no body, topic or properties.
	MinSize = sizeFixed + 1 + 2
	// BlankSize is how many bytes of a blank are written, and the room that stays behind each
	// record of a segment (RocketMQ END_FILE_MIN_BLANK_LENGTH).
	BlankSize = 8
)

// isV6 reports whether a is stored in 16 bytes. IPv4 addresses in IPv6 form are stored as IPv4, as
// the JVM does, and no address at all as 0.0.0.0.
func isV6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// MagicOffset is where the magic lies in a record, for those who search for one.
const MagicOffset = offMagic

// MagicPrefix returns the bytes that the magic of every record begins with.
func MagicPrefix() []byte { return []byte{0xDA, 0xA3, 0x20} }
