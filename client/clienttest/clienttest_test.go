// SPDX-License-Identifier: Apache-2.0

package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/clienttest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// send sends n messages to a topic and returns their bodies.
func send(t *testing.T, c *client.Client, topic string, n int) []string {
	t.Helper()
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint("body ", i)
		m := &client.Message{Topic: topic, Body: []byte(bodies[i])}
		if _, err := p.Send(within(t), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	return bodies
}

// receive reads n messages of a topic and returns how often each body came.
func receive(t *testing.T, c *client.Client, topic string, n int) map[string]int {
	t.Helper()
	r, err := c.NewReader("cg", client.WithSubscription(topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for seen := 0; seen < n; {
		ms, err := r.Poll(within(t), n-seen)
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", seen, n, err)
		}
		for _, m := range ms {
			got[string(m.Body)]++
		}
		if err := r.Commit(within(t), ms...); err != nil {
			t.Fatal(err)
		}
		seen += len(ms)
	}
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	return got
}

func checkOnce(t *testing.T, got map[string]int, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d different bodies, want %d", len(got), len(want))
	}
	for _, body := range want {
		if got[body] != 1 {
			t.Errorf("body %q came %d times, want once", body, got[body])
		}
	}
}

func TestStartGivesTopicsAndTakesMessages(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopics("a"), clienttest.WithTopic("b", 7))
	c := cluster.Client(t)
	for topic, want := range map[string]int{"a": 4, "b": 7} {
		queues, err := c.Queues(within(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		if len(queues) != want {
			t.Errorf("topic %s has %d queues, want %d", topic, len(queues), want)
		}
	}
	checkOnce(t, receive(t, c, "a", 0), nil)
	want := send(t, c, "a", 20)
	checkOnce(t, receive(t, c, "a", 20), want)
}

// TestStartIsQuick: a cluster takes messages of a topic within 100 ms. The quickest of several
// starts counts, since other work may hold up one. It is not parallel: tests beside it would be such
// work.
func TestStartIsQuick(t *testing.T) {
	const limit, starts = 100 * time.Millisecond, 20
	quickest := time.Hour
	for i := 0; i < starts && quickest > limit; i++ {
		began := time.Now()
		cluster := clienttest.Start(t, clienttest.WithTopics("a"))
		p := cluster.Producer(t)
		if _, err := p.Send(within(t), &client.Message{Topic: "a", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		quickest = min(quickest, time.Since(began))
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}
	if quickest > limit {
		t.Errorf("the quickest of %d clusters took %s until a message was stored, want %s", starts,
			quickest, limit)
	}
}

func TestWithoutAutoCreateRefusesUnknownTopics(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithoutAutoCreate(), clienttest.WithTopics("known"))
	c := cluster.Client(t)
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(within(t), &client.Message{Topic: "known", Body: []byte("x")}); err != nil {
		t.Error(err)
	}
	_, err = p.Send(within(t), &client.Message{Topic: "unknown", Body: []byte("x")})
	if !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("sending to an unknown topic: %v, want ErrNoRoute", err)
	}
}

func TestKillKeepsAcknowledgedMessages(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopics("a"))
	c := cluster.Client(t)
	broker := cluster.Broker(0)
	addr := broker.Addr()
	want := send(t, c, "a", 50)
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cluster.Dir(), broker.Name(), "abort")); err != nil {
		t.Errorf("a killed broker's store looks cleanly closed: %v", err)
	}
	p, err := c.NewProducer("pg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(within(t), &client.Message{Topic: "a", Body: []byte("x")}); err == nil {
		t.Error("a killed broker took a message")
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	if broker.Addr() != addr {
		t.Errorf("came back at %s, want %s", broker.Addr(), addr)
	}
	checkOnce(t, receive(t, c, "a", len(want)), want)
}

