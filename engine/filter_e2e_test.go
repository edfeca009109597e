// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

func withSQL(c *engine.Config) { c.PropertyFilter = true }

// sqlPull carries its expression.
func sqlPull(topic string, from int64, expression string, hold time.Duration) *protocol.PullRequest {
	r := pullRequest(topic, 0, from, expression, hold)
	r.ExpressionType = []byte(protocol.ExpressionSQL92)
	return r
}

// subscribeSQL registers a consumer with one SQL92 subscription.
func (p *peer) subscribeSQL(group, topic, expression string, version int64) {
	p.t.Helper()
	p.heartbeat("c-"+group, group, protocol.SubscriptionData{
		Topic: topic, SubString: expression, ExpressionType: protocol.ExpressionSQL92, SubVersion: version,
	})
}

func TestE2EPullWithSQL(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, withSQL)
	p := newPeer(t, cluster.Broker())
	var want []string
	for i := range 200 {
		body := fmt.Sprint("m", i)
		p.send("sql", 0, body, "price", fmt.Sprint(i%10), "region", []string{"eu", "us"}[i%2], "TAGS", "t")
		if i%10 == 3 || i%10 == 5 {
			want = append(want, body)
		}
	}
	const expression = "price BETWEEN 2.5 AND 5 AND region = 'us'"
	var got []string
	for from := int64(0); from < 200; {
		d := p.pull(sqlPull("sql", from, expression, 0))
		if d.code != remoting.Success && d.code != remoting.PullRetryImmediately || d.head.NextOffset <= from {
			t.Fatalf("from %d: %v %q, next %d", from, d.code, d.remark, d.head.NextOffset)
		}
		got = append(got, strings.Fields(d.bodies())...)
		from = d.head.NextOffset
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if d := p.pull(sqlPull("sql", 0, "price = 77", 0)); d.code != remoting.PullRetryImmediately || d.head.NextOffset != 200 {
		t.Errorf("nothing matches: %v, next %d", d.code, d.head.NextOffset)
	}
	d := p.pull(sqlPull("sql", 0, "price = = 7", 0))
	if d.code != remoting.SubscriptionParseFailed || !strings.Contains(d.remark, `line 1, column 9, at "="`) {
		t.Errorf("broken expression: %v %q", d.code, d.remark)
	}
}

// A held pull with an expression is answered by the message that passes, not by the others.
func TestE2ELongPollWithSQL(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, withSQL)
	p, q := newPeer(t, cluster.Broker()), newPeer(t, cluster.Broker())
	p.send("sqlpoll", 0, "first", "a", "1")
	done := make(chan pulled, 1)
	go func() { done <- p.pull(sqlPull("sqlpoll", 1, "a = 7", 4*time.Second)) }()
	eventually(t, func() bool { return cluster.Engine().HeldPulls() == 1 })
	for i := range 50 {
		q.send("sqlpoll", 0, fmt.Sprint("other", i), "a", "2")
	}
	select {
	case d := <-done:
		t.Fatalf("answered %v %q", d.code, d.bodies())
	default:
	}
	q.send("sqlpoll", 0, "wanted", "a", "7")
	d := <-done
	if d.code != remoting.Success || d.bodies() != "wanted" || d.head.NextOffset != 52 {
		t.Errorf("%v %q, next %d", d.code, d.bodies(), d.head.NextOffset)
	}
	d = p.pull(sqlPull("sqlpoll", 52, "a = 7", 50*time.Millisecond))
	if d.code != remoting.PullNotFound || d.head.NextOffset != 52 {
		t.Errorf("at its deadline: %v, next %d", d.code, d.head.NextOffset)
	}
}

// The order of answers when the expression comes from heartbeats.
func TestE2ERegisteredSQL(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, withSQL)
	p := newPeer(t, cluster.Broker())
	p.send("reg", 0, "one", "a", "1")
	p.send("reg", 0, "two", "a", "2")
	pull := func(group string, version int64) pulled {
		r := pullRequest("reg", 0, 0, "", 0)
		r.Group, r.SysFlag, r.SubVersion = []byte(group), 0, version
		return p.pull(r)
	}
	p.subscribeSQL("good", "reg", "a = 2", 10)
	if d := pull("good", 10); d.bodies() != "two" {
		t.Errorf("got %v %q", d.code, d.bodies())
	}
	p.subscribeSQL("good", "reg", "a = 1", 11)
	if d := pull("good", 11); d.bodies() != "one" {
		t.Errorf("after a change got %v %q", d.code, d.bodies())
	}
	if d := pull("good", 12); d.code != remoting.SubscriptionNotLatest {
		t.Errorf("newer than the heartbeat: %v %q", d.code, d.remark)
	}
	p.subscribeSQL("bad", "reg", "a = = 2", 10)
	if d := pull("bad", 10); d.code != remoting.FilterDataNotExist {
		t.Errorf("broken expression: %v %q", d.code, d.remark)
	}
	cluster.Restart(withSQL)
	if d := pull("good", 11); d.code != remoting.SubscriptionNotExist {
		t.Errorf("after a restart, before the heartbeat: %v %q", d.code, d.remark)
	}
	p.subscribeSQL("good", "reg", "a = 1", 11)
	if d := pull("good", 11); d.bodies() != "one" { // now from the reader pool: the log is older than the start
		t.Errorf("after a restart: %v %q", d.code, d.bodies())
	}
}

