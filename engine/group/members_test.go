// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/protocol"
)

// conn is a connection that goes nowhere.
type conn struct{ addr string }

func (c *conn) RemoteAddr() string { return c.addr }
func (c *conn) Send([]byte)        {}

// world is a table of members with what it told its surroundings.
type world struct {
	*group.Members
	mu      sync.Mutex
	told    []string // "group: addr addr"
	expired []group.Channel
	notices []string
	reject  map[string]bool // groups not admitted
	quiet   map[string]bool // groups that want no notification
}

func newWorld(cfg group.MembersConfig) *world {
	w := &world{reject: map[string]bool{}, quiet: map[string]bool{}}
	cfg.Admit = func(c *protocol.ConsumerData) (bool, bool) {
		return !w.quiet[c.GroupName], !w.reject[c.GroupName]
	}
	cfg.NotifyChange = func(name string, chs []group.Channel) {
		w.mu.Lock()
		defer w.mu.Unlock()
		text := name + ":"
		for _, ch := range chs {
			text += " " + ch.RemoteAddr()
		}
		w.told = append(w.told, text)
	}
	cfg.Expired = func(chs []group.Channel) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.expired = append(w.expired, chs...)
	}
	cfg.Notice = func(msg string, kv ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notices = append(w.notices, fmt.Sprint(append([]any{msg}, kv...)...))
	}
	w.Members = group.NewMembers(cfg)
	return w
}

// takeTold returns the notifications since the last call.
func (w *world) takeTold() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := w.takeTold(); !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
}

// sub is a subscription by tag.
func sub(topic, expr string, version int64) protocol.SubscriptionData {
	s, err := protocol.ParseSubscription(topic, expr, "")
	if err != nil {
		panic(err)
	}
	s.SubVersion = version
	return s
}

func consumer(name string, subs ...protocol.SubscriptionData) protocol.ConsumerData {
	return protocol.ConsumerData{
		GroupName: name, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
		ConsumeFromWhere: protocol.ConsumeFromFirstOffset, SubscriptionDataSet: subs,
	}
}

func (w *world) beat(ch group.Channel, id string, cs ...protocol.ConsumerData) bool {
	return w.Heartbeat(ch, group.ClientInfo{ID: id, Version: 513},
		&protocol.HeartbeatData{ClientID: id, ConsumerDataSet: cs}).SubChanged
}

func (w *world) beat2(
	ch group.Channel, fingerprint int32, short bool, cs ...protocol.ConsumerData,
) bool {
	return w.Heartbeat(ch, group.ClientInfo{ID: "v2"}, &protocol.HeartbeatData{
		ClientID: "v2", ConsumerDataSet: cs, HeartbeatFingerprint: fingerprint, WithoutSub: short,
	}).SubChanged
}

// TestHeartbeat follows a capture of RocketMQ 5.5.0: who is told, and when.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	a, b := &conn{"h:1"}, &conn{"h:2"}
	if !w.beat(a, "a", consumer("g", sub("T", "*", 1))) {
		t.Fatal("IS_SUB_CHANGE is false on a heartbeat of version 1")
	}
	w.expect(t, "g: h:1") // the sender too
	w.beat(b, "b", consumer("g", sub("T", "*", 1)))
	w.expect(t, "g: h:1 h:2")
	w.beat(b, "b", consumer("g", sub("T", "TagX", 2)))
	w.expect(t) // a newer expression replaces the old one silently
	s, _ := w.Subscription([]byte("g"), []byte("T"))
	if s.Data.SubString != "TagX" || len(s.Codes) != 1 {
		t.Fatalf("%+v", s)
	}
	w.beat(a, "a", consumer("g", sub("T", "*", 1)))
	w.expect(t) // an older one changes nothing
	if s, _ := w.Subscription([]byte("g"), []byte("T")); s.Data.SubString != "TagX" {
		t.Fatalf("%+v", s)
	}
	w.beat(a, "a", consumer("g", sub("T", "*", 1), sub("U", "*", 1)))
	w.expect(t, "g: h:1 h:2") // a topic came
	w.beat(a, "a", consumer("g", sub("U", "*", 1)))
	w.expect(t, "g: h:1 h:2") // a topic went
	if ids := w.ConsumerIDs("g"); !slices.Equal(ids, []string{"a", "b"}) {
		t.Fatal(ids)
	}
	w.ChannelClosed(b)
	w.expect(t, "g: h:1")
	w.Unregister(a, "", "g", true)
	w.expect(t) // nobody is left
	_, state := w.Subscription([]byte("g"), []byte("U"))
	if state.Online || w.ConsumerIDs("g") != nil {
		t.Fatal("the group is still there")
	}
}

