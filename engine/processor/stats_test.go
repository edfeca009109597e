// SPDX-License-Identifier: Apache-2.0

package processor_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestTopicAndConsumeStats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const now = "1795977938329"
	b.fails(remoting.GetTopicStatsInfo, fields("topic", "None"), "", remoting.TopicNotExist,
		"topic[None] not exist")
	if _, err := b.Topics.CreateRetry("T", 1, 6, false, false); err != nil {
		t.Fatal(err)
	}
	b.put("T", 0, 3)
	r := b.ok(remoting.GetTopicStatsInfo, fields("topic", "T"), "")
	want := `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:` +
		`{"lastUpdateTimestamp":` + now + `,"maxOffset":3,"minOffset":0}},"topicPutTps":0.0}`
	if string(r.Body) != want {
		t.Fatalf("%s\nwant %s", r.Body, want)
	}

	stats := func(group string, more ...string) string {
		return string(b.ok(remoting.GetConsumeStats,
			fields(append(more, "consumerGroup", group)...), "").Body)
	}
	empty := `{"consumeTps":0.0,"offsetTable":{}}`
	if got := stats("nobody"); got != empty {
		t.Fatal(got)
	}
	b.Offsets.Commit([]byte("g"), []byte("T"), 0, 2)
	b.Offsets.Commit([]byte("g"), []byte("Gone"), 0, 2)
	b.Offsets.SetPulled([]byte("g"), []byte("T"), 0, 3)
	want = `{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:` +
		`{"brokerOffset":3,"consumerOffset":2,"lastTimestamp":` + now + `,"pullOffset":3}}}`
	for _, more := range [][]string{nil, {"topic", "T"}, {"topicList", "T;Gone"}} {
		if got := stats("g", more...); got != want {
			t.Fatalf("%v: %s\nwant %s", more, got, want)
		}
	}
	// A commit beyond the end is no negative lag.
	b.Offsets.Commit([]byte("g"), []byte("T"), 0, 999)
	if got := stats("g"); !strings.Contains(got, `"consumerOffset":3`) {
		t.Fatal(got)
	}
	r = b.ok(remoting.GetBrokerConsumeStats, fields("isOrder", "false"), "")
	list := decode[protocol.ConsumeStatsList](t, r)
	if list.TotalDiff != 0 || list.BrokerAddr == "" || len(list.ConsumeStatsList) != 8 {
		t.Fatalf("%s", r.Body)
	}
}

func TestBrokerConsumeStats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 3)
	if _, _, err := b.Groups.LookupOrCreate("g"); err != nil {
		t.Fatal(err)
	}
	b.Offsets.Commit([]byte("g"), []byte("T"), 0, 1)
	list := decode[protocol.ConsumeStatsList](t,
		b.ok(remoting.GetBrokerConsumeStats, fields("isOrder", "false"), ""))
	if list.TotalDiff != 2 {
		t.Fatalf("%+v", list)
	}
	list = decode[protocol.ConsumeStatsList](t,
		b.ok(remoting.GetBrokerConsumeStats, fields("isOrder", "true"), ""))
	if list.TotalDiff != 0 {
		t.Fatalf("only ordered topics: %+v", list)
	}
}

func TestTimeSpan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 3)
	b.Offsets.Commit([]byte("g"), []byte("T"), 0, 1)
	b.mu.Lock()
	b.nowMS += 250
	b.mu.Unlock()
	body := decode[protocol.ConsumeTimeSpanBody](t,
		b.ok(remoting.QueryConsumeTimeSpan, fields("topic", "T", "group", "g"), ""))
	if len(body.ConsumeTimeSpanSet) != 4 {
		t.Fatalf("%+v", body)
	}
	first, empty := body.ConsumeTimeSpanSet[0], body.ConsumeTimeSpanSet[1]
	if first.DelayTime != 250 || first.MinTimeStamp != 1795977938329 ||
		first.ConsumeTimeStamp != first.MaxTimeStamp || first.MaxTimeStampStr == "" {
		t.Fatalf("%+v", first)
	}
	if empty.MinTimeStamp != -1 || empty.MaxTimeStamp != -1 || empty.ConsumeTimeStamp != -1 ||
		empty.DelayTime != 0 {
		t.Fatalf("%+v", empty)
	}
	b.fails(remoting.QueryConsumeTimeSpan, fields("topic", "None", "group", "g"), "",
		remoting.TopicNotExist, "topic[None] not exist")
}

