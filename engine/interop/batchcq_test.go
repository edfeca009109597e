// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/storage/record"
)

// batchTopicFields make a topic whose queues are batch queues.
func batchTopicFields(topic string, queues int) map[string]string {
	n := strconv.Itoa(queues)
	return f("topic", topic, "defaultTopic", "TBW102", "readQueueNums", n, "writeQueueNums", n, "perm", "6",
		"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false", "attributes",
		"+queue.type=BatchCQ")
}

func createBatchTopic(t *testing.T, at target, topic string) {
	t.Helper()
	c, err := dialRaw(at.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	a, err := c.call(17, batchTopicFields(topic, 1), nil, 10*time.Second)
	if err != nil || a.Code != 0 {
		t.Fatalf("create %s: %v %+v", topic, err, a)
	}
	waitForRoute(t, at.NameServer, topic)
}

// elements is the body of a client's batch.
func elements(bodies ...string) string {
	var b []byte
	for _, body := range bodies {
		b = record.AppendBatchEntry(b, 0, []byte(body), record.AppendProperty(nil, "KEYS", "k"+body))
	}
	return string(b)
}

// sendFields are those of a send under code 310.
func sendFields(topic, sysFlag, properties, batch string) map[string]string {
	return f("a", "P1", "b", topic, "c", "TBW102", "d", "4", "e", "0", "f", sysFlag, "g", "1700000000000",
		"h", "0", "i", properties, "j", "0", "k", "false", "l", "0", "m", batch)
}

// TestBatchQueueAnswers asks both brokers the same about topics with batch queues and compares codes and
// numbers, and then the records themselves.
func TestBatchQueueAnswers(t *testing.T) {
	t.Parallel()
	if *against != "skylark" {
		t.Skip("drives both brokers itself, so that with -against=apache it would only run a second time")
	}
	w := &twin{t: t, conns: map[string]*raw{}}
	w.ours, _ = startServer(t, scratch(t), map[string]string{"brokerIP1": "127.0.0.1"})
	w.theirs = startApache(t, scratch(t), nil)
	place := func(queue string) map[string]string { return f("topic", "B", "queueId", queue) }
	pull := func(from string) map[string]string {
		return f("consumerGroup", "G1", "topic", "B", "queueId", "0", "queueOffset", from, "maxMsgNums", "32",
			"sysFlag", "4", "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", "*",
			"subVersion", "0", "expressionType", "TAG")
	}
	list := []request{
		{what: "create", code: 17, fields: batchTopicFields("B", 2)},
		{what: "create group", code: 200, body: `{"groupName":"G1","consumeEnable":true}`},
		{what: "min of an empty queue", code: 31, fields: place("0")},
		{what: "max of an empty queue", code: 30, fields: place("0")},
		{what: "earliest of an empty queue", code: 32, fields: place("0")},
		{what: "time in an empty queue", code: 29, fields: f("topic", "B", "queueId", "0", "timestamp", "1")},
		{what: "pull from an empty queue", code: 11, fields: pull("0")},
		{what: "pull from an empty queue at 3", code: 11, fields: pull("3")},
		{what: "inner batch", code: 320, fields: sendFields("B", "0", "UNIQ_KEY\x01u1\x02TAGS\x01A\x02", "true"), body: elements("a", "b", "c")},
		{what: "single message", code: 310, fields: sendFields("B", "0", "UNIQ_KEY\x01u2\x02TAGS\x01A\x02", "false"), body: "d"},
		{what: "batch without a key", code: 320, fields: sendFields("B", "0", "", "true"), body: elements("e", "f")},
		{what: "inner batch again", code: 320, fields: sendFields("B", "0", "UNIQ_KEY\x01u3\x02", "true"), body: elements("g", "h")},
		{what: "flagged single message", code: 310, fields: sendFields("B", "192", "UNIQ_KEY\x01u4\x02INNER_NUM\x012\x02INNER_BASE\x0177\x02", "false"), body: elements("i", "j")},
		{what: "flagged without a number", code: 310, fields: sendFields("B", "192", "UNIQ_KEY\x01u5\x02", "false"), body: elements("k")},
		{what: "number without the flag", code: 310, fields: sendFields("B", "0", "INNER_NUM\x012\x02", "false"), body: "x"},
		{what: "flag in a plain topic", code: 310, fields: sendFields("TBW102", "192", "", "false"), body: "x"},
		{what: "need to unwrap in a plain topic", code: 310, fields: sendFields("Plain", "64", "", "false"), body: "x"},
		{what: "flagged half message", code: 310, fields: sendFields("B", "192", "TRAN_MSG\x01true\x02", "false"), body: elements("x")},
		{what: "queue type of a topic that is there", code: 17, fields: f("topic", "Plain", "defaultTopic", "TBW102", "readQueueNums", "4", "writeQueueNums", "4", "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false", "attributes", "+queue.type=BatchCQ")},
		{what: "the other queue type", code: 17, fields: f("topic", "B", "defaultTopic", "TBW102", "readQueueNums", "2", "writeQueueNums", "2", "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false", "attributes", "+queue.type=SimpleCQ")},
		{what: "min", code: 31, fields: place("0")},
		{what: "max", code: 30, fields: place("0")},
		{what: "time before all", code: 29, fields: f("topic", "B", "queueId", "0", "timestamp", "1")},
		{what: "time behind all", code: 29, fields: f("topic", "B", "queueId", "0", "timestamp", "9999999999999")},
		{what: "pull", code: 11, fields: pull("0")},
		{what: "pull from within a batch", code: 11, fields: pull("1")},
		{what: "pull at the end", code: 11, fields: pull("11")},
		{what: "pull behind the end", code: 11, fields: pull("20")},
		{what: "pull a few", code: 11, fields: func() map[string]string { q := pull("0"); q["maxMsgNums"] = "4"; return q }()},
		{what: "send back", code: 36, fields: f("offset", "0", "group", "G1", "delayLevel", "3", "originMsgId", "x", "originTopic", "B", "unitMode", "false", "maxReconsumeTimes", "16")},
		{what: "stats", code: 202, fields: f("topic", "B")},
		{what: "inner batch later", code: 320, fields: sendFields("B", "0", "UNIQ_KEY\x01u6\x02DELAY\x011\x02", "true"), body: elements("m", "n")},
		{what: "inner batch, timed", code: 320, fields: sendFields("B", "0", "UNIQ_KEY\x01u7\x02TIMER_DELAY_MS\x014000\x02", "true"), body: elements("o", "p")},
		{what: "flagged single message later", code: 310, fields: sendFields("B", "192", "UNIQ_KEY\x01u8\x02INNER_NUM\x012\x02DELAY\x011\x02", "false"), body: elements("q", "r")},
		{what: "batch without a key later", code: 320, fields: sendFields("B", "0", "DELAY\x011\x02", "true"), body: elements("s")},
		{what: "max after all", code: 30, fields: place("0")},
	}
	for _, q := range list {
		if q.what == "min" { // Apache's broker makes its queues after it has answered
			w.awaitMax(request{what: "max", code: 30, fields: place("0")}, "11")
		}
		w.askBatch(q)
	}
	for _, c := range w.conns {
		c.close()
	}
}

// awaitMax waits until Apache's broker says that a queue ends there.
func (w *twin) awaitMax(q request, want string) {
	w.t.Helper()
	eventually(w.t, 30*time.Second, func() error {
		got, err := w.call(w.theirs.Broker, q)
		if err == nil && got.ExtFields["offset"] != want {
			err = fmt.Errorf("Apache's queue ends at %q, want %q", got.ExtFields["offset"], want)
		}
		return err
	})
}

// askBatch compares the answers' numbers too.
func (w *twin) askBatch(q request) {
	w.t.Helper()
	want, err := w.call(w.theirs.Broker, q)
	if err != nil {
		w.t.Fatalf("%s: Apache: %v", q.what, err)
	}
	got, err := w.call(w.ours.Broker, q)
	if err != nil {
		w.t.Fatalf("%s: %v", q.what, err)
	}
	if javaTrouble.MatchString(want.Remark) { // of an empty queue
		if got.Code != 0 {
			w.t.Errorf("%s: code %d %q, want 0", q.what, got.Code, got.Remark)
		}
		return
	}
	if got.Code != want.Code {
		w.t.Errorf("%s: code %d %q, want %d %q", q.what, got.Code, got.Remark, want.Code, want.Remark)
		return
	}
	for name, value := range want.ExtFields {
		if slices.Contains([]string{"msgId", "transactionId", "timestamp"}, name) {
			continue
		}
		if want.Code != 0 && name == "batchUniqId" {
			continue // RocketMQ fills the answer in before it refuses
		}
		if strings.Contains(q.what, "empty") && value == "-1" {
			value = "0" // an empty queue begins at 0 here
		}
		if got.ExtFields[name] != value {
			w.t.Errorf("%s: %s is %q, want %q", q.what, name, got.ExtFields[name], value)
		}
	}
	if q.code == 11 && want.Code == 0 {
		if diff := cmp.Diff(outlines(w.t, want.Body), outlines(w.t, got.Body)); diff != "" {
			w.t.Errorf("%s: records (-theirs +ours):\n%s", q.what, diff)
		}
	}
}

// outlines are the parts of pulled records that do not depend on the broker and the time.
func outlines(t *testing.T, b []byte) (list []string) {
	t.Helper()
	for len(b) > 0 {
		v, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		var props []string
		record.EachProperty(v.Properties(), func(name, value []byte) bool {
			text := string(name) + "=" + string(value)
			if string(name) == "UNIQ_KEY" && !strings.HasPrefix(string(value), "u") {
				text = "UNIQ_KEY"
			}
			props = append(props, text)
			return true
		})
		slices.Sort(props)
		list = append(list, fmt.Sprintf("offset %d queue %d sysFlag %#x flag %d body %q %q", v.QueueOffset(),
			v.QueueID(), v.SysFlag(), v.Flag(), v.Body(), slices.Compact(props)))
		b = b[v.TotalSize():]
	}
	return list
}

// sendJavaBatch has the Java client send one batch and returns its bodies.
func sendJavaBatch(t *testing.T, p, topic, prefix string, n int, want int64) []string {
	t.Helper()
	var batch []args
	for i := range n {
		batch = append(batch, args{"topic": topic, "body": fmt.Sprint(prefix, i), "tags": "A", "keys": fmt.Sprint(prefix, i)})
	}
	r := must[sent](t, java(t), "producer.batch", args{"handle": p, "messages": batch})
	if r.Status != "SEND_OK" || r.QueueOffset != want || strings.Contains(r.OffsetMsgID, ",") {
		t.Fatalf("batch %s: %+v, want one record at %d", prefix, r, want)
	}
	return numbered(prefix, n)
}

// The Java client's batches to a topic with batch queues come to its consumers as single messages with
// offsets of their own, by pull and by push.
func TestJavaBatchQueue(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createBatchTopic(t, at, topic)
	p := producer(t, jvm, at, nil)
	want := sendJavaBatch(t, p, topic, "one", 3, 0)
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "single", "tags": "A"})
	want = append(want, "single")
	want = append(want, sendJavaBatch(t, p, topic, "two", 5, 4)...)
	checkStored(t, at, topic, map[int][]string{0: want})
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	if err := sameSet(bodies(awaitPush(t, jvm, c, len(want), 20_000)), want); err != nil {
		t.Error(err)
	}
	checkKeyBody(t, at, topic, "single")
}

