// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
)

// apacheServers are the real servers that the tests of our client share; each makes topics of its own.
func apacheServers(t *testing.T) target {
	t.Helper()
	if *against == "apache" {
		return servers(t)
	}
	return startApache(t, scratch(t), nil)
}

// Package client against Apache's broker: what it sends, Apache's consumer gets, and the other way.
func TestOurClientAgainstApache(t *testing.T) {
	t.Parallel()
	at, jvm := apacheServers(t), java(t)
	topic := name(t, "T")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := c.NewProducer(name(t, "PG"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 10 {
		body := fmt.Sprint("m", i)
		res, err := p.Send(ctx, &client.Message{
			Topic: topic, Body: []byte(body), Tag: "TagA", Keys: []string{"k1", "k2"},
			Properties: map[string]string{"colour": "green"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.ID == "" || res.OffsetID == "" || res.Queue.Broker != at.BrokerName {
			t.Errorf("result %+v", res)
		}
		want = append(want, body)
	}
	big := strings.Repeat("compressible text ", 400)
	if _, err := p.Send(ctx, &client.Message{Topic: topic, Body: []byte(big), OrderingKey: "order-1"}); err != nil {
		t.Fatal(err)
	}
	waitForRoute(t, at.NameServer, topic)
	push := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": name(t, "CG"), "topic": topic})
	got := awaitPush(t, jvm, push, 11, 30_000)
	if len(got) < 11 {
		t.Fatalf("Apache's consumer got %d messages of 11", len(got))
	}
	for _, m := range got {
		if m.BodySize == len(big) {
			if m.BodySHA256 != hashOf(big) {
				t.Error("the large body came changed")
			}
			continue
		}
		if m.Tags != "TagA" || m.Keys != "k1 k2" || m.Properties["colour"] != "green" || !slices.Contains(want, m.Body) {
			t.Errorf("message %+v", m)
		}
	}
	theirs := producer(t, jvm, at, nil)
	want = append(want, many(t, jvm, theirs, topic, "theirs", 5)...)
	readAll(ctx, t, c, topic, append(want, big))
}

// readAll reads a topic from its first message until all of want came.
func readAll(ctx context.Context, t *testing.T, c *client.Client, topic string, want []string) {
	t.Helper()
	r, err := c.NewReader("", client.WithSubscription(topic, client.All()), client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(ctx)
	var got []string
	for len(got) < len(want) {
		ms, err := r.Poll(ctx, 32)
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(got), len(want), err)
		}
		for _, m := range ms {
			got = append(got, string(m.Body))
		}
	}
	if err := sameSet(got, want); err != nil {
		t.Error(err)
	}
}

// The commands for the shell work with Apache's servers too.
func TestOurCommandsAgainstApache(t *testing.T) {
	t.Parallel()
	at := apacheServers(t)
	topic := name(t, "T")
	command := func(arguments ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), skylark(t), arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("skylark %v: %v\n%s", arguments, err, out)
		}
		return string(out)
	}
	if out := command("send", "-n", at.NameServer, "--topic", topic, "--body", "hello"); !strings.Contains(out, "SEND_OK") {
		t.Errorf("send: %s", out)
	}
	waitForRoute(t, at.NameServer, topic)
	out := command("receive", "-n", at.NameServer, "--topic", topic, "--from", "first", "--count", "1", "--timeout", "20s")
	if !strings.Contains(out, "hello") {
		t.Errorf("receive: %s", out)
	}
	load := name(t, "LOAD")
	out = command("perf", "produce", "-n", at.NameServer, "--topic", load, "--count", "2000", "--size", "256",
		"--connections", "2", "--in-flight", "8", "--verify", "--json")
	var result struct {
		Messages int64
		OK       bool
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil || !result.OK {
		t.Fatalf("perf produce: %v\n%s", err, out)
	}
	// Apache's broker has several send threads, which may swap messages that are in flight together.
	command("perf", "consume", "-n", at.NameServer, "--topic", load, "--verify", "--allow-swaps", "--json")
}
