// SPDX-License-Identifier: Apache-2.0

package processor_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// fields is a short way to write a header.
func fields(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func decode[V any](t *testing.T, r processor.Reply) V {
	t.Helper()
	var v V
	if err := protocol.Unmarshal(r.Body, &v); err != nil {
		t.Fatalf("%s: %v", r.Body, err)
	}
	return v
}

func topicFields(name string, more ...string) map[string]string {
	m := fields("topic", name, "defaultTopic", "TBW102", "readQueueNums", "4", "writeQueueNums", "4",
		"perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false",
		"attributes", "", "force", "false")
	maps.Copy(m, fields(more...))
	return m
}

// TestTopicAdmin follows the commands and remarks of a capture of mqadmin on RocketMQ 5.5.0.
func TestTopicAdmin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const code = remoting.UpdateAndCreateTopic
	if r := b.ok(code, topicFields("TopicMade"), ""); r.Remark != "not set any response code" {
		t.Fatalf("remark %q", r.Remark)
	}
	b.ok(code, topicFields("TopicMade", "readQueueNums", "8", "attributes", "+message.type=FIFO"), "")
	b.fails(code, topicFields("bad.name"), "", remoting.InvalidParameter,
		"The specified topic: bad.name, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
	b.fails(code, topicFields("TBW102"), "", remoting.InvalidParameter,
		"The topic[TBW102] is conflict with system topic.")
	b.fails(code, topicFields("A", "topicFilterType", "X"), "",
		remoting.SystemError, "topicFilterType")
	b.fails(code, topicFields("A", "readQueueNums", "-1"), "",
		remoting.InvalidParameter, "readQueueNums")
	b.fails(code, topicFields("A", "attributes", "+message.type=MIXED"), "",
		remoting.InvalidParameter, "MIXED")
	b.fails(code, topicFields("A", "attributes", "+no.such=1"), "", remoting.SystemError, "no.such")

	got := decode[protocol.TopicConfig](t,
		b.ok(remoting.GetTopicConfig, fields("topic", "TopicMade"), ""))
	if got.ReadQueueNums != 8 || got.WriteQueueNums != 4 || got.Attributes["message.type"] != "FIFO" {
		t.Fatalf("%+v", got)
	}
	b.fails(remoting.GetTopicConfig, fields("topic", "None"), "", remoting.TopicNotExist, "None")

	body := `{"topicConfigList":[{"topicName":"L1"},{"topicName":"TopicMade","readQueueNums":8,
		"writeQueueNums":4},{"topicName":"L2","perm":4}]}`
	before := b.Topics.Version().Counter
	b.ok(remoting.UpdateAndCreateTopicList, nil, body)
	if v := b.Topics.Version().Counter; v != before+1 {
		t.Fatalf("%d writes for one list", v-before)
	}
	if c, ok := b.Topics.Find("L2"); !ok || c.Perm != 4 || c.ReadQueueNums != 16 {
		t.Fatalf("%+v", c)
	}

	list := decode[protocol.TopicList](t, b.ok(remoting.GetSystemTopicListFromBroker, nil, ""))
	if !slices.Contains(list.TopicList, "TBW102") || slices.Contains(list.TopicList, "TopicMade") {
		t.Fatal(list)
	}
	b.fails(remoting.UpdateAndCreateStaticTopic, topicFields("S"), "{}",
		remoting.SystemError, "static")
}

// TestTopicPages walks through the table in pages; a change in between begins anew.
func TestTopicPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	all, version := b.Topics.All()
	whole := b.ok(remoting.GetAllTopicConfig, nil, "")
	if w := decode[protocol.TopicConfigWrapper](t, whole); len(w.TopicConfigTable) != len(all) {
		t.Fatalf("%d topics", len(w.TopicConfigTable))
	}
	seen := map[string]bool{}
	for seq := 0; seq < len(all); seq += 4 {
		r := b.ok(remoting.GetAllTopicConfig, fields("topicSeq", fmt.Sprint(seq), "maxTopicNum", "4",
			"dataVersion", string(protocol.Marshal(version))), "")
		if total := fieldsOf(t, r)["totalTopicNum"]; total != fmt.Sprint(len(all)) {
			t.Fatal("total", total)
		}
		for name := range decode[protocol.TopicConfigWrapper](t, r).TopicConfigTable {
			seen[name] = true
		}
	}
	if len(seen) != len(all) {
		t.Fatalf("%d of %d topics on the pages", len(seen), len(all))
	}
	b.createTopic("New")
	r := b.ok(remoting.GetAllTopicConfig, fields("topicSeq", "8", "maxTopicNum", "1",
		"dataVersion", string(protocol.Marshal(version))), "")
	if _, ok := decode[protocol.TopicConfigWrapper](t, r).TopicConfigTable["BenchmarkTest"]; !ok {
		t.Fatalf("a stale version does not begin anew: %s", r.Body)
	}
	r = b.ok(remoting.GetAllSubscriptionGroupConfig, fields("groupSeq", "0", "maxGroupNum", "3",
		"dataVersion", ""), "")
	groups := decode[protocol.SubscriptionGroupWrapper](t, r)
	if len(groups.SubscriptionGroupTable) != 3 || fieldsOf(t, r)["totalGroupNum"] != "8" {
		t.Fatal(fieldsOf(t, r), len(groups.SubscriptionGroupTable))
	}
}

