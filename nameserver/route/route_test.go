// SPDX-License-Identifier: Apache-2.0

package route_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/nameserver/route"
	"github.com/skylarkmq/skylark/net/protocol"
)

const t0 = 1_700_000_000_000

func version(counter int64) protocol.DataVersion {
	return protocol.DataVersion{Counter: counter, Timestamp: t0}
}

func topics(names ...string) map[string]*protocol.TopicConfig {
	out := map[string]*protocol.TopicConfig{}
	for _, name := range names {
		out[name] = &protocol.TopicConfig{TopicName: name, ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6}
	}
	return out
}

// broker returns a full registration; tests change what matters to them.
func broker(name string, id int64, addr string, served ...string) *route.Registration {
	acting := false
	if len(served) == 0 {
		served = []string{"A", "B"}
	}
	return &route.Registration{
		Broker: route.Broker{Cluster: "C", Name: name, Addr: addr, ID: id}, HAAddr: "ha-" + addr,
		ActingMaster: &acting, Session: 1, NowMS: t0, Version: version(1), Topics: topics(served...),
	}
}

func register(t *testing.T, table *route.Table, r *route.Registration) route.Registered {
	t.Helper()
	result, _, err := table.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func addrs(table *route.Table, topic, name string) map[int64]string {
	data, ok := table.Lookup(topic)
	if !ok {
		return nil
	}
	for _, b := range data.BrokerDatas {
		if b.BrokerName == name {
			return b.BrokerAddrs
		}
	}
	return nil
}

func perm(t *testing.T, table *route.Table, topic, name string) int32 {
	t.Helper()
	data, ok := table.Lookup(topic)
	if !ok {
		t.Fatalf("no route of %s", topic)
	}
	for _, q := range data.QueueDatas {
		if q.BrokerName == name {
			return q.Perm
		}
	}
	t.Fatalf("%s has no queues on %s", topic, name)
	return 0
}

func TestLookup(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	r := broker("b1", 0, "1:1")
	r.Zone = "z"
	r.Filters = []string{"f"}
	register(t, table, r)
	register(t, table, broker("b0", 0, "0:0", "A", "C"))
	slave := broker("b0", 1, "0:1")
	answer := register(t, table, slave)
	if diff := cmp.Diff(route.Registered{MasterAddr: "0:0", HAAddr: "ha-0:0", First: true},
		answer); diff != "" {
		t.Errorf("answer to a slave (-want +got):\n%s", diff)
	}
	want := &protocol.TopicRouteData{
		BrokerDatas: []protocol.BrokerData{
			{Cluster: "C", BrokerName: "b0", BrokerAddrs: map[int64]string{0: "0:0", 1: "0:1"}},
			{Cluster: "C", BrokerName: "b1", BrokerAddrs: map[int64]string{0: "1:1"}, ZoneName: "z"},
		},
		QueueDatas: []protocol.QueueData{
			{BrokerName: "b0", ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6},
			{BrokerName: "b1", ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6},
		},
		FilterServerTable: map[string][]string{"1:1": {"f"}},
	}
	got, ok := table.Lookup("A")
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("route of A (-want +got):\n%s", diff)
	}
	got.BrokerDatas[0].BrokerAddrs[0] = "changed"
	got.FilterServerTable["1:1"][0] = "changed"
	if again, _ := table.Lookup("A"); cmp.Diff(want, again) != "" {
		t.Error("a result shares memory with the table")
	}
	if _, ok := table.Lookup("none"); ok {
		t.Error("route of an unknown topic")
	}
	r.Filters = []string{}
	register(t, table, r)
	if again, _ := table.Lookup("A"); len(again.FilterServerTable) != 0 {
		t.Error("filter servers stayed after an empty list")
	}
}

