// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/engine/pop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// popped is an answered pop.
type popped struct {
	code   remoting.ResponseCode
	remark string
	head   protocol.PopResponse
	views  []record.View
	topic  string
	group  string
}

func popRequest(topic, group string, invisible, hold time.Duration) *protocol.PopRequest {
	return &protocol.PopRequest{
		Group: group, Topic: topic, QueueID: -1, MaxMessages: 32, InvisibleMS: invisible.Milliseconds(),
		PollMS: hold.Milliseconds(), BornMS: time.Now().UnixMilli(),
	}
}

func (p *peer) pop(r *protocol.PopRequest) popped {
	p.t.Helper()
	res := p.call(remoting.PopMessage, r, nil)
	out := popped{code: res.Code, remark: res.Remark, topic: r.Topic, group: r.Group}
	if err := out.head.Decode(res.Command); err != nil {
		p.t.Fatalf("pop response %v %q: %v", res.Code, res.Remark, err)
	}
	for body := res.Body; len(body) > 0; {
		v, err := record.Parse(body)
		if err != nil || !v.CheckCRC() {
			p.t.Fatalf("popped record %d: %v", len(out.views), err)
		}
		out.views = append(out.views, v)
		body = body[v.TotalSize():]
	}
	return out
}

func (d popped) bodies() string {
	var all []string
	for _, v := range d.views {
		all = append(all, string(v.Body()))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// receipts makes what a client gives back for each message, as RocketMQ's MQClientAPIImpl does.
func (d popped) receipts(t testing.TB) []protocol.AckRequest {
	t.Helper()
	starts := map[string]string{}
	if d.head.StartOffsetInfo != "" {
		for one := range strings.SplitSeq(d.head.StartOffsetInfo, ";") {
			f := strings.Fields(one)
			starts[f[0]+"@"+f[1]] = f[2]
		}
	}
	var out []protocol.AckRequest
	for _, v := range d.views {
		info, ok := record.Property(v.Properties(), "POP_CK")
		topic := d.topic
		if ok {
			r, err := pop.ParseReceipt(string(info))
			if err != nil {
				t.Fatal(err)
			}
			if topic, err = pop.TopicOfKind(r.Kind, d.topic, d.group); err != nil {
				t.Fatal(err)
			}
		} else {
			start, known := starts["0@"+strconv.Itoa(int(v.QueueID()))]
			if !known {
				t.Fatalf("no start of queue %d in %q", v.QueueID(), d.head.StartOffsetInfo)
			}
			info = fmt.Appendf(nil, "%s %d %d %d 0 broker-a %d %d", start, d.head.PopMS, d.head.InvisibleMS,
				d.head.ReviveQueueID, v.QueueID(), v.QueueOffset())
		}
		out = append(out, protocol.AckRequest{
			Group: d.group, Topic: topic, QueueID: v.QueueID(), ExtraInfo: string(info),
			Offset: int64(v.QueueOffset()),
		})
	}
	return out
}

func (p *peer) ack(list ...protocol.AckRequest) {
	p.t.Helper()
	for i := range list {
		if r := p.call(remoting.AckMessage, &list[i], nil); r.Code != remoting.Success {
			p.t.Fatalf("ack %+v: %v %q", list[i], r.Code, r.Remark)
		}
	}
}

// What is acknowledged does not come again; what is not comes within a second of its time, once, with
// its properties, and can be acknowledged then.
func TestE2EPopAndRevive(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 20 {
		p.send("popped", int32(i%4), fmt.Sprint("m", i), "TAGS", "t", "KEYS", fmt.Sprint("k", i))
	}
	first := p.pop(popRequest("popped", "g", time.Second, 0))
	if first.code != remoting.Success || len(first.views) != 20 || first.head.RestNum != 0 {
		t.Fatalf("%v %q, %d messages, %d left", first.code, first.remark, len(first.views), first.head.RestNum)
	}
	if d := p.pop(popRequest("popped", "g", time.Second, 0)); d.code != remoting.PollingTimeout {
		t.Fatalf("popped twice: %v %q", d.code, d.bodies())
	}
	receipts := first.receipts(t)
	p.ack(receipts[5:]...)
	due := time.UnixMilli(first.head.PopMS).Add(time.Second)
	again := p.pop(popRequest("popped", "g", time.Minute, 4*time.Second))
	if late := time.Since(due); late < 0 || late > time.Second {
		t.Errorf("came %v after they were due", late)
	}
	for len(again.views) < 5 {
		more := p.pop(popRequest("popped", "g", time.Minute, 2*time.Second))
		if len(more.views) == 0 {
			break
		}
		again.views = append(again.views, more.views...)
	}
	var want []string
	for _, v := range first.views[:5] {
		want = append(want, string(v.Body()))
	}
	slices.Sort(want)
	if got := again.bodies(); got != strings.Join(want, " ") {
		t.Fatalf("came again: %q, want %q", got, want)
	}
	for _, v := range again.views {
		key, _ := record.Property(v.Properties(), "KEYS")
		at, _ := record.Property(v.Properties(), "1ST_POP_TIME")
		if v.ReconsumeTimes() != 1 || string(v.Topic()) != "popped" || "m"+string(key[1:]) != string(v.Body()) ||
			string(at) != strconv.FormatInt(first.head.PopMS, 10) {
			t.Errorf("%s: reconsumed %d, topic %s, properties %q", v.Body(), v.ReconsumeTimes(), v.Topic(), v.Properties())
		}
	}
	p.ack(again.receipts(t)...)
	eventually(t, func() bool { return cluster.Engine().PopsInFlight() == 0 })
}

// A message can be kept longer, and comes when that time is over.
func TestE2EPopChangeInvisible(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("kept", 0, "m")
	first := p.pop(popRequest("kept", "g", 500*time.Millisecond, 0))
	change := &protocol.ChangeInvisibleRequest{AckRequest: first.receipts(t)[0], InvisibleMS: 1500}
	r := p.call(remoting.ChangeMessageInvisibleTime, change, nil)
	var answer protocol.ChangeInvisibleResponse
	if err := answer.Decode(r.Command); err != nil || r.Code != remoting.Success || answer.InvisibleMS != 1500 {
		t.Fatalf("%v %q %+v %v", r.Code, r.Remark, answer, err)
	}
	again := p.pop(popRequest("kept", "g", time.Minute, 4*time.Second))
	if late := time.Since(time.UnixMilli(answer.PopMS + answer.InvisibleMS)); again.bodies() != "m" || late < 0 || late > time.Second {
		t.Errorf("%v %q, %v after it was due", again.code, again.bodies(), late)
	}
}

func TestE2EPopBatchAck(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 10 {
		p.send("batched", 0, fmt.Sprint("m", i))
	}
	d := p.pop(popRequest("batched", "g", 700*time.Millisecond, 0))
	body := protocol.Marshal(protocol.BatchAckBody{BrokerName: "broker-a", Acks: []protocol.BatchAck{{
		BitSet: []byte{0b1111_0111, 0b11}, ConsumerGroup: "g", Topic: "batched", Retry: "0",
		InvisibleTime: d.head.InvisibleMS, PopTime: d.head.PopMS, ReviveQueueID: d.head.ReviveQueueID,
	}}})
	if r := p.call(remoting.BatchAckMessage, nil, body); r.Code != remoting.Success {
		t.Fatalf("%v %q", r.Code, r.Remark)
	}
	if r := p.call(remoting.BatchAckMessage, nil, []byte("{}")); r.Code != remoting.NoMessage {
		t.Errorf("without acknowledgements: %v", r.Code)
	}
	again := p.pop(popRequest("batched", "g", time.Minute, 4*time.Second))
	if again.bodies() != "m3" {
		t.Errorf("came again: %q", again.bodies())
	}
}

// A waiting pop is answered by what comes, for any queue and for one; a filter lets it wait on.
func TestE2EPopWaits(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("awaited", 0, "old")
	p.send("awaited", 1, "old")
	p.pop(popRequest("awaited", "g", time.Minute, 0))
	start := func(change func(r *protocol.PopRequest)) chan popped {
		r := popRequest("awaited", "g", time.Minute, 4*time.Second)
		change(r)
		q, done := newPeer(t, cluster.Broker()), make(chan popped, 1)
		go func() { done <- q.pop(r) }()
		return done
	}
	filtered := start(func(r *protocol.PopRequest) { r.Expression = "wanted" })
	eventually(t, func() bool { return cluster.Engine().PopsWaiting() == 1 })
	p.send("awaited", 1, "not this", "TAGS", "other")
	p.send("awaited", 1, "this", "TAGS", "wanted")
	if d := <-filtered; d.bodies() != "this" {
		t.Errorf("filtered: %v %q", d.code, d.bodies())
	}
	one := start(func(r *protocol.PopRequest) { r.QueueID = 1 })
	eventually(t, func() bool { return cluster.Engine().PopsWaiting() == 1 })
	p.send("awaited", 0, "other queue")
	p.send("awaited", 1, "this queue")
	if d := <-one; d.bodies() != "this queue" {
		t.Errorf("one queue: %v %q", d.code, d.bodies())
	}
	begun := time.Now()
	if d := p.pop(popRequest("awaited", "h", time.Minute, 0)); len(d.views) == 0 {
		t.Errorf("another group has its own messages: %v", d.code)
	}
	left := p.pop(popRequest("awaited", "g", time.Minute, 0))
	for len(left.views) > 0 {
		left = p.pop(popRequest("awaited", "g", time.Minute, 0))
	}
	d := p.pop(popRequest("awaited", "g", time.Minute, 600*time.Millisecond))
	if d.code != remoting.PollingTimeout || time.Since(begun) < 500*time.Millisecond {
		t.Errorf("nothing there: %v after %v", d.code, time.Since(begun))
	}
}

// An ordered pop holds its queue until what it gave out is acknowledged or may come again.
func TestE2EPopInOrder(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 4 {
		p.send("ordered", 0, fmt.Sprint("m", i))
	}
	order := true
	request := func(attempt string, hold time.Duration) *protocol.PopRequest {
		r := popRequest("ordered", "g", 800*time.Millisecond, hold)
		r.Order, r.AttemptID, r.MaxMessages = &order, attempt, 2
		return r
	}
	first := p.pop(request("one", 0))
	if first.bodies() != "m0 m1" || first.head.ReviveQueueID != 999 || first.head.OrderCountInfo != "0 0 0" {
		t.Fatalf("%q %+v", first.bodies(), first.head)
	}
	if d := p.pop(request("two", 0)); d.code != remoting.PollingTimeout {
		t.Errorf("the queue is not held: %v %q", d.code, d.bodies())
	}
	if d := p.pop(request("one", 0)); d.bodies() != "m0 m1" {
		t.Errorf("the same request again: %v %q", d.code, d.bodies())
	}
	again := p.pop(request("three", 3*time.Second))
	if again.bodies() != "m0 m1" || again.head.OrderCountInfo != "0 qo0%0 1;0 qo0%1 1;0 0 1" {
		t.Fatalf("after its time: %v %q %q", again.code, again.bodies(), again.head.OrderCountInfo)
	}
	receipts := again.receipts(t)
	p.ack(first.receipts(t)[0]) // an old one changes nothing
	p.ack(receipts[1])
	if d := p.pop(request("four", 0)); d.code != remoting.PollingTimeout {
		t.Errorf("m0 is still out: %v %q", d.code, d.bodies())
	}
	done := make(chan popped, 1)
	q := newPeer(t, cluster.Broker())
	go func() { done <- q.pop(request("five", 3*time.Second)) }()
	eventually(t, func() bool { return cluster.Engine().PopsWaiting() == 1 })
	p.ack(receipts[0])
	if d := <-done; d.bodies() != "m2 m3" {
		t.Errorf("next: %v %q", d.code, d.bodies())
	}
}

// After a restart memory is gone: the revive topic says what is out, and the timer when.
func TestE2EPopSurvivesARestart(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 10 {
		p.send("across", int32(i%2), fmt.Sprint("m", i))
	}
	d := p.pop(popRequest("across", "g", 3*time.Second, 0))
	if len(d.views) != 10 {
		t.Fatalf("%d messages", len(d.views))
	}
	receipts := d.receipts(t)
	p.ack(receipts[:4]...)
	cluster.Restart()
	p = newPeer(t, cluster.Broker())
	p.ack(receipts[4:7]...)
	if d := p.pop(popRequest("across", "g", time.Minute, 0)); len(d.views) > 0 {
		t.Fatalf("came too early: %q", d.bodies())
	}
	var again []string
	due := time.UnixMilli(d.head.PopMS).Add(3 * time.Second)
	for len(again) < 3 {
		more := p.pop(popRequest("across", "g", time.Minute, 4*time.Second))
		if len(more.views) == 0 {
			t.Fatalf("%v %q; so far %q", more.code, more.remark, again)
		}
		if late := time.Since(due); late < 0 || late > time.Second {
			t.Errorf("came %v after they were due", late)
		}
		again = append(again, strings.Fields(more.bodies())...)
	}
	var want []string
	for _, v := range d.views[7:] {
		want = append(want, string(v.Body()))
	}
	slices.Sort(want)
	slices.Sort(again)
	if !slices.Equal(again, want) {
		t.Errorf("came again: %q, want %q", again, want)
	}
	eventually(t, func() bool { return cluster.Engine().PopsInFlight() <= 3 })
}

// What was popped comes again when its properties have no room for what a broker notes in them, and
// so do its neighbours.
func TestE2EPopFullProperties(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("popped", 0, "a", "KEYS", "k")
	size := len(p.await("popped", 0, 1)[0].Properties())
	p.send("popped", 0, "b", "KEYS", strings.Repeat("k", 1+record.MaxProperties-size))
	p.send("popped", 0, "c", "KEYS", "k")
	if n := len(p.await("popped", 1, 1)[0].Properties()); n != record.MaxProperties {
		t.Fatalf("properties of %d bytes", n)
	}
	if d := p.pop(popRequest("popped", "g", time.Second, 0)); d.bodies() != "a b c" {
		t.Fatalf("popped %q", d.bodies())
	}
	var again popped
	eventually(t, func() bool {
		d := p.pop(popRequest("popped", "g", time.Minute, time.Second))
		again.views = append(again.views, d.views...)
		return len(again.views) >= 3
	})
	if got := again.bodies(); got != "a b c" {
		t.Errorf("came again: %q", got)
	}
}
