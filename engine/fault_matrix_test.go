// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// fieldNames are the header fields of every request that a broker or a name server knows.
func fieldNames() []string {
	long := strings.Fields(`producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag
		bornTimestamp flag properties reconsumeTimes unitMode maxReconsumeTimes batch
		consumerGroup queueOffset maxMsgNums commitOffset suspendTimeoutMillis subscription subVersion
		expressionType maxMsgBytes requestSource key maxNum beginTimestamp endTimestamp offset indexType
		lastKey timestamp boundaryType committed setZeroIfNotFound readQueueNums writeQueueNums perm
		topicFilterType topicSysFlag order attributes clientID clientId group groupName cleanOffset isForce
		statsName statsKey index count srcGroup destGroup offline filterGroups compareGroup msgId clientAddr
		readable isOrder topicSeq maxTopicNum groupSeq maxGroupNum dataVersion topicList jstackEnable
		READ_AHEAD_MODE brokerName brokerAddr clusterName haServerAddr brokerId compressed bodyCrc32
		heartbeatTimeoutMillis enableActingMaster zoneName namespace value cluster acceptStandardJsonOnly
		extraInfo invisibleTime pollTime bornTime initMode attemptId popShareQueueNum originMsgId
		originTopic delayLevel commitLogOffset tranStateTableOffset transactionId commitOrRollback
		fromTransactionCheck recallHandle minOffset reviveQid ackType username`)
	short := strings.Split("a b c d e f g h i j k l m n", " ")
	return append(long, short...)
}

// shapes are the fields and bodies that every code is sent.
func shapes() []func() (map[string]string, string) {
	all := func(value string) map[string]string {
		fields := map[string]string{}
		for _, name := range fieldNames() {
			fields[name] = value
		}
		return fields
	}
	var out []func() (map[string]string, string)
	add := func(fields map[string]string, body string) {
		out = append(out, func() (map[string]string, string) { return maps.Clone(fields), body })
	}
	for _, body := range []string{
		"", "{}", "[]", "null", "7", "rubbish", "{", "\x00", "x\x9c\x00",
		`{"clientID":null,"consumerDataSet":{},"producerDataSet":[null,{"groupName":7}]}`,
		`{"consumerGroup":null,"clientId":"","mqSet":[null,{"queueId":"x"}]}`,
		`{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":null}}}`,
		strings.Repeat("[", 5000),
	} {
		add(nil, body)
		add(map[string]string{}, body)
	}
	for _, value := range []string{
		"", " ", "abc", "-1", "0", "1", "2147483647", "-2147483648", "9223372036854775807",
		"9223372036854775808", "1.5", "true", "null", "{}", "[]", "../../etc", "%RETRY%", "%DLQ%", "\x01\x02",
		"\xff\xfe", strings.Repeat("x", 300),
	} {
		add(all(value), "")
		add(all(value), "{}")
	}
	return out
}

// codes are all that RocketMQ names, and some that it does not.
func codes() []remoting.RequestCode {
	out := []remoting.RequestCode{-1, 0, 1, 16, 99, 9999, 32767}
	for code := range remoting.RequestCode(10000) {
		if code.Known() {
			out = append(out, code)
		}
	}
	return out
}

// TestFaultMatrix sends every known request code nothing, an empty map and values of no use, in both
// header forms, to broker and name server. Each is answered, soon and on a connection that stays
// open; no processor panics, and nothing comes into being under a name that is not one.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	var log journal
	cluster := enginetest.Start(t, logTo(&log))
	before := topicNames(t, cluster)
	shapes := shapes()
	for server, addr := range map[string]string{"broker": cluster.Broker(), "name server": cluster.NameServer()} {
		for _, form := range []remoting.SerializeType{remoting.JSON, remoting.Binary} {
			p := dialRaw(t, addr)
			sent := 0
			for _, code := range codes() {
				due := make(map[remoting.Opaque]int, len(shapes))
				var frames []byte
				for i, shape := range shapes {
					fields, body := shape()
					sent++
					if server != "broker" || !undecided(code, fields) {
						due[remoting.Opaque(sent)] = i
					}
					frames = append(frames, rawFrame(form, code, sent, fields, body)...)
				}
				begun := time.Now()
				p.write(frames)
				for len(due) > 0 {
					cmd, err := p.answer(callWithin)
					if err != nil {
						t.Fatalf("%s, code %d %v, form %d: %v; without an answer: shapes %v", server, code, code,
							form, err, due)
					}
					if !cmd.IsResponse() { // what the broker asks its clients
						continue
					}
					if _, ok := due[cmd.Opaque]; !ok || cmd.Code < 0 {
						t.Errorf("%s, code %d %v, form %d: answer %d for opaque %d", server, code, code, form,
							cmd.Code, cmd.Opaque)
					}
					delete(due, cmd.Opaque)
				}
				if took := time.Since(begun); took > time.Second*time.Duration(len(shapes)) {
					t.Errorf("%s, code %d %v: %d answers took %v", server, code, code, len(shapes), took)
				}
			}
		}
	}
	if lines := log.lines("processor failed"); len(lines) > 0 {
		t.Errorf("%d panics, the first: %s", len(lines), lines[0])
	}
	for name := range topicNames(t, cluster) {
		plain := strings.TrimPrefix(name, "%RETRY%")
		if !before[name] && strings.Trim(plain, "abcdenrtulx0123456789-_") != "" {
			t.Errorf("topic %q came into being", name)
		}
	}
	newPeer(t, cluster.Broker()).send("after", 0, "served")
}

// undecided tells the one request that is never answered, as in RocketMQ: the end of a transaction that
// says neither commit nor rollback.
func undecided(code remoting.RequestCode, fields map[string]string) bool {
	_, err := strconv.ParseInt(fields["commitOrRollback"], 10, 32)
	return code == remoting.EndTransaction && err == nil
}

func topicNames(t *testing.T, cluster *enginetest.Cluster) map[string]bool {
	t.Helper()
	return topicsOf(newPeer(t, cluster.Broker()))
}

// topicsOf lists the topics of a broker.
func topicsOf(p *peer) map[string]bool {
	p.t.Helper()
	r := p.call(remoting.GetAllTopicConfig, nil, nil)
	var wrapper protocol.TopicConfigWrapper
	if err := protocol.Unmarshal(r.Body, &wrapper); err != nil {
		p.t.Fatalf("topics: %v", err)
	}
	names := map[string]bool{}
	for name := range wrapper.TopicConfigTable {
		names[name] = true
	}
	return names
}
