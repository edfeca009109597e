// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// vector prepares a broker on a store that RocketMQ 5.5.0 left, with the sizes that it was written
// with.
func vector(t *testing.T, name string) enginetest.Option {
	return func(c *engine.Config) {
		c.CommitLogFileSize, c.QueueFileSize, c.TimerLogFileSize = 1<<20, 4000, 4096
		c.IndexSlots, c.IndexEntries, c.MaxMessageSize = 101, 1000, 1<<18
		unpackStore(t, "../storage/testdata/vectors/"+name+".tar.gz", c.StoreRoot)
	}
}

// ask sends one request with a JSON header.
func (p *rawPeer) ask(code remoting.RequestCode, fields map[string]string, body string) *remoting.Command {
	p.t.Helper()
	p.write(rawFrame(remoting.JSON, code, 1, fields, body))
	a, err := p.answer(5 * time.Second)
	if err != nil {
		p.t.Fatalf("%v: %v", code, err)
	}
	return a
}

// Static topics of RocketMQ stay in the store and are refused by every request that names queues or
// offsets of theirs; so are compaction topics, whose older messages lie where this broker does not look.
func TestTopicsThatAreKeptButNotServed(t *testing.T) {
	t.Parallel()
	var log journal
	cluster := enginetest.Start(t, vector(t, "config"), logTo(&log))
	mapping := filepath.Join(cluster.Dir(), "config", "topicQueueMapping.json")
	before, err := os.ReadFile(mapping)
	if err != nil {
		t.Fatal(err)
	}
	p := dialRaw(t, cluster.Broker())
	made := p.ask(remoting.UpdateAndCreateTopic, map[string]string{
		"topic": "Compacted", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
		"attributes": "+cleanup.policy=COMPACTION",
	}, "")
	if made.Code != 0 {
		t.Fatalf("%d %s", made.Code, made.Remark)
	}
	both := []string{"StaticTopic", "Compacted"}
	static := both[:1]
	for _, c := range []struct {
		code   remoting.RequestCode
		topics []string
		fields map[string]string
	}{
		{remoting.SendMessage, both, map[string]string{
			"producerGroup": "PG", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "sysFlag": "0",
			"bornTimestamp": "1", "flag": "0", "properties": "",
		}},
		{remoting.PullMessage, both, map[string]string{
			"consumerGroup": "GID_cfg", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
			"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
		}},
		{remoting.PopMessage, both, map[string]string{
			"consumerGroup": "GID_cfg", "maxMsgNums": "1", "invisibleTime": "10000", "pollTime": "0",
			"bornTime": "1", "initMode": "0",
		}},
		{remoting.QueryConsumerOffset, static, map[string]string{"consumerGroup": "GID_cfg"}},
		{remoting.UpdateConsumerOffset, static, map[string]string{"consumerGroup": "GID_cfg", "commitOffset": "1"}},
		{remoting.SearchOffsetByTimestamp, static, map[string]string{"timestamp": "0"}},
		{remoting.GetMaxOffset, static, nil},
		{remoting.GetMinOffset, static, nil},
		{remoting.GetEarliestMsgStoreTime, static, nil},
		{remoting.UpdateAndCreateTopic, static, map[string]string{
			"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
			"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
		}},
		{remoting.DeleteTopicInBroker, static, nil},
	} {
		for _, topic := range c.topics {
			fields := map[string]string{"topic": topic, "queueId": "0"}
			for k, v := range c.fields {
				fields[k] = v
			}
			a := p.ask(c.code, fields, "body")
			if a.Code != int32(remoting.SystemError) || !strings.Contains(string(a.Remark), topic) ||
				!strings.Contains(string(a.Remark), "keeps but does not serve") {
				t.Errorf("%v of %s: %d %s", c.code, topic, a.Code, a.Remark)
			}
		}
	}
	if lines := log.lines("kept and not served", "StaticTopic"); len(lines) != 1 {
		t.Errorf("the log says it %d times", len(lines))
	}
	cluster.Restart()
	if lines := log.lines("kept and not served", "StaticTopic", "Compacted"); len(lines) != 1 {
		t.Errorf("after the restart the log says it %d times", len(lines))
	}
	after, err := os.ReadFile(mapping)
	if err != nil || string(after) != string(before) {
		t.Errorf("the mapping file changed: %v", err)
	}
}

// What RocketMQ 5.5.0 left in its tables is what clients and operators are told: topics, groups with
// what is forbidden to them, positions, and how far the delay levels are.
func TestTablesOfRocketMQ(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"delay", "timer", "transaction", "retry", "pop", "config"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := enginetest.Start(t, vector(t, name))
			dir := enginetest.Unpack(t, "../storage/testdata/vectors/"+name+".tar.gz")
			dir = filepath.Join(dir, "store", "config")
			p := dialRaw(t, cluster.Broker())
			sameTable(t, p, remoting.GetAllTopicConfig, filepath.Join(dir, "topics.json"), "topicConfigTable")
			for _, table := range []string{"subscriptionGroupTable", "forbiddenTable"} {
				sameTable(t, p, remoting.GetAllSubscriptionGroupConfig,
					filepath.Join(dir, "subscriptionGroup.json"), table)
			}
			sameTable(t, p, remoting.GetAllConsumerOffset, filepath.Join(dir, "consumerOffset.json"), "offsetTable")
			sameTable(t, p, remoting.GetAllMessageRequestMode,
				filepath.Join(dir, "messageRequestMode.json"), "messageRequestModeMap")
		})
	}
}

// sameTable compares one member of an answer's body with that of a file: each entry of the file must be
// there as it is. A broker adds its own topics and groups.
func sameTable(t *testing.T, p *rawPeer, code remoting.RequestCode, file, member string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) && strings.HasSuffix(file, "messageRequestMode.json") {
		return // nothing was ever set
	}
	if err != nil {
		t.Fatal(err)
	}
	a := p.ask(code, nil, "")
	var want, got map[string]any
	for text, into := range map[string]*map[string]any{string(text): &want, string(a.Body): &got} {
		if err := protocol.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v: %v in %.200s", code, err, text)
		}
	}
	wanted, _ := want[member].(map[string]any)
	have, _ := got[member].(map[string]any)
	if len(wanted) == 0 && member != "forbiddenTable" && member != "offsetTable" {
		t.Fatalf("no %s in %s", member, file)
	}
	for key, value := range wanted {
		if strings.Contains(key, "@CID_RMQ_SYS_") {
			continue // the position of a service that has gone on since the start
		}
		if diff := cmp.Diff(value, have[key]); diff != "" {
			t.Errorf("%s of %s differs (-theirs +ours):\n%s", member, key, diff)
		}
	}
}
