// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// peer speaks frames to a broker, as any client would.
type peer struct {
	t    testing.TB
	pool *invoke.Pool
	addr string
}

func newPeer(t testing.TB, addr string) *peer {
	p := &peer{t: t, pool: invoke.NewPool(invoke.Config{}), addr: addr}
	t.Cleanup(func() { _ = p.pool.Close() })
	return p
}

// callWithin is longer than any answer should take on a busy machine.
const callWithin = 5 * time.Second

func (p *peer) call(code remoting.RequestCode, header remoting.Header, body []byte) *invoke.Response {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	r, err := p.pool.Call(ctx, p.addr, &invoke.Request{Code: code, Header: header, Body: body})
	if err != nil {
		p.t.Fatalf("call %v %+v: %v", code, header, err)
	}
	return r
}

func sendRequest(topic string, queue int32, props ...string) *protocol.SendRequest {
	r := &protocol.SendRequest{
		Group: []byte("producers"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"),
		DefaultTopicQueues: 4, QueueID: queue, BornMS: time.Now().UnixMilli(), MaxReconsumeTimes: -1,
	}
	for i := 0; i+1 < len(props); i += 2 {
		r.Properties = record.AppendProperty(r.Properties, props[i], props[i+1])
	}
	return r
}

// send stores a message that must be accepted.
func (p *peer) send(topic string, queue int32, body string, props ...string) protocol.SendResponse {
	p.t.Helper()
	r := p.call(remoting.SendMessageV2, sendRequest(topic, queue, props...), []byte(body))
	if r.Code != remoting.Success {
		p.t.Fatalf("send to %s: code %v, remark %q", topic, r.Code, r.Remark)
	}
	var out protocol.SendResponse
	if err := out.Decode(r.Command); err != nil {
		p.t.Fatalf("send response: %v", err)
	}
	return out
}

const (
	suspendFlag      = 2
	subscriptionFlag = 4
)

func pullRequest(topic string, queue int32, from int64, tags string, hold time.Duration) *protocol.PullRequest {
	r := &protocol.PullRequest{
		Group: []byte("consumers"), Topic: []byte(topic), QueueID: queue, QueueOffset: from,
		MaxMessages: 32, SysFlag: subscriptionFlag, Subscription: []byte(tags),
	}
	if hold > 0 {
		r.SysFlag |= suspendFlag
		r.SuspendMS = hold.Milliseconds()
	}
	return r
}

// pulled is an answered pull.
type pulled struct {
	code   remoting.ResponseCode
	remark string
	head   protocol.PullResponse
	views  []record.View
}

func (p *peer) pull(r *protocol.PullRequest) pulled {
	p.t.Helper()
	res := p.call(remoting.PullMessage, r, nil)
	out := pulled{code: res.Code, remark: res.Remark}
	if res.Code == remoting.Success || res.Code >= remoting.PullNotFound && res.Code <= remoting.PullOffsetMoved {
		if err := out.head.Decode(res.Command); err != nil {
			p.t.Fatalf("pull response: %v", err)
		}
	}
	for body := res.Body; len(body) > 0; {
		v, err := record.Parse(body)
		if err != nil {
			p.t.Fatalf("pulled record %d: %v", len(out.views), err)
		}
		if !v.CheckCRC() {
			p.t.Fatalf("pulled record %d: wrong CRC", len(out.views))
		}
		out.views = append(out.views, v)
		body = body[v.TotalSize():]
	}
	return out
}

func (d pulled) bodies() string {
	var all []string
	for _, v := range d.views {
		all = append(all, string(v.Body()))
	}
	return strings.Join(all, " ")
}

func TestE2ESendAndPull(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 5 {
		got := p.send("demo", 0, fmt.Sprint("m", i), "TAGS", "a", "KEYS", "k", "color", "red")
		if got.QueueOffset != int64(i) || got.QueueID != 0 {
			t.Errorf("send %d: queue %d offset %d", i, got.QueueID, got.QueueOffset)
		}
		if len(got.TransactionID) == 0 || len(got.MsgID) != 32 {
			t.Errorf("send %d: ids %q %q", i, got.TransactionID, got.MsgID)
		}
	}
	d := p.pull(pullRequest("demo", 0, 0, "*", 0))
	if d.code != remoting.Success || d.remark != "FOUND" || d.bodies() != "m0 m1 m2 m3 m4" {
		t.Fatalf("pull: %v %q %q", d.code, d.remark, d.bodies())
	}
	if d.head.NextOffset != 5 || d.head.MaxOffset != 5 || d.head.MinOffset != 0 {
		t.Errorf("pull header: %+v", d.head)
	}
	props := d.views[0].Properties()
	for name, want := range map[string]string{
		"TAGS": "a", "KEYS": "k", "color": "red", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
		"CLUSTER": "DefaultCluster",
	} {
		if got, _ := record.Property(props, name); string(got) != want {
			t.Errorf("property %s: got %q, want %q", name, got, want)
		}
	}
	if got, _ := record.Property(props, "UNIQ_KEY"); len(got) != 32 {
		t.Errorf("the broker must give a unique key, got %q", got)
	}
}

func TestE2EEverythingSurvivesARestart(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 100 {
		p.send("kept", int32(i%4), fmt.Sprint("m", i), "KEYS", fmt.Sprint("k", i))
	}
	commit := &protocol.UpdateConsumerOffsetRequest{
		Group: "consumers", Topic: "kept", QueueID: 1, HasQueueID: true, CommitOffset: 7,
		HasOffset: true,
	}
	p.pull(pullRequest("kept", 1, 0, "*", 0)) // makes the group known
	if r := p.call(remoting.UpdateConsumerOffset, commit, nil); r.Code != remoting.Success {
		t.Fatalf("commit: %v %s", r.Code, r.Remark)
	}
	cluster.Restart()
	for q := range int32(4) {
		d := p.pull(pullRequest("kept", q, 0, "*", 0))
		if len(d.views) != 25 {
			t.Errorf("queue %d: %d messages after the restart, want 25", q, len(d.views))
		}
	}
	r := p.call(remoting.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
		Group: "consumers", Topic: "kept", QueueID: 1,
	}, nil)
	var offset protocol.OffsetResponse
	if err := offset.Decode(r.Command); err != nil || offset.Offset != 7 {
		t.Errorf("committed offset after the restart: %d %v, want 7", offset.Offset, err)
	}
	q := p.call(remoting.QueryMessage, &protocol.QueryMessageRequest{
		Topic: "kept", Key: "k42", MaxNum: 10, EndTimestamp: time.Now().Add(time.Hour).UnixMilli(),
	}, nil)
	if q.Code != remoting.Success || !bytes.Contains(q.Body, []byte("m42")) {
		t.Errorf("query by key: %v %s", q.Code, q.Remark)
	}
}

