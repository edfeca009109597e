// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// popMode has a group pop a topic, as an administrator would.
func popMode(t *testing.T, at target, topic, group string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	const setMessageRequestMode = 401
	if a := rawCall(t, at, setMessageRequestMode, nil, body); a.Code != 0 {
		t.Fatalf("set mode POP: %d %s", a.Code, a.Remark)
	}
}

// rawCall asks the broker once.
func rawCall(t *testing.T, at target, code int, fields map[string]string, body []byte) *header {
	t.Helper()
	c, err := dialRaw(at.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	a, err := c.call(code, fields, body, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Apache's Java client in pop mode: two members, each message once; what a member refuses comes again.
func TestJavaPop(t *testing.T) {
	t.Parallel()
	at, jvm := servers(t), java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 4)
	popMode(t, at, topic, group)
	p := producer(t, jvm, at, nil)
	want := many(t, jvm, p, topic, "early", 40)
	member := func(instance string, failures int) string {
		return open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, instance), "pop": true,
			"failures": failures,
		})
	}
	first, second := member("first", 0), member("second", 0)
	both := func() []string {
		return append(bodies(awaitPush(t, jvm, first, 1, 10)), bodies(awaitPush(t, jvm, second, 1, 10))...)
	}
	eventually(t, 40*time.Second, func() error { return sameSet(both(), want) })
	want = append(want, many(t, jvm, p, topic, "late", 40)...)
	eventually(t, 20*time.Second, func() error { return sameSet(both(), want) })
	if got := both(); len(got) != len(want) {
		t.Errorf("%d deliveries of %d messages", len(got), len(want))
	}
	run(t, jvm, "push.stop", args{"handle": first})
	run(t, jvm, "push.stop", args{"handle": second})

	third := member("third", 1) // refuses each message once
	many(t, jvm, p, topic, "refused", 3)
	got := awaitPush(t, jvm, third, 6, 40_000)
	times := map[string]int32{}
	for _, m := range got {
		times[m.Body] = max(times[m.Body], m.ReconsumeTimes)
	}
	if len(got) != 6 || len(times) != 3 {
		t.Fatalf("%d deliveries: %v", len(got), times)
	}
	for body, n := range times {
		if n != 1 {
			t.Errorf("%s came with reconsume times %d", body, n)
		}
	}
}

// rawPop pops by hand and returns what came with the receipts.
func rawPop(t *testing.T, at target, topic, group string, invisible, poll time.Duration) ([]recordSummary, []map[string]string) {
	t.Helper()
	const popMessage = 200050
	a := rawCall(t, at, popMessage, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": "-1", "maxMsgNums": "32",
		"invisibleTime": strconv.FormatInt(invisible.Milliseconds(), 10),
		"pollTime":      strconv.FormatInt(poll.Milliseconds(), 10),
		"bornTime":      strconv.FormatInt(time.Now().UnixMilli(), 10), "initMode": "0",
	}, nil)
	if a.Code == 210 || a.Code == 209 {
		return nil, nil
	}
	if a.Code != 0 {
		t.Fatalf("pop: %d %s", a.Code, a.Remark)
	}
	starts := map[string]string{}
	for _, one := range strings.Split(a.ExtFields["startOffsetInfo"], ";") {
		if f := strings.Fields(one); len(f) == 3 {
			starts[f[0]+"@"+f[1]] = f[2]
		}
	}
	list, err := summarize(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	var receipts []map[string]string
	for _, m := range list {
		from, info := topic, m.Properties["POP_CK"]
		if info == "" {
			info = fmt.Sprintf("%s %s %s %s 0 %s %d %d", starts[fmt.Sprint("0@", m.QueueID)], a.ExtFields["popTime"],
				a.ExtFields["invisibleTime"], a.ExtFields["reviveQid"], at.BrokerName, m.QueueID, m.QueueOffset)
		} else {
			from = "%RETRY%" + group + "_" + topic
		}
		receipts = append(receipts, map[string]string{
			"consumerGroup": group, "topic": from, "queueId": fmt.Sprint(m.QueueID), "extraInfo": info,
			"offset": fmt.Sprint(m.QueueOffset),
		})
	}
	return list, receipts
}

func rawAck(t *testing.T, at target, receipts ...map[string]string) {
	t.Helper()
	const ackMessage = 200051
	for _, r := range receipts {
		if a := rawCall(t, at, ackMessage, r, nil); a.Code != 0 {
			t.Fatalf("ack %v: %d %s", r, a.Code, a.Remark)
		}
	}
}

// drain pops and acknowledges until want came, in any order and maybe more than once.
func drain(t *testing.T, at target, topic, group string, want []string) {
	t.Helper()
	var got []string
	eventually(t, 60*time.Second, func() error {
		list, receipts := rawPop(t, at, topic, group, time.Minute, 2*time.Second)
		for _, m := range list {
			got = append(got, m.Body)
		}
		rawAck(t, at, receipts...)
		return sameSet(got, want)
	})
}

// What is out when a store changes hands comes back in the other broker: checkpoints and
// acknowledgements of one are read by the other, in both directions.
func TestPopStoreMoves(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic, group := scratch(t), name(t, "T"), name(t, "CG")
	conf := map[string]string{"mappedFileSizeCommitLog": strconv.Itoa(8 << 20)}
	fill := func(at target, prefix string) {
		t.Helper()
		p := producer(t, jvm, at, args{"group": name(t, "PG") + prefix, "instance": name(t, "P") + prefix})
		many(t, jvm, p, topic, prefix, 12)
		run(t, jvm, "producer.stop", args{"handle": p})
	}
	// out pops everything, acknowledges a third, and says what is still out.
	out := func(at target, prefix string, invisible time.Duration) (left []string) {
		t.Helper()
		seen := 0
		eventually(t, 30*time.Second, func() error {
			list, receipts := rawPop(t, at, topic, group, invisible, time.Second)
			for i, m := range list {
				seen++
				if seen%3 == 0 {
					rawAck(t, at, receipts[i])
				} else {
					left = append(left, m.Body)
				}
			}
			if seen < 12 {
				return fmt.Errorf("%d of 12 popped", seen)
			}
			return nil
		})
		return left
	}
	ours, p := startServer(t, dir, conf)
	createTopic(t, ours, topic, 2)
	fill(ours, "ours")
	left := out(ours, "ours", 8*time.Second)
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}
	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	waitForRoute(t, theirs.NameServer, topic)
	drain(t, theirs, topic, group, left)
	fill(theirs, "theirs")
	left = out(theirs, "theirs", 15*time.Second)
	run(t, jvm, "broker.stop", args{"handle": broker})

	again, _ := startServer(t, dir, conf)
	waitForRoute(t, again.NameServer, topic)
	drain(t, again, topic, group, left)
	if list, _ := rawPop(t, again, topic, group, time.Minute, 2*time.Second); len(list) > 0 {
		t.Errorf("still there: %+v", list)
	}
}