func TestNotifyFlagAndModel(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	w.quiet["quiet"] = true
	a, b := &conn{"h:1"}, &conn{"h:2"}
	broadcast := consumer("all", sub("T", "*", 1))
	broadcast.MessageModel = protocol.Broadcasting
	for _, ch := range []group.Channel{a, b} {
		w.beat(ch, ch.RemoteAddr(), consumer("quiet", sub("T", "*", 1)), broadcast)
	}
	w.expect(t)
	if _, state := w.Subscription([]byte("all"), []byte("T")); !state.Broadcasting || !state.Online {
		t.Fatalf("%+v", state)
	}
	w.ChannelClosed(b)
	w.expect(t, "quiet: h:1") // a closed connection is told whatever the flag says
	w.Unregister(a, "", "all", true)
	w.expect(t)
}

// TestFingerprint: a heartbeat of version 2 asks for the full form only after a change.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	a := &conn{"h:1"}
	full, short := consumer("g", sub("T", "*", 1)), consumer("g")
	steps := []struct {
		fingerprint int32
		short       bool
		changed     bool
	}{
		{5, false, false},
		{5, true, false},
		{5, true, false},
		{9, false, true},
		{9, false, false},
		{9, true, false},
	}
	for i, s := range steps {
		data := full
		if s.short {
			data = short
		}
		if got := w.beat2(a, s.fingerprint, s.short, data); got != s.changed {
			t.Fatalf("step %d: IS_SUB_CHANGE %v", i, got)
		}
		if sub, _ := w.Subscription([]byte("g"), []byte("T")); sub == nil {
			t.Fatalf("step %d: the subscription is gone", i)
		}
	}
	w.expect(t, "g: h:1")
	// A broker that knows nothing of the group must not be content with a short heartbeat.
	if !newWorld(group.MembersConfig{}).beat2(a, 9, true, short) {
		t.Fatal("a new broker took a short heartbeat as enough")
	}
	b := &conn{"h:2"}
	w.beat2(b, 9, true, short)
	w.expect(t, "g: h:1 h:2")
}

// TestBrokenParts: what is broken in a heartbeat is left out, the rest counts.
func TestBrokenParts(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	a := &conn{"h:1"}
	var data protocol.HeartbeatData
	body := `{"clientID":"a","producerDataSet":[null,{"groupName":" "},{"groupName":"p"}],
		"consumerDataSet":[null,{},{"groupName":"","subscriptionDataSet":null},
		{"groupName":"none","subscriptionDataSet":null},
		{"groupName":"g","subscriptionDataSet":[null,{"topic":" "},{"topic":"T","subString":"TagA",
		"codeSet":null,"tagsSet":null,"subVersion":3},{"topic":"U","subString":"*"}]}]}`
	if err := protocol.Unmarshal([]byte(body), &data); err != nil {
		t.Fatal(err)
	}
	w.Heartbeat(a, group.ClientInfo{ID: data.ClientID}, &data)
	view, ok := w.View([]byte("g"))
	if !ok || len(view.Subs) != 2 {
		t.Fatalf("%+v", view)
	}
	want := []int32{protocol.JavaHash([]byte("TagA"))}
	if d := cmp.Diff(want, view.Subs["T"].Codes); d != "" {
		t.Fatal("codes that the client left out: ", d)
	}
	if view.Subs["U"].Codes != nil {
		t.Fatal("* has codes")
	}
	if _, ok := w.View([]byte("none")); !ok {
		t.Fatal("a group without subscriptions is not registered")
	}
	if all := w.AllProducers(); len(all) != 1 || len(all["p"]) != 1 {
		t.Fatal(all)
	}
	for _, name := range []string{"", " "} {
		if _, ok := w.View([]byte(name)); ok {
			t.Fatal("a group without a name")
		}
	}
	// Without a client id nothing is registered, and the operator hears of it, once.
	for range 3 {
		w.Heartbeat(&conn{"h:9"}, group.ClientInfo{}, &data)
	}
	if len(w.Consumers("g")) != 1 || len(w.notices) != 1 {
		t.Fatal(w.Consumers("g"), w.notices)
	}
}

func TestNotAdmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{RejectPull: true})
	w.reject["bad"] = true
	pull := consumer("pull", sub("T", "*", 1))
	pull.ConsumeType = protocol.ConsumeActively
	w.beat(&conn{"h:1"}, "a", consumer("bad", sub("T", "*", 1)), pull, consumer("g", sub("T", "*", 1)))
	w.expect(t, "g: h:1")
	if got := w.GroupsOf("T"); !slices.Equal(got, []string{"g"}) {
		t.Fatal(got)
	}
}

// TestConflict: two members that subscribe differently are named, once for each difference.
func TestConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	a, b := &conn{"10.0.0.1:1"}, &conn{"10.0.0.2:1"}
	for range 3 {
		w.beat(a, "client-a", consumer("g", sub("T", "tag1", 1)))
		w.beat(b, "client-b", consumer("g", sub("T", "tag2", 2)))
	}
	if len(w.notices) != 1 || w.Conflicts() != 1 {
		t.Fatalf("notices %q", w.notices)
	}
	for _, part := range []string{"client-a", "client-b", "tag1", "tag2", "groupg", "topicT"} {
		if !strings.Contains(w.notices[0], part) {
			t.Fatalf("%q does not name %q", w.notices[0], part)
		}
	}
	own, ok := w.Own(a, "g", "T")
	if !ok || own.Data.SubString != "tag1" {
		t.Fatalf("%+v", own)
	}
	// One client that changes its mind is no conflict.
	w.beat(&conn{"10.0.0.3:1"}, "c", consumer("h", sub("T", "tag1", 1)))
	if w.beat(&conn{"10.0.0.3:1"}, "c", consumer("i", sub("T", "tag2", 1))); len(w.notices) != 1 {
		t.Fatalf("notices %q", w.notices)
	}
}

// TestRefuseDifferent: with the switch a client that asks for other tags than a member does is kept out,
// whatever it does, and the group stays as it was; its other groups are taken.
func TestRefuseDifferent(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{RefuseDifferent: true})
	a, b := &conn{"10.0.0.1:1"}, &conn{"10.0.0.2:1"}
	beat := func(c *conn, id string, groups ...protocol.ConsumerData) error {
		return w.Heartbeat(c, group.ClientInfo{ID: id}, &protocol.HeartbeatData{
			ClientID: id, ConsumerDataSet: groups,
		}).Refused
	}
	if err := beat(a, "client-a", consumer("g", sub("T", "tag1", 1))); err != nil {
		t.Fatal(err)
	}
	w.takeTold()
	for range 3 {
		err := beat(b, "client-b", consumer("g", sub("T", "tag2", 2)), consumer("own", sub("T", "tag2", 2)))
		if err == nil {
			t.Fatal("not refused")
		}
		for _, part := range []string{"client-a", "client-b", "tag1", "tag2", "group g", "10.0.0.1:1"} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%q does not name %q", err, part)
			}
		}
	}
	if ids := w.ConsumerIDs("g"); !slices.Equal(ids, []string{"client-a"}) {
		t.Fatalf("members %q", ids)
	}
	if ids := w.ConsumerIDs("own"); !slices.Equal(ids, []string{"client-b"}) {
		t.Fatalf("members of the other group %q", ids)
	}
	if s, _ := w.Subscription([]byte("g"), []byte("T")); s.Data.SubString != "tag1" {
		t.Fatalf("the group reads %q", s.Data.SubString)
	}
	if len(w.notices) != 1 || w.Conflicts() != 1 {
		t.Fatalf("notices %q", w.notices)
	}
	// Nor does a short heartbeat let it in, it only asks for the full one.
	if r := w.Heartbeat(b, group.ClientInfo{ID: "client-b"}, &protocol.HeartbeatData{
		ClientID: "client-b", HeartbeatFingerprint: 7, WithoutSub: true,
		ConsumerDataSet: []protocol.ConsumerData{consumer("g")},
	}); !r.SubChanged || len(w.ConsumerIDs("g")) != 1 {
		t.Fatalf("%+v, members %q", r, w.ConsumerIDs("g"))
	}
	// More topics are no quarrel, and a member may change its own mind while it is alone.
	if err := beat(b, "client-b", consumer("g", sub("T", "tag1", 3), sub("U", "*", 1))); err != nil {
		t.Fatal(err)
	}
	if err := beat(b, "client-b", consumer("own", sub("T", "*", 4))); err != nil {
		t.Fatal(err)
	}
}

