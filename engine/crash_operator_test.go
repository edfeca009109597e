// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// done makes a request that must be answered with success.
func (p *peer) done(code remoting.RequestCode, h remoting.Header) {
	p.t.Helper()
	if r := p.call(code, h, nil); r.Code != remoting.Success {
		p.t.Fatalf("%v: %v %q", code, r.Code, r.Remark)
	}
}

// TestCrashOperatorsWork: what an operator was told is done is done after a death that follows at
// once, though consumers' own commits may be up to five seconds behind: positions that were moved,
// copied, or removed with their group or topic. A position that came back with a topic made anew
// would have its group pass over the first messages.
func TestCrashOperatorsWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const topic = "T"
	fill := func(p *peer) {
		p.t.Helper()
		for i := range 10 {
			p.send(topic, 0, fmt.Sprint(i))
		}
	}
	v := startVictim(t, dir, "ASYNC_FLUSH")
	p := newPeer(t, v.addr)
	fill(p)
	for _, group := range []string{"moved", "source", "removed", "stays"} {
		pull := pullRequest(topic, 0, 0, "*", 0)
		pull.Group = []byte(group)
		p.pull(pull) // makes the group
		p.commit(group, topic, 0, 8)
	}
	v.end(t, false) // with the positions in the file

	for _, k := range []struct {
		name string
		do   func(p *peer)
		want map[string]int64 // positions by group
	}{
		{"reset", func(p *peer) {
			p.done(remoting.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
				Group: "moved", Topic: topic, QueueID: 0, Offset: 3, Timestamp: -1,
			})
		}, map[string]int64{"moved": 3, "stays": 8}},
		{"clone", func(p *peer) {
			p.done(remoting.CloneGroupOffset, &protocol.CloneGroupOffsetRequest{
				SrcGroup: "source", DestGroup: "copied", Topic: topic, Offline: true,
			})
		}, map[string]int64{"copied": 8, "source": 8}},
		{"delete group", func(p *peer) {
			p.done(remoting.DeleteSubscriptionGroup, &protocol.DeleteGroupRequest{
				GroupName: "removed", CleanOffset: true,
			})
		}, map[string]int64{"removed": -1, "stays": 8}},
		{"delete topic", func(p *peer) {
			p.done(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: topic})
			fill(p) // made anew
		}, map[string]int64{"moved": -1, "stays": -1, "copied": -1}},
	} {
		v := startVictim(t, dir, "ASYNC_FLUSH")
		k.do(newPeer(t, v.addr))
		v.end(t, true)
		v = startVictim(t, dir, "ASYNC_FLUSH")
		p := newPeer(t, v.addr)
		for group, want := range k.want {
			if got := p.committed(group, topic, 0); got != want {
				t.Errorf("%s, then a death: group %s is at %d, want %d", k.name, group, got, want)
			}
		}
		v.end(t, false)
	}
}

// TestCrashResetNotTaken: a reset of a group whose members have not seen it yet is as good after a
// death: what they commit meanwhile, from where they were, does not undo it, and the first pull of each
// takes it. RocketMQ forgets it (ConsumerOffsetManager.resetOffsetTable is in memory only).
func TestCrashResetNotTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := startVictim(t, dir, "ASYNC_FLUSH")
	p := newPeer(t, v.addr)
	for i := range 10 {
		p.send("T", 0, fmt.Sprint(i))
	}
	pull := pullRequest("T", 0, 8, "*", 0)
	pull.Group = []byte("online")
	p.pull(pull) // makes the group
	p.commit("online", "T", 0, 8)
	p.done(remoting.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequest{
		Group: "online", Topic: "T", QueueID: 0, Offset: 3, Timestamp: -1,
	})
	v.end(t, true)
	for kill := range 2 { // a second death changes nothing
		v = startVictim(t, dir, "ASYNC_FLUSH")
		p = newPeer(t, v.addr)
		p.commit("online", "T", 0, 9)
		if got := p.committed("online", "T", 0); got != 3 {
			t.Errorf("after death %d the group is at %d, want 3", kill+1, got)
		}
		if kill == 0 {
			v.end(t, true)
		}
	}
	if d := p.pull(pull); d.code != remoting.PullOffsetMoved || d.head.NextOffset != 3 {
		t.Errorf("the pull after it: %v, next %d", d.code, d.head.NextOffset)
	}
	p.commit("online", "T", 0, 4)
	v.end(t, false)
	v = startVictim(t, dir, "ASYNC_FLUSH")
	defer v.end(t, false)
	if got := newPeer(t, v.addr).committed("online", "T", 0); got != 4 {
		t.Errorf("once it was taken, and the broker restarted, the group is at %d, want 4", got)
	}
}
