// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// shortLevels makes the first delay levels short.
func shortLevels(c *engine.Config) { c.DelayLevels = "1s 1s 1s 1s 3s" }

// await pulls a queue until it holds n messages from the offset on, and returns them.
func (p *peer) await(topic string, from int64, n int) []record.View {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	var all []record.View
	for len(all) < n {
		d := p.pull(pullRequest(topic, 0, from+int64(len(all)), "*", time.Second))
		all = append(all, d.views...)
		if time.Now().After(deadline) {
			p.t.Fatalf("%s has %d messages after %d, want %d (%v %s)", topic, len(all), from, n,
				d.code, d.remark)
		}
	}
	return all
}

func property(v record.View, name string) string {
	value, _ := record.Property(v.Properties(), name)
	return string(value)
}

// TestE2EDelayLevel sends with a delay level and gets the message when it is due: not before, and
// less than 100 ms later.
func TestE2EDelayLevel(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, shortLevels)
	p := newPeer(t, cluster.Broker())
	p.send("later", 0, "first")
	sent := p.send("later", 0, "second", "DELAY", "1", "KEYS", "k")
	if sent.QueueID != 0 || sent.QueueOffset != 0 || len(sent.TransactionID) != 32 {
		t.Errorf("answer %+v: want the queue that was asked for and the offset of the waiting one", sent)
	}
	waiting := p.await(protocol.ScheduleTopic, 0, 1)[0]
	got := p.await("later", 1, 1)[0]
	late := got.StoreMS() - waiting.StoreMS() - 1000
	if string(got.Body()) != "second" || late < 0 || late > 100 {
		t.Errorf("%q came %d ms after it was due", got.Body(), late)
	}
	if property(got, "DELAY") != "1" || property(got, "REAL_TOPIC") != "later" ||
		property(got, "KEYS") != "k" || property(got, "UNIQ_KEY") != string(sent.TransactionID) {
		t.Errorf("properties %q", got.Properties())
	}
	r := p.call(remoting.SendMessageV2, sendRequest("later", 0, "DELAY", "99"), []byte("far"))
	if r.Code != remoting.Success {
		t.Errorf("level over the table: %v %q", r.Code, r.Remark)
	}
}

// sendBack gives a message back as a consumer does.
func (p *peer) sendBack(at record.PhysicalOffset, level, limit int32) *protocol.ConsumerSendBackRequest {
	return &protocol.ConsumerSendBackRequest{
		Offset: int64(at), Group: "consumers", DelayLevel: level, MaxReconsumeTimes: limit,
		OriginTopic: "orders",
	}
}

// TestE2ERetryToDeadLetters sends a message back until it is a dead letter.
func TestE2ERetryToDeadLetters(t *testing.T) {
	t.Parallel()
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			cluster := enginetest.Start(t, shortLevels,
				func(c *engine.Config) { c.FlushDiskType = flush })
			p := newPeer(t, cluster.Broker())
			sent := p.send("orders", 0, "poison", "TAGS", "red", "KEYS", "k")
			v := p.await("orders", 0, 1)[0]
			for try := range 2 {
				r := p.call(remoting.ConsumerSendMsgBack, p.sendBack(v.PhysicalOffset(), 0, 2), nil)
				if r.Code != remoting.Success {
					t.Fatalf("try %d: %v %q", try, r.Code, r.Remark)
				}
				v = p.await("%RETRY%consumers", int64(try), 1)[0]
				checkSentBack(t, v, sent, int32(try)+1, strconv.Itoa(3+try))
			}
			r := p.call(remoting.ConsumerSendMsgBack, p.sendBack(v.PhysicalOffset(), 0, 2), nil)
			if r.Code != remoting.Success {
				t.Fatalf("last: %v %q", r.Code, r.Remark)
			}
			last := v.StoreMS()
			v = p.await("%DLQ%consumers", 0, 1)[0]
			checkSentBack(t, v, sent, 3, "0")
			if wait := v.StoreMS() - last; wait > 900 {
				t.Errorf("the dead letter waited %d ms", wait)
			}
		})
	}
}

