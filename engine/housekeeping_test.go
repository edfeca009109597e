// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

func runtimeInfo(p *peer) map[string]string {
	p.t.Helper()
	var table protocol.KVTable
	if err := protocol.Unmarshal(p.call(remoting.GetBrokerRuntimeInfo, nil, nil).Body, &table); err != nil {
		p.t.Fatal(err)
	}
	return table.Table
}

// A group that is online and stands still while messages come in is named in the log, with its clients,
// and in the runtime info; members that subscribe differently are named there too.
func TestStuckAndMixedConsumersAreNamed(t *testing.T) {
	t.Parallel()
	var j journal
	c := enginetest.Start(t, logTo(&j), func(c *engine.Config) { c.StuckMS = 1000 })
	p := newPeer(t, c.Broker())
	p.send("T", 0, "first")
	joinGroup(t, c.Broker(), "sleeper@1", "CG", "T")
	p.call(remoting.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
		Group: "CG", Topic: "T", HasQueueID: true, HasOffset: true,
	}, nil)
	deadline := time.Now().Add(20 * time.Second)
	for len(j.lines("consumers are stuck", "group=CG", "topic=T", "sleeper@1 127.0.0.1:")) == 0 {
		p.send("T", 0, "more")
		if time.Now().After(deadline) {
			t.Fatal("nobody was told")
		}
	}
	if got := runtimeInfo(p)["stuckConsumers"]; !strings.Contains(got, "CG on T: 1 queues") {
		t.Errorf("stuckConsumers %q", got)
	}
	if got := runtimeInfo(p)["mixedSubscriptions"]; got != "" {
		t.Errorf("mixedSubscriptions %q", got)
	}
	joinGroup(t, c.Broker(), "other@2", "CG", "T2")
	if got := runtimeInfo(p)["mixedSubscriptions"]; got != "CG" {
		t.Errorf("mixedSubscriptions %q", got)
	}
	lines := j.lines("members of a group subscribe differently", "group=CG", "sleeper@1", "other@2", "127.0.0.1:")
	if len(lines) != 1 {
		t.Errorf("%d lines about it", len(lines))
	}
}
