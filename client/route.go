// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	// defaultTopicQueues is how many queues of a topic are wanted that a send creates.
	defaultTopicQueues = 4
	// absentFor is how long the answer "no such topic" is believed of one that never had a route.
	absentFor = time.Second
)

// topicRoute says where a topic is. It is immutable.
type topicRoute struct {
	writable []Queue
	readable []Queue
	brokers  map[string]map[int64]string // addresses by name and id; 0 is the master
	clusters []string                    // of the brokers
	template bool                        // made from the template of topics that do not exist yet
}

// master returns where a broker takes writes; "" when it has no master.
func (rt *topicRoute) master(broker string) string { return rt.brokers[broker][0] }

// anyMaster returns the address of some master, "" without one.
func (rt *topicRoute) anyMaster() string {
	for _, addrs := range rt.brokers {
		if addr := addrs[0]; addr != "" {
			return addr
		}
	}
	return ""
}

// reader returns where a broker serves reads: the wanted id, else the master, else any.
func (rt *topicRoute) reader(broker string, id int64) string {
	addrs := rt.brokers[broker]
	if addr := addrs[id]; addr != "" {
		return addr
	}
	if addr := addrs[0]; addr != "" {
		return addr
	}
	for _, id := range sortedIDs(addrs) {
		return addrs[id]
	}
	return ""
}

func sortedIDs(addrs map[int64]string) []int64 {
	ids := make([]int64, 0, len(addrs))
	for id := range addrs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// routeTable keeps routes by topic, by the names users know. Callers that ask for one topic at once share one request, which
// no caller's context can end.
type routeTable struct {
	client *Client

	// Guards what follows. Never held across I/O.
	mu     sync.Mutex
	topics map[string]*routeEntry
}

// routeEntry is one topic. Entries stay for the life of the client, so senders keep them.
type routeEntry struct {
	route   atomic.Pointer[topicRoute] // nil: not known; written with the lock held
	absent  time.Time                  // when a name server said that there is no such topic
	existed bool                       // it had a route of its own once
	running *routeFetch
}

type routeFetch struct {
	done  chan struct{}
	route *topicRoute
	err   error
}

func newRouteTable(c *Client) *routeTable {
	return &routeTable{client: c, topics: map[string]*routeEntry{}}
}

func (t *routeTable) entryLocked(topic string) *routeEntry {
	e := t.topics[topic]
	if e == nil {
		e = &routeEntry{}
		t.topics[topic] = e
	}
	return e
}

// writableRoute returns the known route when it has a queue to write to, else nil. It takes no lock.
func (e *routeEntry) writableRoute() *topicRoute {
	if rt := e.route.Load(); rt != nil && len(rt.writable) > 0 {
		return rt
	}
	return nil
}

// entry returns the entry of a topic, for senders.
func (t *routeTable) entry(topic string) *routeEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entryLocked(topic)
}

// cached returns the known route of a topic, nil when there is none.
func (t *routeTable) cached(topic string) *topicRoute {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.topics[topic]; e != nil {
		return e.route.Load()
	}
	return nil
}

// forSend returns the route of a topic with at least one writable queue. A topic that does not
// exist gets the queues that brokers will give it when the first message comes, unless template is
// false. ErrNoRoute or ErrNoNameServer otherwise.
func (t *routeTable) forSend(
	ctx context.Context, topic string, template bool,
) (*topicRoute, error) {
	if rt := t.cached(topic); rt != nil && len(rt.writable) > 0 {
		return rt, nil
	}
	rt, err := t.fetch(ctx, topic)
	if err == nil && len(rt.writable) > 0 {
		return rt, nil
	}
	if err == nil {
		return nil, &noQueueError{topic, "written to"}
	}
	if !template || !errors.Is(err, ErrNoRoute) {
		return nil, err
	}
	base, terr := t.fetch(ctx, protocol.TBW102)
	if terr != nil {
		return nil, fmt.Errorf("%w (and brokers create none: %w)", err, terr)
	}
	if rt := t.again(ctx, topic); rt != nil {
		return rt, nil
	}
	rt = base.templateFor(topic)
	if len(rt.writable) == 0 {
		return nil, err
	}
	t.mu.Lock()
	if e := t.entryLocked(topic); e.route.Load() == nil {
		e.route.Store(rt)
	}
	t.mu.Unlock()
	return rt, nil
}

