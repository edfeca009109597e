// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/net/protocol"
)

// Option changes a cluster before it starts. Options are checked together by New.
type Option func(*config)

type config struct {
	brokers    int
	topics     []topicConfig
	groups     []string
	autoCreate bool
	dir        string
	logger     *slog.Logger
	keys       []settings.Entry
}

type topicConfig struct {
	name   string
	queues int
}

const (
	brokersMax    = 16
	defaultQueues = 4
)

// WithTopics creates topics of four queues at each broker before New returns.
func WithTopics(names ...string) Option {
	return func(c *config) {
		for _, name := range names {
			c.topics = append(c.topics, topicConfig{name, defaultQueues})
		}
	}
}

// WithTopic creates a topic with so many queues at each broker before New returns.
func WithTopic(name string, queues int) Option {
	return func(c *config) { c.topics = append(c.topics, topicConfig{name, queues}) }
}

// WithGroups creates consumer groups at each broker before New returns. It is only needed together
// with WithoutAutoCreate.
func WithGroups(names ...string) Option {
	return func(c *config) { c.groups = append(c.groups, names...) }
}

// WithoutAutoCreate has brokers refuse topics and consumer groups that were not created before, as
// careful operators set it up.
func WithoutAutoCreate() Option { return func(c *config) { c.autoCreate = false } }

// WithBrokers sets how many brokers the cluster has, 1 to 16; they are called broker-a, broker-b and
// so on. The default is 1.
func WithBrokers(n int) Option { return func(c *config) { c.brokers = n } }

// WithDir keeps all files below dir and leaves them there at the end, so that a later cluster with
// the same dir has the same messages, topics, groups and offsets. Its ports are others.
func WithDir(dir string) Option { return func(c *config) { c.dir = dir } }

// WithLogger has name server and brokers log to l. The default discards.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithBrokerConfig sets one key of RocketMQ's broker.conf at each broker, for example
// flushDiskType=SYNC_FLUSH or maxMessageSize=65536.
func WithBrokerConfig(key, value string) Option {
	return func(c *config) { c.keys = append(c.keys, settings.Entry{Key: key, Value: value}) }
}

func (c *config) check() error {
	var errs []error
	if c.brokers < 1 || c.brokers > brokersMax {
		errs = append(errs, fmt.Errorf("%d brokers, must be 1 to %d", c.brokers, brokersMax))
	}
	for _, t := range c.topics {
		if err := protocol.ValidTopic([]byte(t.name)); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", t.name, err))
		}
		if t.queues < 1 || t.queues > 1024 {
			errs = append(errs, fmt.Errorf("topic %s with %d queues, must be 1 to 1024", t.name, t.queues))
		}
	}
	for _, g := range c.groups {
		if g == "" {
			errs = append(errs, errors.New("a group without a name"))
		}
	}
	if c.logger == nil {
		errs = append(errs, errors.New("logger is nil"))
	}
	return errors.Join(errs...)
}

// apply sets the keys of WithBrokerConfig.
func (c *config) apply(cfg *engine.Config) error {
	if len(c.keys) == 0 {
		return nil
	}
	_, err := settings.Apply(cfg, &settings.File{Path: "WithBrokerConfig", Entries: c.keys}, nil)
	return err
}
