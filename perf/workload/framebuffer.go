// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"io"

	"github.com/skylarkmq/skylark/net/remoting"
)

// frameBuffer cuts frames out of a stream without copying them. A frame is valid until the next
// fill. The buffer doubles while reads fill it, and grows to the largest frame; it stays so.
type frameBuffer struct {
	b          []byte
	most       int // bytes that it doubles to
	start, end int // unread bytes
}

// bufferFirst is what a buffer begins with: a thousand connections that receive little do not hold
// what one needs that receives much.
const bufferFirst = 16 << 10

// reset begins a stream.
func (f *frameBuffer) reset(most int) {
	if f.b == nil {
		f.b = make([]byte, min(bufferFirst, most))
	}
	f.most, f.start, f.end = most, 0, 0
}

// fill reads once. Unread bytes move to the front first when room behind them is short.
func (f *frameBuffer) fill(r io.Reader) error {
	size := len(f.b)
	if f.end == size && size < f.most {
		size = min(2*size, f.most)
	}
	if f.start == f.end {
		f.start, f.end = 0, 0
	}
	need := size / 4
	if f.end-f.start >= 4 {
		if total, err := remoting.FrameSize(f.b[f.start:f.end], frameMax); err == nil {
			need = max(need, total-(f.end-f.start))
		}
	}
	unread := f.b[f.start:f.end]
	size = max(size, len(unread)+need)
	if size > len(f.b) || len(f.b)-f.end < need {
		to := f.b
		if size > len(f.b) {
			to = make([]byte, size)
		}
		copy(to, unread)
		f.b, f.start, f.end = to, 0, len(unread)
	}
	n, err := r.Read(f.b[f.end:])
	f.end += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// next returns the next complete frame without its length field, nil when there is none yet.
func (f *frameBuffer) next() ([]byte, error) {
	if f.end-f.start < 4 {
		return nil, nil
	}
	total, err := remoting.FrameSize(f.b[f.start:f.end], frameMax)
	if err != nil {
		return nil, err
	}
	if f.end-f.start < total {
		return nil, nil
	}
	frame := f.b[f.start+4 : f.start+total]
	f.start += total
	return frame, nil
}