// again asks once more for a topic that existed, now that there are brokers; nil when it is gone.
// While its only broker starts anew, name servers know neither the topic nor TBW102; the broker
// brings both back at once, and the queues of TBW102 are not those of the topic.
func (t *routeTable) again(ctx context.Context, topic string) *topicRoute {
	t.mu.Lock()
	existed := t.entryLocked(topic).existed
	t.mu.Unlock()
	if !existed {
		return nil
	}
	if rt, err := t.fetch(ctx, topic); err == nil && len(rt.writable) > 0 {
		return rt
	}
	return nil
}

// templateFor is the route of a topic that the brokers of rt will create.
func (rt *topicRoute) templateFor(topic string) *topicRoute {
	out := &topicRoute{brokers: rt.brokers, clusters: rt.clusters, template: true}
	for _, q := range rt.writable {
		if q.ID < defaultTopicQueues {
			q.Topic = topic
			out.writable = append(out.writable, q)
		}
	}
	return out
}

// fetch asks for the route of a topic, or waits for who is asking already.
func (t *routeTable) fetch(ctx context.Context, topic string) (*topicRoute, error) {
	t.mu.Lock()
	e := t.entryLocked(topic)
	// Not of a topic that existed: its only broker may start anew, and a consumer that ends a moment
	// later must still reach it with its positions.
	if e.running == nil && !e.existed && time.Since(e.absent) < absentFor {
		t.mu.Unlock()
		return nil, noRoute(topic)
	}
	f := e.running
	if f == nil {
		f = t.startLocked(topic, e)
	}
	t.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("client: %w", ErrClosed)
	}
	select {
	case <-f.done:
		return f.route, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("client: waiting for the route of %s: %w", topic, context.Cause(ctx))
	}
}

// startLocked begins a request for a route; nil when the client is closed.
func (t *routeTable) startLocked(topic string, e *routeEntry) *routeFetch {
	f := &routeFetch{done: make(chan struct{})}
	if !t.client.start(func() { t.run(topic, f) }) {
		return nil
	}
	e.running = f
	return f
}

func noRoute(topic string) error {
	return fmt.Errorf("client: topic %s does not exist: %w", topic, ErrNoRoute)
}

func (t *routeTable) run(topic string, f *routeFetch) {
	f.route, f.err = t.ask(t.client.ctx, topic)
	t.mu.Lock()
	e := t.entryLocked(topic)
	e.running = nil
	fresh, moved := false, false
	switch {
	case f.err == nil:
		known := e.route.Load()
		moved = known != nil && !slices.Equal(known.readable, f.route.readable)
		fresh = known == nil || known.template
		e.route.Store(f.route)
		e.absent, e.existed = time.Time{}, true
	case errors.Is(f.err, ErrNoRoute):
		e.absent = time.Now()
		if known := e.route.Load(); known != nil && !known.template {
			e.route.Store(nil) // deleted
		}
	}
	t.mu.Unlock()
	close(f.done)
	if fresh {
		t.client.wakeHeartbeats() // there may be brokers that do not know us
	}
	if fresh || moved {
		t.client.routeChanged(topic)
	}
}

func (t *routeTable) ask(ctx context.Context, topic string) (*topicRoute, error) {
	res, err := t.client.askNameServer(ctx, &invoke.Request{
		Code: remoting.GetRouteInfoByTopic,
		Header: &protocol.RouteRequest{
			Topic: t.client.onWire(topic), AcceptStandardJSONOnly: true,
		},
	})
	if err != nil {
		return nil, err
	}
	if res.Code == remoting.TopicNotExist {
		return nil, noRoute(topic)
	}
	if err := brokerError("route", "", "name server", res.Code, res.Remark); err != nil {
		return nil, err
	}
	var data protocol.TopicRouteData
	if err := protocol.Unmarshal(res.Body, &data); err != nil {
		return nil, fmt.Errorf("client: route of topic %s: %w", topic, err)
	}
	return newTopicRoute(topic, &data), nil
}