func checkKeyBody(t *testing.T, at target, topic, body string) {
	t.Helper()
	got := pullAll(t, at, topic, 0)
	if i := slices.IndexFunc(got, func(m received) bool { return m.Body == body }); i < 0 || got[i].QueueOffset != int64(i) {
		t.Errorf("%s is at %d of %v", body, i, bodies(got))
	}
}

// One store directory with batch queues goes from our broker to Apache's and back, and then through a
// kill of ours.
func TestBatchQueueMovesBetweenBrokers(t *testing.T) {
	t.Parallel()
	if *against != "skylark" {
		t.Skip("uses both kinds anyway")
	}
	jvm := java(t)
	dir, topic := scratch(t), name(t, "T")
	conf := map[string]string{
		"mappedFileSizeCommitLog": strconv.Itoa(8 << 20), "mapperFileSizeBatchConsumeQueue": "460",
	}
	var want []string
	fill := func(at target, prefix string) {
		t.Helper()
		p := producer(t, jvm, at, args{"group": name(t, "PG") + prefix, "instance": name(t, "P") + prefix})
		for i := range 8 {
			want = append(want, sendJavaBatch(t, p, topic, fmt.Sprint(prefix, i, "-"), 1+i%4, int64(len(want)))...)
		}
		run(t, jvm, "producer.stop", args{"handle": p})
		checkStored(t, at, topic, map[int][]string{0: want})
	}
	ours, p := startServer(t, dir, conf)
	createBatchTopic(t, ours, topic)
	fill(ours, "ours")
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}

	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	waitForRoute(t, theirs.NameServer, topic)
	checkStored(t, theirs, topic, map[int][]string{0: want})
	fill(theirs, "theirs")
	run(t, jvm, "broker.stop", args{"handle": broker})

	again, p := startServer(t, dir, conf)
	waitForRoute(t, again.NameServer, topic)
	checkStored(t, again, topic, map[int][]string{0: want})
	fill(again, "again")
	_ = p.cmd.Process.Kill()
	<-p.done
	killed := again.start(t, skylark(t), conf)
	defer func() { _ = killed.stop() }()
	checkStored(t, again, topic, map[int][]string{0: want})
	fill(again, "last")
}
