// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/skylarkmq/skylark/engine/stats"
	"github.com/skylarkmq/skylark/engine/topic"
)

// counters feeds what the hot processors do into the statistics.
type counters struct {
	stats  *stats.Manager
	topics *topic.Table
}

func nowMS() int64 { return time.Now().UnixMilli() }

// Put counts stored sends to one topic.
func (c *counters) Put(topic []byte, sends, messages, bytes int) {
	now, calls := nowMS(), int64(sends)
	c.stats.Topic(topic).Put(now, calls, int64(messages), int64(bytes))
	c.stats.Broker().Put(now, calls, int64(messages), int64(bytes), 0,
		c.topics.IsSystem(string(topic)))
}

// delivered counts messages that were appended to their real topic when they were due.
func (c *counters) delivered(topic []byte, messages, bytes int) {
	c.Put(topic, messages, messages, bytes)
}

// SentBack counts one message that a consumer gave back, and whether it became a dead letter.
func (c *counters) SentBack(group, topic []byte, dead bool) {
	g, now := c.stats.Group(group, topic), nowMS()
	g.SendBackNums.Add(now, 1)
	if dead {
		g.DLQNums.Add(now, 1)
	}
}

// PutFailed counts one send that was refused.
func (c *counters) PutFailed() { c.stats.Broker().PutFailed() }

// Got counts one pull that brought messages.
func (c *counters) Got(group, topic []byte, messages, bytes int) {
	now := nowMS()
	c.stats.Group(group, topic).Get(now, int64(messages), int64(bytes))
	c.stats.Broker().Get(now, int64(messages), 0, c.topics.IsSystem(string(topic)))
}

// GotNothing counts one pull that brought none.
func (c *counters) GotNothing() { c.stats.Broker().Miss(nowMS()) }
