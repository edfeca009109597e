// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// batchTopic makes a topic whose queues are batch queues.
func (p *peer) batchTopic(name string, queues int32) {
	p.t.Helper()
	r := p.call(remoting.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
		Topic: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6,
		TopicFilterType: protocol.SingleTag, Attributes: "+queue.type=BatchCQ",
	}, nil)
	if r.Code != remoting.Success {
		p.t.Fatalf("create %s: %v %q", name, r.Code, r.Remark)
	}
}

// batchBody is the body of a client's batch.
func batchBody(bodies ...string) (b []byte) {
	for i, body := range bodies {
		props := record.AppendProperty(nil, "UNIQ_KEY", fmt.Sprintf("element%d-%s", i, body))
		b = record.AppendBatchEntry(b, 0, []byte(body), props)
	}
	return b
}

// batchRequest is what a 5.x client sends for a batch: the whole of it has a unique key.
func batchRequest(topic string, queue int32, props ...string) *protocol.SendRequest {
	r := sendRequest(topic, queue, props...)
	r.Batch = true
	return r
}

func (p *peer) sendBatch(topic string, queue int32, id string, bodies ...string) protocol.SendResponse {
	p.t.Helper()
	r := p.call(remoting.SendBatchMessage, batchRequest(topic, queue, "UNIQ_KEY", id), batchBody(bodies...))
	if r.Code != remoting.Success {
		p.t.Fatalf("send batch: %v %q", r.Code, r.Remark)
	}
	var out protocol.SendResponse
	if err := out.Decode(r.Command); err != nil {
		p.t.Fatal(err)
	}
	return out
}

func field(r *invoke.Response, name string) []byte {
	value, _ := r.Command.Fields.Get(name)
	return value
}

// bodyAt is a message as a consumer sees it: inner batches are taken apart.
type bodyAt struct {
	offset int64
	body   string
}

func (d pulled) messages(t testing.TB) (list []bodyAt) {
	t.Helper()
	for _, v := range d.views {
		at := int64(v.QueueOffset())
		if v.SysFlag()&(record.SysInnerBatch|record.SysNeedUnwrap) == 0 {
			list = append(list, bodyAt{at, string(v.Body())})
			continue
		}
		number, _ := record.Property(v.Properties(), "INNER_NUM")
		base, _ := record.Property(v.Properties(), "INNER_BASE")
		n := len(list)
		for r := record.NewBatchReader(v.Body()); ; at++ {
			_, body, _, ok := r.Next()
			if !ok {
				if err := r.Err(); err != nil {
					t.Fatal(err)
				}
				break
			}
			list = append(list, bodyAt{at, string(body)})
		}
		if string(number) != strconv.Itoa(len(list)-n) || string(base) != fmt.Sprint(v.QueueOffset()) {
			t.Errorf("record at %d: INNER_NUM %s, INNER_BASE %s", v.QueueOffset(), number, base)
		}
	}
	return list
}