func TestRegisterAgain(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	register(t, table, broker("b", 0, "1:1"))

	same := broker("b", 0, "1:1")
	same.Topics["A"].WriteQueueNums = 16
	if got := register(t, table, same); got.First {
		t.Error("second registration counts as first")
	}
	if data, _ := table.Lookup("A"); data.QueueDatas[0].WriteQueueNums != 8 {
		t.Error("queues changed under an equal data version")
	}

	incremental := broker("b", 0, "1:1", "New")
	incremental.Version = version(2)
	register(t, table, incremental)
	if got := table.Topics(); cmp.Diff([]string{"A", "B", "New"}, got) != "" {
		t.Errorf("topics after an incremental registration: %v", got)
	}
	same.Version = version(3)
	register(t, table, same)
	if data, _ := table.Lookup("A"); data.QueueDatas[0].WriteQueueNums != 16 {
		t.Error("queues did not change with the data version")
	}
	if stored, known, changed := table.QueryVersion("C", "1:1", version(3), t0); !known || changed ||
		stored != version(3) {
		t.Errorf("QueryVersion: %v %v %v", stored, known, changed)
	}
	if _, known, changed := table.QueryVersion("C", "9:9", version(3), t0); known || !changed {
		t.Error("an unknown broker has a version")
	}

	lost := broker("b", 0, "1:1")
	lost.Version = version(3)
	table.DeleteTopic("A", "")
	register(t, table, lost)
	if _, ok := table.Lookup("A"); !ok {
		t.Error("a deleted topic that its broker still serves did not come back")
	}
}

func TestRegisterIncrementalFirst(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	_, _, err := table.Register(broker("b", 0, "1:1", "A"))
	if !errors.Is(err, route.ErrIncrementalFirst) {
		t.Errorf("got %v", err)
	}
	if info := table.Clusters(); len(info.BrokerAddrTable) != 0 || len(info.ClusterAddrTable) != 0 {
		t.Errorf("a refused registration left %+v", info)
	}
	register(t, table, &route.Registration{Broker: route.Broker{Cluster: "C", Name: "b", Addr: "1:1"}})
	register(t, table, broker("b", 0, "1:1", "A"))
	if addrs(table, "A", "b")[0] != "1:1" {
		t.Error("no route after an empty registration and one topic")
	}
}

func TestRegisterDeletesTopics(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		table := route.New(route.Rules{DeleteTopics: on})
		register(t, table, broker("b", 0, "1:1", "A", "B", "C"))
		register(t, table, broker("b2", 0, "2:1", "A", "C"))
		next := broker("b", 0, "1:1", "A", "B")
		next.Version = version(2)
		register(t, table, next)
		data, _ := table.Lookup("C")
		if want := map[bool]int{false: 2, true: 1}[on]; len(data.QueueDatas) != want {
			t.Errorf("on=%v: C is on %d brokers, want %d", on, len(data.QueueDatas), want)
		}
	}
}

func TestRoleSwitch(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	register(t, table, broker("b", 0, "1:1"))
	register(t, table, broker("b", 1, "1:2"))
	promoted := broker("b", 0, "1:2") // the slave's process is the master now
	register(t, table, promoted)
	if got := addrs(table, "A", "b"); cmp.Diff(map[int64]string{0: "1:2"}, got) != "" {
		t.Errorf("after the switch: %v", got)
	}
	// The old role's farewell comes late, and is not the new one's.
	table.Unregister(route.Broker{Cluster: "C", Name: "b", Addr: "1:2", ID: 1})
	if got := addrs(table, "A", "b"); got[0] != "1:2" {
		t.Errorf("a late farewell of the slave took the master: %v", got)
	}
	if table.Unregister(promoted.Broker); table.Brokers() != 1 {
		t.Errorf("%d brokers live, want the first master's entry only", table.Brokers())
	}
}

func TestFencedMaster(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	register(t, table, broker("b", 0, "1:1"))
	elected := broker("b", 0, "1:2")
	elected.Version.StateVersion = 2
	register(t, table, elected)
	old := broker("b", 0, "1:1")
	old.Version.StateVersion = 1
	register(t, table, old)
	if got := addrs(table, "A", "b"); cmp.Diff(map[int64]string{0: "1:2"}, got) != "" {
		t.Errorf("a fenced master registered: %v", got)
	}
	if table.Brokers() != 1 {
		t.Errorf("%d live entries, want 1", table.Brokers())
	}
}

// H7: what removes a broker must still hold when it does.
func TestRemovalOnlyIfItStillHolds(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	r := broker("b", 0, "1:1")
	register(t, table, r)
	r.Session = 2
	register(t, table, r)
	if events := table.CloseSession(1); len(events) != 0 || addrs(table, "A", "b") == nil {
		t.Errorf("the end of the older connection removed the broker: %+v", events)
	}
	if table.CloseSession(0); addrs(table, "A", "b") == nil {
		t.Error("session 0 removed a broker")
	}
	table.CloseSession(2)
	if _, ok := table.Lookup("A"); ok || table.Brokers() != 0 {
		t.Error("the end of the newest connection left the broker")
	}
	if info := table.Clusters(); len(info.BrokerAddrTable) != 0 || len(info.ClusterAddrTable) != 0 {
		t.Errorf("left behind: %+v", info)
	}
}

