// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type found struct {
	LastUpdate int64      `json:"lastUpdate"`
	Messages   []received `json:"messages"`
}

// A message is found by each of its keys, by its unique id and by the id of its place.
func TestJavaQuery(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	s := must[sent](t, jvm, "producer.send", args{
		"handle": p, "topic": topic, "keys": "needle haystack", "tags": "TagQ", "body": "find me",
	})
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "keys": "other", "body": "not me"})
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	begin, end := time.Now().Add(-time.Minute).UnixMilli(), time.Now().Add(time.Minute).UnixMilli()
	check := func(what, op, key string) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			var f found
			err := jvm.do(op, args{"handle": admin, "topic": topic, "key": key, "begin": begin, "end": end}, &f)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if len(f.Messages) != 1 || f.Messages[0].Body != "find me" || f.Messages[0].MsgID != s.MsgID {
				return fmt.Errorf("%s: %+v", what, f.Messages)
			}
			return nil
		})
	}
	check("first key", "admin.byKey", "needle")
	check("second key", "admin.byKey", "haystack")
	check("unique id", "admin.byUniqueKey", s.MsgID)
	if err := jvm.do("admin.byKey", args{
		"handle": admin, "topic": topic, "key": "nothing", "begin": begin, "end": end,
	}, nil); err == nil {
		t.Error("a key that no message has was found")
	}
	m := must[received](t, jvm, "admin.byId", args{"handle": admin, "topic": topic, "id": s.OffsetMsgID})
	if m.Body != "find me" || m.QueueOffset != s.QueueOffset || m.Keys != "needle haystack" {
		t.Errorf("by offset id: %+v", m)
	}
}

// Topics and groups are made, changed, listed and deleted with the operators' API.
func TestJavaAdmin(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	with := func(extra args) args {
		a := args{"handle": admin, "address": at.Broker, "topic": topic, "group": group, "namesrv": at.NameServer}
		for k, v := range extra {
			a[k] = v
		}
		return a
	}
	run(t, jvm, "admin.createTopic", with(args{"queues": 3}))
	run(t, jvm, "admin.createTopic", with(args{"queues": 6}))
	waitForRoute(t, at.NameServer, topic)
	type topicConfig struct{ ReadQueueNums, WriteQueueNums, Perm int }
	if c := must[topicConfig](t, jvm, "admin.topicConfig", with(nil)); c != (topicConfig{6, 6, 6}) {
		t.Errorf("topic %+v", c)
	}
	type route struct {
		QueueDatas  []struct{ ReadQueueNums, WriteQueueNums, Perm int }
		BrokerDatas []struct {
			Cluster, BrokerName string
			BrokerAddrs         map[string]string
		}
	}
	eventually(t, 10*time.Second, func() error {
		r := must[route](t, jvm, "admin.route", with(nil))
		if len(r.QueueDatas) != 1 || r.QueueDatas[0].ReadQueueNums != 6 || len(r.BrokerDatas) != 1 ||
			r.BrokerDatas[0].BrokerAddrs["0"] != at.Broker || r.BrokerDatas[0].Cluster != "DefaultCluster" {
			return fmt.Errorf("route %+v", r)
		}
		return nil
	})
	for _, op := range []string{"admin.allTopics", "admin.topicList"} {
		if list := must[[]string](t, jvm, op, with(nil)); !slices.Contains(list, topic) {
			t.Errorf("%s lacks %s: %v", op, topic, list)
		}
	}
	run(t, jvm, "admin.createGroup", with(args{"retries": 5}))
	type groupConfig struct {
		GroupName     string
		RetryMaxTimes int
	}
	if c := must[groupConfig](t, jvm, "admin.groupConfig", with(nil)); c != (groupConfig{group, 5}) {
		t.Errorf("group %+v", c)
	}
	if list := must[[]string](t, jvm, "admin.allGroups", with(nil)); !slices.Contains(list, group) {
		t.Errorf("groups lack %s: %v", group, list)
	}
	run(t, jvm, "admin.deleteGroup", with(nil))
	if list := must[[]string](t, jvm, "admin.allGroups", with(nil)); slices.Contains(list, group) {
		t.Error("the deleted group is still there")
	}
	run(t, jvm, "admin.deleteTopic", with(nil))
	if list := must[[]string](t, jvm, "admin.allTopics", with(nil)); slices.Contains(list, topic) {
		t.Error("the deleted topic is still there")
	}
	if err := jvm.do("admin.route", with(nil), nil); err == nil {
		t.Error("the deleted topic still has a route")
	}
	if got := must[string](t, jvm, "admin.kv", with(args{"space": "SPACE", "key": "key", "value": "value"})); got != "value" {
		t.Errorf("kv %q", got)
	}
}

