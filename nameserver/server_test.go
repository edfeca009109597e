// SPDX-License-Identifier: Apache-2.0

package nameserver_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const noRoute = "No topic route info in name server for the topic: A\n" +
	"See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

func TestBrokerLifeCycle(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	b, c := dial(t, s), dial(t, s)
	f := brokerFields("b", "0", "1:1")

	c.want(remoting.TopicNotExist, noRoute, remoting.GetRouteInfoByTopic, fields{"topic": "A"}, "")
	b.want(1, "register broker failed", remoting.RegisterBroker, f, string(registerBody(1, "A")))
	b.register("b", "0", "1:1")
	b.want(0, "", remoting.RegisterBroker, f, string(registerBody(2, "New")))
	c.want(0, "", remoting.GetRouteInfoByTopic, fields{"topic": "New"}, "")

	version := string(protocol.Marshal(&protocol.DataVersion{Counter: 2, Timestamp: 1}))
	if r := c.want(0, "", remoting.QueryDataVersion, f, version); field(r, "changed") != "false" ||
		string(r.Body) != version {
		t.Errorf("known data version: changed=%s %s", field(r, "changed"), r.Body)
	}
	r := c.want(0, "", remoting.QueryDataVersion, f, `{"counter":"3"}`)
	if field(r, "changed") != "true" {
		t.Errorf("other data version: changed=%s", field(r, "changed"))
	}
	unknown := brokerFields("b", "0", "9:9")
	r = c.want(0, "", remoting.QueryDataVersion, unknown, version)
	if field(r, "changed") != "true" || r.Body != nil {
		t.Errorf("unknown broker: changed=%s %s", field(r, "changed"), r.Body)
	}
	b.want(0, "", remoting.BrokerHeartbeat, f, "")
	b.want(0, "", remoting.UnregisterBroker, f, "")
	c.want(remoting.TopicNotExist, noRoute, remoting.GetRouteInfoByTopic, fields{"topic": "A"}, "")
}

// A broker whose connection ends is gone at once, unless it has registered over another one.
func TestClosedConnectionRemovesItsBroker(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	first, second, c := dial(t, s), dial(t, s), dial(t, s)
	first.register("b", "0", "1:1")
	second.register("b", "0", "1:1")
	other := dial(t, s)
	other.register("x", "0", "2:1")
	_ = first.conn.Close()
	_ = other.conn.Close()
	eventually(t, "the other broker left", func() bool {
		var info protocol.ClusterInfo
		body := c.call(remoting.GetBrokerClusterInfo, nil, nil).Body
		if err := protocol.Unmarshal(body, &info); err != nil {
			t.Fatal(err)
		}
		return len(info.BrokerAddrTable) == 1
	})
	if !c.hasRoute() {
		t.Fatal("the end of the older connection removed the broker")
	}
	_ = second.conn.Close()
	eventually(t, "the broker left with its connection", func() bool { return !c.hasRoute() })
}

func TestExpiryClosesTheConnection(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	s := start(t, "", func(cfg *nameserver.Config) { cfg.ScanIntervalMS = 10 })
	pool := invoke.NewPool(invoke.Config{OnClose: func(_ string, err error) { closed <- err }})
	t.Cleanup(func() { _ = pool.Close() })
	f := brokerFields("b", "0", "1:1")
	f["heartbeatTimeoutMillis"] = "50"
	r, err := pool.Call(within(t), s.Addr(), &invoke.Request{
		Code: remoting.RegisterBroker, Header: f, Body: registerBody(1, "A", "B"),
	})
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection of an expired broker stays")
	}
	if dial(t, s).hasRoute() {
		t.Error("an expired broker is in the route")
	}
}