func TestExpire(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	register(t, table, broker("b", 0, "1:1"))
	quick := broker("q", 0, "2:1")
	quick.TimeoutMS, quick.Session = 10_000, 2
	register(t, table, quick)
	for _, step := range []struct {
		now     int64
		beat    bool
		expired []route.Session
	}{
		{t0 + 10_000, false, nil},
		{t0 + 10_001, false, []route.Session{2}},
		{t0 + 120_000, true, nil},
		{t0 + 240_000, false, nil},
		{t0 + 240_001, false, []route.Session{1}},
	} {
		var got []route.Session
		for _, e := range table.Expire(step.now) {
			if e.Expired != 0 {
				got = append(got, e.Expired)
			}
		}
		if cmp.Diff(step.expired, got) != "" {
			t.Errorf("at %d: expired %v, want %v", step.now-t0, got, step.expired)
		}
		if step.beat {
			table.Heartbeat("C", "1:1", step.now)
			table.Heartbeat("C", "unknown", step.now)
		}
	}
	if len(table.Topics()) != 0 {
		t.Errorf("topics of expired brokers: %v", table.Topics())
	}
}

func TestActingMaster(t *testing.T) {
	t.Parallel()
	acting := true
	table := route.New(route.Rules{NotifyMinID: true, ShowActingMaster: true})
	master, slave := broker("b", 0, "1:1"), broker("b", 2, "1:2")
	member := protocol.SyncMemberTopicPrefix + "b"
	for _, r := range []*route.Registration{master, slave} {
		r.ActingMaster = &acting
		r.Topics = topics("A", "B", member)
		register(t, table, r)
	}
	events := table.Unregister(master.Broker)
	var change *route.MinIDChange
	for _, e := range events {
		if e.MinID != nil {
			change = e.MinID
		}
	}
	want := &route.MinIDChange{
		BrokerName: "b", MinID: 2, MinAddr: "1:2", OfflineAddr: "1:1",
		HAAddr: "ha-1:2", Targets: []string{"1:2"},
	}
	if diff := cmp.Diff(want, change); diff != "" {
		t.Errorf("notification (-want +got):\n%s", diff)
	}
	if p := perm(t, table, "A", "b"); p != 4 {
		t.Errorf("perm %d without a master, want 4", p)
	}
	if got := addrs(table, "A", "b"); got[0] != "1:2" {
		t.Errorf("the acting master is not shown as master: %v", got)
	}
	if got := addrs(table, member, "b"); got[2] != "1:2" {
		t.Errorf("the member topic shows %v", got)
	}
	if got := table.Members("C", "b").BrokerAddrs; got[2] != "1:2" {
		t.Errorf("the table itself changed: %v", got)
	}
	// Prime slave registers without write permission; then the master returns.
	slave.Version = version(9)
	register(t, table, slave)
	if p := perm(t, table, "A", "b"); p != 4 {
		t.Errorf("perm %d of a prime slave, want 4", p)
	}
	_, events, _ = table.Register(master)
	if len(events) != 1 || events[0].MinID == nil ||
		cmp.Diff([]string{"1:2"}, events[0].MinID.Targets) != "" || events[0].MinID.MinAddr != "1:1" {
		t.Errorf("the master's return: %+v", events)
	}
	if p := perm(t, table, "A", "b"); p != 6 {
		t.Errorf("perm %d after the master's return, want 6", p)
	}
}

func TestOldBrokerHasNoActingMaster(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{ShowActingMaster: true})
	old := broker("b", 1, "1:1")
	old.ActingMaster = nil
	register(t, table, old)
	if len(table.Topics()) != 0 {
		t.Error("a slave of before 5.0 brought topics")
	}
}

func TestWritePerm(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	r := broker("b", 0, "1:1", "A", "B", "C")
	r.Topics["C"].Perm = 7
	register(t, table, r)
	if n := table.WipeWritePerm("b"); n != 3 || perm(t, table, "A", "b") != 4 ||
		perm(t, table, "C", "b") != 5 {
		t.Errorf("wiped %d, perm %d and %d", n, perm(t, table, "A", "b"), perm(t, table, "C", "b"))
	}
	register(t, table, r)
	if perm(t, table, "A", "b") != 4 {
		t.Error("an equal registration gave the permission back")
	}
	if n := table.AddWritePerm("b"); n != 3 || perm(t, table, "C", "b") != 6 {
		t.Errorf("added %d, perm %d", n, perm(t, table, "C", "b"))
	}
	if table.WipeWritePerm("x") != 0 || table.AddWritePerm("x") != 0 {
		t.Error("an unknown broker has topics")
	}
}

