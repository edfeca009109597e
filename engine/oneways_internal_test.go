// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// told is a connection that keeps what is sent.
type told struct{ sent [][]byte }

func (*told) RemoteAddr() string  { return "127.0.0.1:1" }
func (c *told) Send(frame []byte) { c.sent = append(c.sent, frame) }

// TestOneways: all requests leave, in order, whole and in few pieces, which are bounded unless one request
// alone is larger.
func TestOneways(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, body, pieces int }{
		{0, 10, 0}, {1, 10, 1}, {64, 1000, 1}, {64, 10_000, 3}, {3, onewaysTogether, 3},
	} {
		calls, ch := newClientCalls(), &told{}
		calls.Oneways(ch, remoting.CheckTransactionState, c.n,
			func(i int) (remoting.Header, []byte) {
				body := make([]byte, c.body)
				copy(body, fmt.Sprint(i, " "))
				return &protocol.NotifyConsumerIDsChangedRequest{Group: fmt.Sprint("group-", i)}, body
			})
		if len(ch.sent) != c.pieces {
			t.Errorf("%+v: %d pieces", c, len(ch.sent))
		}
		i := 0
		for _, piece := range ch.sent {
			if len(piece) > onewaysTogether && len(piece) > c.body+requestHead {
				t.Errorf("%+v: a piece of %d bytes", c, len(piece))
			}
			for len(piece) > 0 {
				size := int(binary.BigEndian.Uint32(piece)) + 4
				var cmd remoting.Command
				if err := cmd.Decode(piece[4:size]); err != nil {
					t.Fatal(err)
				}
				group, _ := cmd.Fields.Get("consumerGroup")
				var number int
				_, err := fmt.Sscan(string(cmd.Body[:8]), &number)
				if err != nil || number != i || string(group) != fmt.Sprint("group-", i) ||
					!cmd.IsOneway() || cmd.Opaque != remoting.Opaque(i+1) || len(cmd.Body) != c.body {
					t.Errorf("%+v: request %d is %q, opaque %d, %d bytes: %v", c, i, group, cmd.Opaque,
						len(cmd.Body), err)
				}
				piece, i = piece[size:], i+1
			}
		}
		if i != c.n {
			t.Errorf("%+v: %d requests", c, i)
		}
	}
}
