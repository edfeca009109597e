// SPDX-License-Identifier: Apache-2.0

package eventloop_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// keeper keeps the bodies of a turn until ReadDone, as sends are, and looks at them there.
type keeper struct {
	block   chan struct{} // what a codeDefer waits for
	reached chan struct{}
	bad     chan remoting.Opaque
	seen    chan remoting.Opaque
	opaques []remoting.Opaque
	bodies  [][]byte
}

func (k *keeper) Open(*eventloop.Conn)         {}
func (k *keeper) Close(*eventloop.Conn, error) {}

func (k *keeper) Command(_ *eventloop.Conn, cmd *remoting.Command) {
	if cmd.Code == codeDefer {
		close(k.reached)
		<-k.block
	}
	k.opaques, k.bodies = append(k.opaques, cmd.Opaque), append(k.bodies, cmd.Body)
}

func (k *keeper) ReadDone() {
	for i, body := range k.bodies {
		if n := bytes.Count(body, []byte{byte(k.opaques[i])}); n != len(body) {
			k.bad <- k.opaques[i]
		}
		k.seen <- k.opaques[i]
	}
	k.opaques, k.bodies = k.opaques[:0], k.bodies[:0]
}

// TestTurnKeepsJoinedFrames has a frame that came in two reads be the first behind the most commands
// of a turn. Its buffer must not be given to the next frame before its turn has ended.
func TestTurnKeepsJoinedFrames(t *testing.T) {
	t.Parallel()
	forBackends(t, func(t *testing.T, cfg eventloop.Config) {
		k := &keeper{
			block: make(chan struct{}), reached: make(chan struct{}),
			bad: make(chan remoting.Opaque, 1000), seen: make(chan remoting.Opaque, 1000),
		}
		srv, err := eventloop.Listen(cfg, []string{"127.0.0.1:0"},
			func(*eventloop.Loop) eventloop.Handler { return k })
		if err != nil {
			t.Fatal(err)
		}
		h := &harness{t: t, srv: srv}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := srv.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		const small = 128 // the most commands of a turn
		gate, many, split := h.connect(0), h.connect(0), h.connect(0)
		large := func(opaque remoting.Opaque) []byte {
			return frame(codeCount, opaque, bytes.Repeat([]byte{byte(opaque)}, 7000))
		}
		first, second := large(200), large(201)
		split.write(first[:3500])
		eventually(t, "the first half is read", func() bool { return srv.Stats().BytesIn >= 3500 })
		gate.write(frame(codeDefer, 250, []byte{250}))
		<-k.reached
		var burst []byte
		for i := range small {
			burst = append(burst, frame(codeCount, remoting.Opaque(i), []byte{byte(i)})...)
		}
		many.write(burst)
		split.write(append(first[3500:len(first):len(first)], second[:3500]...))
		close(k.block)
		eventually(t, "all frames but one are handled", func() bool { return len(k.seen) == small+2 })
		split.write(second[3500:])
		eventually(t, "the last frame is handled", func() bool { return len(k.seen) == small+3 })
		if len(k.bad) > 0 {
			t.Errorf("the body of command %d was overwritten before its turn ended", <-k.bad)
		}
	})
}