func checkSentBack(
	t *testing.T, v record.View, sent protocol.SendResponse, times int32, level string,
) {
	t.Helper()
	want := map[string]string{
		"TAGS": "red", "KEYS": "k", "RETRY_TOPIC": "orders", "WAIT": "false", "DELAY": level,
		"ORIGIN_MESSAGE_ID": string(sent.MsgID), "UNIQ_KEY": string(sent.TransactionID),
	}
	for name, value := range want {
		if got := property(v, name); got != value {
			t.Errorf("try %d: %s is %q, want %q", times, name, got, value)
		}
	}
	if v.ReconsumeTimes() != times || string(v.Body()) != "poison" {
		t.Errorf("try %d: %q with reconsume times %d", times, v.Body(), v.ReconsumeTimes())
	}
}

// TestE2ESendBackRefusals holds codes and remarks, and that nothing is made for a group without a
// name.
func TestE2ESendBackRefusals(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, shortLevels)
	p := newPeer(t, cluster.Broker())
	p.send("orders", 0, "x")
	v := p.await("orders", 0, 1)[0]
	back := func(change func(*protocol.ConsumerSendBackRequest)) (remoting.ResponseCode, string) {
		r := p.sendBack(v.PhysicalOffset(), 0, -1)
		change(r)
		res := p.call(remoting.ConsumerSendMsgBack, r, nil)
		return res.Code, res.Remark
	}
	code, remark := back(func(r *protocol.ConsumerSendBackRequest) { r.Offset = 99999999999 })
	if code != remoting.SystemError || remark != "look message by offset failed, 99999999999" {
		t.Errorf("no such offset: %v %q", code, remark)
	}
	for _, name := range []string{"", "  ", "a/b"} {
		code, remark = back(func(r *protocol.ConsumerSendBackRequest) { r.Group = name })
		if code != remoting.SubscriptionGroupNotExist || !strings.Contains(remark, "not exist") {
			t.Errorf("group %q: %v %q", name, code, remark)
		}
	}
	none := protocol.DefaultSubscriptionGroup("nothing")
	none.RetryQueueNums = 0
	p.call(remoting.UpdateAndCreateSubscriptionGroup, nil, protocol.Marshal(none))
	code, _ = back(func(r *protocol.ConsumerSendBackRequest) { r.Group = "nothing" })
	if code != remoting.Success {
		t.Errorf("a group that wants no retries: %v", code)
	}
	r := p.call(remoting.GetAllTopicConfig, nil, nil)
	for _, topic := range []string{`"%RETRY%"`, `"%RETRY%nothing"`, "a/b"} {
		if strings.Contains(string(r.Body), topic) {
			t.Errorf("topic %s was made", topic)
		}
	}
}

// TestE2ERetryPolicy follows a policy that the group has of its own: by a timer, or without timers
// by the level that is long enough.
func TestE2ERetryPolicy(t *testing.T) {
	t.Parallel()
	for _, wheel := range []bool{true, false} {
		t.Run(fmt.Sprintf("timerWheelEnable=%v", wheel), func(t *testing.T) {
			t.Parallel()
			followPolicy(t, wheel)
		})
	}
}