// TestE2EBatchQueues: batches of a topic with batch queues are one record each, and take as many queue
// offsets as they have messages; single messages and batches without a key lie between them.
func TestE2EBatchQueues(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.batchTopic("B", 1)
	before := time.Now().UnixMilli()
	first := p.sendBatch("B", 0, "batch-1", "a", "b", "c")
	if string(first.BatchUniqID) != "batch-1" || string(first.TransactionID) != "batch-1" ||
		first.QueueOffset != 0 || len(first.MsgID) != 32 {
		t.Errorf("answer to a batch: %+v", first)
	}
	if single := p.send("B", 0, "d"); single.QueueOffset != 3 || single.BatchUniqID != nil {
		t.Errorf("answer to a message: %+v", single)
	}
	r := p.call(remoting.SendBatchMessage, batchRequest("B", 0), batchBody("e", "f"))
	if ids := field(r, "msgId"); r.Code != remoting.Success || len(ids) != 65 || field(r, "batchUniqId") != nil {
		t.Errorf("answer to a batch without a key: %v %s", r.Code, ids)
	}
	p.sendBatch("B", 0, "batch-2", "g", "h")
	want := []bodyAt{{0, "a"}, {1, "b"}, {2, "c"}, {3, "d"}, {4, "e"}, {5, "f"}, {6, "g"}, {7, "h"}}
	check := func() {
		t.Helper()
		d := p.pull(pullRequest("B", 0, 0, "*", 0))
		if diff := cmp.Diff(want, d.messages(t), cmp.AllowUnexported(bodyAt{})); diff != "" {
			t.Error(diff)
		}
		if d.head.NextOffset != 8 || d.head.MinOffset != 0 || d.head.MaxOffset != 8 {
			t.Errorf("bounds %+v", d.head)
		}
		d = p.pull(pullRequest("B", 0, 7, "*", 0)) // in the middle of a batch: the client drops the rest
		if got := d.messages(t); len(got) != 2 || got[0].offset != 6 || d.head.NextOffset != 8 {
			t.Errorf("pull at 7: %v, next %d", got, d.head.NextOffset)
		}
	}
	check()
	for ms, at := range map[int64]string{0: "0", before: "0", before + 1e9: "6"} {
		r := p.call(remoting.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{
			Topic: "B", QueueID: 0, Timestamp: ms,
		}, nil)
		if got := string(field(r, "offset")); got != at {
			t.Errorf("offset at %d ms: %s %q, want %s", ms, got, r.Remark, at)
		}
	}
	cluster.Restart()
	p = newPeer(t, cluster.Broker())
	check()
	if next := p.send("B", 0, "i"); next.QueueOffset != 8 {
		t.Errorf("offset %d after the restart", next.QueueOffset)
	}
}

// TestE2EBatchQueuesRefuse: what cannot be a batch in one record is refused, and nothing is stored.
func TestE2EBatchQueuesRefuse(t *testing.T) {
	t.Parallel()
	p := newPeer(t, enginetest.Start(t).Broker())
	p.batchTopic("B", 1)
	p.send("plain", 0, "one")
	flagged := func(topic string, props ...string) *protocol.SendRequest {
		r := sendRequest(topic, 0, props...)
		r.SysFlag = protocol.SysFlagInnerBatch | protocol.SysFlagNeedUnwrap
		return r
	}
	broken := batchBody("x", "y")
	for _, c := range []struct {
		name string
		r    *protocol.SendRequest
		body []byte
		says string
	}{
		{"flag in a plain topic", flagged("plain", "INNER_NUM", "2"), batchBody("x", "y"), "BatchCQ"},
		{"number without the flag", sendRequest("B", 0, "INNER_NUM", "2"), []byte("x"), "INNER_NUM"},
		{"number that is none", flagged("B", "INNER_NUM", "two"), []byte("x"), "INNER_NUM"},
		{"number too large", flagged("B", "INNER_NUM", "32768"), []byte("x"), "32767"},
		{"number below one", flagged("B", "INNER_NUM", "0"), []byte("x"), "INNER_NUM"},
		{"later", flagged("B", "DELAY", "3"), []byte("x"), "later"},
		{"batch later", batchRequest("B", 0, "UNIQ_KEY", "k", "TIMER_DELAY_SEC", "3"), broken, "later"},
		{"half", flagged("B", "TRAN_MSG", "true"), []byte("x"), "transaction"},
		{"broken element", batchRequest("B", 0, "UNIQ_KEY", "k"), broken[:len(broken)-1], "entry 1"},
	} {
		r := p.call(remoting.SendMessageV2, c.r, c.body)
		if r.Code != remoting.MessageIllegal || !strings.Contains(r.Remark, c.says) {
			t.Errorf("%s: %v %q, want 13 naming %q", c.name, r.Code, r.Remark, c.says)
		}
	}
	if d := p.pull(pullRequest("B", 0, 0, "*", 0)); len(d.views) != 0 || d.head.MaxOffset != 0 {
		t.Errorf("stored: %+v", d.head)
	}
	// What another broker hands on as one message is taken.
	r := p.call(remoting.SendMessageV2, flagged("B", "INNER_NUM", "2", "INNER_BASE", "77"), batchBody("x", "y"))
	if r.Code != remoting.Success || string(field(r, "queueOffset")) != "0" {
		t.Errorf("inner batch as a single message: %v %q", r.Code, r.Remark)
	}
	want := []bodyAt{{0, "x"}, {1, "y"}}
	got := p.pull(pullRequest("B", 0, 0, "*", 0)).messages(t)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(bodyAt{})); diff != "" {
		t.Error(diff)
	}
}