// What the broker says about clients that are connected, and about itself.
func TestJavaAdminState(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group, producers := name(t, "T"), name(t, "CG"), name(t, "PG")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic, "instance": "state"})
	many(t, jvm, p, topic, "m", 4)
	if got := awaitPush(t, jvm, c, 4, 20_000); len(got) != 4 {
		t.Fatalf("got %v", bodies(got))
	}
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	with := args{"handle": admin, "address": at.Broker, "topic": topic, "group": group}
	type connection struct {
		ConnectionSet []struct{ ClientID, ClientAddr, Language string }
		ConsumeType   string
		MessageModel  string
	}
	online := must[connection](t, jvm, "admin.consumerConnection", with)
	if len(online.ConnectionSet) != 1 || !strings.HasSuffix(online.ConnectionSet[0].ClientID, "@state") ||
		online.ConnectionSet[0].Language != "JAVA" || online.MessageModel != "CLUSTERING" {
		t.Errorf("consumers %+v", online)
	}
	eventually(t, 40*time.Second, func() error { // the producer's first heartbeat may be its second round
		var makers connection
		err := jvm.do("admin.producerConnection", args{"handle": admin, "group": producers, "topic": topic}, &makers)
		if err != nil {
			return err
		}
		if len(makers.ConnectionSet) != 1 {
			return fmt.Errorf("producers %+v", makers)
		}
		return nil
	})
	runtime := must[map[string]string](t, jvm, "admin.runtime", with)
	for _, key := range []string{
		"bootTimestamp", "brokerVersionDesc", "msgPutTotalTodayNow", "msgGetTotalTodayNow",
		"putTps", "getTotalTps", "runtime", "commitLogDiskRatio", "commitLogMaxOffset", "commitLogMinOffset",
	} {
		if runtime[key] == "" {
			t.Errorf("run-time info lacks %s", key)
		}
	}
	config := must[map[string]string](t, jvm, "admin.brokerConfig", with)
	if config["brokerName"] != at.BrokerName || config["brokerClusterName"] != "DefaultCluster" {
		t.Errorf("broker config names %q of %q", config["brokerName"], config["brokerClusterName"])
	}
	eventually(t, 20*time.Second, func() error { // the consumer commits each second
		stats := must[map[string]any](t, jvm, "admin.consumeStats", with)
		text := fmt.Sprint(stats)
		if strings.Count(text, "consumerOffset:2") < 2 {
			return fmt.Errorf("consume stats %s", text)
		}
		return nil
	})
	if text := fmt.Sprint(must[map[string]any](t, jvm, "admin.topicStats", with)); strings.Count(text, "maxOffset:2") < 2 {
		t.Errorf("topic stats %s", text)
	}
}

