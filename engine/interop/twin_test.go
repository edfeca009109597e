// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// request is one that both brokers get.
type request struct {
	what   string
	names  bool // for the name server
	sets   bool // what it stores, so that a variant's effect is undone by it
	code   int
	fields map[string]string
	body   string
}

// twin is a broker of ours and one of Apache's that get the same requests in the same order.
type twin struct {
	t            *testing.T
	ours, theirs target
	conns        map[string]*raw
}

func (w *twin) call(address string, q request) (*header, error) {
	c := w.conns[address]
	if c == nil {
		made, err := dialRaw(address)
		if err != nil {
			return nil, err
		}
		c = made
		w.conns[address] = c
	}
	a, err := c.call(q.code, q.fields, []byte(q.body), 1500*time.Millisecond)
	if err != nil {
		c.close()
		delete(w.conns, address)
	}
	return a, err
}

// ask sends a request to both and compares the answers. Apache's own address and store differ, so
// these are evened out.
func (w *twin) ask(q request) {
	w.t.Helper()
	here, there := w.ours.Broker, w.theirs.Broker
	if q.names {
		here, there = w.ours.NameServer, w.theirs.NameServer
	}
	want, wantErr := w.call(there, q)
	got, gotErr := w.call(here, q)
	switch {
	case wantErr != nil && gotErr != nil:
		return
	case wantErr != nil:
		w.t.Logf("%s: Apache: %v", q.what, wantErr)
		// Apache answers nothing to some requests; an answer is no worse.
		return
	case gotErr != nil:
		w.t.Errorf("%s: %v, Apache answers code %d %q", q.what, gotErr, want.Code, want.Remark)
		return
	}
	if q.tolerated(want, got) {
		return
	}
	if faults := compareOutline(want, got); len(faults) > 0 {
		w.t.Errorf("%s %v: %s\n  theirs code %d remark %q ext %v %.300s\n  ours   code %d remark %q ext %v %.300s",
			q.what, q.fields, strings.Join(faults, "; "), want.Code, want.Remark, want.ExtFields, want.Body,
			got.Code, got.Remark, got.ExtFields, got.Body)
	}
}

// compareOutline compares what does not depend on how many messages each has taken: code, remark, names
// of the fields, names of a JSON body's members.
func compareOutline(want, got *header) (faults []string) {
	if got.Code != want.Code {
		faults = append(faults, fmt.Sprintf("code %d, want %d", got.Code, want.Code))
	}
	if diff := diffRemark(want.Remark, got.Remark); diff != "" {
		faults = append(faults, diff)
	}
	a, b := slices.Sorted(maps.Keys(want.ExtFields)), slices.Sorted(maps.Keys(got.ExtFields))
	if !slices.Equal(a, b) {
		faults = append(faults, fmt.Sprintf("fields %v, want %v", b, a))
	}
	if a, b := members(want.Body), members(got.Body); !slices.Equal(a, b) {
		faults = append(faults, fmt.Sprintf("members %v, want %v", b, a))
	}
	return faults
}

var jsonMember = regexp.MustCompile(`"([a-zA-Z]+)":`)

