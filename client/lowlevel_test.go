// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"testing"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/clienttest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

func TestLowLevelCalls(t *testing.T) {
	t.Parallel()
	cluster := clienttest.Start(t, clienttest.WithTopic("t", 1))
	c := newClient(t, cluster.NameServer())
	if got := c.NameServers(); len(got) != 1 || got[0] != cluster.NameServer() {
		t.Errorf("name servers %v, want %s", got, cluster.NameServer())
	}
	res, err := c.CallNameServer(within(t), "route", &invoke.Request{
		Code: remoting.GetRouteInfoByTopic, Header: &protocol.RouteRequest{Topic: "t"},
	})
	if err != nil || len(res.Body) == 0 {
		t.Errorf("asking a name server: %v", err)
	}
	_, err = c.CallNameServer(within(t), "route", &invoke.Request{
		Code: remoting.GetRouteInfoByTopic, Header: &protocol.RouteRequest{Topic: "absent"},
	})
	if !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("asking for an absent topic: %v, want ErrNoRoute", err)
	}
	broker := cluster.Broker(0)
	sent, err := newProducer(t, c).Send(within(t), text("hello"))
	if err != nil {
		t.Fatal(err)
	}
	_, at, err := record.ParseOffsetID(sent.OffsetID)
	if err != nil {
		t.Fatal(err)
	}
	res, err = c.CallBroker(within(t), "view", broker.Name(), broker.Addr(), &invoke.Request{
		Code: remoting.ViewMessageByID, Header: &protocol.ViewMessageRequest{Offset: int64(at)},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := client.ParseStored(broker.Name(), res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Body) != "hello" || m.ID != sent.ID || m.OffsetID != sent.OffsetID ||
		m.Source != sent.Queue || m.Offset != sent.Offset {
		t.Errorf("read back %+v, sent %+v", m, sent)
	}
	if _, err := client.ParseStored("b", res.Body[:20]); !errors.Is(err, client.ErrInvalidRecord) {
		t.Errorf("half a record: %v, want ErrInvalidRecord", err)
	}
	_, err = c.CallBroker(within(t), "view", broker.Name(), broker.Addr(), &invoke.Request{
		Code: remoting.ViewMessageByID, Header: &protocol.ViewMessageRequest{Offset: 1 << 40},
	})
	var be *client.BrokerError
	if !errors.As(err, &be) || be.Op != "view" || be.Broker != broker.Name() {
		t.Errorf("no message there: %v, want a *BrokerError of the broker", err)
	}
	if err := c.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	_, err = c.CallNameServer(within(t), "cluster", &invoke.Request{Code: remoting.GetBrokerClusterInfo})
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("asking after Close: %v, want ErrClosed", err)
	}
}
