// SPDX-License-Identifier: Apache-2.0

package registration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/engine/registration"
	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

var backend = flag.String("backend", "", "backend of package eventloop")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m, // the pool that gnet's package starts on import never ends
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// table is a Source whose topics tests change.
type table struct {
	mu      sync.Mutex
	names   []string
	version protocol.DataVersion
}

func (s *table) TopicConfigs() *protocol.TopicConfigWrapper {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &protocol.TopicConfigWrapper{
		DataVersion:      s.version,
		TopicConfigTable: map[string]*protocol.TopicConfig{},
	}
	for _, name := range s.names {
		w.TopicConfigTable[name] = &protocol.TopicConfig{
			TopicName: name, Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4, TopicSysFlag: 1,
		}
	}
	return w
}

func (s *table) add(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, names...)
	s.version.Next(time.Now().UnixMilli())
}

func startNameServer(t *testing.T, listen string) *nameserver.Server {
	t.Helper()
	cfg := nameserver.DefaultConfig()
	cfg.Listen, cfg.Dir, cfg.Backend = listen, t.TempDir(), *backend
	s, err := nameserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func config(source registration.Source, addrs ...string) registration.Config {
	return registration.Config{
		NameServers: addrs, Source: source,
		Broker: registration.Broker{
			ClusterName: "C", BrokerName: "b", Addr: "127.0.0.1:10911",
			HAAddr: "127.0.0.1:10912",
		},
		RetryFrom: 5 * time.Millisecond, RetryTo: 20 * time.Millisecond,
	}
}

func newRegistration(t *testing.T, cfg registration.Config) *registration.Registration {
	t.Helper()
	r, err := registration.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// routeOf asks a name server for a topic; nil when it has none.
func routeOf(t *testing.T, addr, topic string) *protocol.TopicRouteData {
	t.Helper()
	pool := invoke.NewPool(invoke.Config{})
	defer func() { _ = pool.Close() }()
	r, err := pool.Call(within(t), addr, &invoke.Request{
		Code: remoting.GetRouteInfoByTopic, Header: &protocol.RouteRequest{Topic: topic},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Code == remoting.TopicNotExist {
		return nil
	}
	var data protocol.TopicRouteData
	if err := protocol.Unmarshal(r.Body, &data); err != nil {
		t.Fatal(err)
	}
	return &data
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func TestRegistersEverywhere(t *testing.T) {
	t.Parallel()
	one, two := startNameServer(t, "127.0.0.1:0"), startNameServer(t, "127.0.0.1:0")
	source := &table{names: []string{"A", "B"}}
	r := newRegistration(t, config(source, one.Addr(), two.Addr()))
	if err := r.RegisterAll(within(t)); !errors.Is(err, registration.ErrClosed) {
		t.Errorf("before Start: %v", err)
	}
	r.Start()
	if err := r.RegisterAll(within(t)); err != nil {
		t.Fatal(err)
	}
	source.add("New")
	if err := r.RegisterTopic(within(t), "New", "none"); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{one.Addr(), two.Addr()} {
		for _, topic := range []string{"A", "B", "New"} {
			data := routeOf(t, ns, topic)
			if data == nil {
				t.Fatalf("no route of %s", topic)
			}
			want := []protocol.BrokerData{{
				Cluster: "C", BrokerName: "b",
				BrokerAddrs: map[int64]string{0: "127.0.0.1:10911"},
			}}
			if diff := cmp.Diff(want, data.BrokerDatas); diff != "" {
				t.Errorf("%s (-want +got):\n%s", topic, diff)
			}
		}
	}
	source.add("Later")
	r.RegisterTopics("Later")
	eventually(t, "Later is there", func() bool { return routeOf(t, two.Addr(), "Later") != nil })
	if err := r.Unregister(within(t)); err != nil {
		t.Errorf("Unregister: %v", err)
	}
	if routeOf(t, one.Addr(), "A") != nil || routeOf(t, two.Addr(), "A") != nil {
		t.Error("the broker is there after Unregister")
	}
	if err := r.RegisterTopic(within(t), "A"); !errors.Is(err, registration.ErrClosed) {
		t.Errorf("after Unregister: %v", err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// One topic alone is what name servers take for a change of a broker that they do not know.
func TestSingleTopicAndNone(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"A"}} {
		ns := startNameServer(t, "127.0.0.1:0")
		source := &table{names: names}
		r := newRegistration(t, config(source, ns.Addr()))
		r.Start()
		if err := r.RegisterAll(within(t)); err != nil {
			t.Fatalf("%v: %v", names, err)
		}
		source.add("B")
		if err := r.RegisterTopic(within(t), "B"); err != nil || routeOf(t, ns.Addr(), "B") == nil {
			t.Errorf("%v: then B: %v", names, err)
		}
		if len(names) > 0 && routeOf(t, ns.Addr(), "A") == nil {
			t.Error("no route of A")
		}
	}
}

func TestSplitsLargeTables(t *testing.T) {
	t.Parallel()
	ns := startNameServer(t, "127.0.0.1:0")
	source := &table{}
	for i := range 251 {
		source.add(fmt.Sprintf("T%03d", i))
	}
	cfg := config(source, ns.Addr())
	cfg.SplitSize = 50
	r := newRegistration(t, cfg)
	r.Start()
	for range 2 {
		if err := r.RegisterAll(within(t)); err != nil {
			t.Fatal(err)
		}
		for i := range 251 {
			if routeOf(t, ns.Addr(), fmt.Sprintf("T%03d", i)) == nil {
				t.Fatalf("no route of topic %d", i)
			}
		}
	}
	names := make([]string, 100) // more than go alone
	for i := range names {
		names[i] = fmt.Sprintf("More%d", i)
	}
	source.add(names...)
	err := r.RegisterTopic(within(t), names...)
	if err != nil || routeOf(t, ns.Addr(), "More99") == nil {
		t.Errorf("many changes: %v", err)
	}
}

// A name server that is away is tried on and reported once a minute; when it comes, and when it
// comes back without a memory, the broker is there soon.
func TestNameServerAwayAndBack(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	var mu sync.Mutex
	notices := map[string]int{}
	cfg := config(&table{names: []string{"A", "B"}}, addr)
	cfg.Notice = func(msg string, _ ...any) {
		mu.Lock()
		defer mu.Unlock()
		notices[msg]++
	}
	count := func(part string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for msg, k := range notices {
			if strings.Contains(msg, part) {
				n += k
			}
		}
		return n
	}
	r := newRegistration(t, cfg)
	r.Start()
	if err := r.RegisterAll(within(t)); err == nil {
		t.Fatal("registered with nobody")
	}
	eventually(t, "a notice", func() bool { return count("not registered") == 1 })
	<-time.After(100 * time.Millisecond) // several more tries
	for range 2 {
		ns := startNameServer(t, addr)
		eventually(t, "the broker is registered", func() bool { return routeOf(t, addr, "A") != nil })
		if err := ns.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "news that it is back", func() bool { return count("registered with") >= 1 })
	if n := count("not registered"); n > 3 {
		t.Errorf("%d notices, want one for each time it went away", n)
	}
}

func TestAnswerPermissionAndPeriod(t *testing.T) {
	t.Parallel()
	ns := startNameServer(t, "127.0.0.1:0")
	source := &table{names: []string{"A", "B"}}
	master := newRegistration(t, config(source, ns.Addr()))
	master.Start()
	if err := master.RegisterAll(within(t)); err != nil {
		t.Fatal(err)
	}
	pool := invoke.NewPool(invoke.Config{})
	t.Cleanup(func() { _ = pool.Close() })
	if _, err := pool.Call(within(t), ns.Addr(), &invoke.Request{
		Code: remoting.PutKVConfig, Header: &protocol.PutKVConfigRequest{
			Namespace: protocol.OrderTopicNamespace, Key: "A", Value: "b:4",
		},
	}); err != nil {
		t.Fatal(err)
	}
	answers := make(chan registration.Answer, 100)
	cfg := config(source, ns.Addr())
	cfg.Pool = pool
	cfg.Broker.BrokerID, cfg.Broker.Addr = 1, "127.0.0.1:20911"
	cfg.OnAnswer = func(a registration.Answer) { answers <- a }
	slave := newRegistration(t, cfg)
	slave.Start()
	want := registration.Answer{
		NameServer: ns.Addr(), MasterAddr: "127.0.0.1:10911",
		HAAddr: "127.0.0.1:10912", OrderTopics: map[string]string{"A": "b:4"},
	}
	if diff := cmp.Diff(want, <-answers); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}

	cfg = config(source, ns.Addr())
	cfg.Broker.BrokerName, cfg.Broker.Addr = "r", "127.0.0.1:30911"
	cfg.Permission = func() int32 { return protocol.PermRead }
	cfg.Period, cfg.OnlyWhenChanged = 5*time.Millisecond, true
	reader := newRegistration(t, cfg)
	reader.Start()
	if err := reader.RegisterAll(within(t)); err != nil {
		t.Fatal(err)
	}
	perm := func(topic string) protocol.QueueData {
		for _, q := range routeOf(t, ns.Addr(), topic).QueueDatas {
			if q.BrokerName == "r" {
				return q
			}
		}
		return protocol.QueueData{}
	}
	q := protocol.QueueData{BrokerName: "r", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 4}
	if diff := cmp.Diff(q, perm("A")); diff != "" {
		t.Errorf("queues of a broker without permission to write (-want +got):\n%s", diff)
	}
	source.add("Found") // by the periodic question for the data version
	eventually(t, "the changed table is registered", func() bool {
		return routeOf(t, ns.Addr(), "Found") != nil && perm("Found").Perm == 4
	})
}

func TestSetNameServers(t *testing.T) {
	t.Parallel()
	one, two := startNameServer(t, "127.0.0.1:0"), startNameServer(t, "127.0.0.1:0")
	source := &table{names: []string{"A", "B"}}
	r := newRegistration(t, config(source, one.Addr()))
	r.Start()
	if err := r.RegisterAll(within(t)); err != nil {
		t.Fatal(err)
	}
	r.SetNameServers([]string{two.Addr()})
	eventually(t, "the new name server knows", func() bool {
		return routeOf(t, two.Addr(), "A") != nil
	})
	source.add("New")
	if err := r.RegisterTopic(within(t), "New"); err != nil || routeOf(t, two.Addr(), "New") == nil {
		t.Errorf("then New: %v", err)
	}
	if routeOf(t, one.Addr(), "New") != nil {
		t.Error("the old name server was told")
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*registration.Config){
		"source":   func(c *registration.Config) { c.Source = nil },
		"name":     func(c *registration.Config) { c.Broker.BrokerName = "" },
		"address":  func(c *registration.Config) { c.Broker.Addr = "" },
		"duration": func(c *registration.Config) { c.Period = -1 },
	} {
		cfg := config(&table{})
		change(&cfg)
		if _, err := registration.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if d := registration.ClampPeriod(time.Second); d != 10*time.Second {
		t.Errorf("ClampPeriod(1s) = %v", d)
	}
	r := newRegistration(t, config(&table{}))
	r.Start()
	if err := errors.Join(r.RegisterAll(within(t)), r.Unregister(within(t))); err != nil {
		t.Errorf("without name servers: %v", err)
	}
}