func TestE2ELongPollIsAnsweredOnArrival(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("poll", 0, "first", "TAGS", "a")
	for _, c := range []struct{ tags, want string }{{"*", "other"}, {"b", "wanted"}} {
		next := p.pull(pullRequest("poll", 0, 0, "*", 0)).head.MaxOffset
		done := make(chan pulled, 1)
		held := newPeer(t, cluster.Broker())
		start := time.Now()
		go func() { done <- held.pull(pullRequest("poll", 0, next, c.tags, 15*time.Second)) }()
		eventually(t, func() bool { return cluster.Engine().HeldPulls() > 0 })
		p.send("poll", 0, "other", "TAGS", "a")
		p.send("poll", 0, "wanted", "TAGS", "b")
		d := <-done
		if d.code != remoting.Success || !strings.Contains(d.bodies(), c.want) ||
			c.tags == "b" && strings.Contains(d.bodies(), "other") {
			t.Errorf("tags %s: %v %q", c.tags, d.code, d.bodies())
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("tags %s: answered after %v", c.tags, took)
		}
	}
}

func TestE2ELongPollEndsAtItsTime(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("quiet", 0, "one")
	start := time.Now()
	d := p.pull(pullRequest("quiet", 0, 1, "*", time.Second))
	if d.code != remoting.PullNotFound || d.remark != "OFFSET_OVERFLOW_ONE" {
		t.Errorf("got %v %q", d.code, d.remark)
	}
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("answered after %v, before its time", took)
	}
	if d.head.NextOffset != 1 {
		t.Errorf("next offset %d, want 1", d.head.NextOffset)
	}
}

// eventually waits for what another goroutine is about to bring about.
func eventually(t testing.TB, happened func() bool) {
	t.Helper()
	deadline := time.After(callWithin)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-deadline:
			t.Fatal("it does not happen")
		case <-tick.C:
		}
	}
}

func TestE2EWhatIsNotThereYetIsRefused(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("plain", 0, "one", "DELAY", "0")
	cases := []struct {
		name  string
		props []string
		want  remoting.ResponseCode
		says  string
	}{
		{"delay that is no number", []string{"DELAY", "abc"}, remoting.MessageIllegal, "DELAY"},
		{"timer too far", []string{"TIMER_DELAY_SEC", "2147483648"}, remoting.MessageIllegal, "259200000ms"},
		{"inner batch", []string{"INNER_NUM", "2"}, remoting.MessageIllegal, "INNER_NUM"},
	}
	for _, c := range cases {
		r := p.call(remoting.SendMessageV2, sendRequest("plain", 0, c.props...), []byte("x"))
		if r.Code != c.want || !strings.Contains(r.Remark, c.says) {
			t.Errorf("%s: got %v %q, want %v naming %q", c.name, r.Code, r.Remark, c.want, c.says)
		}
	}
	for _, code := range []remoting.RequestCode{remoting.PopRollback, 22, 9999} {
		r := p.call(code, nil, nil)
		if r.Code != remoting.RequestCodeNotSupported ||
			!strings.HasPrefix(r.Remark, fmt.Sprintf(" request type %d not supported", code)) {
			t.Errorf("code %d: got %v %q", code, r.Code, r.Remark)
		}
	}
	if d := p.pull(pullRequest("plain", 0, 0, "*", 0)); d.bodies() != "one" {
		t.Errorf("stored: %q, want only the first", d.bodies())
	}
}

