// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"io"

	"github.com/skylarkmq/skylark/net/remoting"
)

// frameBuffer cuts frames out of a stream without copying them. A frame is valid until the next
// fill. The buffer grows to the largest frame and stays so.
type frameBuffer struct {
	b          []byte
	start, end int // unread bytes
}

func (f *frameBuffer) reset(size int) {
	if len(f.b) < size {
		f.b = make([]byte, size)
	}
	f.start, f.end = 0, 0
}

// fill reads once. Unread bytes move to the front first when room behind them is short.
func (f *frameBuffer) fill(r io.Reader) error {
	if f.start == f.end {
		f.start, f.end = 0, 0
	}
	need := len(f.b) / 4
	if f.end-f.start >= 4 {
		if total, err := remoting.FrameSize(f.b[f.start:f.end], frameMax); err == nil {
			need = max(need, total-(f.end-f.start))
		}
	}
	if len(f.b)-f.end < need {
		unread := f.b[f.start:f.end]
		if len(f.b)-len(unread) < need {
			b := make([]byte, len(unread)+need)
			copy(b, unread)
			f.b = b
		} else {
			copy(f.b, unread)
		}
		f.start, f.end = 0, len(unread)
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