// TestDeleteTopic: a topic that is made anew begins at its start for every group, and a name that
// nobody knows never reaches the disk.
func TestDeleteTopic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var deleted []string
	b.TopicDeleted = func(name string) { deleted = append(deleted, name) }
	b.createTopic("T")
	b.put("T", 0, 10)
	if _, _, err := b.Groups.LookupOrCreate("g"); err != nil {
		t.Fatal(err)
	}
	commit := fields("consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "1000")
	b.ok(remoting.UpdateConsumerOffset, commit, "")
	b.Offsets.SetPulled([]byte("g"), []byte("T"), 0, 1000)
	b.ok(remoting.InvokeBrokerToResetOffset, fields("topic", "T", "group", "g", "timestamp", "-1",
		"isForce", "true", "queueId", "-1", "offset", "-1"), "")
	if _, err := b.Topics.CreateRetry("%RETRY%g_T", 1, 6, false, false); err != nil {
		t.Fatal(err)
	}
	b.Stats.Topic([]byte("T")).Put(1, 1, 1, 1)

	b.ok(remoting.DeleteTopicInBroker, fields("topic", "T"), "")
	if !slices.Equal(deleted, []string{"%RETRY%g_T", "T"}) {
		t.Fatal(deleted)
	}
	if _, ok := b.Topics.Find("%RETRY%g_T"); ok {
		t.Fatal("the pop retry topic is still there")
	}
	b.fails(remoting.UpdateConsumerOffset, commit, "", remoting.TopicNotExist, "Topic T not exist!")
	b.createTopic("T")
	b.put("T", 0, 10)
	if _, end, _ := b.store.QueueBounds([]byte("T"), 0); end != 10 {
		t.Fatalf("the new topic ends at %d", end)
	}
	r := b.ok(remoting.QueryConsumerOffset,
		fields("consumerGroup", "g", "topic", "T", "queueId", "0"), "")
	if off := fieldsOf(t, r)["offset"]; off != "0" {
		t.Fatalf("the group begins at %s", off)
	}
	group, name := []byte("g"), []byte("T")
	if _, ok := b.Offsets.Pulled(group, name, 0); ok || b.Offsets.HasReset(group, name, 0) {
		t.Fatal("a pull offset or a reset outlived the topic")
	}
	b.fails(remoting.ViewBrokerStatsData, fields("statsName", "TOPIC_PUT_NUMS", "statsKey", "T"), "",
		remoting.SystemError, "The stats <TOPIC_PUT_NUMS> <T> not exist")

	b.fails(remoting.DeleteTopicInBroker, fields("topic", " "), "", remoting.InvalidParameter, "blank")
	b.fails(remoting.DeleteTopicInBroker, fields("topic", "TBW102"), "",
		remoting.InvalidParameter, "conflict")
	b.ok(remoting.DeleteTopicInBroker, fields("topic", "TopicNowhere"), "")
	b.ok(remoting.DeleteTopicInBroker, fields("topic", "../../config"), "")
	if _, ok := b.Topics.Find("T"); !ok {
		t.Fatal("T is gone")
	}
}

