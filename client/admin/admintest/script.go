// SPDX-License-Identifier: Apache-2.0

// Package admintest makes the same operator calls against any cluster and writes down what came
// back, so that clusters can be compared: Skylark in process, and Apache RocketMQ. Names,
// addresses, ids and times are replaced by words, since they differ from run to run.
//
// Only tests import it.
package admintest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

// Names are what a run calls its topics and groups; they must be new to the cluster. None may be a
// part of another.
type Names struct{ Topic, Other, Group, Clone, Producers string }

// script is one run.
type script struct {
	t     testing.TB
	ctx   context.Context //nolint:containedctx // one run, one context
	c     *client.Client
	a     *admin.Admin
	names Names
	out   strings.Builder
	words *strings.Replacer

	broker admin.Broker
	sent   []client.SendResult
}

// Run makes all calls and returns what came back, one line for each call. The cluster has one
// broker and no other users.
func Run(ctx context.Context, t testing.TB, c *client.Client, names Names) string {
	t.Helper()
	s := &script{t: t, ctx: ctx, c: c, a: admin.New(c), names: names}
	list, err := s.a.Brokers(ctx)
	if err != nil || len(list) != 1 {
		t.Fatalf("brokers %v: %v, want one", list, err)
	}
	s.broker = list[0]
	s.words = strings.NewReplacer(
		names.Topic, "TOPIC", names.Other, "OTHER", names.Group, "GROUP", names.Clone, "CLONE",
		names.Producers, "PRODUCERS", s.broker.Addr, "ADDR", c.NameServers()[0], "NAMESERVER",
		s.broker.Name, "BROKER", s.broker.Cluster, "CLUSTER",
	)
	for _, part := range []func(){
		s.topics, s.send, s.groups, s.offsets, s.resets, s.messages, s.members, s.online, s.servers,
		s.settings, s.permissions, s.deletions,
	} {
		part()
	}
	return s.out.String()
}

// note writes one line: the call, then its value or its error.
func (s *script) note(call string, v any, err error) {
	if err != nil {
		fmt.Fprintf(&s.out, "%s: %s\n", s.words.Replace(call), s.failure(err))
		return
	}
	fmt.Fprintf(&s.out, "%s: %s\n", s.words.Replace(call), s.words.Replace(render(v)))
}

// done notes a call that has no value.
func (s *script) done(call string, err error) { s.note(call, "ok", err) }

// failure names the kind of an error and the code of the answer.
func (s *script) failure(err error) string {
	var kinds []string
	for _, k := range []struct {
		name string
		err  error
	}{
		{"ErrNoRoute", client.ErrNoRoute},
		{"ErrPermission", client.ErrPermission},
		{"ErrUnsupported", client.ErrUnsupported},
		{"ErrOffsetOutOfRange", client.ErrOffsetOutOfRange},
		{"ErrNoBroker", admin.ErrNoBroker},
		{"ErrNoGroup", admin.ErrNoGroup},
		{"ErrNotOnline", admin.ErrNotOnline},
		{"ErrNotFound", admin.ErrNotFound},
		{"ErrInvalid", admin.ErrInvalid},
	} {
		if errors.Is(err, k.err) {
			kinds = append(kinds, k.name)
		}
	}
	text := "error " + strings.Join(kinds, " ")
	var be *client.BrokerError
	if errors.As(err, &be) {
		text += fmt.Sprintf(" code=%d", be.Code)
	}
	var e *admin.Error
	if !errors.As(err, &e) {
		text += " of a type that says no next step"
	}
	return text
}

// must fails the run: later calls need what this one makes.
func (s *script) must(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *script) queue(id int) client.Queue {
	return client.Queue{Topic: s.names.Topic, Broker: s.broker.Name, ID: id}
}
