// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// BenchmarkDispatch runs decoded commands through the handler of a loop, one in each turn: checks,
// append to log and queue, and the answer in the output buffer. The socket takes the answers of
// 2000 commands at once.
func BenchmarkDispatch(b *testing.B) {
	broker := startForAllocs(b)
	if _, _, err := broker.groups.LookupOrCreate("consumers"); err != nil {
		b.Fatal(err)
	}
	for name, frame := range map[string][]byte{
		"request=send/form=json":   sendFrame(remoting.JSON, false),
		"request=send/form=binary": sendFrame(remoting.Binary, false),
		"request=batch-of-8":       sendFrame(remoting.JSON, true),
		"request=pull-of-4":        pullFrame(func(*protocol.PullRequest) {}),
		"request=pull-at-end":      pullFrame(func(r *protocol.PullRequest) { r.QueueOffset = 1 << 40 }),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			some := onLoop(b, broker, frame, func(once func()) {
				for range n {
					once()
				}
			})
			b.ResetTimer()
			for left := b.N; left > 0; left -= n {
				n = min(left, rounds)
				some()
			}
		})
	}
}
