// SPDX-License-Identifier: Apache-2.0

package processor_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/net/remoting"
)

// required names, for each cold code, a field or the body without which it cannot be answered well.
// Codes that are not listed need nothing.
func required() map[remoting.RequestCode]string {
	return map[remoting.RequestCode]string{
		remoting.QueryConsumerOffset:                  "consumerGroup",
		remoting.UpdateConsumerOffset:                 "consumerGroup",
		remoting.UpdateAndCreateTopic:                 "topic",
		remoting.UpdateAndCreateTopicList:             "body",
		remoting.SearchOffsetByTimestamp:              "topic",
		remoting.GetMaxOffset:                         "topic",
		remoting.GetMinOffset:                         "topic",
		remoting.GetEarliestMsgStoreTime:              "topic",
		remoting.HeartBeat:                            "body",
		remoting.UnregisterClient:                     "clientID",
		remoting.GetConsumerListByGroup:               "consumerGroup",
		remoting.EndTransaction:                       "producerGroup",
		remoting.ResumeCheckHalfMessage:               "msgId",
		remoting.LockBatchMQ:                          "body",
		remoting.UnlockBatchMQ:                        "body",
		remoting.CheckClientConfig:                    "body",
		remoting.UpdateAndCreateSubscriptionGroup:     "body",
		remoting.UpdateAndCreateSubscriptionGroupList: "body",
		remoting.GetTopicStatsInfo:                    "topic",
		remoting.GetConsumerConnectionList:            "consumerGroup",
		remoting.GetProducerConnectionList:            "producerGroup",
		remoting.DeleteSubscriptionGroup:              "groupName",
		remoting.GetConsumeStats:                      "consumerGroup",
		remoting.DeleteTopicInBroker:                  "topic",
		remoting.InvokeBrokerToResetOffset:            "topic",
		remoting.InvokeBrokerToGetConsumerStatus:      "topic",
		remoting.QueryTopicConsumeByWho:               "topic",
		remoting.QueryConsumeTimeSpan:                 "group",
		remoting.GetConsumerRunningInfo:               "consumerGroup",
		remoting.QueryCorrectionOffset:                "topic",
		remoting.ConsumeMessageDirectly:               "consumerGroup",
		remoting.CloneGroupOffset:                     "srcGroup",
		remoting.ViewBrokerStatsData:                  "statsName",
		remoting.QueryConsumeQueue:                    "topic",
		remoting.QueryTopicsByConsumer:                "group",
		remoting.QuerySubscriptionByConsumer:          "group",
		remoting.GetTopicConfig:                       "topic",
		remoting.GetSubscriptionGroupConfig:           "group",
		remoting.UpdateAndGetGroupForbidden:           "group",
		remoting.QueryAssignment:                      "body",
		remoting.SetMessageRequestMode:                "body",
		remoting.SetCommitLogReadMode:                 "param",
	}
}

// wrong are fields of every name that any cold code knows, with values of no use.
func wrong(value string) map[string]string {
	fields := map[string]string{}
	for _, name := range [...]string{
		"consumerGroup", "producerGroup", "topic", "queueId", "commitOffset", "timestamp",
		"readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order",
		"attributes", "clientID", "clientId", "group", "groupName", "cleanOffset", "isForce", "offset",
		"statsName", "statsKey", "index", "count", "srcGroup", "destGroup", "offline", "filterGroups",
		"compareGroup", "msgId", "clientAddr", "readable", "isOrder", "topicSeq", "maxTopicNum",
		"groupSeq", "maxGroupNum", "dataVersion", "boundaryType", "committed", "setZeroIfNotFound",
		"topicList", "jstackEnable", "READ_AHEAD_MODE",
	} {
		fields[name] = value
	}
	return fields
}

