// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
)

// ConsumerOption sets up a Reader. Options are checked together by NewReader.
type ConsumerOption func(*readerConfig)

type readerConfig struct {
	subscriptions []subscription
	start         Start
	prefetch      int
	prefetchBytes int
	errs          []error
}

type subscription struct {
	topic string
	data  protocol.SubscriptionData
}

// Filter says which messages of a topic are wanted.
type Filter struct{ expr string }

// All is every message.
func All() Filter { return Filter{expr: "*"} }

// Tags is every message with one of the tags. Without a tag it is every message.
func Tags(tags ...string) Filter {
	if len(tags) == 0 {
		return All()
	}
	return Filter{expr: strings.Join(tags, " || ")}
}

// WithSubscription reads all queues of a topic. It may be given for several topics, once for each.
// The topic need not exist yet.
func WithSubscription(topic string, f Filter) ConsumerOption {
	return func(c *readerConfig) {
		err := protocol.ValidTopic([]byte(topic))
		var data protocol.SubscriptionData
		if err == nil {
			data, err = protocol.ParseSubscription(topic, f.expr, "TAG")
		}
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("subscription to %q: %w", topic, err))
			return
		}
		data.SubVersion = time.Now().UnixMilli()
		c.subscriptions = append(c.subscriptions, subscription{topic: topic, data: data})
	}
}

// Start says where a queue begins for which the group has no stored position.
type Start int64

// The fixed starts. Queues that appear while a reader runs begin with their first message.
const (
	Latest   Start = -1 // what comes after the reader first sees the queue
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
func WithStart(s Start) ConsumerOption { return func(c *readerConfig) { c.start = s } }

// WithPrefetch bounds messages and bytes that are fetched ahead for each queue. The default is 1000
// and 100 MiB. An answer that is under way may exceed them.
func WithPrefetch(messages, bytes int) ConsumerOption {
	return func(c *readerConfig) { c.prefetch, c.prefetchBytes = messages, bytes }
}

func (c *readerConfig) check() error {
	errs := c.errs
	seen := map[string]bool{}
	for _, s := range c.subscriptions {
		if seen[s.topic] {
			errs = append(errs, fmt.Errorf("topic %s is subscribed to twice", s.topic))
		}
		seen[s.topic] = true
	}
	if c.start < Earliest {
		errs = append(errs, fmt.Errorf("start %d is neither Latest, Earliest nor a time", c.start))
	}
	if c.prefetch < 1 || c.prefetchBytes < 1 {
		errs = append(errs, fmt.Errorf("prefetch of %d messages and %d bytes, at least 1 each",
			c.prefetch, c.prefetchBytes))
	}
	return errors.Join(errs...)
}
