// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// bloom computes which bits of a message's bitmap stand for a group (RocketMQ BloomFilter). This
// broker writes no bitmaps, as RocketMQ by default; the positions are part of consumerFilter.json,
// and RocketMQ throws the whole file away when they are missing or for another size.
type bloom struct {
	hashes int // k
	bits   int // m
}

// newBloom takes RocketMQ's maxErrorRateOfBloomFilter, in percent, and expectConsumerNumUseFilter.
func newBloom(errorPercent, consumers int) bloom {
	rate := float64(errorPercent) / 100
	hashes := int(math.Ceil(math.Log(rate) / math.Log(0.5)))
	size := math.Ceil(float64(consumers) * (math.Log(1/rate) / math.Log(2)) * (1 / math.Log(2)))
	return bloom{hashes: hashes, bits: 8 * int(math.Ceil(size/8))}
}

// positions returns the bits of a group's filter on a topic.
func (b bloom) positions(group, topic string) *BloomData {
	h := murmur3([]byte(group + "#" + topic))
	first, second := int32(h), int32(h>>32)
	d := &BloomData{BitNum: b.bits, BitPos: make([]int, b.hashes)}
	for i := range d.BitPos {
		combined := first + int32(i+1)*second
		if combined < 0 {
			combined = ^combined
		}
		d.BitPos[i] = int(combined) % b.bits
	}
	return d
}

func (b bloom) valid(d *BloomData) bool {
	return d != nil && d.BitNum == b.bits && len(d.BitPos) == b.hashes
}

// murmur3 returns the first 64 bits of MurmurHash3 (x64, 128 bits) with seed 0.
func murmur3(data []byte) uint64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	mix1 := func(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }
	mix2 := func(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }
	var h1, h2 uint64
	size := uint64(len(data))
	for ; len(data) >= 16; data = data[16:] {
		h1 ^= mix1(binary.LittleEndian.Uint64(data))
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= mix2(binary.LittleEndian.Uint64(data[8:]))
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	if len(data) > 0 {
		var tail [16]byte
		copy(tail[:], data)
		h2 ^= mix2(binary.LittleEndian.Uint64(tail[8:]))
		h1 ^= mix1(binary.LittleEndian.Uint64(tail[:]))
	}
	h1 ^= size
	h2 ^= size
	h1 += h2
	h2 += h1
	return finish(h1) + finish(h2)
}

func finish(k uint64) uint64 {
	k = (k ^ k>>33) * 0xff51afd7ed558ccd
	k = (k ^ k>>33) * 0xc4ceb9fe1a85ec53
	return k ^ k>>33
}
