// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// liveBytes is what the heap holds after a collection.
func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFaultPopsHoldLittle lets requests wait that came with large bodies, or with long names for an
// attempt: what the broker keeps of them is bounded.
//
//nolint:paralleltest // it measures the heap
func TestFaultPopsHoldLittle(t *testing.T) {
	const large, asked = 2 << 20, 100
	for name, c := range map[string]struct {
		change func(r *protocol.PopRequest)
		body   []byte
		held   int32
	}{
		"bodies":   {func(*protocol.PopRequest) {}, make([]byte, large), asked},
		"attempts": {func(r *protocol.PopRequest) { r.AttemptID = strings.Repeat("a", large) }, nil, 31},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := enginetest.Start(t, func(c *engine.Config) { c.AutoCreateTopic = true })
			p := newPeer(t, cluster.Broker())
			p.send("held", 0, "x")
			if d := p.pop(popRequest("held", "g", time.Minute, 0)); len(d.views) != 1 {
				t.Fatal("nothing popped")
			}
			raw := dialRaw(t, cluster.Broker())
			before := liveBytes()
			r := popRequest("held", "g", time.Minute, 30*time.Second)
			c.change(r)
			for range asked {
				raw.request(remoting.PopMessage, r, c.body)
			}
			eventually(t, func() bool {
				var n protocol.PollingInfoResponse
				answer := p.call(remoting.PollingInfo,
					&protocol.PollingInfoRequest{Group: "g", Topic: "held", QueueID: -1}, nil)
				return n.Decode(answer.Command) == nil && n.PollingNum >= c.held
			})
			eventually(t, func() bool { return liveBytes()-before < 80<<20 })
		})
	}
}

// TestFaultManyTags refuses to compare each message with more tags than a pull may name itself.
func TestFaultManyTags(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("tags", 0, "x")
	tags := make([]string, 5000)
	codes := make([]int32, len(tags))
	for i := range tags {
		tags[i], codes[i] = fmt.Sprint("t", i), int32(i)
	}
	r := popRequest("tags", "g", time.Minute, 0)
	r.Expression, r.ExpressionType = strings.Join(tags, "||"), "TAG"
	if d := p.pop(r); d.code != remoting.SubscriptionParseFailed {
		t.Errorf("pop: %v %q", d.code, d.remark)
	}
	beat := protocol.HeartbeatData{ClientID: "c", ConsumerDataSet: []protocol.ConsumerData{{
		GroupName: "consumers", ConsumeType: "CONSUME_PASSIVELY", MessageModel: "CLUSTERING",
		SubscriptionDataSet: []protocol.SubscriptionData{
			{Topic: "tags", SubString: "t", CodeSet: codes, TagsSet: []string{"t"}, SubVersion: 1},
		},
	}}}
	if a := p.call(remoting.HeartBeat, nil, protocol.Marshal(beat)); a.Code != remoting.Success {
		t.Fatalf("heartbeat: %v %q", a.Code, a.Remark)
	}
	q := pullRequest("tags", 0, 0, "", 0)
	q.SysFlag &^= protocol.PullSubscription
	q.Group = []byte("consumers")
	if d := p.pull(q); d.code != remoting.SubscriptionParseFailed {
		t.Errorf("pull: %v %q", d.code, d.remark)
	}
}
