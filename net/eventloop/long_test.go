// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestLongFrames has frames of every length, of which the long ones are read to where they are gathered,
// come in pieces of every length: the end of one with the start of the next, and several in one piece.
func TestLongFrames(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		h := start(t, cfg, nil)
		p := h.connect(0)
		rng := rand.New(rand.NewPCG(1, 2))
		sizes := []int{0, 1, 100, 16 << 10, 32 << 10, 100_000, 256 << 10, 300_000, 1 << 20, 2_500_000}
		var all []byte
		var bodies [][]byte
		for i := range 120 {
			body := make([]byte, sizes[rng.IntN(len(sizes))]+rng.IntN(5))
			for j := range body {
				body[j] = byte(i + j>>10)
			}
			bodies = append(bodies, body)
			all = append(all, frame(codeEcho, remoting.Opaque(i), body)...)
		}
		total := uint64(len(all))
		sent := make(chan error, 1)
		go func() {
			for len(all) > 0 {
				n := min(1+rng.IntN(1+rng.IntN(1<<20)), len(all))
				if _, err := p.conn.Write(all[:n]); err != nil {
					sent <- err
					return
				}
				all = all[n:]
			}
			sent <- nil
		}()
		for i, want := range bodies {
			cmd, err := p.read()
			if err != nil {
				t.Fatal(err)
			}
			if cmd.Opaque != remoting.Opaque(i) || !bytes.Equal(cmd.Body, want) {
				t.Fatalf("answer %d has opaque %d and a body of %d bytes, want %d", i, cmd.Opaque,
					len(cmd.Body), len(want))
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if got := h.srv.Stats().BytesIn; got != total {
			t.Errorf("%d bytes are counted, want %d", got, total)
		}
	})
}