func TestTopicLists(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	r := broker("b", 0, "1:1", "A", "U", "S", "US")
	r.Topics["U"].TopicSysFlag = 1
	r.Topics["S"].TopicSysFlag = 2
	r.Topics["US"].TopicSysFlag = 3
	register(t, table, r)
	other := broker("o", 1, "2:1", "O", "P")
	other.Broker.Cluster = "D"
	register(t, table, other)
	names, addr := table.SystemTopics()
	check := func(what string, want, got []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("all", []string{"A", "O", "P", "S", "U", "US"}, table.Topics())
	check("cluster", []string{"A", "S", "U", "US"}, table.TopicsOfCluster("C"))
	check("no cluster", []string{}, table.TopicsOfCluster("X"))
	check("unit", []string{"U", "US"}, table.UnitTopics(1, 0))
	check("unit sub", []string{"S", "US"}, table.UnitTopics(2, 0))
	check("unit sub, not unit", []string{"S"}, table.UnitTopics(2, 1))
	check("system", []string{"C", "b", "D", "o"}, names)
	if addr != "1:1" {
		t.Errorf("system topics name broker %q", addr)
	}
	if got := table.Members("C", "o").BrokerAddrs; len(got) != 0 {
		t.Errorf("members of a name in the wrong cluster: %v", got)
	}
}

func TestDeleteAndRegisterTopic(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	register(t, table, broker("b", 0, "1:1"))
	other := broker("o", 0, "2:1")
	other.Broker.Cluster = "D"
	register(t, table, other)
	table.DeleteTopic("A", "C")
	data, _ := table.Lookup("A")
	if len(data.QueueDatas) != 1 || data.QueueDatas[0].BrokerName != "o" {
		t.Errorf("after deletion from one cluster: %+v", data)
	}
	table.DeleteTopic("A", "D")
	table.DeleteTopic("B", "")
	table.DeleteTopic("none", "C")
	if got := table.Topics(); len(got) != 0 {
		t.Errorf("topics left: %v", got)
	}
	if table.RegisterTopic("N", []protocol.QueueData{{BrokerName: "b"}, {BrokerName: "x"}}) ||
		table.RegisterTopic("N", nil) || len(table.Topics()) != 0 {
		t.Error("queues of an unknown broker were entered")
	}
	if !table.RegisterTopic("N", []protocol.QueueData{{BrokerName: "b", Perm: 6}}) ||
		addrs(table, "N", "b")[0] != "1:1" {
		t.Error("queues of a known broker were not entered")
	}
}

func TestFilterZone(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	for _, b := range []struct {
		name, zone string
		id         int64
	}{{"here", "Z1", 0}, {"there", "Z2", 0}, {"slave", "Z2", 0}} {
		r := broker(b.name, b.id, b.name+":1")
		r.Zone, r.Filters = b.zone, []string{"f"}
		register(t, table, r)
	}
	register(t, table, broker("slave", 1, "slave:2"))
	s := broker("slave", 0, "slave:1")
	table.Unregister(s.Broker)
	data, _ := table.Lookup("A")
	route.FilterZone(data, "z1")
	var names []string
	for _, q := range data.QueueDatas {
		names = append(names, q.BrokerName)
	}
	if cmp.Diff([]string{"here", "slave"}, names) != "" || len(data.BrokerDatas) != 2 {
		t.Errorf("zone z1 sees %v", names)
	}
	if _, ok := data.FilterServerTable["there:1"]; ok {
		t.Error("filter servers of the other zone stayed")
	}
}

func TestMappings(t *testing.T) {
	t.Parallel()
	table := route.New(route.Rules{})
	r := broker("b", 0, "1:1")
	r.Mappings = map[string]*protocol.TopicQueueMappingInfo{
		"A": {BName: "b", Topic: "A", TotalQueues: 4}, "B": nil,
	}
	register(t, table, r)
	data, _ := table.Lookup("A")
	if m := data.MappingByBroker["b"]; m == nil || m.TotalQueues != 4 {
		t.Errorf("mapping of A: %+v", data.MappingByBroker)
	}
	if data, _ := table.Lookup("B"); data.MappingByBroker != nil {
		t.Errorf("mapping of B: %+v", data.MappingByBroker)
	}
}