// A commit that was not written yet is lost with a killed process and kept by a graceful end.
func TestKillLosesUnwrittenOffsets(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		stop func(*clienttest.Broker) error
		lost bool
	}{
		"end=kill": {(*clienttest.Broker).Kill, true},
		"end=stop": {(*clienttest.Broker).Stop, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := clienttest.Start(t, clienttest.WithTopic("a", 1),
				clienttest.WithBrokerConfig("flushConsumerOffsetInterval", "3600000"))
			c := cluster.Client(t)
			send(t, c, "a", 3)
			receive(t, c, "a", 3)
			if err := end.stop(cluster.Broker(0)); err != nil {
				t.Fatal(err)
			}
			if err := cluster.Broker(0).Start(); err != nil {
				t.Fatal(err)
			}
			after := cluster.Client(t)
			send(t, after, "a", 1)
			r, err := after.NewReader("cg", client.WithSubscription("a", client.All()),
				client.WithStart(client.Earliest))
			if err != nil {
				t.Fatal(err)
			}
			ms, err := r.Poll(within(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			if lost := ms[0].Offset == 0; lost != end.lost {
				t.Errorf("the next message is the one at %d, want offsets lost: %t", ms[0].Offset, end.lost)
			}
		})
	}
}

func TestWithDirSurvives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := clienttest.Start(t, clienttest.WithDir(dir), clienttest.WithTopics("a"))
	c := first.Client(t)
	want := send(t, c, "a", 5)
	if err := c.Close(within(t)); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := clienttest.Start(t, clienttest.WithDir(dir))
	checkOnce(t, receive(t, second.Client(t), "a", len(want)), want)
}

func TestCloseRemovesFilesAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	cluster, err := clienttest.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cluster.Dir()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(cluster.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there after Close: %v", cluster.Dir(), err)
	}
	if err := cluster.StartNameServer(); !errors.Is(err, client.ErrClosed) {
		t.Errorf("name server started after Close: %v", err)
	}
	if err := cluster.Broker(0).Start(); !errors.Is(err, client.ErrClosed) {
		t.Errorf("broker started after Close: %v", err)
	}
}

func TestSeveralBrokers(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithBrokers(3), clienttest.WithTopic("a", 2))
	c := cluster.Client(t)
	queues, err := c.Queues(within(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	brokers := map[string]int{}
	for _, q := range queues {
		brokers[q.Broker]++
	}
	for _, b := range cluster.Brokers() {
		if brokers[b.Name()] != 2 {
			t.Errorf("%s has %d queues of the topic, want 2", b.Name(), brokers[b.Name()])
		}
	}
	want := send(t, c, "a", 12)
	checkOnce(t, receive(t, c, "a", 12), want)
}

func TestNameServerAway(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopics("a"))
	c := cluster.Client(t)
	send(t, c, "a", 1)
	if err := cluster.StopNameServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(within(t)); !errors.Is(err, client.ErrNoNameServer) {
		t.Errorf("ping without a name server: %v, want ErrNoNameServer", err)
	}
	send(t, c, "a", 1) // the route is known
	if err := cluster.StartNameServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(within(t)); err != nil {
		t.Error(err)
	}
}

func TestBadOptionsAreNamedTogether(t *testing.T) {
	t.Parallel()
	_, err := clienttest.New(clienttest.WithBrokers(99), clienttest.WithTopic("a b", 4),
		clienttest.WithTopic("c", 0), clienttest.WithGroups(""))
	if err == nil {
		t.Fatal("bad options were taken")
	}
	for _, want := range []string{"99 brokers", `"a b"`, "topic c with 0 queues", "group"} {
		if !contains(err, want) {
			t.Errorf("error does not name %q: %v", want, err)
		}
	}
	_, err = clienttest.New(clienttest.WithBrokerConfig("maxMesageSize", "1"))
	if err == nil || !contains(err, "maxMessageSize") {
		t.Errorf("unknown key: %v, want the nearest one named", err)
	}
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }
