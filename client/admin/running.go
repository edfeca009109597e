// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// RunningInfo is what a consumer says about itself.
type RunningInfo struct {
	ClientID   string
	StartedAt  time.Time
	Version    string
	Type       string // CONSUME_PASSIVELY, CONSUME_ACTIVELY or CONSUME_POP
	Ordered    bool
	Workers    int // threads or goroutines that handle messages; 0: not told
	Queues     []QueueInfo
	Topics     []TopicRates
	Subscribed []Subscription
	Properties map[string]string // everything else, in RocketMQ's names
	Stacks     string            // of its threads, when asked for
}

// QueueInfo is one queue that a consumer holds.
type QueueInfo struct {
	Queue                  client.Queue
	Committed              int64 // offset
	Cached                 int   // messages fetched and not finished
	CachedMin, CachedMax   int64 // offsets of the first and the last of them
	CachedMiB              int
	Locked, Dropped        bool
	LastPull, LastConsumed time.Time
	LastLock               time.Time
}

// TopicRates are a consumer's rates in one topic.
type TopicRates struct {
	Topic                   string
	PullTPS, OKTPS, FailTPS float64       // a second
	PullTime, ConsumeTime   time.Duration // on average
	FailedHour              int64         // messages that failed in the last hour
}

// RunningInfo has a consumer tell about itself, through a broker that it is connected to. stacks
// asks for its threads too, which stops a Java consumer for a moment. ErrNotOnline when the client
// is not connected, ErrTimeout when it does not answer.
func (a *Admin) RunningInfo(
	ctx context.Context, group, clientID string, stacks bool,
) (RunningInfo, error) {
	op := fmt.Sprintf("running info of consumer %s of group %s", clientID, group)
	var info protocol.ConsumerRunningInfo
	err := a.throughBroker(ctx, op, group, clientID, func(ctx context.Context, b Broker) error {
		return a.askFor(ctx, op, b, remoting.GetConsumerRunningInfo,
			&protocol.ConsumerRunningInfoRequest{Group: group, ClientID: clientID, Jstack: stacks}, &info)
	})
	if err != nil {
		return RunningInfo{}, err
	}
	return runningOf(clientID, &info), nil
}

// throughBroker asks the brokers that a client is connected to, one after the other until one
// answers.
func (a *Admin) throughBroker(
	ctx context.Context, op, group, clientID string, ask func(context.Context, Broker) error,
) error {
	m, err := a.Members(ctx, group)
	if len(m.Members) == 0 && err != nil {
		return err
	}
	all, err := a.Brokers(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(m.Members, func(x Member) bool { return x.ClientID == clientID })
	if i < 0 {
		return &Error{
			Op: op, Err: fmt.Errorf("client %q of group %s: %w", clientID, group, ErrNotOnline),
			Next: "Members lists the clients that are connected",
		}
	}
	err = nil
	for _, b := range all {
		if b.ID != 0 || !slices.Contains(m.Members[i].Brokers, b.Name) {
			continue
		}
		if err = ask(ctx, b); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func runningOf(clientID string, w *protocol.ConsumerRunningInfo) RunningInfo {
	p := numbers(w.Properties)
	info := RunningInfo{
		ClientID: clientID, StartedAt: timeOf(p.int(protocol.PropConsumerStartTimestamp)),
		Version: p[protocol.PropClientVersion], Type: p[protocol.PropConsumeType],
		Ordered: p[protocol.PropConsumeOrderly] == "true",
		Workers: int(p.int(protocol.PropThreadPoolCoreSize)), Properties: maps.Clone(w.Properties),
		Stacks: w.Jstack,
	}
	if v, err := strconv.ParseInt(info.Version, 10, 32); err == nil {
		info.Version = versionText(int32(v))
	}
	for q, i := range w.MQTable {
		info.Queues = append(info.Queues, QueueInfo{
			Queue: queueOf(q), Committed: i.CommitOffset, Cached: int(i.CachedMsgCount),
			CachedMin: i.CachedMsgMinOffset, CachedMax: i.CachedMsgMaxOffset,
			CachedMiB: int(i.CachedMsgSizeInMiB), Locked: i.Locked, Dropped: i.Droped,
			LastPull: timeOf(i.LastPullTimestamp), LastConsumed: timeOf(i.LastConsumeTimestamp),
			LastLock: timeOf(i.LastLockTimestamp),
		})
	}
	for topic, s := range w.StatusTable {
		info.Topics = append(info.Topics, TopicRates{
			Topic: topic, PullTPS: s.PullTPS, OKTPS: s.ConsumeOKTPS, FailTPS: s.ConsumeFailedTPS,
			PullTime:    time.Duration(s.PullRT * float64(time.Millisecond)),
			ConsumeTime: time.Duration(s.ConsumeRT * float64(time.Millisecond)),
			FailedHour:  s.ConsumeFailedMsgs,
		})
	}
	for i := range w.SubscriptionSet {
		s := &w.SubscriptionSet[i]
		info.Subscribed = append(info.Subscribed, subscriptionOf(s.Topic, s))
	}
	slices.SortFunc(info.Queues, func(a, b QueueInfo) int { return compareQueues(a.Queue, b.Queue) })
	slices.SortFunc(info.Topics, func(a, b TopicRates) int { return cmp.Compare(a.Topic, b.Topic) })
	slices.SortFunc(info.Subscribed, compareTopics)
	return info
}

// Assignment returns which member of a group holds each queue, as the members themselves say. With
// an error that is partial, what the others said.
func (a *Admin) Assignment(ctx context.Context, group string) (map[client.Queue]string, error) {
	m, err := a.Members(ctx, group)
	if len(m.Members) == 0 {
		return nil, err
	}
	op := "assignment of group " + group
	list := make([]Broker, len(m.Members)) // stand-ins: one for each client
	for i, x := range m.Members {
		list[i] = Broker{Name: x.ClientID, Addr: x.Addr}
	}
	answers, err := each(ctx, op, list, func(ctx context.Context, b Broker) (RunningInfo, error) {
		return a.RunningInfo(ctx, group, b.Name, false)
	})
	held := map[client.Queue]string{}
	for _, x := range answers {
		for _, q := range x.Value.Queues {
			if !q.Dropped {
				held[q.Queue] = x.Value.ClientID
			}
		}
	}
	return held, err
}

// HeldOffsets returns the offsets that online members of a group hold for a topic, by client id and
// queue: of one client, or of all when clientID is empty. ErrNotOnline when there is nobody.
func (a *Admin) HeldOffsets(
	ctx context.Context, topic, group, clientID string,
) (map[string]map[client.Queue]int64, error) {
	op := fmt.Sprintf("offsets that members of group %s hold in topic %s", group, topic)
	list, err := a.brokersOf(ctx, op, topic)
	if err != nil {
		return nil, err
	}
	answers, err := each(ctx, op, list,
		func(ctx context.Context, b Broker) (s protocol.ConsumerStatusBody, err error) {
			err = a.askFor(ctx, op, b, remoting.InvokeBrokerToGetConsumerStatus,
				&protocol.ConsumerStatusRequest{Topic: topic, Group: group, ClientAddr: clientID}, &s)
			return s, err
		})
	answers, err = except(op, answers, err, ErrNotOnline)
	held := map[string]map[client.Queue]int64{}
	for _, x := range answers {
		for id, queues := range x.Value.ConsumerTable {
			if held[id] == nil {
				held[id] = map[client.Queue]int64{}
			}
			for q, offset := range queues {
				held[id][queueOf(q)] = offset
			}
		}
	}
	return held, err
}
