// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"
)

// BenchmarkOutqueue has one connection ask for runs of a file and read the answer: decoding is a
// small part, the rest is the output queue and the socket. Runs far apart of up to CopyBelow bytes
// are gathered, larger ones go by writev, adjacent ones as one region.
func BenchmarkOutqueue(b *testing.B) {
	data := newDataFile(b, dataSize)
	for _, c := range []struct {
		count, size int
		adjacent    bool
	}{{1, 128, false}, {32, 1 << 10, false}, {32, 1 << 10, true}, {32, 8 << 10, false}, {1, 1 << 20, false}} {
		step := c.size + 1
		if c.adjacent {
			step = c.size
		}
		runs := make([]run, c.count)
		for i := range runs {
			runs[i] = run{off: i * step, size: c.size}
		}
		name := fmt.Sprintf("runs=%d/size=%d/adjacent=%v", c.count, c.size, c.adjacent)
		b.Run(name, func(b *testing.B) {
			h := start(b, backendConfig(backends()[len(backends())-1]), data)
			p := h.connect(0)
			if err := p.conn.SetDeadline(time.Time{}); err != nil {
				b.Fatal(err)
			}
			request := frame(codeRegions, 1, runsBody(runs))
			if err := checkRuns(p.call(codeRegions, runsBody(runs)), runs); err != nil {
				b.Fatal(err)
			}
			var head [4]byte
			answer := make([]byte, c.count*c.size+1024)
			b.SetBytes(int64(c.count * c.size))
			b.ReportAllocs()
			for b.Loop() {
				p.write(request)
				if _, err := io.ReadFull(p.r, head[:]); err != nil {
					b.Fatal(err)
				}
				rest := answer[:binary.BigEndian.Uint32(head[:])]
				if _, err := io.ReadFull(p.r, rest); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
