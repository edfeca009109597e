// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine/interop/apache"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/workload"
)

// handled runs a consumer of a client until every body came as often as wanted, and ends it cleanly.
func (o *older) handled(
	t *testing.T, c *client.Client, group string, want map[string]int, fails func(*client.Received) bool,
	opts ...client.ConsumerOption,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	got := make(chan *client.Received, 100)
	done := make(chan error, 1)
	go func() {
		done <- c.Consume(ctx, group, func(_ context.Context, m *client.Received) error {
			got <- m
			if fails(m) {
				return client.RetryAfter(time.Second, errors.New("once"))
			}
			return nil
		}, append(opts, client.WithStart(client.Earliest))...)
	}()
	missing := 0
	for _, n := range want {
		missing += n
	}
	for came := map[string]int{}; missing > 0; missing-- {
		select {
		case m := <-got:
			if came[string(m.Body)]++; came[string(m.Body)] > want[string(m.Body)] {
				t.Errorf("%s of %s came %d times", m.Body, m.Source, came[string(m.Body)])
			}
		case err := <-done:
			t.Fatalf("the consumer ended: %v", err)
		case <-o.ctx.Done():
			t.Fatalf("came %v, want %v", came, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("consume: %v", err)
	}
}

func never(*client.Received) bool { return false }

// TLS on the servers' ordinary ports, with a certificate of their own making, for every kind of
// call; the certificate is verified unless the user says otherwise.
func olderTLS(t *testing.T, o *older) {
	topic := o.topic(t, 2)
	c := ourClient(t, o.at, client.WithTLS(&tls.Config{InsecureSkipVerify: true}))
	p, err := c.NewProducer(name(t, "PG"), client.WithLinger(time.Millisecond, 32<<10))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for i := range 50 {
		body := fmt.Sprint("secret", i)
		want[body] = 1
		err := p.SendAsync(o.ctx, &client.Message{Topic: topic, Body: []byte(body)}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(o.ctx); err != nil {
		t.Fatal(err)
	}
	o.handled(t, c, name(t, "CG"), want, never, client.WithSubscription(topic, client.All()))
	if err := ourClient(t, o.at, client.WithTLS(&tls.Config{})).Ping(o.ctx); err == nil {
		t.Error("an unknown certificate was taken")
	}
}

// Two namespaces and none with the same topic and group do not meet, and a redelivery stays in its
// own.
func olderNamespaces(t *testing.T, o *older) {
	topic, group := name(t, "T"), name(t, "CG")
	clients := map[string]*client.Client{}
	for _, ns := range []string{"one", "two", ""} {
		var opts []client.Option
		if ns != "" {
			opts = append(opts, client.WithNamespace(ns))
		}
		c := ourClient(t, o.at, opts...)
		clients[ns] = c
		p, err := c.NewProducer(name(t, "PG"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.Send(o.ctx, &client.Message{Topic: topic, Body: []byte("of " + ns)})
		if err != nil || res.Queue.Topic != topic {
			t.Fatalf("%q: %+v, %v", ns, res, err)
		}
	}
	for ns, c := range clients {
		o.handled(t, c, group, map[string]int{"of " + ns: 2}, func(m *client.Received) bool {
			if m.Topic != topic {
				t.Errorf("%q: topic %s", ns, m.Topic)
			}
			return m.Attempt == 1
		}, client.WithSubscription(topic, client.All()))
	}
	for _, full := range []string{"one%" + topic, "two%" + topic, topic} {
		if status, err := o.admin.TopicStatus(o.ctx, full); err != nil || len(status.Queues) == 0 {
			t.Errorf("%s at the broker: %+v, %v", full, status, err)
		}
	}
}

// The release's own tool shows our trace of a message, from its producer and from its consumer.
func olderTrace(t *testing.T, o *older) {
	topic, producers, group := o.topic(t, 1), name(t, "PG"), name(t, "CG")
	c := ourClient(t, o.at)
	p, err := c.NewProducer(producers, client.WithTrace(""))
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Send(o.ctx, &client.Message{Topic: topic, Tag: "TagT", Body: []byte("traced")})
	if err != nil {
		t.Fatal(err)
	}
	o.handled(t, c, group, map[string]int{"traced": 1}, never,
		client.WithSubscription(topic, client.All()), client.WithConsumerTrace(""))
	if err := p.Close(o.ctx); err != nil { // sends the record
		t.Fatal(err)
	}
	installation, err := apache.InstallRelease(t.Context(), "older", olderRelease, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	logging := filepath.Join(home, "conf", "logback_tools.xml")
	if err := os.WriteFile(logging, []byte("<configuration/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, 40*time.Second, func() error {
		out, err := installation.Command(o.ctx, home, "org.apache.rocketmq.tools.command.MQAdminStartup",
			[]string{"-Xmx128m", "-XX:TieredStopAtLevel=1"},
			[]string{"queryMsgTraceById", "-i", res.ID, "-n", o.at.NameServer}).CombinedOutput()
		for _, part := range []string{"Pub", producers, "Sub", group, "success"} {
			if err == nil && !strings.Contains(string(out), part) {
				err = fmt.Errorf("no %s in\n%s", part, out)
			}
		}
		return err
	})
}

// A broker of 4.9 with access control takes our signatures for every kind of request, and refuses
// wrong ones.
func TestOurCredentialsAgainstOlderApache(t *testing.T) {
	t.Parallel()
	at := startOlder(t, map[string]string{"aclEnable": "true"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := &older{ctx: ctx, at: at}
	topic := name(t, "T")
	send := func(opts ...client.Option) error {
		p, err := ourClient(t, at, opts...).NewProducer(name(t, "PG"), client.WithRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		ms := []*client.Message{
			{Topic: topic, Body: []byte("signed")}, {Topic: topic, Body: []byte("signed too")},
		}
		if _, errs := p.SendBatch(ctx, ms...); errs[0] != nil {
			return errs[0]
		}
		_, err = p.Send(ctx, &client.Message{Topic: topic, Body: []byte("alone"), Keys: []string{"k"}})
		return err
	}
	good := client.WithCredentials(client.StaticCredentials{AccessKey: "rocketmq2", SecretKey: "12345678"})
	if err := send(good); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []client.StaticCredentials{
		{AccessKey: "rocketmq2", SecretKey: "87654321"}, {AccessKey: "nobody", SecretKey: "12345678"},
	} {
		var be *client.BrokerError
		err := send(client.WithCredentials(wrong))
		if !errors.As(err, &be) || !strings.Contains(be.Remark, "Acl") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if err := send(); err == nil {
		t.Error("a send without credentials was taken")
	}
	want := map[string]int{"signed": 2, "signed too": 1, "alone": 1}
	o.handled(t, ourClient(t, at, good), name(t, "CG"), want, func(m *client.Received) bool {
		return string(m.Body) == "signed" && m.Attempt == 1
	}, client.WithSubscription(topic, client.All()))
	load := workload.Credentials{AccessKey: "rocketmq2", SecretKey: "12345678"}
	signedLoads(ctx, t, at, &load)
	load.SecretKey = "87654321"
	p := workload.DefaultProduce()
	p.NameServers, p.Topic, p.Count, p.Credentials = []string{at.NameServer}, topic, 10, &load
	if res, err := workload.RunProduce(ctx, p, workload.Output{}); err == nil && res.ResponseFailed == 0 {
		t.Errorf("a load with a wrong key was taken: %+v", res)
	}
}

// signedLoads sends, reads and ends transactions with the load generator.
func signedLoads(ctx context.Context, t *testing.T, at target, keys *workload.Credentials) {
	t.Helper()
	p := workload.DefaultProduce()
	p.NameServers, p.Topic, p.Count, p.Keys = []string{at.NameServer}, name(t, "L"), 500, true
	p.Credentials = keys
	c := workload.DefaultConsume()
	c.NameServers, c.Topic, c.UntilEnd, c.Commit = p.NameServers, p.Topic, true, true
	c.Credentials = keys
	x := workload.DefaultTransactions()
	x.NameServers, x.Topic, x.Count, x.Threads, x.Credentials = p.NameServers, name(t, "X"), 50, 4, keys
	for what, run := range []func() (*measure.Result, error){
		func() (*measure.Result, error) { return workload.RunProduce(ctx, p, workload.Output{}) },
		func() (*measure.Result, error) { return workload.RunConsume(ctx, c, workload.Output{}) },
		func() (*measure.Result, error) { return workload.RunTransactions(ctx, x, workload.Output{}) },
	} {
		res, err := run()
		if err != nil || !res.OK || res.Messages < 50 || res.SendFailed+res.ResponseFailed > 0 {
			t.Fatalf("signed load %d: %+v, %v", what, res, err)
		}
	}
}