// TestTwins: one client id in use by two clients is told apart from a client that reconnects.
// Two producers with one client id are told of with both addresses; one that connected anew is not.
func TestProducerTwins(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	w := newWorld(group.MembersConfig{Now: func() time.Time { return now }})
	beat := func(c *conn) {
		now = now.Add(time.Second)
		w.Heartbeat(c, group.ClientInfo{ID: "id"}, &protocol.HeartbeatData{
			ClientID: "id", ProducerDataSet: []protocol.ProducerData{{GroupName: "p"}},
		})
	}
	old, fresh := &conn{"10.0.0.1:1"}, &conn{"10.0.0.1:2"}
	beat(old)
	beat(fresh)
	beat(fresh)
	if len(w.notices) != 0 {
		t.Fatalf("a client that connected anew: %q", w.notices)
	}
	beat(old)
	if len(w.notices) != 1 || !strings.Contains(w.notices[0], "10.0.0.1:1") ||
		!strings.Contains(w.notices[0], "10.0.0.1:2") || w.Twins() != 1 {
		t.Fatalf("both are alive: %q", w.notices)
	}
	beat(&conn{"10.0.0.2:1"})
	if len(w.notices) != 1 {
		t.Fatalf("told again: %q", w.notices)
	}
}

func TestTwins(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	cfg := group.MembersConfig{Now: func() time.Time { return now }}
	g := consumer("g", sub("T", "*", 1))

	w := newWorld(cfg)
	w.beat(&conn{"172.17.0.1:1"}, "172.17.0.1@1", g)
	w.beat(&conn{"10.0.0.7:1"}, "172.17.0.1@1", g)
	if len(w.notices) != 1 || w.Twins() != 1 {
		t.Fatalf("two hosts: %q", w.notices)
	}

	w = newWorld(cfg)
	old, fresh := &conn{"10.0.0.1:1"}, &conn{"10.0.0.1:2"}
	w.beat(old, "id", g)
	now = now.Add(time.Second)
	w.beat(fresh, "id", g)
	now = now.Add(30 * time.Second)
	w.beat(fresh, "id", g)
	if len(w.notices) != 0 {
		t.Fatalf("a client that connected anew: %q", w.notices)
	}
	if ids := w.ConsumerIDs("g"); !slices.Equal(ids, []string{"id", "id"}) {
		t.Fatal(ids)
	}
	w.beat(old, "id", g)
	if len(w.notices) != 1 {
		t.Fatalf("both are alive: %q", w.notices)
	}
}

