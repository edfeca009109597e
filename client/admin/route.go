// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Route says where a topic is.
type Route struct {
	Topic       string
	Brokers     []RouteBroker // by name
	Queues      []RouteQueues // by broker name
	OrderConfig string        // "broker:queues;..." for topics with a fixed order; usually empty
}

// RouteBroker is one broker name with its processes.
type RouteBroker struct {
	Cluster, Name string
	Addrs         map[int64]string // host:port by id; 0 is the master
}

// RouteQueues says how many queues a topic has at a broker.
type RouteQueues struct {
	Broker      string
	ReadQueues  int
	WriteQueues int
	Perm        Perm
	SysFlag     int
}

// nearest is the master, else the slave with the smallest id.
func (b RouteBroker) nearest() (Broker, bool) {
	for _, id := range slices.Sorted(maps.Keys(b.Addrs)) {
		return Broker{Cluster: b.Cluster, Name: b.Name, ID: id, Addr: b.Addrs[id]}, true
	}
	return Broker{}, false
}

// TopicRoute asks a name server where a topic is. client.ErrNoRoute when it does not exist.
func (a *Admin) TopicRoute(ctx context.Context, topic string) (Route, error) {
	var data protocol.TopicRouteData
	err := a.askName(ctx, "route of topic "+topic, remoting.GetRouteInfoByTopic,
		&protocol.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}, &data)
	if err != nil {
		return Route{}, err
	}
	r := Route{Topic: topic, OrderConfig: data.OrderTopicConf}
	for _, b := range data.BrokerDatas {
		r.Brokers = append(r.Brokers, RouteBroker{
			Cluster: b.Cluster, Name: b.BrokerName, Addrs: maps.Clone(b.BrokerAddrs),
		})
	}
	for _, q := range data.QueueDatas {
		r.Queues = append(r.Queues, RouteQueues{
			Broker: q.BrokerName, ReadQueues: int(q.ReadQueueNums), WriteQueues: int(q.WriteQueueNums),
			Perm: Perm(q.Perm), SysFlag: int(q.TopicSysFlag),
		})
	}
	slices.SortFunc(r.Brokers, func(a, b RouteBroker) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Queues, func(a, b RouteQueues) int { return cmp.Compare(a.Broker, b.Broker) })
	return r, nil
}

// TopicClusters returns the clusters that have a topic, sorted.
func (a *Admin) TopicClusters(ctx context.Context, topic string) ([]string, error) {
	r, err := a.TopicRoute(ctx, topic)
	var list []string
	for _, b := range r.Brokers {
		list = append(list, b.Cluster)
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

// TopicStatus is how far a topic's queues are filled.
type TopicStatus struct {
	Topic  string
	Queues []QueueStatus // by broker and id
	PutTPS float64       // messages a second over the last minute, all brokers together
}

// QueueStatus is the state of one queue. Offsets below Min are gone; Max is the next one.
type QueueStatus struct {
	Queue      client.Queue
	Min, Max   int64
	LastUpdate time.Time // when its last message was stored; zero when it is empty
}

// TopicStatus asks each broker of a topic about its queues. With an error that is partial, the rest
// is filled.
func (a *Admin) TopicStatus(ctx context.Context, topic string) (TopicStatus, error) {
	op := "status of topic " + topic
	s := TopicStatus{Topic: topic}
	list, err := a.brokersOf(ctx, op, topic)
	if err != nil {
		return s, err
	}
	answers, err := each(ctx, op, list,
		func(ctx context.Context, b Broker) (table protocol.TopicStatsTable, err error) {
			err = a.askFor(ctx, op, b, remoting.GetTopicStatsInfo,
				&protocol.TopicRequest{Topic: topic}, &table)
			return table, err
		})
	for _, x := range answers {
		s.PutTPS += x.Value.TopicPutTPS
		for q, o := range x.Value.OffsetTable {
			s.Queues = append(s.Queues, QueueStatus{
				Queue: queueOf(q), Min: o.MinOffset, Max: o.MaxOffset,
				LastUpdate: timeOf(o.LastUpdateTimestamp),
			})
		}
	}
	slices.SortFunc(s.Queues, func(a, b QueueStatus) int { return compareQueues(a.Queue, b.Queue) })
	return s, err
}

func queueOf(q protocol.MessageQueue) client.Queue {
	return client.Queue{Topic: q.Topic, Broker: q.BrokerName, ID: int(q.QueueID)}
}

func compareQueues(a, b client.Queue) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Broker, b.Broker),
		cmp.Compare(a.ID, b.ID))
}