// TestMalformed sends each cold code nothing, an empty map, empty values and values of the wrong
// type, as fields and as body. Each is answered soon and without a panic, what is missing is named,
// and nothing comes into being under a blank name.
func TestMalformed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.answer = silent
	before := b.Topics.Names()
	needs := required()
	bodies := []string{
		"", "{}", "[]", "null", "0", `"text"`, "rubbish", "{", "\x00\x00", strings.Repeat("[", 100),
		`{"clientID":1,"consumerDataSet":{},"producerDataSet":7}`,
		`{"consumerDataSet":[{"groupName":{}}],"clientID":null}`,
		`{"clientId":[],"consumerGroup":{},"mqSet":3}`, `{"mqSet":[null,{}],"clientId":""}`,
		`{"topicConfigList":[null]}`, `{"topicConfigList":[{}]}`, `{"topicConfigList":3}`,
		`{"groupConfigList":[null]}`, `{"groupConfigList":[{}]}`, `{"groupName":""}`,
		`{"groupName":7,"retryQueueNums":"many"}`, `{"subscriptionData":null}`,
		`{"subscriptionData":{"expressionType":"SQL92"}}`, `{"topic":"T","mode":"NONE"}`,
	}
	headers := []map[string]string{
		nil,
		{},
		wrong(""), wrong(" "), wrong("abc"), wrong("-1"), wrong("9223372036854775808"),
		wrong("2147483648"), wrong("../../x"), wrong("%RETRY%"), wrong("true"), wrong("{}"),
		wrong(strings.Repeat("x", 40000)),
	}
	for _, code := range slices.Sorted(maps.Keys(b.cold)) {
		for h, fields := range headers {
			b.tryMalformed(code, fields, "", fmt.Sprintf("header %d", h))
			b.tryMalformed(code, fields, "{}", fmt.Sprintf("header %d, empty object", h))
		}
		for n, body := range bodies {
			b.tryMalformed(code, nil, body, fmt.Sprintf("body %d", n))
		}
		need := needs[code]
		for _, fields := range headers[:2] {
			r := b.call(code, fields, "")
			if (need == "") != (r.Code == remoting.Success) && !refusedAnyway(code) {
				t.Errorf("%v without anything: answer %d %q, needed %q", code, r.Code, r.Remark, need)
			}
			if !strings.Contains(r.Remark, need) {
				t.Errorf("%v without anything: remark %q does not name %q", code, r.Remark, need)
			}
		}
	}
	for _, name := range b.Topics.Names() {
		if !slices.Contains(before, name) && name != "T" && name != "abc" && name != "true" {
			t.Errorf("topic %q came into being", name)
		}
	}
}

// refusedAnyway are codes for things that this broker does not have.
func refusedAnyway(code remoting.RequestCode) bool {
	return slices.Contains([]remoting.RequestCode{
		remoting.UpdateAndCreateStaticTopic,
		remoting.CheckRocksDBCQWriteProgress, remoting.ExportRocksDBConfigToJSON,
		remoting.ExchangeBrokerHAInfo, remoting.ResetMasterFlushOffset,
		remoting.GetBrokerEpochCache, remoting.UpdateColdDataFlowCtrConfig,
	}, code)
}

func silent(remoting.RequestCode, remoting.Header, []byte) (*remoting.Command, error) {
	return nil, fmt.Errorf("nobody answers")
}

func (b *bench) tryMalformed(
	code remoting.RequestCode, fields map[string]string, body, what string,
) {
	b.t.Helper()
	defer func() {
		if v := recover(); v != nil {
			b.t.Errorf("%v, %s: panic: %v", code, what, v)
		}
	}()
	start := time.Now()
	r := b.call(code, fields, body)
	if took := time.Since(start); took > 5*time.Second {
		b.t.Errorf("%v, %s: %v", code, what, took)
	}
	if r.Code < 0 {
		b.t.Errorf("%v, %s: answer %d", code, what, r.Code)
	}
}

// TestEveryCode holds the set of codes to what a broker without pop, timers and
// replication answers; the dispatcher refuses the rest with code 3.
func TestEveryCode(t *testing.T) {
	t.Parallel()
	got := processor.Cold{}
	processor.RegisterCold(got, &processor.Leaves{})
	for _, code := range []remoting.RequestCode{
		14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 34, 35, 37, 38, 41, 42, 43, 45, 46, 200, 201, 202,
		203, 204, 207, 208, 215, 222, 223, 225, 300, 303, 305, 306, 307, 308, 309, 314, 315, 316, 317,
		321, 323, 328, 329, 343, 345, 351, 352, 353, 400, 401, 402, 513, 907, 1007, 2001, 2002, 2003,
		2004,
	} {
		if got[code] == nil {
			t.Errorf("%d %v has no processor", code, code)
		}
	}
}