// newTopicRoute works out which queues can be written and read.
func newTopicRoute(topic string, data *protocol.TopicRouteData) *topicRoute {
	rt := &topicRoute{brokers: map[string]map[int64]string{}}
	for _, b := range data.BrokerDatas {
		rt.brokers[b.BrokerName] = b.BrokerAddrs
		if b.Cluster != "" && !slices.Contains(rt.clusters, b.Cluster) {
			rt.clusters = append(rt.clusters, b.Cluster)
		}
	}
	queues := slices.Clone(data.QueueDatas)
	slices.SortFunc(queues, func(a, b protocol.QueueData) int {
		return cmp.Compare(a.BrokerName, b.BrokerName)
	})
	for _, q := range queues {
		if q.Perm&protocol.PermRead != 0 && len(rt.brokers[q.BrokerName]) > 0 {
			rt.readable = appendQueues(rt.readable, topic, q.BrokerName, int(q.ReadQueueNums))
		}
		if q.Perm&protocol.PermWrite != 0 && rt.master(q.BrokerName) != "" &&
			data.OrderTopicConf == "" {
			rt.writable = appendQueues(rt.writable, topic, q.BrokerName, int(q.WriteQueueNums))
		}
	}
	// An order configuration, broker:queues;..., says exactly which queues are written.
	for part := range strings.SplitSeq(data.OrderTopicConf, ";") {
		broker, count, ok := strings.Cut(part, ":")
		n, err := strconv.Atoi(count)
		if ok && err == nil && rt.master(broker) != "" {
			rt.writable = appendQueues(rt.writable, topic, broker, n)
		}
	}
	return rt
}

func appendQueues(dst []Queue, topic, broker string, n int) []Queue {
	for id := range n {
		dst = append(dst, Queue{Topic: topic, Broker: broker, ID: id})
	}
	return dst
}

// stale asks for the route anew without waiting, after a broker could not be reached or said that
// it does not serve the topic.
func (t *routeTable) stale(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entryLocked(topic)
	if e.running == nil && time.Since(e.absent) >= absentFor {
		t.startLocked(topic, e)
	}
}

// addresses returns every broker address that a known route mentions, masters only unless all.
func (t *routeTable) addresses(all bool) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[string]bool{}
	var list []string
	for _, e := range t.topics {
		rt := e.route.Load()
		if rt == nil {
			continue
		}
		for _, addrs := range rt.brokers {
			for id, addr := range addrs {
				if (all || id == 0) && addr != "" && !seen[addr] {
					seen[addr] = true
					list = append(list, addr)
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

// masters returns the address of each broker that a known route mentions, by name.
func (t *routeTable) masters() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]string{}
	for _, e := range t.topics {
		rt := e.route.Load()
		if rt == nil {
			continue
		}
		for name, addrs := range rt.brokers {
			if addr := addrs[0]; addr != "" {
				out[name] = addr
			}
		}
	}
	return out
}

// refreshRoutes asks for every known topic anew, all 30 s.
func (c *Client) refreshRoutes() {
	for {
		t := time.NewTimer(jitter(c.cfg.routeEvery))
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return
		}
		c.routes.mu.Lock()
		topics := make([]string, 0, len(c.routes.topics))
		for topic := range c.routes.topics {
			topics = append(topics, topic)
		}
		c.routes.mu.Unlock()
		for _, topic := range topics {
			ctx, cancel := context.WithTimeout(c.ctx, c.cfg.callTimeout)
			_, err := c.routes.fetch(ctx, topic)
			cancel()
			if err != nil && c.ctx.Err() == nil {
				c.cfg.logger.Debug("route refresh", "topic", topic, "err", err)
			}
		}
	}
}
