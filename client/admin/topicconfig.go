// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"maps"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
)

// Perm is what may be done with a topic or a broker.
type Perm int

// The permissions; PermReadWrite is what topics usually have.
const (
	PermInherit   Perm = 1 // the topic is a template for topics that are created by a send
	PermWrite     Perm = 2
	PermRead      Perm = 4
	PermReadWrite Perm = PermRead | PermWrite
)

// String returns the form that RocketMQ's tools print, as RW-.
func (p Perm) String() string { return protocol.PermText(int32(p)) }

// defaultQueues is that of RocketMQ's mqadmin updateTopic.
const defaultQueues = 8

// TopicConfig is what a broker keeps about a topic. For PutTopic zero values of ReadQueues,
// WriteQueues and Perm mean 8, 8 and PermReadWrite.
type TopicConfig struct {
	Name        string
	ReadQueues  int
	WriteQueues int
	Perm        Perm
	Order       bool // queues keep their number and order when a broker is away
	MultiTag    bool // messages may have several tags (TopicFilterType MULTI_TAG)
	SysFlag     int
	Attributes  map[string]string // as "message.type": "FIFO"
}

func (c *TopicConfig) setDefaults() {
	if c.ReadQueues == 0 {
		c.ReadQueues = defaultQueues
	}
	if c.WriteQueues == 0 {
		c.WriteQueues = defaultQueues
	}
	if c.Perm == 0 {
		c.Perm = PermReadWrite
	}
}

func (c *TopicConfig) check(op string) error {
	if err := protocol.ValidTopic([]byte(c.Name)); err != nil {
		return invalid(op, "topic %q: %w", c.Name, err)
	}
	if c.ReadQueues < 0 || c.WriteQueues < 0 {
		return invalid(op, "topic %s with %d read and %d write queues",
			c.Name, c.ReadQueues, c.WriteQueues)
	}
	if c.Perm < 0 || c.Perm > 7 {
		return invalid(op, "topic %s with permission %d, must be 0 to 7", c.Name, c.Perm)
	}
	for name, value := range c.Attributes {
		if name == "" || strings.ContainsAny(name, "+-,=") || strings.ContainsAny(value, ",=") {
			return invalid(op, "attribute %q=%q of topic %s has a separator", name, value, c.Name)
		}
	}
	return nil
}

func (c *TopicConfig) filterType() protocol.TopicFilterType {
	if c.MultiTag {
		return protocol.MultiTag
	}
	return protocol.SingleTag
}

// request is the header that makes c out of before, whose attributes are nil for a new topic.
func (c *TopicConfig) request(before map[string]string) *protocol.CreateTopicRequest {
	return &protocol.CreateTopicRequest{
		Topic: c.Name, DefaultTopic: protocol.TBW102,
		ReadQueueNums: int32(c.ReadQueues), WriteQueueNums: int32(c.WriteQueues),
		Perm: int32(c.Perm), TopicFilterType: c.filterType(), TopicSysFlag: int32(c.SysFlag),
		Order: c.Order, Attributes: strings.Join(attributeChanges(before, c.Attributes), ","),
	}
}

// attributeChanges lists what turns before into after, as brokers read it: +key=value, -key.
func attributeChanges(before, after map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if old, ok := before[name]; !ok || old != after[name] {
			list = append(list, "+"+name+"="+after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			list = append(list, "-"+name)
		}
	}
	return list
}

func topicConfigOf(c *protocol.TopicConfig) TopicConfig {
	return TopicConfig{
		Name: c.TopicName, ReadQueues: int(c.ReadQueueNums), WriteQueues: int(c.WriteQueueNums),
		Perm: Perm(c.Perm), Order: c.Order, MultiTag: c.TopicFilterType == protocol.MultiTag,
		SysFlag: int(c.TopicSysFlag), Attributes: maps.Clone(c.Attributes),
	}
}
