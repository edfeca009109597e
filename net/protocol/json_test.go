// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/net/protocol"
)

func TestMarshalForms(t *testing.T) {
	t.Parallel()
	queue := protocol.MessageQueue{BrokerName: "b", QueueID: 0, Topic: "t"}
	for _, tc := range []struct {
		name                     string
		v                        any
		plain, standard, compact string
	}{
		{
			"integer keys",
			protocol.BrokerMemberGroup{
				BrokerAddrs: map[int64]string{10: "b:1", 2: "a:1"}, BrokerName: "n", Cluster: "c",
			},
			`{"brokerAddrs":{"2":"a:1","10":"b:1"},"brokerName":"n","cluster":"c"}`,
			`{"brokerAddrs":{"2":"a:1","10":"b:1"},"brokerName":"n","cluster":"c"}`,
			`{"brokerAddrs":{2:"a:1",10:"b:1"},"brokerName":"n","cluster":"c"}`,
		},
		{
			"object keys",
			protocol.ResetOffsetBody{
				OffsetTable: map[protocol.MessageQueue]int64{queue: 123},
			},
			`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:123}}`,
			`{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}":123}}`,
			`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:123}}`,
		},
		{
			"text and large numbers",
			map[string]int64{"a/\"\\\n\x01é订😀\x7f": math.MaxInt64},
			"{\"a/\\\"\\\\\\n\\u0001é订😀\x7f\":9223372036854775807}",
			`{"a\/\"\\\n\u0001\u00e9\u8ba2\ud83d\ude00\u007f":"9223372036854775807"}`,
			"{\"a/\\\"\\\\\\n\\u0001é订😀\x7f\":9223372036854775807}",
		},
		{
			"absence", protocol.KVTable{}, `{}`, `{}`, `{}`,
		},
		{
			"empty is not absent",
			protocol.TopicList{TopicList: []string{}},
			`{"topicList":[]}`, `{"topicList":[]}`, `{"topicList":[]}`,
		},
		{
			"bytes",
			protocol.BatchAck{BitSet: []byte{5, 2}, ConsumerGroup: "g", Retry: "0", Topic: "T"},
			`{"b":"BQI=","c":"g","it":0,"pt":0,"q":0,"r":"0","rq":0,"so":0,"t":"T"}`,
			`{"b":"BQI=","c":"g","it":0,"pt":0,"q":0,"r":"0","rq":0,"so":0,"t":"T"}`,
			`{"b":"BQI=","c":"g","it":0,"pt":0,"q":0,"r":"0","rq":0,"so":0,"t":"T"}`,
		},
	} {
		for _, form := range []struct {
			name, want string
			f          func(any) []byte
		}{
			{"Marshal", tc.plain, protocol.Marshal},
			{"MarshalStandard", tc.standard, protocol.MarshalStandard},
			{"MarshalFastJSON", tc.compact, protocol.MarshalFastJSON},
		} {
			if got := string(form.f(tc.v)); got != form.want {
				t.Errorf("%s of %s:\ngot  %s\nwant %s", form.name, tc.name, got, form.want)
			}
		}
	}
}

func TestMarshalDouble(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]float64{
		"0.0": 0, "1.5": 1.5, "-2.0": -2, "1.0E10": 1e10, "1.234E-4": 0.0001234, "0.001": 0.001,
		"9999999.0": 9999999, "1.0E7": 1e7, "null": math.NaN(), "0.3333333333333333": 1.0 / 3,
	} {
		if got := string(protocol.Marshal(f)); got != want {
			t.Errorf("Marshal(%v) = %s, want %s", f, got, want)
		}
	}
}