// TestExpire: silent clients leave, those that stay are told, and their connections are handed over;
// the timer ends with the last client.
func TestExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(group.MembersConfig{})
		a, b := &conn{"h:1"}, &conn{"h:2"}
		w.beat(a, "a", consumer("g", sub("T", "*", 1)))
		w.beat(b, "b", consumer("g", sub("T", "*", 1)))
		w.Heartbeat(a, group.ClientInfo{ID: "a"}, &protocol.HeartbeatData{
			ClientID: "a", ProducerDataSet: []protocol.ProducerData{{GroupName: "p"}},
		})
		w.takeTold()
		<-time.After(100 * time.Second)
		w.beat(b, "b", consumer("g", sub("T", "*", 1)))
		<-time.After(35 * time.Second)
		synctest.Wait()
		if len(w.expired) != 1 || w.expired[0] != group.Channel(a) {
			t.Fatalf("expired %v", w.expired)
		}
		if ids := w.ConsumerIDs("g"); !slices.Equal(ids, []string{"b"}) {
			t.Fatal(ids)
		}
		if _, ok := w.Producers("p"); ok {
			t.Fatal("the producer is still there")
		}
		w.expect(t, "g: h:2")
		w.ChannelClosed(a)
		w.expect(t)
		<-time.After(150 * time.Second)
		synctest.Wait()
		if _, ok := w.View([]byte("g")); ok || len(w.expired) != 2 {
			t.Fatalf("expired %v", w.expired)
		}
		// Nobody is left: the bubble would report a timer goroutine, and Close must be harmless.
		w.Close()
	})
}

func TestProducers(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	a, b := &conn{"h:1"}, &conn{"h:2"}
	beat := func(ch group.Channel, id string, names ...string) {
		data := &protocol.HeartbeatData{ClientID: id}
		for _, n := range names {
			data.ProducerDataSet = append(data.ProducerDataSet, protocol.ProducerData{GroupName: n})
		}
		w.Heartbeat(ch, group.ClientInfo{ID: id, Version: 1}, data)
	}
	beat(a, "a", "p", "inner")
	beat(b, "b", "p")
	beat(a, "a", "p", "inner")
	if list, ok := w.Producers("p"); !ok || len(list) != 2 || list[0].ID != "a" || list[1].ID != "b" {
		t.Fatal(list)
	}
	picked := map[group.Channel]int{}
	for range 4 {
		ch, _ := w.PickProducer("p")
		picked[ch]++
	}
	if picked[a] != 2 || picked[b] != 2 {
		t.Fatal(picked)
	}
	if ch, ok := w.ProducerByID("a"); !ok || ch != group.Channel(a) {
		t.Fatal(ch, ok)
	}
	w.Unregister(a, "p", "", true)
	if _, ok := w.ProducerByID("a"); !ok {
		t.Fatal("a producer of another group is not found by its id any more")
	}
	w.ChannelClosed(a)
	if _, ok := w.ProducerByID("a"); ok {
		t.Fatal("a closed producer is still found")
	}
	w.ChannelClosed(b)
	if all := w.AllProducers(); len(all) != 0 {
		t.Fatal(all)
	}
	if _, ok := w.PickProducer("p"); ok {
		t.Fatal("picked from nobody")
	}
}

func TestCompensate(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(10_000_000)
	w := newWorld(group.MembersConfig{Now: func() time.Time { return now }})
	defer w.Close()
	w.Compensate("g", "T", sub("T", "TagA", now.UnixMilli()))
	if s, _ := w.Subscription([]byte("g"), []byte("T")); s != nil {
		t.Fatal("a pull's subscription counts as a heartbeat's")
	}
	if s, ok := w.Find("g", "T"); !ok || s.Data.SubString != "TagA" {
		t.Fatal(s, ok)
	}
	w.Expire(now.Add(601 * time.Second))
	if _, ok := w.Find("g", "T"); ok {
		t.Fatal("it does not expire")
	}
}

func TestConcurrentMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(group.MembersConfig{})
	defer w.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ch := &conn{fmt.Sprintf("h:%d", i)}
			for n := range int64(200) {
				w.beat(ch, ch.addr, consumer("g", sub("T", "*", n)))
				w.Subscription([]byte("g"), []byte("T"))
				w.ConsumerIDs("g")
				if n%10 == 0 {
					w.ChannelClosed(ch)
				}
			}
			w.ChannelClosed(ch)
		})
	}
	wg.Wait()
	if _, ok := w.View([]byte("g")); ok {
		t.Fatal("members left")
	}
}

func TestAllocsSubscription(t *testing.T) {
	w := newWorld(group.MembersConfig{})
	defer w.Close()
	w.beat(&conn{"h:1"}, "a", consumer("g", sub("T", "*", 1)))
	name, topic := []byte("g"), []byte("T")
	if n := testing.AllocsPerRun(100, func() { w.Subscription(name, topic) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
