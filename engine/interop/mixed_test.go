// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// roundTrip sends through a target with the Java client and consumes what was sent.
func roundTrip(t *testing.T, at target, topic string, count int) {
	t.Helper()
	jvm := java(t)
	p := producer(t, jvm, at, nil)
	must[sent](t, jvm, "producer.send", args{"handle": p, "topic": topic, "body": "first"})
	waitForRoute(t, at.NameServer, topic)
	want := append(many(t, jvm, p, topic, "m", count), "first")
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	if err := sameSet(bodies(awaitPush(t, jvm, c, len(want), 30_000)), want); err != nil {
		t.Error(err)
	}
}

// goneFromRoutes waits until a name server no longer names a broker for the topic.
func goneFromRoutes(t *testing.T, nameServer, topic string, limit time.Duration) {
	t.Helper()
	eventually(t, limit, func() error {
		c, err := dialRaw(nameServer)
		if err != nil {
			return err
		}
		defer c.close()
		a, err := c.call(105, map[string]string{"topic": topic}, nil, 5*time.Second)
		if err != nil {
			return err
		}
		if a.Code != 17 {
			return fmt.Errorf("code %d, route %s", a.Code, a.Body)
		}
		return nil
	})
}

// Our broker registers with Apache's name server, new topics at once, and is gone when it stops.
func TestOurBrokerUnderTheirNameServer(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir := scratch(t)
	at := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-s", Dir: filepath.Join(dir, "store"),
	}
	open(t, jvm, "namesrv", args{"port": port(at.NameServer), "dir": filepath.Join(dir, "namesrv")})
	conf := filepath.Join(dir, "broker.conf")
	writeConf(t, conf, map[string]string{
		"brokerName": at.BrokerName, "brokerClusterName": "DefaultCluster", "brokerIP1": "127.0.0.1",
		"listenPort": fmt.Sprint(port(at.Broker)), "storePathRootDir": at.Dir, "mappedFileSizeCommitLog": "67108864",
	})
	p := start(t, "broker", "-n", at.NameServer, "-c", conf)
	if err := routeOf(at.NameServer, "SELF_TEST_TOPIC", 20*time.Second); err != nil {
		t.Fatalf("%v\n%s", err, p.output())
	}
	topic := name(t, "T")
	roundTrip(t, at, topic, 20)
	var out string
	err := jvm.do("mqadmin", args{"class": "cluster.ClusterListSubCommand", "args": []string{}, "namesrv": at.NameServer}, &out)
	if err != nil || !strings.Contains(out, at.BrokerName) || !strings.Contains(out, at.Broker) {
		t.Errorf("clusterList: %v\n%s", err, out)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stop: %v\n%s", err, p.output())
	}
	goneFromRoutes(t, at.NameServer, topic, 5*time.Second)
}

// Apache's broker registers with our name server, and clients find it there.
func TestTheirBrokerUnderOurNameServer(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir := scratch(t)
	at := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-j", Dir: filepath.Join(dir, "store"),
	}
	start(t, "nameserver", "--listen", at.NameServer, "--data", filepath.Join(dir, "namesrv"))
	eventually(t, 10*time.Second, func() error {
		c, err := dialRaw(at.NameServer)
		if err == nil {
			c.close()
		}
		return err
	})
	broker := open(t, jvm, "broker", args{
		"port": port(at.Broker), "dir": at.Dir, "namesrv": at.NameServer, "conf": args{"brokerName": at.BrokerName},
	})
	waitForRoute(t, at.NameServer, "TBW102")
	topic := name(t, "T")
	roundTrip(t, at, topic, 20)
	run(t, jvm, "broker.stop", args{"handle": broker})
	goneFromRoutes(t, at.NameServer, topic, 10*time.Second)
}

// One cluster of a broker of each kind, under our name server: a topic of both, one group over both.
func TestBrokersOfBothKinds(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	at, _ := startServer(t, scratch(t), map[string]string{"brokerName": "broker-s"})
	theirs := address(ports(t))
	open(t, jvm, "broker", args{
		"port": port(theirs), "dir": filepath.Join(scratch(t), "store"), "namesrv": at.NameServer,
		"conf": args{"brokerName": "broker-j"},
	})
	topic := name(t, "T")
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	for _, broker := range []string{at.Broker, theirs} {
		run(t, jvm, "admin.createTopic", args{"handle": admin, "address": broker, "topic": topic, "queues": 2})
	}
	type route struct{ BrokerDatas []struct{ BrokerName string } }
	eventually(t, 20*time.Second, func() error {
		var r route
		err := jvm.do("admin.route", args{"handle": admin, "topic": topic}, &r)
		if err == nil && len(r.BrokerDatas) != 2 {
			err = fmt.Errorf("route %+v", r)
		}
		return err
	})
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	p := producer(t, jvm, at, nil)
	want := many(t, jvm, p, topic, "m", 20)
	got := awaitPush(t, jvm, c, 20, 40_000)
	if err := sameSet(bodies(got), want); err != nil {
		t.Fatal(err)
	}
	byBroker := map[string]int{}
	for _, m := range got {
		byBroker[m.Broker]++
	}
	if byBroker["broker-s"] == 0 || byBroker["broker-j"] == 0 {
		t.Errorf("messages by broker %v", byBroker)
	}
}