// Large registrations are decoded elsewhere; what follows on the connection stays behind them.
func TestLargeRegistrations(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	c := dial(t, s)
	f := brokerFields("b", "0", "1:1")
	names := make([]string, 3000)
	for i := range names {
		names[i] = "topic-with-a-long-name-" + string(rune('a'+i%26)) + time.Duration(i).String()
	}
	outcome := make(chan *invoke.Response, 4)
	for _, body := range [][]byte{
		registerBody(1, names...), registerBody(2, "X"), registerBody(3, names[:1500]...),
		registerBody(4, "Y"),
	} {
		q := &invoke.Request{Code: remoting.RegisterBroker, Header: f, Body: body}
		err := c.conn.Async(within(t), q,
			func(r *invoke.Response, err error) {
				if err != nil {
					r = &invoke.Response{Code: -1, Remark: err.Error()}
				}
				outcome <- r
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if r := <-outcome; r.Code != 0 {
			t.Errorf("registration: %d %s", r.Code, r.Remark)
		}
	}
	version := string(protocol.Marshal(&protocol.DataVersion{Counter: 4, Timestamp: 1}))
	if r := c.want(0, "", remoting.QueryDataVersion, f, version); field(r, "changed") != "false" {
		t.Errorf("the last registration is not the one that counts: %s", r.Body)
	}
	for _, name := range []string{names[2999], "X", "Y"} {
		c.want(0, "", remoting.GetRouteInfoByTopic, fields{"topic": name}, "")
	}
}

func TestCRC(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, "", nil))
	f := brokerFields("b", "0", "1:1")
	f["bodyCrc32"] = "17"
	c.want(1, "crc32 not match", remoting.RegisterBroker, f, string(registerBody(1, "A", "B")))
	if c.hasRoute() {
		t.Error("a registration with a wrong check sum counts")
	}
}

func TestTopicRequests(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	c := dial(t, s)
	c.register("b", "0", "1:1")
	check := func(want string, code remoting.RequestCode, f fields) {
		t.Helper()
		if got := string(c.want(0, "", code, f, "").Body); got != want {
			t.Errorf("%v: got %s, want %s", code, got, want)
		}
	}
	check(`{"topicList":["A","B"]}`, remoting.GetAllTopicListFromNameServer, nil)
	check(`{"topicList":["A","B"]}`, remoting.GetTopicsByCluster, fields{"cluster": "C"})
	check(`{"topicList":[]}`, remoting.GetTopicsByCluster, fields{"cluster": "X"})
	for _, code := range []remoting.RequestCode{
		remoting.GetUnitTopicList,
		remoting.GetHasUnitSubTopicList, remoting.GetHasUnitSubUnunitTopicList,
	} {
		check(`{"topicList":[]}`, code, nil)
	}
	check(`{"brokerAddr":"1:1","topicList":["C","b"]}`, remoting.GetSystemTopicListFromNS, nil)

	r := c.want(0, "", remoting.WipeWritePermOfBroker, fields{"brokerName": "b"}, "")
	if field(r, "wipeTopicCount") != "2" {
		t.Errorf("wiped %s", field(r, "wipeTopicCount"))
	}
	r = c.want(0, "", remoting.AddWritePermOfBroker, fields{"brokerName": "b"}, "")
	if field(r, "addTopicCount") != "2" {
		t.Errorf("added %s", field(r, "addTopicCount"))
	}
	route := `{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"writeQueueNums":4}]}`
	c.want(0, "", remoting.RegisterTopicInNamesrv, fields{"topic": "N"}, route)
	c.want(0, "", remoting.GetRouteInfoByTopic, fields{"topic": "N"}, "")
	c.want(0, "", remoting.DeleteTopicInNamesrv, fields{"topic": "N", "clusterName": "X"}, "")
	c.want(0, "", remoting.GetRouteInfoByTopic, fields{"topic": "N"}, "")
	c.want(0, "", remoting.DeleteTopicInNamesrv, fields{"topic": "N", "clusterName": "C"}, "")
	c.want(0, "", remoting.DeleteTopicInNamesrv, fields{"topic": "B"}, "")
	check(`{"topicList":["A"]}`, remoting.GetAllTopicListFromNameServer, nil)
}

func TestListsDisabled(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, "", func(cfg *nameserver.Config) {
		cfg.EnableAllTopicList, cfg.EnableTopicList = false, false
	}))
	for _, code := range []remoting.RequestCode{
		remoting.GetAllTopicListFromNameServer, remoting.GetTopicsByCluster, remoting.GetUnitTopicList,
		remoting.GetHasUnitSubTopicList, remoting.GetHasUnitSubUnunitTopicList,
	} {
		c.want(1, "disable", code, fields{"cluster": "C"}, "")
	}
}

