// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// defaultTopicQueues is how many queues clients want of a topic that is created by a send.
const defaultTopicQueues = 4

// callTimeout bounds one call about routes or offsets: the broker may have a thousand new groups on its
// hands, and a busy disk.
const callTimeout = 10 * time.Second

var errNoTopic = errors.New("topic does not exist")

// control asks name servers and brokers about routes and offsets.
type control struct {
	pool        *invoke.Pool
	nameServers []string
	waiting     func(topic string) // see Output.Waiting; may be nil
}

func newControl(nameServers []string, c *Credentials) *control {
	return &control{
		pool:        invoke.NewPool(c.pool(invoke.Config{Language: remoting.LanguageGo})),
		nameServers: nameServers,
	}
}

func (c *control) close() { _ = c.pool.Close() }

func (c *control) call(
	ctx context.Context, addr string, code remoting.RequestCode, h remoting.Header,
) (*invoke.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.pool.Call(ctx, addr, &invoke.Request{Code: code, Header: h})
}

// route asks the name servers in turn. errNoTopic: one of them knows that there is none.
func (c *control) route(ctx context.Context, topic string) (*protocol.TopicRouteData, error) {
	var errs []error
	for _, addr := range c.nameServers {
		res, err := c.call(ctx, addr, remoting.GetRouteInfoByTopic,
			&protocol.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true})
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case res.Code == remoting.TopicNotExist:
			return nil, fmt.Errorf("workload: topic %s: %w", topic, errNoTopic)
		case res.Code != remoting.Success:
			errs = append(errs, fmt.Errorf("name server %s: %w", addr, res.Err()))
			continue
		}
		var data protocol.TopicRouteData
		if err := protocol.Unmarshal(res.Body, &data); err != nil {
			errs = append(errs, fmt.Errorf("name server %s: route of %s: %w", addr, topic, err))
			continue
		}
		return &data, nil
	}
	return nil, fmt.Errorf("workload: asking for the route of topic %s: %w",
		topic, errors.Join(errs...))
}

// writable returns the queues a producer may write to. A topic that does not exist yet gets those
// that the brokers will create for it.
func (c *control) writable(ctx context.Context, topic string, queues int) ([]target, error) {
	limit := queues
	route, err := c.route(ctx, topic)
	if errors.Is(err, errNoTopic) {
		if limit == 0 {
			limit = defaultTopicQueues
		}
		route, err = c.route(ctx, protocol.TBW102)
		if errors.Is(err, errNoTopic) {
			return nil, fmt.Errorf("workload: topic %s does not exist and brokers create none: "+
				"create it first", topic)
		}
	}
	if err != nil {
		return nil, err
	}
	list := queuesOf(route, topic, limit, protocol.PermWrite,
		func(q *protocol.QueueData) int32 { return q.WriteQueueNums })
	if len(list) == 0 {
		return nil, fmt.Errorf("workload: topic %s has no queue that can be written to", topic)
	}
	return list, nil
}

// existing is writable for a topic that must exist: it is made at every master when there is none.
func (c *control) existing(ctx context.Context, topic string, queues int) ([]target, error) {
	_, err := c.route(ctx, topic)
	if errors.Is(err, errNoTopic) {
		err = c.create(ctx, topic, queues)
	}
	if err != nil {
		return nil, err
	}
	for {
		_, err := c.route(ctx, topic)
		if err == nil {
			return c.writable(ctx, topic, queues)
		}
		t := time.NewTimer(100 * time.Millisecond) // brokers tell name servers in their own time
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("workload: waiting for topic %s to exist: %w", topic, err)
		}
	}
}

// create makes a topic at every master that the name servers know, as mqadmin updateTopic does.
func (c *control) create(ctx context.Context, topic string, queues int) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return err
	}
	if queues == 0 {
		queues = defaultTopicQueues
	}
	for _, addr := range masters {
		res, err := c.call(ctx, addr, remoting.UpdateAndCreateTopic, &protocol.CreateTopicRequest{
			Topic: topic, DefaultTopic: protocol.TBW102, TopicFilterType: protocol.SingleTag,
			ReadQueueNums: int32(queues), WriteQueueNums: int32(queues),
			Perm: protocol.PermRead | protocol.PermWrite,
		})
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			return fmt.Errorf("workload: creating topic %s at %s: %w", topic, addr, err)
		}
	}
	return nil
}

