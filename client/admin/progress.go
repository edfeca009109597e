// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Progress is how far a consumer group is.
type Progress struct {
	Group    string
	Queues   []QueueProgress // by topic, broker and id
	TPS      float64         // messages a second that it consumes, all brokers together
	Lag      int64           // messages, sum of the queues
	InFlight int64           // messages, sum of the queues
}

// QueueProgress is how far a group is in one queue.
type QueueProgress struct {
	Queue        client.Queue
	End          int64     // offset of the next message of the queue
	Committed    int64     // offset the group continues from
	Pulled       int64     // end of what its members have fetched
	LastConsumed time.Time // when the message before Committed was stored; zero when there is none
}

// Lag is how many messages the group has not finished.
func (q QueueProgress) Lag() int64 { return q.End - q.Committed }

// InFlight is how many messages its members have fetched and not finished.
func (q QueueProgress) InFlight() int64 { return max(q.Pulled-q.Committed, 0) }

// Progress asks every broker how far a group is, in the given topics or in all that it has offsets
// in and subscribes to. A group that no broker knows has no queues. With an error that is partial,
// the rest is filled.
func (a *Admin) Progress(ctx context.Context, group string, topics ...string) (Progress, error) {
	op := "progress of group " + group
	p := Progress{Group: group}
	h := &protocol.ConsumeStatsRequest{Group: group}
	switch len(topics) {
	case 0:
	case 1:
		h.Topic = topics[0]
	default:
		h.TopicList = strings.Join(topics, ";")
	}
	answers, err := collect(ctx, a, op, Everywhere(),
		func(ctx context.Context, b Broker) (s protocol.ConsumeStats, err error) {
			err = a.askFor(ctx, op, b, remoting.GetConsumeStats, h, &s)
			return s, err
		})
	for _, x := range answers {
		p.add(&x.Value)
	}
	p.sum()
	return p, err
}

// AllProgress asks each broker of the target how far every group is, with one request a broker:
// what a monitor needs. ordered restricts it to topics with a fixed order. Queues of one group at
// one broker only.
func (a *Admin) AllProgress(
	ctx context.Context, ordered bool, at Target,
) ([]Answer[[]Progress], error) {
	op := "progress of all groups"
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) ([]Progress, error) {
		var list protocol.ConsumeStatsList
		err := a.askFor(ctx, op, b, remoting.GetBrokerConsumeStats,
			&protocol.BrokerConsumeStatsRequest{Order: ordered}, &list)
		if err != nil {
			return nil, err
		}
		var groups []Progress
		for _, entry := range list.ConsumeStatsList {
			for group, stats := range entry {
				p := Progress{Group: group}
				for _, s := range stats {
					p.add(&s)
				}
				p.sum()
				groups = append(groups, p)
			}
		}
		slices.SortFunc(groups, func(a, b Progress) int { return cmp.Compare(a.Group, b.Group) })
		return groups, nil
	})
}

// add enters what one broker said.
func (p *Progress) add(s *protocol.ConsumeStats) {
	p.TPS += s.ConsumeTPS
	for q, o := range s.OffsetTable {
		p.Queues = append(p.Queues, QueueProgress{
			Queue: queueOf(q), End: o.BrokerOffset, Committed: o.ConsumerOffset, Pulled: o.PullOffset,
			LastConsumed: timeOf(o.LastTimestamp),
		})
	}
}

// sum works out the totals and the order.
func (p *Progress) sum() {
	for _, q := range p.Queues {
		p.Lag += q.Lag()
		p.InFlight += q.InFlight()
	}
	slices.SortFunc(p.Queues, func(a, b QueueProgress) int { return compareQueues(a.Queue, b.Queue) })
}

// QueueSpan is the time that a queue covers and how far behind a group is in it.
type QueueSpan struct {
	Queue            client.Queue
	Earliest, Latest time.Time     // when its first and last message were stored
	Consumed         time.Time     // when the last consumed message was stored
	Delay            time.Duration // since the next message was stored; 0: nothing left to consume
}

// TimeSpan asks each broker of a topic what time its queues cover and where in it a group is.
func (a *Admin) TimeSpan(ctx context.Context, topic, group string) ([]QueueSpan, error) {
	op := fmt.Sprintf("time span of topic %s for group %s", topic, group)
	list, err := a.brokersOf(ctx, op, topic)
	if err != nil {
		return nil, err
	}
	answers, err := each(ctx, op, list,
		func(ctx context.Context, b Broker) (s protocol.ConsumeTimeSpanBody, err error) {
			err = a.askFor(ctx, op, b, remoting.QueryConsumeTimeSpan,
				&protocol.ConsumeTimeSpanRequest{Topic: topic, Group: group}, &s)
			return s, err
		})
	var spans []QueueSpan
	for _, x := range answers {
		for _, s := range x.Value.ConsumeTimeSpanSet {
			if s.MessageQueue == nil {
				continue
			}
			spans = append(spans, QueueSpan{
				Queue: queueOf(*s.MessageQueue), Earliest: timeOf(s.MinTimeStamp),
				Latest: timeOf(s.MaxTimeStamp), Consumed: timeOf(s.ConsumeTimeStamp),
				Delay: millis(s.DelayTime),
			})
		}
	}
	slices.SortFunc(spans, func(a, b QueueSpan) int { return compareQueues(a.Queue, b.Queue) })
	return spans, err
}