func TestE2EBadSends(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(c *engine.Config) { c.MaxMessageSize = 10000 })
	p := newPeer(t, cluster.Broker())
	p.send("good", 0, "one")
	long := strings.Repeat("x", 128)
	cases := []struct {
		name  string
		topic string
		queue int32
		body  []byte
		props string
		want  remoting.ResponseCode
	}{
		{"no topic", "", 0, []byte("x"), "", remoting.InvalidParameter},
		{"illegal characters", "a b", 0, []byte("x"), "", remoting.InvalidParameter},
		{"long topic", long, 0, []byte("x"), "", remoting.InvalidParameter},
		{"reserved topic", "SCHEDULE_TOPIC_XXXX", 0, []byte("x"), "", remoting.NoPermission},
		{"queue id", "good", 4, []byte("x"), "", remoting.InvalidParameter},
		{"no body", "good", 0, nil, "", remoting.SystemError},
		{"large body", "good", 0, make([]byte, 10001), "", remoting.MessageIllegal},
		{"large properties", "good", 0, []byte("x"), strings.Repeat("p", 32760), remoting.MessageIllegal},
		{"retry topic of a blank group", "%RETRY%", 0, []byte("x"), "", remoting.InvalidParameter},
		{"dead letters of a blank group", "%DLQ%", 0, []byte("x"), "", remoting.InvalidParameter},
		{"retry topic of no group", "%RETRY%a b", 0, []byte("x"), "", remoting.InvalidParameter},
	}
	for _, c := range cases {
		req := sendRequest(c.topic, c.queue)
		if c.props != "" {
			req.Properties = record.AppendProperty(nil, "p", c.props)
		}
		r := p.call(remoting.SendMessageV2, req, c.body)
		if r.Code != c.want || r.Remark == "" {
			t.Errorf("%s: got %v %q, want %v", c.name, r.Code, r.Remark, c.want)
		}
	}
	got := p.send("good", -1, "two")
	if got.QueueID < 0 || got.QueueID > 3 {
		t.Errorf("queue -1 must become one of the topic's, got %d", got.QueueID)
	}
}

func TestE2EBatches(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	batch := func(topic string, elements ...[]byte) *invoke.Response {
		req := sendRequest(topic, 1)
		req.Batch = true
		return p.call(remoting.SendBatchMessage, req, bytes.Join(elements, nil))
	}
	element := func(body string, props []byte) []byte {
		return record.AppendBatchEntry(nil, 7, []byte(body), props)
	}
	tag := record.AppendProperty(nil, "TAGS", "a")
	r := batch("bulk", element("a", tag), element("b", nil), element("c", tag))
	var sent protocol.SendResponse
	if err := sent.Decode(r.Command); err != nil || r.Code != remoting.Success {
		t.Fatalf("batch: %v %q %v", r.Code, r.Remark, err)
	}
	if ids := strings.Split(string(sent.MsgID), ","); len(ids) != 3 || sent.QueueOffset != 0 {
		t.Errorf("batch: ids %v, offset %d", ids, sent.QueueOffset)
	}
	huge := record.AppendProperty(nil, "p", strings.Repeat("x", 32768))
	lying := element("x", nil)
	lying[19] = 200 // the inner body length overruns the element
	for name, elements := range map[string][][]byte{
		"properties": {element("a", nil), appendHuge(huge), element("c", nil)},
		"length":     {element("a", nil), lying},
		"size 0":     {element("a", nil), {0, 0, 0, 0}},
		"delay":      {element("a", nil), element("b", record.AppendProperty(nil, "DELAY", "2"))},
		"tail":       {element("a", nil), {0, 0}},
	} {
		if r := batch("bulk", elements...); r.Code != remoting.MessageIllegal {
			t.Errorf("%s: got %v %q, want it refused", name, r.Code, r.Remark)
		}
	}
	p.call(remoting.UpdateAndCreateSubscriptionGroup, nil, protocol.Marshal(
		protocol.DefaultSubscriptionGroup("grp")))
	if r := batch("%RETRY%grp", element("a", nil)); r.Code != remoting.MessageIllegal {
		t.Errorf("a batch to a retry topic: got %v %q", r.Code, r.Remark)
	}
	if d := p.pull(pullRequest("bulk", 1, 0, "a", 0)); d.bodies() != "a c" || d.head.MaxOffset != 3 {
		t.Errorf("pulled by tag: %q, max %d", d.bodies(), d.head.MaxOffset)
	}
}

// appendHuge writes an element whose property length does not fit 15 bits, as no writer of ours
// does.
func appendHuge(props []byte) []byte {
	b := record.AppendBatchEntry(nil, 0, []byte("b"), nil)
	b = append(b, props...)
	size := len(b)
	b[0], b[1], b[2], b[3] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
	at := size - len(props) - 2
	b[at], b[at+1] = byte(len(props)>>8), byte(len(props))
	return b
}

func TestE2EOddPulls(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for i := range 40 {
		p.send("odd", 0, fmt.Sprint(i))
	}
	cases := []struct {
		name   string
		change func(r *protocol.PullRequest)
		want   remoting.ResponseCode
		count  int
		next   int64
	}{
		{"exactly 32", func(*protocol.PullRequest) {}, remoting.Success, 32, 32},
		{"0 acts like 1", func(r *protocol.PullRequest) { r.MaxMessages = 0 }, remoting.Success, 1, 1},
		{"-1 acts like 1", func(r *protocol.PullRequest) { r.MaxMessages = -1 }, remoting.Success, 1, 1},
		{"any number", func(r *protocol.PullRequest) { r.MaxMessages = 1<<31 - 1 }, remoting.Success, 32, 32},
		{"queue -1", func(r *protocol.PullRequest) { r.QueueID = -1 }, remoting.InvalidParameter, 0, 0},
		{"queue beyond", func(r *protocol.PullRequest) { r.QueueID = 4 }, remoting.InvalidParameter, 0, 0},
		{"offset -1", func(r *protocol.PullRequest) { r.QueueOffset = -1 }, remoting.PullOffsetMoved, 0, 0},
		{"offset beyond", func(r *protocol.PullRequest) { r.QueueOffset = 1<<63 - 1 }, remoting.PullOffsetMoved, 0, 40},
		{"suspend -1", func(r *protocol.PullRequest) {
			r.QueueOffset, r.SysFlag, r.SuspendMS = 40, r.SysFlag|suspendFlag, -1
		}, remoting.PullNotFound, 0, 40},
		{"no such topic", func(r *protocol.PullRequest) { r.Topic = []byte("nothing") }, remoting.TopicNotExist, 0, 0},
		{"empty expression", func(r *protocol.PullRequest) { r.Subscription = []byte(" || ") }, remoting.SubscriptionParseFailed, 0, 0},
		{"a million tags", func(r *protocol.PullRequest) {
			r.Subscription = bytes.Repeat([]byte("a||"), 1e6)
		}, remoting.SubscriptionParseFailed, 0, 0},
		{"no subscription", func(r *protocol.PullRequest) { r.SysFlag = 0 }, remoting.SubscriptionNotExist, 0, 0},
		{"SQL92", func(r *protocol.PullRequest) {
			r.ExpressionType, r.Subscription = []byte("SQL92"), []byte("a > 1")
		}, remoting.SystemError, 0, 0},
	}
	for _, c := range cases {
		req := pullRequest("odd", 0, 0, "*", 0)
		c.change(req)
		d := p.pull(req)
		if d.code != c.want || len(d.views) != c.count || d.head.NextOffset != c.next {
			t.Errorf("%s: got %v %q with %d messages, next %d; want %v with %d, next %d", c.name,
				d.code, d.remark, len(d.views), d.head.NextOffset, c.want, c.count, c.next)
		}
	}
}

// TestE2EFirstSendsKeepTheirOrder sends many messages at once to a topic that does not exist yet:
// those that arrive while it is created, and right after, must be stored in the order of their
// connection.
func TestE2EFirstSendsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	for round := range 5 {
		p := newPeer(t, cluster.Broker())
		topic := fmt.Sprint("fresh", round)
		const sends = 500
		done := make(chan error, sends)
		for i := range sends {
			req := &invoke.Request{
				Code: remoting.SendMessageV2, Header: sendRequest(topic, 0), Body: []byte(fmt.Sprint(i)),
			}
			err := p.pool.Async(t.Context(), p.addr, req, func(r *invoke.Response, err error) {
				if err == nil {
					err = r.Err()
				}
				done <- err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for range sends {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for next := int64(0); next < sends; {
			d := p.pull(pullRequest(topic, 0, next, "*", 0))
			if d.code != remoting.Success {
				t.Fatalf("pull at %d: %v %s", next, d.code, d.remark)
			}
			for _, v := range d.views {
				if got, want := string(v.Body()), fmt.Sprint(next); got != want {
					t.Fatalf("%s: offset %d holds message %s", topic, next, got)
				}
				next++
			}
		}
	}
}
