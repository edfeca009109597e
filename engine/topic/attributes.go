// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
)

// AttributeMessageType is the attribute that says which kind of message a topic is for.
const AttributeMessageType = "message.type"

// attribute is one name that a topic's attributes may have (RocketMQ TopicAttributes).
type attribute struct {
	fixed  bool     // cannot change once the topic exists
	values []string // nil: a whole number of at least -1
}

func attributeOf(name string) (attribute, bool) {
	switch name {
	case "queue.type":
		return attribute{fixed: true, values: []string{"BatchCQ", "SimpleCQ"}}, true
	case "cleanup.policy":
		return attribute{fixed: true, values: []string{"DELETE", "COMPACTION"}}, true
	case AttributeMessageType:
		return attribute{values: []string{
			"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED",
		}}, true
	case "reserve.time":
		return attribute{}, true
	}
	return attribute{}, false
}

func (a attribute) check(name, value string) error {
	if a.values == nil {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < -1 {
			return fmt.Errorf("value of attribute %s is not a number of at least -1: %q", name, value)
		}
		return nil
	}
	if !slices.Contains(a.values, value) {
		return fmt.Errorf("value of attribute %s is not in set %v: %q", name, a.values, value)
	}
	return nil
}

// BatchQueues is the value of queue.type for topics with a queue entry for each record, which can hold
// several messages (RocketMQ CQType.BatchCQ).
const BatchQueues = "BatchCQ"

// HasBatchQueues reports whether a topic's queues are of that kind. Cost for others: one length.
func HasBatchQueues(c *protocol.TopicConfig) bool {
	return len(c.Attributes) > 0 && c.Attributes["queue.type"] == BatchQueues
}

// Batch reports whether the queues of a topic are batch queues; known is false for a topic that is not
// there.
func (t *Table) Batch(name string) (batch, known bool) {
	c, ok := t.Lookup([]byte(name))
	return ok && HasBatchQueues(c), ok
}

// Place returns the queue in which a message for a queue of a topic is stored, and false when there is no
// such topic. It is for places that a stored message names: the topic may have fewer queues than when the
// message was sent, and a message in a queue that it does not have would reach nobody.
func (t *Table) Place(name []byte, queue int32) (stored int32, ok bool) {
	c, ok := t.Lookup(name)
	if !ok || queue < 0 {
		return 0, false
	}
	if queue < max(c.WriteQueueNums, c.ReadQueueNums) {
		return queue, true
	}
	return queue % max(min(c.WriteQueueNums, c.ReadQueueNums), 1), true
}

// ParseAttributes reads the text form of attribute changes, "+name=value,-name2" (RocketMQ
// AttributeParser). Blank text is no change.
func ParseAttributes(text string) (map[string]string, error) {
	changes := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return changes, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		key, value, set := strings.Cut(item, "=")
		switch {
		case set && !strings.HasPrefix(key, "+"):
			return nil, fmt.Errorf("add/alter attribute format is wrong: %s", item)
		case !set && !strings.HasPrefix(key, "-"):
			return nil, fmt.Errorf("delete attribute format is wrong: %s", item)
		}
		if _, twice := changes[key]; twice {
			return nil, fmt.Errorf("key duplication: %s", key)
		}
		changes[key] = value
	}
	return changes, nil
}

// alter applies changes to the attributes a topic has. have is not modified. A name without a sign
// is set, so that the configuration of one broker can be given to another as it is.
func alter(have, changes map[string]string, creating bool) (map[string]string, error) {
	next := maps.Clone(have)
	if next == nil {
		next = map[string]string{}
	}
	touched := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		sign, name := byte('+'), key
		if key != "" && (key[0] == '+' || key[0] == '-') {
			sign, name = key[0], key[1:]
		}
		if touched[name] {
			return nil, fmt.Errorf("key duplication: %s", name)
		}
		touched[name] = true
		a, known := attributeOf(name)
		if !known {
			return nil, fmt.Errorf("unsupported key: %s", name)
		}
		if err := alterOne(next, a, sign, name, changes[key], creating); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func alterOne(
	next map[string]string, a attribute, sign byte, name, value string, creating bool,
) error {
	old, had := next[name]
	if sign == '-' {
		switch {
		case creating:
			return fmt.Errorf("only add attribute is supported while creating topic. key: %s", name)
		case !had:
			return fmt.Errorf("attempt to delete a nonexistent key: %s", name)
		case a.fixed:
			return fmt.Errorf("attempt to update an unchangeable attribute. key: %s", name)
		}
		delete(next, name)
		return nil
	}
	if err := a.check(name, value); err != nil {
		return err
	}
	if a.fixed && !creating && old != value {
		return fmt.Errorf("attempt to update an unchangeable attribute. key: %s", name)
	}
	next[name] = value
	return nil
}