func TestUnmarshalDialect(t *testing.T) {
	t.Parallel()
	sub := protocol.SubscriptionData{
		CodeSet: []int32{2598919}, SubString: "TagA", SubVersion: 1700000000000000000,
		TagsSet: []string{"TagA"}, Topic: "T",
	}
	queue := protocol.MessageQueue{BrokerName: "b", QueueID: 3, Topic: "t"}
	for _, tc := range []struct {
		name, text string
		into, want any
	}{
		{
			"Go client's subscription",
			`{"topic":"T","subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],` +
				`"subVersion":1700000000000000000,"expressionType":"","classFilterMode":false}`,
			new(protocol.SubscriptionData), &sub,
		},
		{
			"bare integer keys", `{"brokerAddrs":{0:"a",-1:"b"},"brokerName":"n"}`,
			new(protocol.BrokerData),
			&protocol.BrokerData{BrokerAddrs: map[int64]string{0: "a", -1: "b"}, BrokerName: "n"},
		},
		{
			"object keys", `{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:7}}`,
			new(protocol.ResetOffsetBody),
			&protocol.ResetOffsetBody{OffsetTable: map[protocol.MessageQueue]int64{queue: 7}},
		},
		{
			"object keys as text",
			`{"offsetTable":{"{'brokerName':'b',\"queueId\":\"3\",\"topic\":\"t\"}":"7"}}`,
			new(protocol.ResetOffsetBody),
			&protocol.ResetOffsetBody{OffsetTable: map[protocol.MessageQueue]int64{queue: 7}},
		},
		{
			"old names", `{"brokerName":"n","topicSynFlag":1,"perm":"6","readQueueNums":8.0}`,
			new(protocol.QueueData),
			&protocol.QueueData{BrokerName: "n", TopicSysFlag: 1, Perm: 6, ReadQueueNums: 8},
		},
		{
			"ordinals", `{"groupName":"g","consumeType":1,"messageModel":0,"consumeFromWhere":4}`,
			new(protocol.ConsumerData),
			&protocol.ConsumerData{
				GroupName: "g", ConsumeType: protocol.ConsumePassively,
				MessageModel:     protocol.Broadcasting,
				ConsumeFromWhere: protocol.ConsumeFromFirstOffset,
			},
		},
		{
			"null and blank parts", `{"clientID":null,"consumerDataSet":[null,{"groupName":"g",` +
				`"subscriptionDataSet":null}],"producerDataSet":"","heartbeatFingerprint":null}`,
			new(protocol.HeartbeatData),
			&protocol.HeartbeatData{ConsumerDataSet: []protocol.ConsumerData{{GroupName: "g"}}},
		},
		{
			"long names of a batch ack", `{"acks":[{"bitSet":"BQI=","consumerGroup":"g","q":1}]}`,
			new(protocol.BatchAckBody),
			&protocol.BatchAckBody{Acks: []protocol.BatchAck{
				{BitSet: []byte{5, 2}, ConsumerGroup: "g", QueueID: 1},
			}},
		},
		{
			"booleans", `{'locked':"TRUE",'droped':1}`, new(protocol.ProcessQueueInfo),
			&protocol.ProcessQueueInfo{Locked: true, Droped: true},
		},
		{"array", `["a",'b',]`, new([]string), &[]string{"a", "b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := protocol.Unmarshal([]byte(tc.text), tc.into); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.into); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUnmarshalDefaults(t *testing.T) {
	t.Parallel()
	var w protocol.SubscriptionGroupWrapper
	text := `{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3}}}`
	if err := protocol.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	want := protocol.DefaultSubscriptionGroup("g")
	want.RetryMaxTimes = 3
	if diff := cmp.Diff(&want, w.SubscriptionGroupTable["g"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// What the caller set beforehand stays where the text is silent.
	topic := protocol.TopicConfig{Perm: 7}
	if err := protocol.Unmarshal([]byte(`{"topicName":"t"}`), &topic); err != nil {
		t.Fatal(err)
	}
	if topic.Perm != 7 || topic.TopicName != "t" || topic.ReadQueueNums != 0 {
		t.Errorf("got %+v", topic)
	}
}

// embedded and shadowing stand for the layouts of configuration files.
type embedded struct {
	A int64             `json:"a"`
	B map[string]string `json:"b"`
}

type shadowing struct {
	embedded

	B map[int32]int64 `json:"b"`
}

func TestUnmarshalEmbedded(t *testing.T) {
	t.Parallel()
	var got shadowing
	if err := protocol.Unmarshal([]byte(`{"a":1,"b":{2:3}}`), &got); err != nil {
		t.Fatal(err)
	}
	if got.A != 1 || got.embedded.B != nil || got.B[2] != 3 {
		t.Errorf("got %+v", got)
	}
	if text := string(protocol.MarshalFastJSON(embedded{A: 1})); text != `{"a":1}` {
		t.Errorf("got %s", text)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, part string }{
		{"", "body of HeartbeatData is missing"},
		{" \n", "body of HeartbeatData is missing"},
		{"null", "body of HeartbeatData is null"},
		{"rubbish", "body of HeartbeatData"},
		{"[]", "not an object"},
		{`{clientID:"x"}`, "body of HeartbeatData"},
		{`{"clientID":"x"`, "body of HeartbeatData"},
		{`{"clientID":{}}`, "member clientID is"},
		{`{"heartbeatFingerprint":4294967296}`, "member heartbeatFingerprint is"},
		{`{"heartbeatFingerprint":"x"}`, "member heartbeatFingerprint is"},
		{`{"consumerDataSet":5}`, "member consumerDataSet is"},
		{`{"consumerDataSet":[{"unitMode":"maybe"}]}`, "member consumerDataSet.0.unitMode is"},
		{`{"consumerDataSet":[{"consumeType":9}]}`, "member consumerDataSet.0.consumeType is"},
		{`{"consumerDataSet":[{"$ref":"$.x"}]}`, "member consumerDataSet.0 is"},
		{strings.Repeat("[", 100000), "body of HeartbeatData"},
	} {
		err := protocol.Unmarshal([]byte(tc.text), new(protocol.HeartbeatData))
		if !errors.Is(err, protocol.ErrBody) || !strings.Contains(err.Error(), tc.part) {
			t.Errorf("%.40s: got error %v, want one with %q", tc.text, err, tc.part)
		}
	}
}

func TestDataVersion(t *testing.T) {
	t.Parallel()
	v := protocol.DataVersion{Counter: 1, Timestamp: 5}
	w := v
	w.Next(3)
	if w != (protocol.DataVersion{Counter: 2, Timestamp: 3}) {
		t.Errorf("Next: got %+v", w)
	}
	for _, tc := range []struct {
		a, b protocol.DataVersion
		want int
	}{
		{v, v, 0},
		{v, w, -1},
		{w, v, 1},
		{protocol.DataVersion{StateVersion: 1}, w, 1},
		{protocol.DataVersion{Timestamp: 1}, protocol.DataVersion{Timestamp: 2}, -1},
	} {
		if got := tc.a.Compare(tc.b); got != tc.want || tc.a.Equal(tc.b) != (tc.want == 0) {
			t.Errorf("%+v.Compare(%+v) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
