// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// ConsumerOption sets up a Consumer or a Reader. Options are checked together by NewConsumer and
// NewReader; a reader refuses those that only make sense with a handler.
type ConsumerOption func(*consumerConfig)

type consumerConfig struct {
	subscriptions []subscription
	start         Start
	prefetch      int
	prefetchBytes int
	assignor      Assignor
	broadcast     bool
	broadcastName string
	store         OffsetStore
	onAssigned    func(ctx context.Context, queues []Queue)
	onRevoked     func(ctx context.Context, queues []Queue)
	revokeTimeout time.Duration

	// Of consumers only.
	concurrency    int
	ordered        bool
	byKey          bool
	maxRetries     int // -1: 16, and without limit when ordered
	handlerTimeout time.Duration
	drainTimeout   time.Duration
	trace          string        // topic; empty: none
	pop            bool          // instead of pulls
	popInvisible   time.Duration // of pop
	consumerOnly   []string      // names of such options that were given

	// Tests shorten them.
	rebalanceEvery time.Duration
	rebalanceLeast time.Duration
	commitEvery    time.Duration
	lockEvery      time.Duration
	againAfter     time.Duration // local redelivery when a message cannot be sent back
	backWithin     time.Duration // for sending a message back

	errs []error
}

const (
	defaultMaxRetries = 16               // redeliveries
	suspendFor        = time.Second      // of an ordered queue after an error
	lockValidFor      = 30 * time.Second // after which an ordered queue pauses without a renewed lock
)

func defaultConsumerConfig() consumerConfig {
	return consumerConfig{
		start: Latest, prefetch: 1000, prefetchBytes: 100 << 20, assignor: Averagely(),
		revokeTimeout: 5 * time.Second, concurrency: 20, maxRetries: -1,
		handlerTimeout: 15 * time.Minute, drainTimeout: 30 * time.Second,
		rebalanceEvery: 20 * time.Second, rebalanceLeast: 500 * time.Millisecond,
		commitEvery: 5 * time.Second, lockEvery: 20 * time.Second, againAfter: 5 * time.Second,
		backWithin: 5 * time.Second,
	}
}

type subscription struct {
	topic string
	data  protocol.SubscriptionData
}

// Filter says which messages of a topic are wanted. All members of a group must give the same
// filters: brokers keep one for a group.
type Filter struct {
	expr string
	sql  bool
}

// All is every message.
func All() Filter { return Filter{expr: protocol.SubscribeAll} }

// Tags is every message with one of the tags. Without a tag it is every message.
func Tags(tags ...string) Filter {
	if len(tags) == 0 {
		return All()
	}
	return Filter{expr: strings.Join(tags, " || ")}
}

// SQL is every message whose properties fit a condition in RocketMQ's SQL92 subset, such as
// "amount > 100 AND region IN ('eu', 'us')". Brokers evaluate it; Apache's need
// enablePropertyFilter=true.
func SQL(condition string) Filter { return Filter{expr: condition, sql: true} }

func (f Filter) subscribe(topic string) (s subscription, err error) {
	kind := protocol.ExpressionTag
	if f.sql {
		kind = protocol.ExpressionSQL92
	}
	if err = protocol.ValidTopic([]byte(topic)); err == nil {
		s.topic = topic
		s.data, err = protocol.ParseSubscription(topic, f.expr, kind)
	}
	if err != nil {
		return s, fmt.Errorf("subscription to %q: %w", topic, err)
	}
	s.data.SubVersion = time.Now().UnixMilli()
	return s, nil
}

// WithSubscription reads a topic. It may be given for several topics, once for each. The topic need
// not exist yet.
func WithSubscription(topic string, f Filter) ConsumerOption {
	return func(c *consumerConfig) {
		s, err := f.subscribe(topic)
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		c.subscriptions = append(c.subscriptions, s)
	}
}

// Start says where a queue begins for which the group has no stored position.
type Start int64

// The fixed starts. Queues that appear while a consumer or reader runs begin with their first
// message. Brokers count a group as one that has read nothing yet while all messages of a queue are
// young, so a consumer's new group may begin with the first message in spite of Latest.
const (
	Latest   Start = -1 // what comes after the queue was first seen
	Earliest Start = -2 // the oldest message there is
)

// At starts with the first message stored at or after t, in milliseconds. Times before 1970 are
// Earliest.
func At(t time.Time) Start {
	if ms := t.UnixMilli(); ms >= 0 {
		return Start(ms)
	}
	return Earliest
}

func (s Start) where() protocol.ConsumeFromWhere {
	switch s {
	case Latest:
		return protocol.ConsumeFromLastOffset
	case Earliest:
		return protocol.ConsumeFromFirstOffset
	default:
		return protocol.ConsumeFromTimestamp
	}
}

// WithStart sets where to begin: Latest (the default), Earliest or At(time).
func WithStart(s Start) ConsumerOption { return func(c *consumerConfig) { c.start = s } }

// WithPrefetch bounds messages and bytes that are fetched and not done, for each queue. The default
// is 1000 and 100 MiB. All queues of a consumer together have 16 times as many messages and 4 times
// the bytes. Fetching also stops when the oldest message not done and the newest are 2000 offsets
// apart and handlers run concurrently. An answer that is under way may exceed the bounds.
func WithPrefetch(messages, bytes int) ConsumerOption {
	return func(c *consumerConfig) { c.prefetch, c.prefetchBytes = messages, bytes }
}

