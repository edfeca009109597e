// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// pulls are frames that pull queue 0 of a topic from a place on, so often, with opaques from first on.
func pulls(topic string, from int64, hold time.Duration, first, count int) []byte {
	var all []byte
	for i := range count {
		r := pullRequest(topic, 0, from, "*", hold)
		e := remoting.Begin(nil, remoting.Head{
			Code: int32(remoting.PullMessage), Version: remoting.ProtocolVersion,
			Opaque: remoting.Opaque(first + i),
		})
		r.AppendFields(&e)
		all = append(all, e.End(nil)...)
	}
	return all
}

// TestPipelinedPulls has a client ask a thousand times for messages that lie apart in the log, before it
// reads the first answer: many times what may wait for one connection. It is not closed for it.
func TestPipelinedPulls(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	body := strings.Repeat("x", 9000) // sent from where it lies
	for i := range 32 {
		p.send("apart", 0, fmt.Sprint(i, body))
		p.send("between", 0, body)
	}
	raw := dialRaw(t, cluster.Broker())
	raw.write(pulls("apart", 0, 0, 0, 1)) // makes the group
	if _, err := raw.answer(callWithin); err != nil {
		t.Fatal(err)
	}
	const count = 1000
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = raw.conn.Write(pulls("apart", 0, 0, 0, count))
	}()
	for i := range count {
		cmd, err := raw.answer(callWithin)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if cmd.Code != int32(remoting.Success) || cmd.Opaque != remoting.Opaque(i) || len(cmd.Body) < 9000 {
			t.Fatalf("answer %d: code %d, opaque %d, %d bytes", i, cmd.Code, cmd.Opaque, len(cmd.Body))
		}
	}
	<-done
}

// TestHeldPullsOfOneConnection holds three thousand pulls of one client, which one message wakes all at once
// with many times what may wait for it. It gets them all.
func TestHeldPullsOfOneConnection(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("held", 0, "first")
	raw := dialRaw(t, cluster.Broker())
	const count = 3000
	raw.write(pulls("held", 1, time.Minute, 0, 1)) // makes the group
	held := func(n int) func() bool { return func() bool { return cluster.Engine().HeldPulls() == n } }
	eventually(t, held(1))
	raw.write(pulls("held", 1, time.Minute, 1, count-1))
	eventually(t, held(count))
	p.send("held", 0, strings.Repeat("x", 20_000))
	seen := map[remoting.Opaque]bool{}
	for i := range count {
		cmd, err := raw.answer(callWithin)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if cmd.Code != int32(remoting.Success) || len(cmd.Body) < 20_000 || seen[cmd.Opaque] {
			t.Fatalf("answer %d: code %d, opaque %d, %d bytes", i, cmd.Code, cmd.Opaque, len(cmd.Body))
		}
		seen[cmd.Opaque] = true
	}
}
