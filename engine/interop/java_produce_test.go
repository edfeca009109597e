// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pullAll reads one queue from its start with the Java pull consumer.
func pullAll(t *testing.T, at target, topic string, queueID int) []received {
	t.Helper()
	jvm := java(t)
	c := open(t, jvm, "pull", args{"namesrv": at.NameServer, "group": name(t, "CG_ALL")})
	var out []received
	for offset := int64(0); ; {
		r := must[pulled](t, jvm, "pull.pull", args{
			"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": queueID, "offset": offset,
		})
		if r.Status != "FOUND" {
			return out
		}
		out = append(out, r.Messages...)
		offset = r.Next
	}
}

// Every way to send ends in the queue that the producer was told, with all that the message carried.
func TestJavaSend(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	send := func(a args) sent {
		t.Helper()
		a["handle"], a["topic"] = p, topic
		return must[sent](t, jvm, "producer.send", a)
	}
	first := send(args{"body": "sync", "queueId": 0, "broker": at.BrokerName})
	if first.Status != "SEND_OK" || first.QueueOffset != 0 || first.QueueID != 0 || first.Broker != at.BrokerName {
		t.Errorf("sync send: %+v", first)
	}
	if first.Region != "DefaultRegion" || !first.TraceOn {
		t.Errorf("region %q, trace %v", first.Region, first.TraceOn)
	}
	rich := send(args{
		"body": "rich", "tags": "TagA", "keys": "k1 k2", "flag": 7, "noWait": true,
		"properties": args{"colour": "green", "size": "42"}, "queueId": 0, "broker": at.BrokerName,
	})
	unicode := send(args{"body": "正文 😀", "tags": "标签", "keys": "键", "queueId": 0, "broker": at.BrokerName})
	async := send(args{"body": "async", "mode": "async", "queueId": 0, "broker": at.BrokerName})
	if async.QueueOffset != 3 {
		t.Errorf("async send: %+v", async)
	}
	run(t, jvm, "producer.send", args{
		"handle": p, "topic": topic, "body": "oneway", "mode": "oneway", "queueId": 0, "broker": at.BrokerName,
	})
	var got []received
	eventually(t, 10*time.Second, func() error {
		if got = pullAll(t, at, topic, 0); len(got) < 5 {
			return fmt.Errorf("%d messages in queue 0", len(got))
		}
		return nil
	})
	if diff := cmp.Diff([]string{"sync", "rich", "正文 😀", "async", "oneway"}, bodies(got)); diff != "" {
		t.Fatalf("bodies (-want +got):\n%s", diff)
	}
	for i, m := range got {
		if m.QueueOffset != int64(i) || m.Topic != topic || m.ReconsumeTimes != 0 {
			t.Errorf("message %d: %+v", i, m)
		}
		if m.StoreTimestamp < m.BornTimestamp-1000 || m.BornTimestamp == 0 {
			t.Errorf("message %d born %d, stored %d", i, m.BornTimestamp, m.StoreTimestamp)
		}
	}
	m := got[1]
	if m.Tags != "TagA" || m.Keys != "k1 k2" || m.Flag != 7 || m.Properties["colour"] != "green" ||
		m.Properties["size"] != "42" || m.Properties["WAIT"] != "false" || m.MsgID != rich.MsgID ||
		m.OffsetMsgID != rich.OffsetMsgID {
		t.Errorf("rich message: %+v, sent %+v", m, rich)
	}
	if m := got[2]; m.Tags != "标签" || m.Keys != "键" || m.MsgID != unicode.MsgID {
		t.Errorf("unicode message: %+v", m)
	}
	if want := "/" + at.Broker; m.StoreHost != want {
		t.Errorf("store host %s, want %s", m.StoreHost, want)
	}
}

// The first send to an unknown topic makes it, from the template TBW102.
func TestJavaSendCreatesTopic(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	p := producer(t, jvm, at, nil)
	r := must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "first"})
	if r.Status != "SEND_OK" {
		t.Fatalf("%+v", r)
	}
	waitForRoute(t, at.NameServer, topic)
	queues := must[[]queue](t, jvm, "producer.queues", args{"handle": p, "topic": topic})
	if len(queues) != 4 {
		t.Errorf("queues %v, want the 4 that the Java client asks for", queues)
	}
	// One key stays with one queue.
	var first sent
	for i := range 6 {
		r := must[sent](t, jvm, "producer.send", args{
			"handle": p, "topic": topic, "body": fmt.Sprint("ordered", i), "orderKey": "order-1",
		})
		if i == 0 {
			first = r
		}
		if r.QueueID != first.QueueID || r.QueueOffset != first.QueueOffset+int64(i) {
			t.Errorf("ordered send %d went to queue %d offset %d, the first to %d %d",
				i, r.QueueID, r.QueueOffset, first.QueueID, first.QueueOffset)
		}
	}
}