// members returns the names in a JSON body, and whether numbers stand as keys.
func members(body []byte) []string {
	if len(body) == 0 || body[0] != '{' {
		return nil
	}
	found := map[string]bool{}
	for _, m := range jsonMember.FindAllSubmatch(body, -1) {
		found[string(m[1])] = true
	}
	if bareKey.Match(body) {
		found["bare numbers"] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// tolerated says whether an answer differs in one of the ways that are meant.
func (q request) tolerated(want, got *header) bool {
	switch {
	case twinAccepted.MatchString(q.what):
		return true
	case got.Code == 0:
		return false
	case javaTrouble.MatchString(want.Remark):
		return true // ours says what was wrong
	case refusal.MatchString(got.Remark):
		return true // Apache takes what it cannot read for absent, or any number as it is
	}
	return got.Code == want.Code // the remark of a refusal may say more
}

var (
	javaTrouble = regexp.MustCompile(`Exception|Error|Cannot (invoke|read)|^null$|decode`)
	refusal     = regexp.MustCompile(`not a (32|64)-bit number|not 0 to 65536|^the field \w+ is missing$|` +
		`^the body (is missing|cannot be read|is no)|^namespace or key is null$`)
)

// twinAccepted are the other requests that are answered otherwise on purpose: RocketMQ remembers which
// subscriptions came with pulls, and writes names that are empty texts.
var twinAccepted = regexp.MustCompile(`^subscription, (group|topic)|^member group, clusterName=""`)

// oddValues take the place of each field's value in turn.
var oddValues = []string{"", "-1", "abc", "99999999999999999999", "2147483647"}

// variants returns the request itself, without each field, and with odd values of each.
func (q request) variants() []request {
	out := []request{q}
	for _, name := range slices.Sorted(maps.Keys(q.fields)) {
		with := func(what, value string, drop bool) {
			v := q
			v.fields = maps.Clone(q.fields)
			v.fields[name] = value
			if drop {
				delete(v.fields, name)
			}
			v.what = q.what + ", " + what
			out = append(out, v)
		}
		with(name+" missing", "", true)
		for _, value := range oddValues {
			with(fmt.Sprintf("%s=%q", name, value), value, false)
		}
	}
	if q.body != "" {
		for _, body := range []string{"", "{", "[]", "null", "1", "\x00\xff"} {
			v := q
			v.body = body
			v.what = fmt.Sprintf("%s, body %q", q.what, body)
			out = append(out, v)
		}
	}
	return out
}

func f(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// TestTwin asks both brokers the same, well formed and not, and wants the same answers.
func TestTwin(t *testing.T) {
	t.Parallel()
	if *against != "skylark" {
		t.Skip("compares both kinds anyway")
	}
	w := &twin{t: t, conns: map[string]*raw{}}
	w.ours, _ = startServer(t, scratch(t), map[string]string{"brokerIP1": "127.0.0.1"})
	w.theirs = startApache(t, scratch(t), nil)
	for _, q := range twinRequests() {
		for i, v := range q.variants() {
			w.ask(v)
			if i > 0 && q.sets {
				// Back to a state that both share.
				_, _ = w.call(w.ours.Broker, q)
				_, _ = w.call(w.theirs.Broker, q)
			}
		}
	}
	for _, c := range w.conns {
		c.close()
	}
}

func twinRequests() []request {
	return []request{
		{what: "create topic", sets: true, code: 17, fields: f("topic", "T1", "defaultTopic", "TBW102",
			"readQueueNums", "4", "writeQueueNums", "4", "perm", "6", "topicFilterType", "SINGLE_TAG",
			"topicSysFlag", "0", "order", "false")},
		{what: "create group", sets: true, code: 200, body: `{"groupName":"G1","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}`},
		{what: "send", code: 310, fields: f("a", "P1", "b", "T1", "c", "TBW102", "d", "4", "e", "0", "f", "0",
			"g", "1700000000000", "h", "0", "i", "KEYS\x01k1\x02", "j", "0", "k", "false", "l", "0", "m", "false"), body: "hello"},
		{what: "send, long names", code: 10, fields: f("producerGroup", "P1", "topic", "T1", "defaultTopic", "TBW102",
			"defaultTopicQueueNums", "4", "queueId", "1", "sysFlag", "0", "bornTimestamp", "1700000000000", "flag", "0",
			"properties", "KEYS\x01k1\x02", "reconsumeTimes", "0", "unitMode", "false", "batch", "false"), body: "hello"},
		{what: "heartbeat", sets: true, code: 34, body: `{"clientID":"c1","producerDataSet":[{"groupName":"P1"}],"consumerDataSet":[{"groupName":"G1","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","unitMode":false,"subscriptionDataSet":[{"topic":"T1","subString":"*","subVersion":1,"tagsSet":[],"codeSet":[],"classFilterMode":false,"expressionType":"TAG"}]}]}`},
		{what: "query offset", code: 14, fields: f("consumerGroup", "G1", "topic", "T1", "queueId", "0")},
		{what: "update offset", sets: true, code: 15, fields: f("consumerGroup", "G1", "topic", "T1", "queueId", "0", "commitOffset", "1")},
		{what: "query offset again", code: 14, fields: f("consumerGroup", "G1", "topic", "T1", "queueId", "0", "setZeroIfNotFound", "false")},
		{what: "update offset of an unknown topic", code: 15, fields: f("consumerGroup", "G1", "topic", "nope", "queueId", "0", "commitOffset", "1")},
		{what: "max offset", code: 30, fields: f("topic", "T1", "queueId", "0")},
		{what: "min offset", code: 31, fields: f("topic", "T1", "queueId", "0")},
		{what: "earliest", code: 32, fields: f("topic", "T1", "queueId", "0")},
		{what: "search offset", code: 29, fields: f("topic", "T1", "queueId", "0", "timestamp", "1")},
		{what: "search offset, upper", code: 29, fields: f("topic", "T1", "queueId", "0", "timestamp", "1", "boundaryType", "UPPER")},
		{what: "pull", code: 11, fields: f("consumerGroup", "G1", "topic", "T1", "queueId", "0", "queueOffset", "0", "maxMsgNums", "1",
			"sysFlag", "4", "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0", "expressionType", "TAG")},
		{what: "pull with the heartbeat's subscription", code: 11, fields: f("consumerGroup", "G1", "topic", "T1", "queueId", "0", "queueOffset", "100", "maxMsgNums", "1",
			"sysFlag", "0", "commitOffset", "0", "suspendTimeoutMillis", "0", "subVersion", "0")},
		{what: "view", code: 33, fields: f("offset", "0")},
		{what: "view nothing", code: 33, fields: f("offset", "7")},
		{what: "query message", code: 12, fields: f("topic", "T1", "key", "none", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "9999999999999")},
		{what: "query consume queue", code: 321, fields: f("topic", "T1", "queueId", "1", "index", "0", "count", "10")},
		{what: "consumers", code: 38, fields: f("consumerGroup", "G1")},
		{what: "consumer connections", code: 203, fields: f("consumerGroup", "nope")},
		{what: "producer connections", code: 204, fields: f("producerGroup", "nope")},
		{what: "topic stats", code: 202, fields: f("topic", "nope")},
		{what: "consume stats", code: 208, fields: f("consumerGroup", "nope", "topic", "T1")},
		{what: "consume stats all", code: 317, fields: f("isOrder", "false")},
		{what: "who consumes", code: 300, fields: f("topic", "T1")},
		{what: "time span", code: 303, fields: f("topic", "nope", "group", "G1")},
		{what: "topics of a group", code: 343, fields: f("group", "nope")},
		{what: "subscription", code: 345, fields: f("group", "G1", "topic", "T1")},
		{what: "topic config", code: 351, fields: f("topic", "T1", "lo", "true")},
		{what: "topic config of nothing", code: 351, fields: f("topic", "nope")},
		{what: "group config", code: 352, fields: f("group", "G1")},
		{what: "group config of nothing", code: 352, fields: f("group", "nope")},
		{what: "forbidden", sets: true, code: 353, fields: f("group", "G1", "topic", "T1", "readable", "true")},
		{what: "running info", code: 307, fields: f("consumerGroup", "nope", "clientId", "c9", "jstackEnable", "false")},
		{what: "correction", code: 308, fields: f("filterGroups", "", "compareGroup", "G1", "topic", "T1")},
		{what: "consume directly", code: 309, fields: f("consumerGroup", "nope", "clientId", "c9", "msgId", "7F00000100002A9F0000000000000000", "brokerName", "broker-a")},
		{what: "reset offset", code: 222, fields: f("topic", "T1", "group", "G9", "timestamp", "0", "isForce", "true")},
		{what: "reset offset of a queue", code: 222, fields: f("topic", "T1", "group", "G9", "timestamp", "-1", "isForce", "true", "queueId", "0", "offset", "0")},
		{what: "consumer status", code: 223, fields: f("topic", "T1", "group", "nope", "clientAddr", "")},
		{what: "clone", code: 314, fields: f("srcGroup", "nope", "destGroup", "G1", "topic", "T1", "offline", "false")},
		{what: "stats data", code: 315, fields: f("statsName", "TOPIC_PUT_NUMS", "statsKey", "nope")},
		{what: "lock", code: 41, body: `{"consumerGroup":"G1","clientId":"c1","mqSet":[{"topic":"T1","brokerName":"broker-a","queueId":0}]}`},
		{what: "unlock", code: 42, body: `{"consumerGroup":"G1","clientId":"c1","mqSet":[{"topic":"T1","brokerName":"broker-a","queueId":0}]}`},
		{what: "client config", code: 46, body: `{"clientId":"c1","group":"G1","subscriptionData":{"topic":"T1","subString":"*","expressionType":"TAG"}}`},
		{what: "assignment", code: 400, body: `{"topic":"T1","consumerGroup":"G1","clientId":"c1","strategyName":"AVG","messageModel":"CLUSTERING"}`},
		{what: "unregister", code: 35, fields: f("clientID", "c9", "producerGroup", "P9", "consumerGroup", "G9")},
		{what: "delete group", code: 207, fields: f("groupName", "nope", "cleanOffset", "true")},
		{what: "delete topic", code: 215, fields: f("topic", "nope")},
		{what: "delete a system topic", code: 215, fields: f("topic", "TBW102")},
		{what: "clean queues", code: 306},
		{what: "clean topics", code: 316},
		{what: "groups in all", code: 225, body: `{"groupConfigList":[{"groupName":"G3"}]}`},
		{what: "topics in all", code: 18, body: `{"topicConfigList":[{"topicName":"T3","readQueueNums":2,"writeQueueNums":2,"perm":6,"topicFilterType":"SINGLE_TAG","topicSysFlag":0,"order":false,"attributes":{}}]}`},

		{what: "put kv", names: true, code: 100, fields: f("namespace", "N", "key", "k", "value", "v")},
		{what: "get kv", names: true, code: 101, fields: f("namespace", "N", "key", "k")},
		{what: "list kv", names: true, code: 219, fields: f("namespace", "N")},
		{what: "delete kv", names: true, code: 102, fields: f("namespace", "N", "key", "k")},
		{what: "route", names: true, code: 105, fields: f("topic", "nope", "acceptStandardJsonOnly", "true")},
		{what: "wipe", names: true, code: 205, fields: f("brokerName", "nope")},
		{what: "add write permission", names: true, code: 327, fields: f("brokerName", "nope")},
		{what: "topics of a cluster", names: true, code: 224, fields: f("cluster", "nope")},
		{what: "delete topic there", names: true, code: 216, fields: f("topic", "nope", "clusterName", "DefaultCluster")},
		{what: "register topic", names: true, code: 217, fields: f("topic", "T7"), body: `{"queueDatas":[{"brokerName":"broker-a","readQueueNums":4,"writeQueueNums":4,"perm":6,"topicSysFlag":0}]}`},
		{what: "data version", names: true, code: 322, fields: f("brokerName", "x", "brokerAddr", "1.2.3.4:1", "clusterName", "c", "brokerId", "0"), body: `{"timestamp":1,"counter":1,"stateVersion":0}`},
		{what: "member group", names: true, code: 901, fields: f("clusterName", "DefaultCluster", "brokerName", "nope")},
		{what: "broker heartbeat", names: true, code: 904, fields: f("clusterName", "c", "brokerAddr", "1.2.3.4:1", "brokerName", "x")},
		{what: "unit topics", names: true, code: 311},
		{what: "unit subscriptions", names: true, code: 312},
		{what: "units of both", names: true, code: 313},
		{what: "unregister broker", names: true, code: 104, fields: f("brokerName", "x", "brokerAddr", "1.2.3.4:1", "clusterName", "c", "brokerId", "0")},
	}
}
