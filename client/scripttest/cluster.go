// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Cluster is one name server and some brokers.
type Cluster struct {
	NameServer *Server
	Brokers    []*Broker

	mu     sync.Mutex
	queues map[string]int32 // of each topic at each broker
	slaves map[*Broker]*Broker
}

// NewCluster starts brokers broker-0, broker-1 and so on and a name server that knows them. Topic
// TBW102 exists, and any topic from its first send on, with four queues at each broker.
func NewCluster(t testing.TB, brokers int) *Cluster {
	t.Helper()
	c := &Cluster{
		NameServer: NewServer(t), queues: map[string]int32{protocol.TBW102: 8},
		slaves: map[*Broker]*Broker{},
	}
	for i := range brokers {
		c.Brokers = append(c.Brokers, newBroker(t, fmt.Sprintf("broker-%d", i)))
	}
	c.NameServer.Handle(remoting.GetRouteInfoByTopic, c.route)
	c.NameServer.Handle(remoting.GetBrokerClusterInfo, func(*Request) *Reply {
		return &Reply{Body: []byte("{}")}
	})
	return c
}

// SetTopic makes a topic exist with that many queues at each broker; 0 deletes it.
func (c *Cluster) SetTopic(topic string, queues int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if queues == 0 {
		delete(c.queues, topic)
		return
	}
	c.queues[topic] = queues
}

func (c *Cluster) route(r *Request) *Reply {
	var h protocol.RouteRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	c.mu.Lock()
	n := c.queues[h.Topic]
	c.mu.Unlock()
	if n == 0 {
		for _, b := range c.Brokers {
			b.mu.Lock()
			if b.topics[h.Topic] {
				n = 4
			}
			b.mu.Unlock()
		}
	}
	if n == 0 {
		return &Reply{Code: remoting.TopicNotExist, Remark: "No topic route info in name server"}
	}
	perm := protocol.PermRead | protocol.PermWrite
	var data protocol.TopicRouteData
	for _, b := range c.Brokers {
		addrs := map[int64]string{0: b.Addr}
		c.mu.Lock()
		isSlave := c.slaves[b] != nil
		for slave, master := range c.slaves {
			if master == b {
				addrs[1] = slave.Addr
			}
		}
		c.mu.Unlock()
		if isSlave {
			continue
		}
		data.BrokerDatas = append(data.BrokerDatas, protocol.BrokerData{
			BrokerName: b.Name, Cluster: "scripted", BrokerAddrs: addrs,
		})
		data.QueueDatas = append(data.QueueDatas, protocol.QueueData{
			BrokerName: b.Name, Perm: perm, ReadQueueNums: n, WriteQueueNums: n,
		})
	}
	return &Reply{Body: protocol.MarshalStandard(&data)}
}
