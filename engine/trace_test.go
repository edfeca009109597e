// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// With traceTopicEnable the trace topic is there although no send may create topics, and takes traces as
// any topic takes messages; traceOn and regionId go into answers and messages.
func TestTrace(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		c := enginetest.Start(t, func(c *engine.Config) {
			c.TraceTopic, c.AutoCreateTopic, c.TraceOn, c.RegionID = true, false, on, "here"
		})
		p := newPeer(t, c.Broker())
		r := p.send(protocol.TraceTopic, 0, "Pub\x011\x02", "KEYS", "id-1")
		if r.Region != "here" || r.TraceOn != on {
			t.Errorf("traceOn=%v: answered %+v", on, r)
		}
		got := p.pull(pullRequest(protocol.TraceTopic, 0, 0, "*", 0))
		if len(got.views) != 1 || string(got.views[0].Body()) != "Pub\x011\x02" {
			t.Fatalf("traceOn=%v: pulled %d traces", on, len(got.views))
		}
		props := got.views[0].Properties()
		if v, _ := record.Property(props, "TRACE_ON"); (string(v) == "true") != on {
			t.Errorf("traceOn=%v: stored %s", on, v)
		}
		if v, _ := record.Property(props, "MSG_REGION"); string(v) != "here" {
			t.Errorf("region %s", v)
		}
		if code := p.call(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{
			Topic: protocol.TraceTopic,
		}, nil).Code; code != remoting.InvalidParameter {
			t.Errorf("the trace topic can be deleted: %v", code)
		}
	}
	c := enginetest.Start(t, func(c *engine.Config) { c.AutoCreateTopic = false })
	p := newPeer(t, c.Broker())
	if r := p.call(remoting.SendMessageV2, sendRequest(protocol.TraceTopic, 0), []byte("x")); r.Code != remoting.TopicNotExist {
		t.Errorf("without traceTopicEnable: %v %q", r.Code, r.Remark)
	}
}