// mqadmin's commands for what this broker has. Each must print what an operator looks for.
func TestJavaMQAdmin(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	p := producer(t, jvm, at, nil)
	s := must[sent](t, jvm, "producer.send", args{
		"handle": p, "topic": topic, "keys": "opkey", "tags": "TagA", "body": "operators", "queueId": 1, "broker": at.BrokerName,
	})
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic})
	if got := awaitPush(t, jvm, c, 1, 20_000); len(got) != 1 {
		t.Fatalf("got %v", bodies(got))
	}
	made, madeGroup := name(t, "MADE"), name(t, "GROUP")
	cases := []struct {
		class string
		args  string
		want  []string
	}{
		{"cluster.ClusterListSubCommand", "", []string{"DefaultCluster", at.BrokerName, at.Broker}},
		{"topic.UpdateTopicSubCommand", "-b BROKER -t " + made + " -r 3 -w 3", []string{"success", "readQueueNums=3"}},
		{"topic.UpdateTopicSubCommand", "-c DefaultCluster -t " + made + " -r 5 -w 5", []string{"success", "readQueueNums=5"}},
		{"topic.TopicListSubCommand", "", []string{made, topic}},
		{"topic.TopicRouteSubCommand", "-t TOPIC", []string{at.Broker}},
		{"topic.TopicStatusSubCommand", "-t TOPIC", []string{at.BrokerName}},
		{"topic.TopicClusterSubCommand", "-t TOPIC", []string{"DefaultCluster"}},
		{"topic.UpdateTopicPermSubCommand", "-b BROKER -t " + made + " -p 4", []string{"success"}},
		{"topic.UpdateOrderConfCommand", "-m put -t " + made + " -v broker-a:4", []string{"success"}},
		{"topic.UpdateOrderConfCommand", "-m get -t " + made, []string{"broker-a:4"}},
		{"topic.DeleteTopicSubCommand", "-c DefaultCluster -t " + made, []string{"success"}},
		{"consumer.UpdateSubGroupSubCommand", "-b BROKER -g " + madeGroup + " -r 3", []string{"success"}},
		{"consumer.GetConsumerConfigSubCommand", "-g " + madeGroup, []string{"retryMaxTimes", "3"}},
		{"consumer.DeleteSubscriptionGroupCommand", "-b BROKER -g " + madeGroup, []string{"success"}},
		{"consumer.ConsumerProgressSubCommand", "-g GROUP", []string{at.BrokerName, topic}},
		{"connection.ConsumerConnectionSubCommand", "-g GROUP", []string{"JAVA", "CLUSTERING", topic}},
		{"broker.BrokerStatusSubCommand", "-b BROKER", []string{"bootTimestamp", "msgPutTotalTodayNow"}},
		{"broker.GetBrokerConfigCommand", "-b BROKER", []string{"brokerName", at.BrokerName}},
		{"message.QueryMsgByKeySubCommand", "-t TOPIC -k opkey", []string{"UNIQUE"}},
		{"message.QueryMsgByUniqueKeySubCommand", "-t TOPIC -i UNIQUE", []string{topic, "opkey"}},
		{"message.QueryMsgByIdSubCommand", "-t TOPIC -i OFFSETID", []string{topic, "opkey"}},
		{"message.QueryMsgByOffsetSubCommand", "-t TOPIC -b broker-a -i 1 -o 0", []string{"opkey"}},
		{"message.PrintMessageByQueueCommand", "-t TOPIC -a broker-a -i 1 -p true -d true", []string{"operators"}},
		{"message.SendMessageCommand", "-t TOPIC -p admin-body -k akey -c atag", []string{"SEND_OK"}},
		{"namesrv.UpdateKvConfigCommand", "-s SPACE -k opkey -v value", []string{"success"}},
		{"namesrv.DeleteKvConfigCommand", "-s SPACE -k opkey", []string{"success"}},
		{"namesrv.GetNamesrvConfigCommand", "", []string{"listenPort"}},
	}
	fill := strings.NewReplacer("BROKER", at.Broker, "TOPIC", topic, "GROUP", group, "UNIQUE", s.MsgID, "OFFSETID", s.OffsetMsgID)
	for _, k := range cases {
		// Some wait for a commit that the consumer makes each second.
		err := repeat(15*time.Second, func() error {
			var out string
			err := jvm.do("mqadmin", args{
				"class": k.class, "args": strings.Fields(fill.Replace(k.args)), "namesrv": at.NameServer,
			}, &out)
			if err != nil {
				return err
			}
			for _, want := range k.want {
				if !strings.Contains(out, fill.Replace(want)) {
					return fmt.Errorf("no %q in\n%s", fill.Replace(want), out)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s %s: %v", k.class, k.args, err)
		}
	}
}