func TestCleanUnusedTopic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("Kept")
	b.put("Kept", 0, 1)
	b.put("Orphan", 0, 1)
	b.put("SCHEDULE_TOPIC_XXXX", 3, 1)
	b.ok(remoting.CleanUnusedTopic, nil, "")
	if names := b.store.Topics(); !slices.Equal(names, []string{"Kept", "SCHEDULE_TOPIC_XXXX"}) {
		t.Fatal(names)
	}
}

func TestGroupAdmin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ok(remoting.UpdateAndCreateSubscriptionGroup, nil,
		`{"groupName":"CG_MADE","retryMaxTimes":3,"consumeBroadcastEnable":false}`)
	c := decode[protocol.SubscriptionGroupConfig](t,
		b.ok(remoting.GetSubscriptionGroupConfig, fields("group", "CG_MADE"), ""))
	if c.RetryMaxTimes != 3 || c.ConsumeBroadcastEnable || !c.ConsumeEnable || c.RetryQueueNums != 1 {
		t.Fatalf("%+v", c)
	}
	b.fails(remoting.UpdateAndCreateSubscriptionGroup, nil, `{"groupName":"a.b"}`,
		remoting.InvalidParameter, "a.b")
	b.ok(remoting.UpdateAndCreateSubscriptionGroupList, nil,
		`{"groupConfigList":[{"groupName":"L1"},{"groupName":"L2"}]}`)
	b.ok(remoting.GetSubscriptionGroupConfig, fields("group", "Made"), "") // as a pull would make it
	b.fails(remoting.GetSubscriptionGroupConfig, fields("group", ""), "",
		remoting.SubscriptionGroupNotExist, "No group in this broker")

	b.createTopic("T")
	commit := fields("consumerGroup", "CG_MADE", "topic", "T", "queueId", "0", "commitOffset", "5")
	b.ok(remoting.UpdateConsumerOffset, commit, "")
	list := decode[protocol.TopicList](t,
		b.ok(remoting.QueryTopicsByConsumer, fields("group", "CG_MADE"), ""))
	if !slices.Equal(list.TopicList, []string{"T"}) || list.BrokerAddr == "" {
		t.Fatal(list)
	}
	who := decode[protocol.GroupList](t,
		b.ok(remoting.QueryTopicConsumeByWho, fields("topic", "T"), ""))
	if !slices.Equal(who.GroupList, []string{"CG_MADE"}) {
		t.Fatal(who)
	}
	b.ok(remoting.DeleteSubscriptionGroup, fields("groupName", "CG_MADE", "cleanOffset", "false"), "")
	if _, ok := b.Offsets.Query([]byte("CG_MADE"), []byte("T"), 0); !ok {
		t.Fatal("offsets went without being asked to")
	}
	b.fails(remoting.UpdateConsumerOffset, commit, "", remoting.SubscriptionGroupNotExist,
		"Group CG_MADE not exist!")
	b.ok(remoting.DeleteSubscriptionGroup, fields("groupName", "CG_MADE", "cleanOffset", "true"), "")
	if topics := b.Offsets.Topics("CG_MADE"); len(topics) != 0 {
		t.Fatal(topics)
	}

	forbid := func(readable string) string {
		f := fields("group", "L1", "topic", "T")
		if readable != "" {
			f["readable"] = readable
		}
		return string(b.ok(remoting.UpdateAndGetGroupForbidden, f, "").Body)
	}
	for _, step := range []struct{ set, want string }{
		{"", "true"}, {"false", "false"}, {"", "false"}, {"true", "true"},
	} {
		want := `{"group":"L1","readable":` + step.want + `,"topic":"T"}`
		if got := forbid(step.set); got != want {
			t.Fatalf("set %q: %s, want %s", step.set, got, want)
		}
	}
}

// online registers a consumer and a producer as a client would.
func online(b *bench, id string, version int32) *client {
	b.t.Helper()
	ch := &client{"10.0.0.9:50000"}
	c := &processor.Caller{Channel: ch, Version: version, Language: remoting.LanguageJava}
	body := `{"clientID":"` + id + `","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[
		{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",
		"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[
		{"topic":"T","subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":7}]}]}`
	if r := b.callFrom(c, remoting.HeartBeat, nil, body); r.Code != remoting.Success {
		b.t.Fatal(r)
	}
	return ch
}

func TestConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fails(remoting.GetConsumerConnectionList, fields("consumerGroup", "g"), "",
		remoting.ConsumerNotOnline, "the consumer group[g] not online")
	b.fails(remoting.GetProducerConnectionList, fields("producerGroup", "p"), "",
		remoting.SystemError, "the producer group[p] not exist")
	b.createTopic("T")
	online(b, "c1", 513)
	r := b.ok(remoting.GetConsumerConnectionList, fields("consumerGroup", "g"), "")
	want := `{"connectionSet":[{"clientAddr":"10.0.0.9:50000","clientId":"c1","language":"JAVA",` +
		`"version":513}],"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",` +
		`"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":` +
		`{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",` +
		`"subVersion":7,"tagsSet":["TagA"],"topic":"T"}}}`
	if string(r.Body) != want {
		t.Fatalf("%s\nwant %s", r.Body, want)
	}
	r = b.ok(remoting.GetProducerConnectionList, fields("producerGroup", "p"), "")
	if !strings.Contains(string(r.Body), `"clientId":"c1"`) {
		t.Fatalf("%s", r.Body)
	}
	all := decode[protocol.ProducerTableInfo](t, b.ok(remoting.GetAllProducerInfo, nil, ""))
	if len(all.Data["p"]) != 1 || all.Data["p"][0].RemoteIP != "/10.0.0.9:50000" {
		t.Fatalf("%+v", all)
	}
	r = b.ok(remoting.QuerySubscriptionByConsumer, fields("group", "g", "topic", "T"), "")
	if s := decode[protocol.SubscriptionByConsumer](t, r); s.SubscriptionData.SubString != "TagA" {
		t.Fatalf("%s", r.Body)
	}
}

// TestRelay passes questions on to a client and its answer back.
func TestRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 1)
	running := fields("consumerGroup", "g", "clientId", "c1", "jstackEnable", "false")
	b.fails(remoting.GetConsumerRunningInfo, running, "", remoting.SystemError,
		"The Consumer <g> <c1> not online")
	online(b, "c1", 61)
	b.fails(remoting.GetConsumerRunningInfo, running, "", remoting.SystemError, "too low")
	online(b, "c1", 513)
	var asked []string
	b.answer = func(
		code remoting.RequestCode, h remoting.Header, body []byte,
	) (*remoting.Command, error) {
		sent := fieldsOf(t, processor.Reply{Header: h})
		asked = append(asked, fmt.Sprintf("%d %v %d", code, sent, len(body)))
		return &remoting.Command{Remark: []byte("from the client"), Body: []byte(
			`{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}`)}, nil
	}
	r := b.ok(remoting.GetConsumerRunningInfo, running, "")
	if r.Remark != "from the client" || len(r.Body) == 0 {
		t.Fatalf("%+v", r)
	}
	r = b.ok(remoting.InvokeBrokerToGetConsumerStatus,
		fields("topic", "T", "group", "g", "clientAddr", "c1"), "")
	want := `{"consumerTable":{"c1":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}},` +
		`"messageQueueTable":{}}`
	if string(r.Body) != want {
		t.Fatalf("%s", r.Body)
	}
	unit, _ := b.store.Unit([]byte("T"), 0, 0)
	id := string(record.AppendOffsetID(nil, mustAddr("127.0.0.1:10911"), unit.At))
	b.ok(remoting.ConsumeMessageDirectly,
		fields("consumerGroup", "g", "clientId", "c1", "msgId", id, "topic", "T"), "")
	last := asked[len(asked)-1]
	if !strings.Contains(last, "brokerName:broker-a") ||
		!strings.HasSuffix(last, fmt.Sprint(unit.Size)) {
		t.Fatal(last)
	}
	b.fails(remoting.ConsumeMessageDirectly, fields("consumerGroup", "g", "clientId", "c1",
		"msgId", "XYZ"), "", remoting.SystemError, "msgId")
	b.answer = func(remoting.RequestCode, remoting.Header, []byte) (*remoting.Command, error) {
		return nil, context.DeadlineExceeded
	}
	b.fails(remoting.GetConsumerRunningInfo, running, "", remoting.ConsumeMsgTimeout, "Timeout")
}

