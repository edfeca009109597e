// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// clusterTopics is how many topics each broker of the dimension brokers registers.
const clusterTopics = 1000

// measureBrokers has brokers that exist as registrations only: what a name server sees of them.
func measureBrokers(ctx context.Context, l *lab, level int) error {
	var conns []*invoke.Conn // a name server drops a broker whose connection ends
	for range level {
		c, err := l.pool.Dial(ctx, l.broker.Names)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	body := registrationBody()
	l.readings[registerSize] = float64(len(body))
	register := func(w *window, i int) error {
		i %= level
		return w.do(ctx, conns[i], &invoke.Request{
			Code: remoting.RegisterBroker, Body: body, Header: &protocol.RegisterBrokerRequest{
				BrokerName: fmt.Sprintf("broker-%d", i), BrokerAddr: fmt.Sprintf("127.0.0.1:%d", 20_000+i),
				ClusterName: "cluster", BodyCRC32: protocol.BodyCRC(body), HeartbeatTimeoutMS: -1,
			},
		})
	}
	if err := l.costOf(ctx, registerCPU, max(100, level), register); err != nil {
		return err
	}
	if err := l.rest(ctx); err != nil {
		return err
	}
	ask := func(i int) *invoke.Request {
		return &invoke.Request{Code: remoting.GetRouteInfoByTopic, Header: &protocol.RouteRequest{
			Topic: fmt.Sprintf("topic-%d", i%clusterTopics), AcceptStandardJSONOnly: true,
		}}
	}
	r, err := conns[0].Call(ctx, ask(0))
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return err
	}
	l.readings[routeSize] = float64(len(r.Body))
	return l.costOf(ctx, routeCPU, 10_000, func(w *window, i int) error {
		return w.do(ctx, conns[i%level], ask(i))
	})
}

// registrationBody is what a broker with these topics sends every 30 s.
func registrationBody() []byte {
	topics := map[string]*protocol.TopicConfig{}
	for i := range clusterTopics {
		name := fmt.Sprintf("topic-%d", i)
		topics[name] = &protocol.TopicConfig{
			TopicName: name, ReadQueueNums: 8, WriteQueueNums: 8,
			Perm: protocol.PermRead | protocol.PermWrite, TopicFilterType: protocol.SingleTag,
		}
	}
	return protocol.MarshalFastJSON(&protocol.RegisterBrokerBody{
		FilterServerList: []string{},
		TopicConfigs: protocol.TopicConfigWrapper{
			TopicConfigTable: topics, DataVersion: protocol.DataVersion{Timestamp: 1, Counter: 1},
		},
	})
}
