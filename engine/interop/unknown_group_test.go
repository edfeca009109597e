// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestUnknownGroups asks both brokers about groups that are not there, a new one for each request: the
// same requests make them.
func TestUnknownGroups(t *testing.T) {
	t.Parallel()
	if *against != "skylark" {
		t.Skip("compares both kinds anyway")
	}
	w := &twin{t: t, conns: map[string]*raw{}}
	w.ours, _ = startServer(t, scratch(t), map[string]string{"brokerIP1": "127.0.0.1"})
	w.theirs = startApache(t, scratch(t), nil)
	for _, q := range []request{
		{what: "topic", code: 17, fields: f("topic", "T1", "defaultTopic", "TBW102", "readQueueNums", "4",
			"writeQueueNums", "4", "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")},
		{what: "message", code: 310, fields: sendFields("T1", "0", "", "false"), body: "hello"},
	} {
		w.ask(q)
	}
	for _, q := range unknownGroupRequests() {
		t.Run(q.what, func(t *testing.T) {
			var code [2]int
			var made [2]bool
			for i, at := range []target{w.theirs, w.ours} {
				a, err := w.call(at.Broker, q)
				switch {
				case err != nil:
					code[i] = -1
				case !javaTrouble.MatchString(a.Remark):
					code[i] = a.Code
				case i == 0: // ours says what was wrong
					code[i] = tolerated
				}
				made[i] = hasGroup(t, w, at, q.group())
			}
			if code[0] != code[1] && code[0] != tolerated || made[0] != made[1] {
				t.Errorf("code %d, group made %v; Apache: %d, %v", code[1], made[1], code[0], made[0])
			}
		})
	}
	for _, c := range w.conns {
		c.close()
	}
}

// tolerated stands for the code of an answer that tells of a Java exception.
const tolerated = -2

// group is the name of the unknown group in a request.
func (q request) group() string {
	return "nope-" + strings.NewReplacer(" ", "-", ",", "").Replace(q.what)
}

// hasGroup asks for all groups, which makes none.
func hasGroup(t *testing.T, w *twin, at target, group string) bool {
	t.Helper()
	a, err := w.call(at.Broker, request{code: 201})
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Groups map[string]json.RawMessage `json:"subscriptionGroupTable"`
	}
	if err := json.Unmarshal(a.Body, &all); err != nil {
		t.Fatal(err)
	}
	_, ok := all.Groups[group]
	return ok
}

func unknownGroupRequests() []request {
	// Far ahead: RocketMQ answers pops that are on their way for long without looking at them.
	born := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	list := []request{
		{what: "pull", code: 11, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "queueOffset", "0", "maxMsgNums", "1",
			"sysFlag", "4", "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0", "expressionType", "TAG")},
		{what: "query offset", code: 14, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0")},
		{what: "update offset", code: 15, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "commitOffset", "1")},
		{what: "heartbeat", code: 34, body: `{"clientID":"c-%s","producerDataSet":[],"consumerDataSet":[{"groupName":"%[1]s","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","unitMode":false,"subscriptionDataSet":[]}]}`},
		{what: "unregister", code: 35, fields: f("clientID", "c1", "consumerGroup", "")},
		{what: "send back", code: 36, fields: f("offset", "0", "group", "", "delayLevel", "3", "originMsgId", "x", "originTopic", "T1", "unitMode", "false", "maxReconsumeTimes", "16")},
		{what: "members", code: 38, fields: f("consumerGroup", "")},
		{what: "client config", code: 46, body: `{"clientId":"c1","group":"%s","subscriptionData":{"topic":"T1","subString":"*","expressionType":"TAG"}}`},
		{what: "connections", code: 203, fields: f("consumerGroup", "")},
		{what: "consume stats", code: 208, fields: f("consumerGroup", "", "topic", "T1")},
		{what: "reset", code: 222, fields: f("topic", "T1", "group", "", "timestamp", "0", "isForce", "true")},
		{what: "reset a queue", code: 222, fields: f("topic", "T1", "group", "", "timestamp", "-1", "isForce", "true", "queueId", "0", "offset", "0")},
		{what: "consumer status", code: 223, fields: f("topic", "T1", "group", "", "clientAddr", "")},
		{what: "time span", code: 303, fields: f("topic", "T1", "group", "")},
		{what: "running info", code: 307, fields: f("consumerGroup", "", "clientId", "c9", "jstackEnable", "false")},
		{what: "correction", code: 308, fields: f("filterGroups", "", "compareGroup", "", "topic", "T1")},
		{what: "consume directly", code: 309, fields: f("consumerGroup", "", "clientId", "c9", "msgId", "7F00000100002A9F0000000000000000", "brokerName", "broker-a")},
		{what: "clone from", code: 314, fields: f("srcGroup", "", "destGroup", "G1", "topic", "T1", "offline", "false")},
		{what: "clone to", code: 314, fields: f("srcGroup", "G1", "destGroup", "", "topic", "T1", "offline", "false")},
		{what: "topics", code: 343, fields: f("group", "")},
		{what: "subscription", code: 345, fields: f("group", "", "topic", "T1")},
		{what: "config", code: 352, fields: f("group", "")},
		{what: "forbidden", code: 353, fields: f("group", "", "topic", "T1", "readable", "true")},
		{what: "forbidden, asked", code: 353, fields: f("group", "", "topic", "T1")},
		{what: "light pull", code: 361, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "queueOffset", "0", "maxMsgNums", "1",
			"sysFlag", "20", "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0", "expressionType", "TAG")},
		{what: "assignment", code: 400, body: `{"topic":"T1","consumerGroup":"%s","clientId":"c1","strategyName":"AVG","messageModel":"CLUSTERING"}`},
		{what: "request mode", code: 401, body: `{"topic":"T1","consumerGroup":"%s","mode":"POP","popShareQueueNum":0}`},
		{what: "lock", code: 41, body: `{"consumerGroup":"%s","clientId":"c1","mqSet":[{"topic":"T1","brokerName":"broker-a","queueId":0}]}`},
		{what: "pop", code: 200050, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "maxMsgNums", "1", "invisibleTime", "60000",
			"pollTime", "0", "bornTime", born, "initMode", "0", "order", "false")},
		{what: "peek", code: 200052, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "maxMsgNums", "1")},
		{what: "ack", code: 200051, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "extraInfo", "0 1 60000 0 0 broker-a 0 0", "offset", "0")},
		{what: "invisible", code: 200053, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "extraInfo", "0 1 60000 0 0 broker-a 0 0", "offset", "0", "invisibleTime", "60000")},
		{what: "notification", code: 200054, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0", "pollTime", "0", "bornTime", born)},
		{what: "polling info", code: 200055, fields: f("consumerGroup", "", "topic", "T1", "queueId", "0")},
		{what: "message to a retry topic", code: 310, fields: sendFields("", "0", "", "false"), body: "again"},
		{what: "delete", code: 207, fields: f("groupName", "", "cleanOffset", "true")},
	}
	for i := range list {
		q := &list[i]
		for name, value := range q.fields {
			switch {
			case value != "":
			case name == "b":
				q.fields[name] = "%RETRY%" + q.group()
			case name == "consumerGroup", name == "group", name == "srcGroup", name == "destGroup", name == "compareGroup", name == "groupName":
				q.fields[name] = q.group()
			}
		}
		if q.code != 310 && q.body != "" {
			q.body = fmt.Sprintf(q.body, q.group())
		}
	}
	return list
}