// TestReset sets positions by offset and by time, as the server keeps them until the next pull.
func TestReset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 10)
	b.put("T", 1, 3)
	reset := func(more ...string) map[string]string {
		f := fields("topic", "T", "group", "g", "timestamp", "-1", "isForce", "true", "queueId", "-1",
			"offset", "-1")
		maps.Copy(f, fields(more...))
		return f
	}
	const code = remoting.InvokeBrokerToResetOffset
	b.fails(code, reset(), "", remoting.SubscriptionGroupNotExist, "g")
	if _, _, err := b.Groups.LookupOrCreate("g"); err != nil {
		t.Fatal(err)
	}
	b.fails(code, reset("topic", "None"), "", remoting.TopicNotExist, "None")
	b.fails(code, reset("queueId", "0", "offset", "12"), "", remoting.SystemError,
		"Target offset 12 not in consume queue range [0-10]")
	check := func(want map[int32]int64, more ...string) {
		t.Helper()
		body := decode[protocol.ResetOffsetBody](t, b.ok(code, reset(more...), ""))
		got := map[int32]int64{}
		for q, off := range body.OffsetTable {
			got[q.QueueID] = off
			if now, ok := b.Offsets.Query([]byte("g"), []byte("T"), q.QueueID); !ok || now != off {
				t.Fatalf("queue %d: %d", q.QueueID, now)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	check(map[int32]int64{0: 7}, "queueId", "0", "offset", "7")
	check(map[int32]int64{0: 10, 1: 3, 2: 0, 3: 0})
	check(map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}, "timestamp", "0")
	r := b.ok(remoting.UpdateConsumerOffset,
		fields("consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "9"), "")
	if r.Remark != "Offset has been previously reset" {
		t.Fatalf("%q", r.Remark)
	}
	if off, ok := b.Offsets.TakeReset([]byte("g"), []byte("T"), 0); !ok || off != 0 {
		t.Fatal(off, ok)
	}
}

// TestResetClients: with the reset on the client side nothing is kept, and somebody must be online.
func TestResetClients(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ClientReset = true
	b.createTopic("T")
	b.put("T", 0, 10)
	if _, _, err := b.Groups.LookupOrCreate("g"); err != nil {
		t.Fatal(err)
	}
	f := fields("topic", "T", "group", "g", "timestamp", "-1", "isForce", "false")
	const code = remoting.InvokeBrokerToResetOffset
	b.fails(code, f, "", remoting.SystemError, "THe consumer group <g> not exist")
	for queue := range int32(4) {
		b.Offsets.Commit([]byte("g"), []byte("T"), queue, 4)
	}
	b.fails(code, f, "", remoting.ConsumerNotOnline, "not online")
	online(b, "c1", 513)
	b.takeTold()
	body := decode[protocol.ResetOffsetBody](t, b.ok(code, f, ""))
	if off := body.OffsetTable[protocol.MessageQueue{BrokerName: "broker-a", Topic: "T"}]; off != 4 {
		t.Fatalf("without force %d", off)
	}
	if told := b.takeTold(); len(told) != 1 || !strings.Contains(told[0], " 220 ") {
		t.Fatal(told)
	}
}

func TestCorrectionAndClone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 10)
	for group, off := range map[string]int64{"a": 3, "b": 5, "slow": 1} {
		b.Offsets.Commit([]byte(group), []byte("T"), 0, off)
	}
	r := b.ok(remoting.QueryCorrectionOffset,
		fields("topic", "T", "compareGroup", "b", "filterGroups", "slow"), "")
	if got := decode[protocol.QueryCorrectionOffsetBody](t, r); got.CorrectionOffsets[0] != 3 {
		t.Fatalf("%s", r.Body)
	}
	r = b.ok(remoting.QueryCorrectionOffset, fields("topic", "T", "compareGroup", "slow",
		"filterGroups", "slow"), "")
	if got := decode[protocol.QueryCorrectionOffsetBody](t, r); got.CorrectionOffsets[0] != 1<<63-1 {
		t.Fatalf("%s", r.Body)
	}
	if _, ok := b.Offsets.Query([]byte("slow"), []byte("T"), 0); !ok {
		t.Fatal("a filtered group lost its offsets")
	}
	b.ok(remoting.CloneGroupOffset, fields("srcGroup", "a", "destGroup", "n", "offline", "true"), "")
	if off, _ := b.Offsets.Query([]byte("n"), []byte("T"), 0); off != 3 {
		t.Fatal(off)
	}
}

func TestAssignment(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	query := func(client, strategy, model string) string {
		return string(b.ok(remoting.QueryAssignment, nil, fmt.Sprintf(`{"clientId":%q,
			"consumerGroup":"g","messageModel":%q,"strategyName":%q,"topic":"T"}`,
			client, model, strategy)).Body)
	}
	if got := query("c1", "AVG", "CLUSTERING"); got != "{}" {
		t.Fatalf("nobody is online: %s", got)
	}
	online(b, "c1", 513)
	for _, step := range []struct {
		client, strategy, model string
		queues                  int
	}{
		{"c1", "AVG", "CLUSTERING", 4},
		{"c1", "AVG_BY_CIRCLE", "CLUSTERING", 4},
		{"other", "AVG", "CLUSTERING", 0},
		{"other", "", "BROADCASTING", 4},
	} {
		got := query(step.client, step.strategy, step.model)
		if n := strings.Count(got, `"mode":"PULL"`); n != step.queues ||
			!strings.Contains(got, "messageQueueAssignments") {
			t.Fatalf("%+v: %s", step, got)
		}
	}
	const mode = remoting.SetMessageRequestMode
	b.fails(mode, nil, `{"topic":"%RETRY%g","consumerGroup":"g"}`, remoting.NoPermission,
		"retry topic is not allowed to set mode")
	b.fails(mode, nil, `{"topic":"None","consumerGroup":"g"}`, remoting.TopicNotExist, "None")
	b.fails(mode, nil, `{"topic":"T","consumerGroup":"a.b"}`,
		remoting.SubscriptionGroupNotExist, "a.b")
	b.fails(mode, nil, `{"topic":"T","consumerGroup":"g","mode":"PUSH"}`, remoting.SystemError, "PUSH")
	b.ok(mode, nil, `{"topic":"T","consumerGroup":"g","mode":"PULL","popShareQueueNum":8}`)
	want := `{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"PULL",` +
		`"popShareQueueNum":8,"topic":"T"}}}}`
	if got := string(b.ok(remoting.GetAllMessageRequestMode, nil, "").Body); got != want {
		t.Fatal(got)
	}
}

// In mode POP a client has all brokers, or its own queues and those of the clients after it.
func TestPopAssignment(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	for i := range 4 {
		online(b, fmt.Sprint("c", i), int32(513+i))
	}
	queues := func(client string, share int) string {
		b.ok(remoting.SetMessageRequestMode, nil, fmt.Sprintf(
			`{"topic":"T","consumerGroup":"g","mode":"POP","popShareQueueNum":%d}`, share))
		var body protocol.QueryAssignmentResponse
		r := b.ok(remoting.QueryAssignment, nil, fmt.Sprintf(`{"clientId":%q,"consumerGroup":"g",
			"messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}`, client))
		if err := protocol.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		var ids []int
		for _, a := range body.MessageQueueAssignments {
			if a.Mode != protocol.RequestModePop {
				t.Errorf("mode %s", a.Mode)
			}
			ids = append(ids, int(a.MessageQueue.QueueID))
		}
		slices.Sort(ids)
		return fmt.Sprint(ids)
	}
	for _, step := range []struct {
		client string
		share  int
		want   string
	}{
		{"c0", 0, "[-1]"},
		{"c0", 3, "[-1]"},
		{"c0", 1, "[0 1]"},
		{"c3", 1, "[0 3]"},
		{"c2", 2, "[0 2 3]"},
		{"stranger", 1, "[]"},
	} {
		if got := queues(step.client, step.share); got != step.want {
			t.Errorf("%+v: got %s", step, got)
		}
	}
}