func followPolicy(t *testing.T, wheel bool) {
	t.Helper()
	cluster := enginetest.Start(t, func(c *engine.Config) {
		c.DelayLevels, c.TimerWheel = "1h 1h 1h 3s 1h", wheel
	})
	p := newPeer(t, cluster.Broker())
	cfg := protocol.DefaultSubscriptionGroup("consumers")
	cfg.GroupRetryPolicy = &protocol.GroupRetryPolicy{
		Type: protocol.RetryPolicyExponential,
		ExponentialRetryPolicy: &protocol.ExponentialRetryPolicy{
			Initial: 1000, Max: 60000, Multiplier: 2,
		},
	}
	p.call(remoting.UpdateAndCreateSubscriptionGroup, nil, protocol.Marshal(cfg))
	p.send("orders", 0, "x")
	v := p.await("orders", 0, 1)[0]
	r := p.call(remoting.ConsumerSendMsgBack, p.sendBack(v.PhysicalOffset(), 0, -1), nil)
	if r.Code != remoting.Success {
		t.Fatalf("send back: %v %q", r.Code, r.Remark)
	}
	back := p.await("%RETRY%consumers", 0, 1)[0]
	level, ms := "4", ""
	if wheel {
		level, ms = "", "1000"
	}
	if property(back, "DELAY") != level || property(back, "TIMER_DELAY_MS") != ms {
		t.Errorf("properties %q, want level %q or %q ms", back.Properties(), level, ms)
	}
	if !wheel {
		return
	}
	r = p.call(remoting.ConsumerSendMsgBack, p.sendBack(back.PhysicalOffset(), 0, -1), nil)
	if r.Code != remoting.Success {
		t.Fatalf("send back again: %v %q", r.Code, r.Remark)
	}
	again := p.await("%RETRY%consumers", 1, 1)[0]
	if wait := again.StoreMS() - back.StoreMS(); property(again, "TIMER_DELAY_MS") != "2000" || wait < 2000 {
		t.Errorf("the second time it came after %d ms: %q", wait, again.Properties())
	}
}

// TestE2EResendAfterRetry lets a client send to its retry topic itself, as it does when sending back
// fails: it waits, and beyond the limit it is a dead letter at once.
func TestE2EResendAfterRetry(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, shortLevels)
	p := newPeer(t, cluster.Broker())
	p.pull(pullRequest("orders", 0, 0, "*", 0)) // makes the group
	send := func(times int32) remoting.ResponseCode {
		r := sendRequest("%RETRY%consumers", 0, "DELAY", "3", "RETRY_TOPIC", "orders",
			"REAL_TOPIC", "%RETRY%consumers", "REAL_QID", "0")
		r.ReconsumeTimes, r.MaxReconsumeTimes = times, 2
		return p.call(remoting.SendMessageV2, r, []byte(fmt.Sprint("try ", times))).Code
	}
	for times := range int32(4) {
		if code := send(times); code != remoting.Success {
			t.Fatalf("try %d: %v", times, code)
		}
	}
	dead := p.await("%DLQ%consumers", 0, 1)[0]
	if string(dead.Body()) != "try 3" || property(dead, "DELAY") != "-1" {
		t.Errorf("dead letter %q %q", dead.Body(), dead.Properties())
	}
	retried := p.await("%RETRY%consumers", 0, 3)
	for i, v := range retried {
		if string(v.Body()) != fmt.Sprint("try ", i) || property(v, "DELAY") != "3" {
			t.Errorf("retry %d: %q %q", i, v.Body(), v.Properties())
		}
	}
}

// TestCrashDelayed kills the broker while it takes and delivers delayed messages: each acknowledged
// one comes, in the order of its level, and none twice beyond the batch that was under way.
func TestCrashDelayed(t *testing.T) {
	t.Parallel()
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			acked := &delayedLedger{came: map[string]int{}}
			const kills = 4
			for round := range kills {
				v := startVictim(t, dir, flush)
				killAfter(t, v, 700*time.Millisecond, func(ctx context.Context) {
					acked.load(ctx, v.addr, round)
				})
			}
			v := startVictim(t, dir, flush)
			defer v.end(t, false)
			acked.count(t, newPeer(t, v.addr), kills)
		})
	}
}

// killAfter kills the broker after a while of load.
func killAfter(t *testing.T, v *victim, wait time.Duration, load func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { load(context.WithoutCancel(ctx)) })
	<-ctx.Done()
	v.end(t, true)
	wg.Wait()
}