// TestCrashKillBatchQueues kills the broker while batches come in: each acknowledged one is there as a
// whole, at its offsets, and the offsets have no gap.
func TestCrashKillBatchQueues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked := map[int64][]string{}
	read := func(p *peer) {
		found := map[int64]string{}
		for next := int64(0); ; {
			d := p.pull(pullRequest("B", 0, next, "*", 0))
			if d.code != remoting.Success {
				break
			}
			for _, m := range d.messages(t) {
				if m.offset != next {
					t.Fatalf("offset %d where %d was due", m.offset, next)
				}
				found[next] = m.body
				next++
			}
		}
		for at, bodies := range acked {
			for i, body := range bodies {
				if found[at+int64(i)] != body {
					t.Fatalf("offset %d: %.40q, want %.40q", at+int64(i), found[at+int64(i)], body)
				}
			}
		}
	}
	for round := range 4 {
		v := startVictim(t, dir, "ASYNC_FLUSH")
		p := newPeer(t, v.addr)
		p.batchTopic("B", 1)
		p.pull(pullRequest("B", 0, 0, "*", 0)) // makes the group
		read(p)
		timer := time.AfterFunc(50*time.Millisecond+rand.N(200*time.Millisecond), func() {
			_ = v.cmd.Process.Kill()
		})
		for i := 0; ; i++ {
			bodies := make([]string, 1+rand.IntN(9))
			for j := range bodies {
				bodies[j] = fmt.Sprintf("%d/%d/%d %s", round, i, j, strings.Repeat("x", rand.IntN(400)))
			}
			at, err := trySendBatch(p, fmt.Sprint("id", round, "-", i), bodies)
			if err != nil {
				break
			}
			acked[at] = bodies
		}
		timer.Stop()
		v.end(t, true)
	}
	v := startVictim(t, dir, "ASYNC_FLUSH")
	read(newPeer(t, v.addr))
	v.end(t, false)
	if len(acked) < 40 {
		t.Errorf("only %d batches were acknowledged", len(acked))
	}
}

func trySendBatch(p *peer, id string, bodies []string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	r, err := p.pool.Call(ctx, p.addr, &invoke.Request{
		Code: remoting.SendBatchMessage, Header: batchRequest("B", 0, "UNIQ_KEY", id),
		Body: batchBody(bodies...),
	})
	if err != nil {
		return 0, err
	}
	if r.Code != remoting.Success {
		return 0, errors.New(r.Remark)
	}
	var sent protocol.SendResponse
	err = sent.Decode(r.Command)
	return sent.QueueOffset, err
}

// TestE2EBatchQueuePopped: an inner batch is popped as a whole, and when it was not acknowledged its
// messages come again one by one.
func TestE2EBatchQueuePopped(t *testing.T) {
	t.Parallel()
	p := newPeer(t, enginetest.Start(t).Broker())
	p.batchTopic("B", 1)
	p.sendBatch("B", 0, "one", "a", "b", "c")
	p.sendBatch("B", 0, "two", "d", "e")
	first := p.pop(popRequest("B", "g", time.Second, 0))
	if first.code != remoting.Success || len(first.views) != 2 || first.head.RestNum != 0 {
		t.Fatalf("%v %q, %d records, %d left", first.code, first.remark, len(first.views), first.head.RestNum)
	}
	p.ack(first.receipts(t)[1])
	again := p.pop(popRequest("B", "g", time.Minute, 4*time.Second))
	for again.code == remoting.Success && len(again.views) < 3 {
		more := p.pop(popRequest("B", "g", time.Minute, 2*time.Second))
		if len(more.views) == 0 {
			break
		}
		again.views = append(again.views, more.views...)
	}
	if got := again.bodies(); got != "a b c" {
		t.Errorf("came again: %q", got)
	}
}
