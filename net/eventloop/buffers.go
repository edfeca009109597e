// SPDX-License-Identifier: Apache-2.0

package eventloop

import "math/bits"

const (
	bufferMinBits = 10 // the smallest buffers have 1 KiB
	bufferClasses = 15 // the largest 16 MiB
	bufferKeep    = 8 << 20
	bufferTrim    = 64 << 10
)

// bufferPool keeps the buffers of one loop, in sizes that are powers of two. It belongs to the loop
// and keeps at most bufferKeep bytes; what is given back beyond that goes to the collector. The
// last buffer given back is the first to be used again, while it is still in the processor's cache.
type bufferPool struct {
	free [bufferClasses][][]byte
	kept int // bytes
}

// get returns an empty buffer with room for n bytes.
func (p *bufferPool) get(n int) []byte {
	class := bufferClass(n)
	if class >= bufferClasses {
		return make([]byte, 0, n)
	}
	size := 1 << (class + bufferMinBits)
	list := p.free[class]
	if len(list) == 0 {
		return make([]byte, 0, size)
	}
	b := list[len(list)-1]
	list[len(list)-1] = nil
	p.free[class] = list[:len(list)-1]
	p.kept -= size
	return b
}

// put takes back a buffer that came from get. A buffer that has grown by append is let go.
func (p *bufferPool) put(b []byte) {
	size := cap(b)
	class := bufferClass(size)
	if class >= bufferClasses || size != 1<<(class+bufferMinBits) || p.kept+size > bufferKeep {
		return
	}
	p.free[class] = append(p.free[class], b[:0])
	p.kept += size
}

// trim lets go of large buffers, so that a burst of large frames does not hold memory for ever.
func (p *bufferPool) trim() {
	for class := bufferClass(bufferTrim); class < bufferClasses; class++ {
		p.kept -= len(p.free[class]) << (class + bufferMinBits)
		p.free[class] = nil
	}
}

func bufferClass(n int) int {
	if n <= 1<<bufferMinBits {
		return 0
	}
	return bits.Len(uint(n-1)) - bufferMinBits
}