// delayedLedger is the delayed messages that were acknowledged, and how often each came.
type delayedLedger struct {
	timers bool // they have a delivery time, not a level
	mu     sync.Mutex
	came   map[string]int
}

// load sends from four connections, each to a queue of its own with one delay level, until the
// broker dies.
func (l *delayedLedger) load(ctx context.Context, addr string, round int) {
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			pool := invoke.NewPool(invoke.Config{})
			defer func() { _ = pool.Close() }()
			for i := 0; ; i++ {
				body := fmt.Sprintf("%d %d %06d", worker, round, i)
				name, value := "DELAY", strconv.Itoa(worker%3+1)
				if l.timers {
					name, value = "TIMER_DELAY_MS", strconv.Itoa(300*(worker+1))
				}
				call, cancel := context.WithTimeout(ctx, callWithin)
				r, err := pool.Call(call, addr, &invoke.Request{
					Code: remoting.SendMessageV2, Body: []byte(body),
					Header: sendRequest("later", int32(worker), name, value),
				})
				cancel()
				if err != nil {
					return
				}
				if r.Code == remoting.Success {
					l.mu.Lock()
					l.came[body] = 0
					l.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// count reads everything and holds it against what was acknowledged.
func (l *delayedLedger) count(t *testing.T, p *peer, kills int) {
	t.Helper()
	const batch = 64 // messages that a death in the middle of a delivery may repeat
	twice := 0
	for queue := range int32(4) {
		last := ""
		for from, idle := int64(0), 0; idle < 4; { // nothing more for longer than the longest delay
			d := p.pull(pullRequest("later", queue, from, "*", time.Second))
			if len(d.views) == 0 {
				idle++
			}
			for _, v := range d.views {
				body := string(v.Body())
				from++
				if l.came[body]++; l.came[body] > 1 {
					twice++
				} else if body < last {
					t.Fatalf("queue %d: %q came after %q", queue, body, last)
				}
				last = max(last, body)
			}
		}
	}
	for body, n := range l.came {
		if n == 0 {
			t.Fatalf("acknowledged %q never came (of %d)", body, len(l.came))
		}
	}
	if len(l.came) < 100 || twice > kills*batch {
		t.Errorf("%d came, %d of them twice; a death may repeat %d", len(l.came), twice, batch)
	}
	t.Logf("%d delayed messages over %d kills, %d came twice", len(l.came), kills, twice)
}

// TestE2ETimer delivers at the times that producers name, and shows what waits.
func TestE2ETimer(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("later", 0, "first")
	now := time.Now().UnixMilli()
	at := strconv.FormatInt(now+1400, 10)
	for _, c := range []struct{ body, name, value string }{
		{"at", "TIMER_DELIVER_MS", at},
		{"ms", "TIMER_DELAY_MS", "1600"},
		{"sec", "TIMER_DELAY_SEC", "2"},
		{"past", "TIMER_DELIVER_MS", "5"},
		{"far", "TIMER_DELAY_SEC", "3600"},
	} {
		got := p.send("later", 0, c.body, c.name, c.value)
		if handle := len(got.RecallHandle) > 0; handle != (c.body != "past") || got.QueueID != 0 {
			t.Errorf("%s: answer %+v", c.body, got)
		}
	}
	for i, v := range p.await("later", 1, 4) {
		want := []string{"past", "at", "ms", "sec"}[i]
		if string(v.Body()) != want {
			t.Fatalf("message %d is %q, want %q", i, v.Body(), want)
		}
		if i == 0 {
			continue
		}
		due := now + 1400
		if i > 1 {
			waiting := p.await(protocol.TimerTopic, int64(i)-1, 1)[0]
			due = waiting.StoreMS() + []int64{0, 0, 1600, 2000}[i]
		}
		if late := v.StoreMS() - due; late < -1 || late > 100 {
			t.Errorf("%s came %d ms after it was due", want, late)
		}
	}
	if r := p.call(remoting.GetTimerMetrics, nil, nil); !strings.Contains(string(r.Body), `"later":{"count":1,`) {
		t.Errorf("numbers %s", r.Body)
	}
	if r := p.call(remoting.GetTimerCheckPoint, nil, nil); len(r.Body) != 56 {
		t.Errorf("checkpoint %x", r.Body)
	}
	r := p.call(remoting.GetBrokerRuntimeInfo, nil, nil)
	if !strings.Contains(string(r.Body), `"timerCongestNum":"1"`) {
		t.Errorf("runtime info %s", r.Body)
	}
}

// TestE2ERecall takes a timer message back by its handle.
func TestE2ERecall(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(c *engine.Config) { c.RecallMessage = true })
	p := newPeer(t, cluster.Broker())
	p.send("later", 0, "first")
	gone := p.send("later", 0, "gone", "TIMER_DELAY_SEC", "3")
	p.send("later", 0, "stays", "TIMER_DELAY_SEC", "3")
	recall := func(topic string, handle []byte) (*protocol.RecallMessageResponse, remoting.ResponseCode, string) {
		r := p.call(remoting.RecallMessage,
			&protocol.RecallMessageRequest{Topic: topic, RecallHandle: string(handle), ProducerGroup: "g"}, nil)
		var out protocol.RecallMessageResponse
		if err := out.Decode(r.Command); err != nil {
			t.Fatal(err)
		}
		return &out, r.Code, r.Remark
	}
	for _, c := range []struct {
		topic  string
		handle []byte
		code   remoting.ResponseCode
		says   string
	}{
		{"nowhere", gone.RecallHandle, remoting.TopicNotExist, "recall failed, the topic[nowhere] not exist"},
		{"later", []byte("cnViYmlzaA=="), remoting.IllegalOperation, "recall handle is invalid"},
		{"later", []byte("%%%"), remoting.IllegalOperation, "recall handle is invalid"},
		{"SELF_TEST_TOPIC", gone.RecallHandle, remoting.IllegalOperation, "topic not match"},
		{
			"later", processor.AppendRecallHandle(nil, "later", "elsewhere", time.Now().UnixMilli()+9999, []byte("k")),
			remoting.IllegalOperation, "broker",
		},
		{
			"later", processor.AppendRecallHandle(nil, "later", cluster.BrokerName(), 5, []byte("k")),
			remoting.IllegalOperation, "timestamp",
		},
	} {
		if _, code, remark := recall(c.topic, c.handle); code != c.code || !strings.Contains(remark, c.says) {
			t.Errorf("recall in %s: %v %q, want %v %q", c.topic, code, remark, c.code, c.says)
		}
	}
	out, code, _ := recall("later", gone.RecallHandle)
	if code != remoting.Success || out.MsgID != string(gone.TransactionID) {
		t.Errorf("recall: %v, id %q, want %q", code, out.MsgID, gone.TransactionID)
	}
	if v := p.await("later", 1, 1)[0]; string(v.Body()) != "stays" {
		t.Errorf("delivered %q", v.Body())
	}
	p.send("later", 0, "next")
	if v := p.await("later", 2, 1)[0]; string(v.Body()) != "next" {
		t.Errorf("the recalled message came: %q", v.Body())
	}
}

// TestE2ETimersOff refuses timers when they are turned off, and recalls unless they are turned on.
func TestE2ETimersOff(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(c *engine.Config) { c.TimerWheel = false })
	p := newPeer(t, cluster.Broker())
	r := p.call(remoting.SendMessageV2, sendRequest("later", 0, "TIMER_DELAY_SEC", "1"), []byte("x"))
	if r.Code != remoting.SystemError || !strings.Contains(r.Remark, "timerWheelEnable is false") {
		t.Errorf("timer: %v %q", r.Code, r.Remark)
	}
	r = p.call(remoting.RecallMessage,
		&protocol.RecallMessageRequest{Topic: "later", RecallHandle: "x"}, nil)
	if r.Code != remoting.NoPermission {
		t.Errorf("recall: %v %q", r.Code, r.Remark)
	}
}

// TestCrashTimers is TestCrashDelayed for timer messages.
func TestCrashTimers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &delayedLedger{came: map[string]int{}, timers: true}
	const kills = 4
	for round := range kills {
		v := startVictim(t, dir, "ASYNC_FLUSH")
		killAfter(t, v, 1700*time.Millisecond, func(ctx context.Context) { l.load(ctx, v.addr, round) })
	}
	v := startVictim(t, dir, "ASYNC_FLUSH")
	defer v.end(t, false)
	l.count(t, newPeer(t, v.addr), kills)
}

// TestCrashRetry kills the broker while consumers send messages back: each that was acknowledged comes
// through the retry topic or lies in the dead letters.
func TestCrashRetry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked := map[string]bool{}
	var mu sync.Mutex
	const kills = 3
	for round := range kills {
		v := startVictim(t, dir, "ASYNC_FLUSH")
		p := newPeer(t, v.addr)
		p.send("orders", 0, "first")
		p.pull(pullRequest("orders", 0, 0, "*", 0)) // makes the group
		killAfter(t, v, 600*time.Millisecond, func(ctx context.Context) {
			var wg sync.WaitGroup
			for worker := range 4 {
				wg.Go(func() {
					for body := range sentBack(ctx, v.addr, fmt.Sprint(round, " ", worker)) {
						mu.Lock()
						acked[body] = true
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		})
	}
	v := startVictim(t, dir, "ASYNC_FLUSH")
	defer v.end(t, false)
	p := newPeer(t, v.addr)
	came := map[string]int{}
	for _, topic := range []string{"%RETRY%consumers", "%DLQ%consumers"} {
		for from, idle := int64(0), 0; idle < 4; {
			d := p.pull(pullRequest(topic, 0, from, "*", time.Second))
			if len(d.views) == 0 {
				idle++
			}
			for _, v := range d.views {
				came[string(v.Body())]++
				from++
				if want := int32(1); v.ReconsumeTimes() != want {
					t.Fatalf("%q has reconsume times %d", v.Body(), v.ReconsumeTimes())
				}
			}
		}
	}
	for body := range acked {
		if came[body] == 0 {
			t.Fatalf("%q was taken back and never came (of %d)", body, len(acked))
		}
	}
	if len(acked) < 50 {
		t.Errorf("only %d messages were sent back in %d rounds", len(acked), kills)
	}
	t.Logf("%d messages sent back over %d kills", len(acked), kills)
}

// sentBack sends messages and sends them back, every third as a dead letter, until the broker dies.
// It yields the bodies of those that were taken back.
func sentBack(ctx context.Context, addr, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		pool := invoke.NewPool(invoke.Config{})
		defer func() { _ = pool.Close() }()
		call := func(r *invoke.Request) *invoke.Response {
			limit, cancel := context.WithTimeout(ctx, callWithin)
			defer cancel()
			res, err := pool.Call(limit, addr, r)
			if err != nil || res.Code != remoting.Success {
				return nil
			}
			return res
		}
		for i := 0; ; i++ {
			body := fmt.Sprint(name, " ", i)
			res := call(&invoke.Request{
				Code: remoting.SendMessageV2, Body: []byte(body), Header: sendRequest("orders", 0),
			})
			var sent protocol.SendResponse
			if res == nil || sent.Decode(res.Command) != nil {
				return
			}
			_, at, err := record.ParseOffsetID(string(sent.MsgID))
			if err != nil {
				return
			}
			level := int32(1)
			if i%3 == 2 {
				level = -1
			}
			res = call(&invoke.Request{Code: remoting.ConsumerSendMsgBack, Header: &protocol.ConsumerSendBackRequest{
				Offset: int64(at), Group: "consumers", DelayLevel: level, MaxReconsumeTimes: -1,
			}})
			if res == nil || !yield(body) {
				return
			}
		}
	}
}
