// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/engine/interop/apache"
)

// olderRelease is what the Maven project in older/ pins.
const olderRelease = "4.9.4"

// Package client against the servers of RocketMQ 4.9, which many clusters still run: everything that
// 4.9 has works, and what it does not have is refused.
func TestOurClientAgainstOlderApache(t *testing.T) {
	t.Parallel()
	at := startOlder(t, nil)
	tests := map[string]func(*testing.T, *older){
		"sends": olderSends, "retries": olderRetries, "ordered": olderOrdered, "sql": olderSQL,
		"broadcast": olderBroadcast, "reader": olderReader, "transactions": olderTransactions,
		"requests": olderRequests, "delays": olderDelays, "admin": olderAdmin,
		"resets": olderResets, "newer": olderLacks, "tls": olderTLS, "namespaces": olderNamespaces,
		"trace": olderTrace, "load generator": func(t *testing.T, o *older) { loadGenerator(t, o.at) },
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			c := ourClient(t, at)
			test(t, &older{ctx: ctx, at: at, c: c, admin: admin.New(c)})
		})
	}
}

// older is what each test has of the older servers.
type older struct {
	ctx   context.Context
	at    target
	c     *client.Client
	admin *admin.Admin
}

// olderKeys are what a broker with aclEnable knows of users.
const olderKeys = `globalWhiteRemoteAddresses: []
accounts:
- accessKey: rocketmq2
  secretKey: "12345678"
  whiteRemoteAddress:
  admin: true
`

// startOlder runs a name server and a broker of the older release, each in a process of its own,
// until the end of the test. more is added to the broker's configuration.
func startOlder(t *testing.T, more map[string]string) target {
	t.Helper()
	if ok, missing := apache.Available(); !ok {
		t.Skipf("no %s here", missing)
	}
	installation, err := apache.InstallRelease(t.Context(), "older", olderRelease, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	made := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-a",
		Dir: filepath.Join(home, "store"),
	}
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(home, "conf", "plain_acl.yml")
	if err := os.WriteFile(keys, []byte(olderKeys), 0o644); err != nil {
		t.Fatal(err)
	}
	program := func(name, class string, lines map[string]string, jvm ...string) *process {
		// It does not start without its logging configuration; an empty one keeps it quiet.
		logging := filepath.Join(home, "conf", "logback_"+name+".xml")
		if err := os.WriteFile(logging, []byte("<configuration/>"), 0o644); err != nil {
			t.Fatal(err)
		}
		conf := filepath.Join(home, name+".conf")
		writeConf(t, conf, lines)
		jvm = append(jvm, "-XX:TieredStopAtLevel=1", "-Djava.io.tmpdir="+home)
		p := startCommand(t, installation.Command(context.Background(), home, class, jvm,
			[]string{"-c", conf}))
		t.Cleanup(func() { _ = p.stop() })
		return p
	}
	names := program("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup",
		map[string]string{"listenPort": strconv.Itoa(port(made.NameServer))}, "-Xmx128m")
	if err := repeat(20*time.Second, func() error { // brokers register at their start, then every 30 s
		c, err := dialRaw(made.NameServer)
		if err == nil {
			c.close()
		}
		return err
	}); err != nil {
		t.Fatalf("name server: %v\n%s", err, names.output())
	}
	conf := olderConf(made)
	maps.Copy(conf, more)
	broker := program("broker", "org.apache.rocketmq.broker.BrokerStartup", conf,
		"-Xmx512m", "-XX:MaxDirectMemorySize=512m")
	if err := routeOf(made.NameServer, "SELF_TEST_TOPIC", 30*time.Second); err != nil {
		t.Fatalf("broker: %v\n%s", err, broker.output())
	}
	return made
}

func olderConf(made target) map[string]string {
	lines := map[string]string{
		"brokerName": made.BrokerName, "brokerClusterName": "DefaultCluster", "brokerIP1": "127.0.0.1",
		"listenPort": strconv.Itoa(port(made.Broker)), "namesrvAddr": made.NameServer,
		"storePathRootDir": made.Dir, "storePathCommitLog": filepath.Join(made.Dir, "commitlog"),
		"mappedFileSizeCommitLog": strconv.Itoa(64 << 20), "maxIndexNum": "100000",
	}
	maps.Copy(lines, map[string]string{
		"enablePropertyFilter": "true", "traceTopicEnable": "true",
		"transactionCheckInterval": "1000", "transactionTimeOut": "2000",
		"messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
	})
	return lines
}

// topic makes a topic of the test.
func (o *older) topic(t *testing.T, queues int) string {
	t.Helper()
	topic := name(t, "T")
	_, err := o.admin.PutTopic(o.ctx, admin.TopicConfig{
		Name: topic, ReadQueues: queues, WriteQueues: queues,
	}, admin.Everywhere())
	if err != nil {
		t.Fatal(err)
	}
	waitForRoute(t, o.at.NameServer, topic)
	return topic
}

func (o *older) producer(t *testing.T, opts ...client.ProducerOption) *client.Producer {
	t.Helper()
	p, err := o.c.NewProducer(name(t, "PG"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// send sends one message for each body, in order.
func (o *older) send(t *testing.T, p *client.Producer, topic string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if _, err := p.Send(o.ctx, &client.Message{Topic: topic, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
}

// reader reads a topic from its first message.
func (o *older) reader(t *testing.T, group, topic string) *client.Reader {
	t.Helper()
	r, err := o.c.NewReader(group, client.WithSubscription(topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// poll collects n messages.
func (o *older) poll(t *testing.T, r *client.Reader, n int) []*client.Received {
	t.Helper()
	var all []*client.Received
	for len(all) < n {
		ms, err := r.Poll(o.ctx, n-len(all))
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(all), n, err)
		}
		all = append(all, ms...)
	}
	return all
}

// counts says how often each body came.
func counts(ms []*client.Received) map[string]int {
	by := map[string]int{}
	for _, m := range ms {
		by[string(m.Body)]++
	}
	return by
}

// each fails unless every body came exactly n times, and nothing else.
func each(got map[string]int, want []string, n int) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d different messages of %d: %v", len(got), len(want), got)
	}
	for _, body := range want {
		if got[body] != n {
			return fmt.Errorf("%s came %d times, want %d", body, got[body], n)
		}
	}
	return nil
}
