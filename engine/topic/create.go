// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
)

// CreateOnSend is what a send to an unknown topic says about the topic it wants.
type CreateOnSend struct {
	Topic         string
	DefaultTopic  string // the topic to inherit from, normally TBW102
	DefaultQueues int32
	UnitMode      bool
}

// CreateOnSend creates a topic by the rules of RocketMQ's createTopicInSendMessageMethod: the
// default topic must exist and be inheritable; a retry topic is created in any case. It blocks on
// the file and returns only when the topic is on disk. It returns ErrNotCreatable when no rule
// applies, and the topic as it is when somebody else was faster.
func (t *Table) CreateOnSend(req CreateOnSend) (*protocol.TopicConfig, error) {
	return t.ensure(req.Topic, func(e *edit) *protocol.TopicConfig {
		if c := t.inherit(e, req); c != nil {
			return c
		}
		if !strings.HasPrefix(req.Topic, protocol.RetryPrefix) {
			return nil
		}
		c := newTopic(req.Topic, 1, protocol.PermRead|protocol.PermWrite)
		c.TopicSysFlag = unitFlag(req)
		return c
	})
}

// inherit makes the topic from its default topic, or nil when that one does not allow it. With
// automatic creation off TBW102 passes nothing on, even if an older start left it in the file.
func (t *Table) inherit(e *edit, req CreateOnSend) *protocol.TopicConfig {
	from := e.Get(req.DefaultTopic)
	if from == nil || from.Perm&protocol.PermInherit == 0 {
		return nil
	}
	if req.DefaultTopic == protocol.TBW102 && !t.cfg.AutoCreate {
		return nil
	}
	queues := max(0, min(req.DefaultQueues, from.WriteQueueNums))
	c := newTopic(req.Topic, queues, from.Perm&^protocol.PermInherit)
	c.TopicFilterType = from.TopicFilterType
	c.TopicSysFlag = unitFlag(req)
	return c
}

func unitFlag(req CreateOnSend) int32 {
	switch {
	case !req.UnitMode:
		return 0
	case strings.HasPrefix(req.Topic, protocol.RetryPrefix):
		return protocol.TopicFlagUnitSub
	default:
		return protocol.TopicFlagUnit
	}
}

// CreateRetry makes sure that a retry or dead-letter topic exists (RocketMQ
// createTopicInSendMessageBackMethod). A topic that is there keeps everything but its order flag,
// which is set to what is asked. It blocks on the file only when something changes.
func (t *Table) CreateRetry(
	name string, queues, perm int32, order, unit bool,
) (*protocol.TopicConfig, error) {
	if c, ok := t.Find(name); ok && c.Order == order {
		return c, nil
	}
	return t.ensureOrder(name, order, func() *protocol.TopicConfig {
		c := newTopic(name, queues, perm)
		c.Order = order
		if unit {
			c.TopicSysFlag = protocol.TopicFlagUnitSub
		}
		return c
	})
}

// ensure returns the topic, made by create when it is missing.
func (t *Table) ensure(
	name string, create func(e *edit) *protocol.TopicConfig,
) (*protocol.TopicConfig, error) {
	var result *protocol.TopicConfig
	err := t.update(func(e *edit) error {
		if result = e.Get(name); result != nil {
			return nil
		}
		if result = create(e); result == nil {
			return ErrNotCreatable
		}
		e.Set(name, result)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// ensureOrder is ensure for a topic whose order flag must have a value.
func (t *Table) ensureOrder(
	name string, order bool, create func() *protocol.TopicConfig,
) (*protocol.TopicConfig, error) {
	var result *protocol.TopicConfig
	err := t.update(func(e *edit) error {
		result = e.Get(name)
		switch {
		case result == nil:
			result = create()
		case result.Order == order:
			return nil
		default:
			made := *result
			made.Order = order
			result = &made
		}
		e.Set(name, result)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}