func TestRouteOptions(t *testing.T) {
	t.Parallel()
	s := start(t, "", func(cfg *nameserver.Config) { cfg.OrderMessageEnable = true })
	c := dial(t, s)
	c.register("b", "0", "1:1")
	zoned := brokerFields("z", "0", "2:1")
	zoned["__ZONE_NAME"] = "far"
	c.want(0, "", remoting.RegisterBroker, zoned, string(registerBody(1, "A", "B")))
	c.want(0, "", remoting.PutKVConfig,
		fields{"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "b:4"}, "")
	var data protocol.TopicRouteData
	r := c.want(0, "", remoting.GetRouteInfoByTopic,
		fields{"topic": "A", "__ZONE_MODE": "TRUE", "__ZONE_NAME": "FAR"}, "")
	if err := protocol.Unmarshal(r.Body, &data); err != nil {
		t.Fatal(err)
	}
	if data.OrderTopicConf != "b:4" || len(data.BrokerDatas) != 1 ||
		data.BrokerDatas[0].BrokerName != "z" {
		t.Errorf("route %+v, want the broker of the zone and the order", data)
	}
	// Brokers get the order topics with their registration.
	r = c.want(0, "", remoting.RegisterBroker, zoned, string(registerBody(1, "A", "B")))
	if string(r.Body) != `{"table":{"A":"b:4"}}` {
		t.Errorf("answer to a registration: %s", r.Body)
	}
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, "", func(cfg *nameserver.Config) { cfg.NeedWait = true }))
	c.want(1, "name server not ready", remoting.GetRouteInfoByTopic, fields{"topic": "A"}, "")
}

func TestMinBrokerIDIsNotified(t *testing.T) {
	t.Parallel()
	got := make(chan fields, 4)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = nc.Close() }()
		for range 2 {
			cmd := readFrame(t, nc)
			f := fields{"code": cmd.Request().String()}
			for _, x := range cmd.Fields {
				f[string(x.Name)] = string(x.Value)
			}
			got <- f
		}
	}()
	s := start(t, "", func(cfg *nameserver.Config) { cfg.NotifyMinBrokerID = true })
	c, master := dial(t, s), dial(t, s)
	slave := brokerFields("b", "1", l.Addr().String())
	slave["enableActingMaster"] = "true"
	c.want(0, "", remoting.RegisterBroker, slave, string(registerBody(1, "A", "B")))
	m := brokerFields("b", "0", "127.0.0.1:1")
	m["enableActingMaster"] = "true"
	master.want(0, "", remoting.RegisterBroker, m, string(registerBody(1, "A", "B")))
	_ = master.conn.Close()
	want := []fields{
		{
			"code": "NOTIFY_MIN_BROKER_ID_CHANGE", "brokerName": "b", "minBrokerId": "0",
			"minBrokerAddr": "127.0.0.1:1", "haBrokerAddr": "ha127.0.0.1:1",
		},
		{
			"code": "NOTIFY_MIN_BROKER_ID_CHANGE", "brokerName": "b", "minBrokerId": "1",
			"minBrokerAddr": slave["brokerAddr"], "haBrokerAddr": slave["haServerAddr"],
			"offlineBrokerAddr": "127.0.0.1:1",
		},
	}
	for _, w := range want {
		select {
		case f := <-got:
			if diff := cmp.Diff(w, f); diff != "" {
				t.Errorf("notification (-want +got):\n%s", diff)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no notification %v", w)
		}
	}
}

func TestOnewayAndStrayFrames(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, "", nil))
	for range 3 {
		err := c.conn.Oneway(within(t), &invoke.Request{Code: remoting.GetBrokerClusterInfo})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.conn.Respond(99, &invoke.Response{}); err != nil {
			t.Fatal(err)
		}
	}
	c.want(0, "", remoting.GetBrokerClusterInfo, nil, "")
}

func TestStartAndCloseFaults(t *testing.T) {
	t.Parallel()
	s := start(t, "", nil)
	cfg := config(t.TempDir())
	cfg.Listen = s.Addr()
	second, err := nameserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(); err == nil {
		t.Error("two name servers on one port")
	}
	for range 2 {
		if err := second.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	c := dial(t, s)
	c.hasRoute() // the connection is with its loop by now
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = c.conn.Call(ctx, &invoke.Request{Code: remoting.GetBrokerClusterInfo})
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call after Close: %v, want a closed connection", err)
	}
}
