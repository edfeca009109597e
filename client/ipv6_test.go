// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/nameserver"
)

// TestE2EIPv6: name server and broker of a real cluster are reached by IPv6 only, for every kind of
// request, and the ids and hosts of messages carry such addresses.
func TestE2EIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 on this machine: %v", err)
	}
	_ = l.Close()
	cfg := nameserver.DefaultConfig()
	cfg.Listen, cfg.Dir = "[::1]:0", t.TempDir()
	names, err := nameserver.New(cfg)
	if err == nil {
		err = names.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = names.Close() })
	cluster := enginetest.Start(t, func(c *engine.Config) {
		c.BindAddress, c.NameServers = "::1", names.Addr()
	})
	for _, addr := range []string{names.Addr(), cluster.Broker()} {
		if !strings.HasPrefix(addr, "[::1]:") {
			t.Fatalf("a server listens at %s", addr)
		}
	}
	c := newClient(t, names.Addr())
	want := sendAll(t, c, "t", 0, 40)
	p := newProducer(t, c)
	res, err := p.Send(within(t), text("last"))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.OffsetID) != 56 {
		t.Errorf("offset id %s, want one with an IPv6 address", res.OffsetID)
	}
	box := newInbox()
	running := consume(t, c, "g", box.handle, all("t"), fromFirst(), client.WithOrdered(false))
	for _, m := range box.await(t, len(want)+1) {
		if !strings.HasPrefix(m.BornHost, "[::1]:") || !strings.HasPrefix(m.StoreHost, "[::1]:") {
			t.Errorf("born at %s, stored at %s", m.BornHost, m.StoreHost)
		}
	}
	running.stop()
	if !covers(append(want, "last"), box) {
		t.Errorf("came %v", box.bodies())
	}
	r := newReader(t, c, "r", all("t"), fromFirst())
	poll(t, r, len(want)+1)
	m, err := admin.New(c).MessageByOffsetID(within(t), res.OffsetID)
	if err != nil || string(m.Body) != "last" {
		t.Errorf("by offset id: %s, %v", m.Body, err)
	}
}