// What was written before the start is scanned beside the loops, and a poll that goes on waits there too.
func TestE2ESQLOnAnOldLog(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, withSQL)
	p := newPeer(t, cluster.Broker())
	for i := range 3000 {
		p.send("old", 0, fmt.Sprint("m", i), "a", fmt.Sprint(i))
	}
	cluster.Restart(withSQL)
	q := newPeer(t, cluster.Broker())
	done := make(chan pulled, 1)
	from := int64(0)
	for from < 3000 {
		d := p.pull(sqlPull("old", from, "a = 2500 OR a = 'x'", 0))
		if d.code == remoting.Success && d.bodies() != "m2500" {
			t.Fatalf("%v %q", d.code, d.bodies())
		}
		from = d.head.NextOffset
	}
	go func() { done <- p.pull(sqlPull("old", from, "a = 'x'", 5*time.Second)) }()
	eventually(t, func() bool { return cluster.Engine().HeldPulls() == 1 })
	q.send("old", 0, "nothing", "a", "y")
	q.send("old", 0, "something", "a", "x")
	if d := <-done; d.bodies() != "something" {
		t.Errorf("%v %q", d.code, d.bodies())
	}
}

func TestE2ESQLSwitchedOff(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	p.send("off", 0, "one", "a", "1")
	if d := p.pull(sqlPull("off", 0, "a = 1", 0)); d.code != remoting.SystemError || !strings.Contains(d.remark, "SQL92") {
		t.Errorf("%v %q", d.code, d.remark)
	}
	p.subscribeSQL("g", "off", "a = 1", 1)
	r := pullRequest("off", 0, 0, "", 0)
	r.Group, r.SysFlag, r.SubVersion = []byte("g"), 0, 1
	if d := p.pull(r); d.code != remoting.SystemError || !strings.Contains(d.remark, "SQL92") {
		t.Errorf("registered: %v %q", d.code, d.remark)
	}
}

// filterSupportRetry applies a group's filter on a topic to what was sent back from there.
func TestE2ESQLOnARetryTopic(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, withSQL, func(c *engine.Config) { c.FilterRetry = true })
	p := newPeer(t, cluster.Broker())
	const retryTopic = "%RETRY%again"
	p.heartbeat("c", "again",
		protocol.SubscriptionData{
			Topic: "first", SubString: "a = 2", ExpressionType: protocol.ExpressionSQL92, SubVersion: 1,
		},
		protocol.SubscriptionData{
			Topic: retryTopic, SubString: "TRUE", ExpressionType: protocol.ExpressionSQL92, SubVersion: 1,
		})
	p.send(retryTopic, 0, "one", "a", "1", "RETRY_TOPIC", "first")
	p.send(retryTopic, 0, "two", "a", "2", "RETRY_TOPIC", "first")
	p.send(retryTopic, 0, "other", "a", "1", "RETRY_TOPIC", "second")
	r := pullRequest(retryTopic, 0, 0, "", 0)
	r.Group, r.SysFlag, r.SubVersion = []byte("again"), 0, 1
	if d := p.pull(r); d.bodies() != "two other" {
		t.Errorf("%v %q", d.code, d.bodies())
	}
}

// Tags are compared by their hashes: Aa and BB have one, and the client tells them apart.
func TestE2ETagsWithOneHash(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	p := newPeer(t, cluster.Broker())
	for _, tag := range []string{"Aa", "BB", "C", "D", "AaAa", "BBBB", "AaBB"} {
		p.send("tags", 0, tag, "TAGS", tag)
	}
	for expression, want := range map[string]string{
		"Aa": "Aa BB", "BB || D": "Aa BB D", "AaAa || C": "C AaAa BBBB AaBB", " D ||| | C": "D", "D||C||": "C D",
	} {
		if d := p.pull(pullRequest("tags", 0, 0, expression, 0)); d.bodies() != want {
			t.Errorf("%q: %v %q, want %q", expression, d.code, d.bodies(), want)
		}
	}
}