// A batch is stored as single messages, and the answer names each.
func TestJavaBatch(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	var batch []args
	for i := range 3 {
		batch = append(batch, args{
			"topic": topic, "body": fmt.Sprint("batch", i), "tags": fmt.Sprint("Tag", i),
			"keys": fmt.Sprint("bk", i), "properties": args{"index": fmt.Sprint(i)},
		})
	}
	r := must[sent](t, jvm, "producer.batch", args{"handle": p, "messages": batch})
	if r.Status != "SEND_OK" || r.QueueOffset != 0 {
		t.Fatalf("%+v", r)
	}
	ids, places := strings.Split(r.MsgID, ","), strings.Split(r.OffsetMsgID, ",")
	if len(ids) != 3 || len(places) != 3 {
		t.Fatalf("ids %v, places %v", ids, places)
	}
	got := pullAll(t, at, topic, 0)
	if diff := cmp.Diff(numbered("batch", 3), bodies(got)); diff != "" {
		t.Fatalf("bodies (-want +got):\n%s", diff)
	}
	for i, m := range got {
		if m.Tags != fmt.Sprint("Tag", i) || m.Keys != fmt.Sprint("bk", i) || m.Properties["index"] != fmt.Sprint(i) {
			t.Errorf("message %d: %+v", i, m)
		}
		if m.MsgID != ids[i] || m.OffsetMsgID != places[i] || m.QueueOffset != int64(i) {
			t.Errorf("message %d is %s at %s, offset %d; the answer said %s at %s",
				i, m.MsgID, m.OffsetMsgID, m.QueueOffset, ids[i], places[i])
		}
	}
}

// A broker keeps compressed bodies as they came; the consumer unpacks them.
func TestJavaCompressed(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	body := strings.Repeat("compressible text ", 400)
	for _, kind := range []string{"ZLIB", "LZ4", "ZSTD"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			topic := name(t, "T")
			createTopic(t, at, topic, 1)
			p := producer(t, jvm, at, args{"compression": kind})
			must[sent](t, jvm, "producer.send", args{
				"handle": p, "topic": topic, "fill": "compressible text ", "size": len(body),
			})
			got := pullAll(t, at, topic, 0)
			if len(got) != 1 {
				t.Fatalf("%d messages", len(got))
			}
			if got[0].BodySize != len(body) || got[0].BodySHA256 != hashOf(body) {
				t.Errorf("body of %d bytes, want %d", got[0].BodySize, len(body))
			}
			if got[0].StoreSize > len(body)/4 {
				t.Errorf("stored in %d bytes: not compressed", got[0].StoreSize)
			}
		})
	}
}

// The largest body that the default limit allows, and the fast port.
func TestJavaLargeBodyAndFastPort(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, args{"vip": true, "compressOver": 16 << 20})
	const size = 4<<20 - 1024
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "fill": "0123456789abcdef", "size": size})
	got := pullAll(t, at, topic, 0)
	if len(got) != 1 || got[0].BodySize != size || got[0].BodySHA256 != hashOf(strings.Repeat("0123456789abcdef", size/16)) {
		t.Fatalf("got %d messages, the first of %d bytes", len(got), got[0].BodySize)
	}
}

// What the broker refuses, the client reports with the broker's code.
func TestJavaSendRefused(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	readOnly := name(t, "R")
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	run(t, jvm, "admin.createTopic", args{
		"handle": admin, "address": at.Broker, "topic": readOnly, "queues": 2, "perm": 4,
	})
	p := producer(t, jvm, at, args{"maxMessageSize": 8 << 20, "compressOver": 16 << 20, "retries": 0})
	cases := []struct {
		what string
		args args
		code int
	}{
		{"body over the limit", args{"topic": topic, "fill": "x", "size": 4<<20 + 1}, 13},
		{"properties over the limit", args{"topic": topic, "body": "b", "properties": args{"fat": strings.Repeat("p", 33000)}}, 13},
		{"queue out of range", args{"topic": topic, "body": "b", "queueId": 99, "broker": at.BrokerName}, 29},
	}
	for _, c := range cases {
		c.args["handle"] = p
		err := jvm.do("producer.send", c.args, nil)
		var refused *driverError
		if !errors.As(err, &refused) || refused.Code != c.code {
			t.Errorf("%s: %v, want code %d", c.what, err, c.code)
		} else if refused.Message == "" {
			t.Errorf("%s: refused without a remark", c.what)
		}
	}
	// A topic that nobody may write to has no queue for a producer.
	waitForRoute(t, at.NameServer, readOnly)
	if err := jvm.do("producer.send", args{"handle": p, "topic": readOnly, "body": "b"}, nil); err == nil {
		t.Error("a send to a read-only topic found a queue")
	}
	for q := range 2 {
		if got := pullAll(t, at, topic, q); len(got) != 0 {
			t.Errorf("queue %d holds %v although everything was refused", q, bodies(got))
		}
	}
}

// Requests with binary headers. Not parallel: the Java client has one setting for its whole process.
func TestJavaBinaryHeaders(t *testing.T) {
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	run(t, jvm, "serialize", args{"type": "ROCKETMQ"})
	defer run(t, jvm, "serialize", args{"type": "JSON"})
	p := producer(t, jvm, at, nil)
	r := must[sent](t, jvm, "producer.send", args{
		"handle": p, "topic": topic, "body": "binary", "tags": "TagB", "keys": "kb", "properties": args{"a": "1"},
	})
	if r.Status != "SEND_OK" {
		t.Fatalf("%+v", r)
	}
	err := jvm.do("producer.send", args{"handle": p, "topic": topic, "body": "b", "queueId": 9, "broker": at.BrokerName}, nil)
	var refused *driverError
	if !errors.As(err, &refused) || refused.Code != 29 {
		t.Errorf("queue out of range: %v, want code 29", err)
	}
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	got := awaitPush(t, jvm, c, 1, 20_000)
	if len(got) != 1 || got[0].Body != "binary" || got[0].Properties["a"] != "1" || got[0].MsgID != r.MsgID {
		t.Errorf("consumed %+v", got)
	}
	run(t, jvm, "push.stop", args{"handle": c})
}
