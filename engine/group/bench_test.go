// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"fmt"
	"testing"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/protocol"
)

// BenchmarkHeartbeat has one producer beat in a group with others: what that costs must not grow
// with them, since all of them beat.
func BenchmarkHeartbeat(b *testing.B) {
	for _, members := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			m := group.NewMembers(group.MembersConfig{})
			defer m.Close()
			data := &protocol.HeartbeatData{ProducerDataSet: []protocol.ProducerData{{GroupName: "P"}}}
			var last *conn
			for i := range members {
				last = &conn{addr: fmt.Sprintf("10.0.0.1:%d", i)}
				m.Heartbeat(last, group.ClientInfo{ID: fmt.Sprint(i)}, data)
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Heartbeat(last, group.ClientInfo{ID: fmt.Sprint(members - 1)}, data)
			}
		})
	}
}