// masters asks the name servers in turn for the addresses of all masters.
func (c *control) masters(ctx context.Context) ([]string, error) {
	var errs []error
	for _, addr := range c.nameServers {
		res, err := c.call(ctx, addr, remoting.GetBrokerClusterInfo, nil)
		if err == nil {
			err = res.Err()
		}
		var info protocol.ClusterInfo
		if err == nil {
			err = protocol.Unmarshal(res.Body, &info)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("name server %s: %w", addr, err))
			continue
		}
		var list []string
		for _, b := range info.BrokerAddrTable {
			if master := b.BrokerAddrs[0]; master != "" {
				list = append(list, master)
			}
		}
		if len(list) > 0 {
			slices.Sort(list)
			return list, nil
		}
		errs = append(errs, fmt.Errorf("name server %s knows no broker", addr))
	}
	return nil, fmt.Errorf("workload: asking for brokers: %w", errors.Join(errs...))
}

// readable returns the queues of a topic that can be read, waiting while it does not exist.
func (c *control) readable(ctx context.Context, topic string, queues int) ([]target, error) {
	for first := true; ; first = false {
		route, err := c.route(ctx, topic)
		if err == nil {
			list := queuesOf(route, topic, queues, protocol.PermRead,
				func(q *protocol.QueueData) int32 { return q.ReadQueueNums })
			if len(list) > 0 {
				return list, nil
			}
		} else if !errors.Is(err, errNoTopic) {
			return nil, err
		}
		if first && c.waiting != nil {
			c.waiting(topic)
		}
		t := time.NewTimer(time.Second)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("workload: waiting for topic %s to exist: %w", topic, ctx.Err())
		}
	}
}

// queuesOf lists queues of masters with the wanted permission, ordered by broker; limit 0: all.
func queuesOf(
	route *protocol.TopicRouteData, topic string, limit int, perm int32,
	count func(*protocol.QueueData) int32,
) []target {
	masters := map[string]string{}
	for i := range route.BrokerDatas {
		b := &route.BrokerDatas[i]
		if addr := b.BrokerAddrs[0]; addr != "" {
			masters[b.BrokerName] = addr
		}
	}
	var list []target
	for i := range route.QueueDatas {
		q := &route.QueueDatas[i]
		addr := masters[q.BrokerName]
		if addr == "" || q.Perm&perm == 0 {
			continue
		}
		n := count(q)
		if limit > 0 {
			n = min(n, int32(limit))
		}
		for id := range n {
			list = append(list, target{topic: topic, broker: q.BrokerName, addr: addr, queue: id})
		}
	}
	slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(a.broker, b.broker) })
	return list
}

// offset asks for a bound of a queue: first, last, or the group's stored one.
func (c *control) offset(ctx context.Context, t *target, group string, from Start) (int64, error) {
	var code remoting.RequestCode
	var header remoting.Header
	switch from {
	case Stored, Resume:
		no := false
		code = remoting.QueryConsumerOffset
		header = &protocol.QueryConsumerOffsetRequest{
			Group: group, Topic: t.topic, QueueID: t.queue, SetZeroIfNotFound: &no,
		}
	case Last:
		code = remoting.GetMaxOffset
		header = &protocol.MaxOffsetRequest{Topic: t.topic, QueueID: t.queue}
	default:
		code = remoting.GetMinOffset
		header = &protocol.MinOffsetRequest{Topic: t.topic, QueueID: t.queue}
	}
	res, err := c.call(ctx, t.addr, code, header)
	if err == nil && res.Code == remoting.QueryNotFound {
		switch from {
		case Stored:
			return c.offset(ctx, t, group, First)
		case Resume:
			return c.offset(ctx, t, group, Last)
		case First, Last:
		}
	}
	if err == nil {
		err = res.Err()
	}
	var o protocol.OffsetResponse
	if err == nil {
		err = o.Decode(res.Command)
	}
	if err != nil {
		return 0, fmt.Errorf("workload: offset of topic %s queue %d at %s: %w",
			t.topic, t.queue, t.addr, err)
	}
	return o.Offset, nil
}

// bounds asks for each bound of a queue once, however many groups begin there: a thousand groups would
// ask for the same ones a thousand times before the first of them reads.
type bounds struct {
	*control
	known map[bound]int64
}

type bound struct {
	target target
	from   Start
}

// offset is control.offset.
func (b *bounds) offset(ctx context.Context, t *target, group string, from Start) (int64, error) {
	if from != First && from != Last {
		return b.control.offset(ctx, t, group, from) // the group's own
	}
	key := bound{*t, from}
	if at, ok := b.known[key]; ok {
		return at, nil
	}
	at, err := b.control.offset(ctx, t, group, from)
	if err == nil {
		b.known[key] = at
	}
	return at, err
}