func TestConsumeQueueEntries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 3)
	ask := fields("topic", "T", "queueId", "0", "index", "1", "count", "9")
	body := decode[protocol.QueryConsumeQueueBody](t, b.ok(remoting.QueryConsumeQueue, ask, ""))
	if len(body.QueueData) != 2 || body.MaxQueueIndex != 3 || body.QueueData[0].TagsCode != 2598919 ||
		body.QueueData[0].Eval {
		t.Fatalf("%+v", body)
	}
	online(b, "c1", 513)
	ask["consumerGroup"] = "g"
	body = decode[protocol.QueryConsumeQueueBody](t, b.ok(remoting.QueryConsumeQueue, ask, ""))
	if !body.QueueData[0].Eval || body.SubscriptionData == nil {
		t.Fatalf("%+v", body)
	}
	// What lies outside a queue is a success that says so; a topic that is not there is none.
	ask["queueId"] = "77"
	if r := b.ok(remoting.QueryConsumeQueue, ask, ""); r.Remark != "Index 1 of 77@T is not exist!" {
		t.Errorf("remark %q", r.Remark)
	}
	ask["topic"] = "None"
	b.fails(remoting.QueryConsumeQueue, ask, "", remoting.SystemError, "77@None")
}

// TestFromLastStrict: a new group on a young topic gets the first message, unless the strict switch
// is on.
func TestFromLastStrict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.createTopic("T")
	b.put("T", 0, 3)
	ask := fields("consumerGroup", "new", "topic", "T", "queueId", "0")
	b.ok(remoting.QueryConsumerOffset, ask, "")
	b.FromLastStrict = true
	b.fails(remoting.QueryConsumerOffset, ask, "", remoting.QueryNotFound, "boot first")
}

func TestRuntimeInfo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("T", 0, 2)
	b.Stats.Broker().Put(b.nowMS, 1, 2, 200, 1, false)
	b.RuntimeInfo = func(table map[string]string) { table["commitLogDirCapacity"] = "own" }
	table := decode[protocol.KVTable](t, b.ok(remoting.GetBrokerRuntimeInfo, nil, "")).Table
	for _, key := range strings.Fields(`EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
		ackThreadPoolQueueCapacity ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize
		bootTimestamp brokerActive brokerVersionDesc commitLogDirCapacity commitLogDiskRatio
		commitLogMaxOffset commitLogMinOffset consumeQueueDiskRatio dispatchBehindBytes
		dispatchMaxBuffer earliestMessageTimeStamp getFoundTps getMessageEntireTimeMax getMissTps
		getTotalTps getTransferredTps litePullThreadPoolQueueCapacity
		litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize msgGetTotalTodayMorning
		msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
		msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
		pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
		putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
		putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
		queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
		remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
		sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
		timerCongestNum timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind`) {
		if table[key] == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if table["msgPutTotalTodayNow"] != "2" || table["putMessageAverageSize"] != "100.0" ||
		table["runtime"] != "[ 0 days, 0 hours, 0 minutes, 0 seconds ]" ||
		table["commitLogDirCapacity"] != "own" {
		t.Fatal(table)
	}
}

func TestBrokerAdmin(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.ok(remoting.GetBrokerConfig, nil, "")
	if string(r.Body) != "a=1\nb=2\n" ||
		fieldsOf(t, r)["version"] != `{"counter":4,"stateVersion":0,"timestamp":0}` {
		t.Fatalf("%s %v", r.Body, fieldsOf(t, r))
	}
	b.ok(remoting.UpdateBrokerConfig, nil, "")
	b.ok(remoting.UpdateBrokerConfig, nil, "traceTopicEnable=false\n")
	b.fails(remoting.UpdateBrokerConfig, nil, "brokerConfigPath=x", remoting.NoPermission,
		"Can not update config in black list.")
	b.ok(remoting.CleanExpiredConsumeQueue, nil, "")
	b.ok(remoting.DeleteExpiredCommitLog, nil, "")
	b.fails(remoting.GetBrokerEpochCache, nil, "", remoting.SystemError,
		"this request only for controllerMode ")
	r = b.ok(remoting.GetBrokerHAStatus, nil, "")
	if ha := decode[protocol.HARuntimeInfo](t, r); !ha.Master || ha.InSyncSlaveNums != 0 {
		t.Fatalf("%s", r.Body)
	}
	b.ok(remoting.SetCommitLogReadMode, fields("READ_AHEAD_MODE", "0"), "")
	b.fails(remoting.SetCommitLogReadMode, fields("READ_AHEAD_MODE", "7"), "",
		remoting.InvalidParameter, "value")
	b.ok(remoting.GetColdDataFlowCtrInfo, nil, "")
	r = b.ok(remoting.GetAllDelayOffset, nil, "")
	if !strings.Contains(string(r.Body), `"offsetTable":{}`) {
		t.Fatalf("%s", r.Body)
	}
	b.Offsets.Commit([]byte("g"), []byte("T"), 0, 7)
	r = b.ok(remoting.GetAllConsumerOffset, nil, "")
	if !strings.Contains(string(r.Body), `"T@g":{0:7}`) ||
		!strings.Contains(string(r.Body), `"groupTopicMap":{"g":["T"]}`) {
		t.Fatalf("%s", r.Body)
	}
}
