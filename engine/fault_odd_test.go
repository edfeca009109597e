// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestFaultOddProperties sends messages whose properties a producer has no business to set, or with
// values that make no sense, to plain topics and to those that take what they are sent. None of them
// may reach a topic to which it was not sent, or hold up what others have delivered later.
func TestFaultOddProperties(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, shortLevels, quickChecks)
	p := newPeer(t, cluster.Broker())
	huge, tiny := strconv.Itoa(math.MaxInt64), strconv.Itoa(math.MinInt64)
	values := []string{
		"0", "-1", "1", "x", huge, tiny, "99999999999999999999", "true", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
		"SCHEDULE_TOPIC_XXXX", "../../x", "0 0 0 0 0 broker-a 0 0",
	}
	names := []string{
		"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES",
		"TIMER_DEL_UNIQKEY", "REAL_TOPIC", "REAL_QID", "PGROUP", "POP_CK", "1ST_POP_TIME", "TRAN_MOVED",
		"TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET",
		"__STARTDELIVERTIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "INNER_MULTI_DISPATCH", "__CRC32#",
		"UNIQ_KEY", "TAGS", "__transactionId__",
	}
	revive := "rmq_sys_REVIVE_LOG_DefaultCluster"
	bodies := []string{
		"x", `{"t":"odd","c":"g","n":1,"so":0,"q":0,"pt":1,"it":1}`,
		`{"t":"odd","c":"g","n":32,"so":` + huge + `,"q":-5,"pt":` + huge + `,"it":` + huge + `}`,
		`{"ao":-1,"aol":[0,` + tiny + `],"t":"odd","c":"g"}`,
	}
	base := [][]string{
		nil,
		{"TRAN_MSG", "true"},
		{"DELAY", "1"},
		{"TIMER_DELAY_MS", "500"},
		{"TIMER_OUT_MS", "1", "REAL_TOPIC", "SCHEDULE_TOPIC_XXXX", "REAL_QID", "0"},
		{"TAGS", "ck"},
		{"TAGS", "ack"},
		{"TAGS", "bAck"},
	}
	sent := 0
	for _, topic := range []string{"odd", "%RETRY%odd", protocol.TimerTopic, revive} {
		for _, with := range base {
			for i, name := range names {
				for j, value := range values {
					props := append([]string{name, value}, with...)
					body := []byte(bodies[(i+j)%len(bodies)])
					p.call(remoting.SendMessageV2, sendRequest(topic, 0, props...), body)
					sent++
				}
			}
		}
	}
	for _, name := range []string{
		protocol.ScheduleTopic, protocol.HalfTopic, protocol.OpHalfTopic, protocol.TransCheckMaxTimeTopic,
	} {
		r := p.call(remoting.SendMessageV2, sendRequest(name, 0), []byte("x"))
		if r.Code != remoting.NoPermission {
			t.Errorf("send to %s: %v %q", name, r.Code, r.Remark)
		}
	}
	begun := time.Now()
	p.send("good", 0, "level", "DELAY", "1")
	p.send("good", 0, "timer", "TIMER_DELAY_MS", "1000")
	r := p.half("good", 0, "half", "G")
	if code := p.end(r, protocol.TransactionCommit); code != remoting.Success {
		t.Errorf("commit: %v", code)
	}
	p.await("good", 0, 3)
	if late := time.Since(begun); late > 4*time.Second {
		t.Errorf("what others have delivered later came after %v", late)
	}
	for i := range 3 {
		p.send("popped", 0, fmt.Sprint("m", i))
	}
	if d := p.pop(popRequest("popped", "g", time.Second, 0)); d.bodies() != "m0 m1 m2" {
		t.Errorf("popped %q", d.bodies())
	}
	again := p.pop(popRequest("popped", "g", time.Minute, 5*time.Second))
	if again.bodies() == "" {
		t.Error("what was popped does not come again")
	}
	half := p.send("asked", 0, "asked", "TRAN_MSG", "true", "PGROUP", "G2")
	if half.QueueOffset == 0 {
		t.Error("no half messages before")
	}
	t.Logf("%d odd messages", sent)
}

// TestHalfWithoutRoom refuses a half message that could not be stored again with a check.
func TestHalfWithoutRoom(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.half("T", 0, "one", "G")
	size := len(p.await(protocol.HalfTopic, 0, 1)[0].Properties())
	for room, want := range map[int]remoting.ResponseCode{
		100: remoting.Success, 40: remoting.MessageIllegal,
	} {
		keys := strings.Repeat("k", record.MaxProperties-size-room-len("KEYS")-2)
		r := p.call(remoting.SendMessageV2,
			sendRequest("T", 0, "TRAN_MSG", "true", "PGROUP", "G", "KEYS", keys), []byte("x"))
		if r.Code != want {
			t.Errorf("%d bytes left: %v %q", room, r.Code, r.Remark)
		}
	}
}