// WithAssignor sets how the members of the group divide the queues. The default is Averagely; all
// members must have the same.
func WithAssignor(a Assignor) ConsumerOption { return func(c *consumerConfig) { c.assignor = a } }

// WithBroadcast has every member of the group read all queues, each with positions of its own in
// store. name tells this member from the others there and must be the same after a restart; empty
// is the host's name. A nil store is a file below the home directory,
// .rocketmq_offsets/name/group/offsets.json, in RocketMQ's form. Failed messages are logged and
// dropped, as in RocketMQ.
func WithBroadcast(name string, store OffsetStore) ConsumerOption {
	return func(c *consumerConfig) { c.broadcast, c.broadcastName, c.store = true, name, store }
}

// WithRebalanceEvents has assigned called after queues were assigned and before their first message
// is handed out, and revoked after the handlers of queues that were lost have ended and before
// their positions are stored. Either may be nil. They may block; other queues go on meanwhile, but
// the next assignment waits. ctx ends with the consumer or reader; at its end revoked gets a
// context that lives on.
func WithRebalanceEvents(
	assigned, revoked func(ctx context.Context, queues []Queue),
) ConsumerOption {
	return func(c *consumerConfig) { c.onAssigned, c.onRevoked = assigned, revoked }
}

// WithRevokeTimeout sets how long handlers of a queue that goes to another member may run on before
// their context ends and the queue is given up. The default is 5 s.
func WithRevokeTimeout(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.revokeTimeout = d }
}

func forConsumers(name string, set func(*consumerConfig)) ConsumerOption {
	return func(c *consumerConfig) {
		c.consumerOnly = append(c.consumerOnly, name)
		set(c)
	}
}

// WithConcurrency sets how many handlers may run at once, for all topics together. The default is
// 20.
func WithConcurrency(n int) ConsumerOption {
	return forConsumers("WithConcurrency", func(c *consumerConfig) { c.concurrency = n })
}

// WithOrdered handles each queue in order, one message after the other, and holds broker locks so
// that no two members of the group do so at once. With byKey that order holds only among messages
// with the same ordering key, and the keys of one queue run in parallel; messages without a key
// have no order. A message that fails is tried again in place, a second later or as RetryAfter
// says, and only its queue or key waits.
func WithOrdered(byKey bool) ConsumerOption {
	return forConsumers("WithOrdered", func(c *consumerConfig) { c.ordered, c.byKey = true, byKey })
}

// WithMaxRetries sets after how many redeliveries a failing message goes to the dead-letter topic.
// The default is 16, and no limit with WithOrdered.
func WithMaxRetries(n int) ConsumerOption {
	return forConsumers("WithMaxRetries", func(c *consumerConfig) {
		if c.maxRetries = n; n < 0 {
			c.errs = append(c.errs, fmt.Errorf("max retries is %d, must not be negative", n))
		}
	})
}

// WithHandlerTimeout sets when the context of a handler ends. A handler that runs on for as long
// again as the revoke timeout has its message sent back, so that the position can move on; what it
// returns later does not count. The default is 15 min.
func WithHandlerTimeout(d time.Duration) ConsumerOption {
	return forConsumers("WithHandlerTimeout", func(c *consumerConfig) { c.handlerTimeout = d })
}

// WithDrainTimeout sets how long running handlers are waited for when the consumer ends. The
// default is 30 s.
func WithDrainTimeout(d time.Duration) ConsumerOption {
	return forConsumers("WithDrainTimeout", func(c *consumerConfig) { c.drainTimeout = d })
}

// WithConsumerTrace has the consumer write a record before and after each call of a handler to a
// topic, as WithTrace does for sends. Empty is RMQ_SYS_TRACE_TOPIC. The default is no trace.
func WithConsumerTrace(topic string) ConsumerOption {
	return forConsumers("WithConsumerTrace", func(c *consumerConfig) {
		if c.trace = topic; topic == "" {
			c.trace = protocol.TraceTopic
		}
	})
}

// retries is how many redeliveries a message gets; -1 is no limit.
func (c *consumerConfig) retries() int {
	if c.maxRetries < 0 && !c.ordered {
		return defaultMaxRetries
	}
	return c.maxRetries
}

func (c *consumerConfig) check() error {
	errs := slices.Clone(c.errs)
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	seen := map[string]bool{}
	for _, s := range c.subscriptions {
		bad(seen[s.topic], "topic %s is subscribed to twice", s.topic)
		seen[s.topic] = true
	}
	bad(c.start < Earliest, "start %d is neither Latest, Earliest nor a time", c.start)
	bad(c.prefetch < 1 || c.prefetchBytes < 1, "prefetch of %d messages and %d bytes, at least 1 each",
		c.prefetch, c.prefetchBytes)
	bad(c.assignor == nil, "assignor is nil")
	if err := c.checkPop(); err != nil {
		errs = append(errs, err)
	}
	bad(c.concurrency < 1, "concurrency is %d, must be positive", c.concurrency)
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"handler timeout", c.handlerTimeout},
		{"drain timeout", c.drainTimeout},
		{"revoke timeout", c.revokeTimeout},
	} {
		bad(d.d <= 0, "%s is %s, must be positive", d.name, d.d)
	}
	return errors.Join(errs...)
}

// checkGroup refuses names that brokers would not take.
func checkGroup(group string) error {
	if err := protocol.ValidGroup([]byte(group)); err != nil {
		return fmt.Errorf("group %q: %w", group, err)
	}
	if group == protocol.DefaultConsumerGroup {
		return fmt.Errorf("group %s is refused: choose a name of your own", group)
	}
	return nil
}
