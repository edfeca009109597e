// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestAllocs proves that in the steady state neither frames nor answers cost an allocation: small
// ones in batches, frames larger than one read, and regions by each way of sending.
func TestAllocs(t *testing.T) {
	data := newDataFile(t, dataSize)
	for _, backend := range backends() {
		for _, c := range []struct {
			name string
			code int32
			body []byte
			n    int
		}{
			{"single", codeEcho, make([]byte, 1000), 1},
			{"batch", codeEcho, make([]byte, 100), 64},
			{"large", codeEcho, make([]byte, 1<<20), 1},
			{"copied", codeRegions, runsBody(scattered(32, 1000)), 4},
			{"writev", codeRegions, runsBody(scattered(32, 10<<10)), 1},
			{"sendfile", codeRegions, runsBody(scattered(3, 100<<10)), 2},
		} {
			t.Run(fmt.Sprintf("%s/%s", c.name, backend), func(t *testing.T) {
				h := start(t, backendConfig(backend), data)
				p := h.connect(0)
				var out []byte
				for i := range c.n {
					out = append(out, frame(c.code, remoting.Opaque(i), c.body)...)
				}
				in := make([]byte, 2<<20)
				round := func() {
					if _, err := p.conn.Write(out); err != nil {
						t.Fatal(err)
					}
					for range c.n {
						if _, err := io.ReadFull(p.conn, in[:4]); err != nil {
							t.Fatal(err)
						}
						size := binary.BigEndian.Uint32(in)
						if _, err := io.ReadFull(p.conn, in[:size]); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 20 {
					round()
				}
				if got := testing.AllocsPerRun(100, round); got != 0 {
					t.Errorf("%v allocations for %d requests, want 0", got, c.n)
				}
			})
		}
	}
}

// TestAllocsPost proves that posting tasks to a loop that is busy costs no allocation.
func TestAllocsPost(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			h := start(t, backendConfig(backend), nil)
			p := h.connect(0)
			p.call(codeEcho, []byte("x"))
			ref := h.ref(0)
			ran := make(chan struct{}, 1)
			count := 0
			const each = 64
			var task eventloop.Task = taskFunc(func(*eventloop.Conn) {
				if count++; count%each == 0 {
					ran <- struct{}{}
				}
			})
			posts := make([]eventloop.Posted, each)
			for i := range posts {
				posts[i] = eventloop.Posted{To: ref, Task: task}
			}
			round := func() {
				ref.Loop().Post(posts)
				<-ran
			}
			for range 20 {
				round()
			}
			// One wake-up costs gnet a closure and a queue node; the tasks themselves are free.
			if got := testing.AllocsPerRun(100, round); got > 3 {
				t.Errorf("%v allocations for %d tasks", got, each)
			}
		})
	}
}
