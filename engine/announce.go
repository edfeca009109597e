// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/engine/registration"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
)

const (
	// announceWithin bounds how long the start waits for the name servers: one that is there
	// answers in a millisecond, one that is not is tried on in the background.
	announceWithin = 500 * time.Millisecond
	// announceTopicWithin bounds how long the creation of a topic waits for them.
	announceTopicWithin = 3 * time.Second
)

// newRegistration prepares the broker's heartbeat to the name servers.
func (b *Broker) newRegistration() error {
	cfg := &b.cfg
	host, _, _ := net.SplitHostPort(b.advertised.Addr)
	if cfg.BrokerIP2 != "" {
		host = cfg.BrokerIP2
	}
	haPort := cfg.HAListenPort
	if haPort == 0 {
		haPort = cfg.ListenPort + 1
	}
	r, err := registration.New(registration.Config{
		NameServers: splitAddrs(cfg.NameServers),
		Broker: registration.Broker{
			ClusterName: cfg.ClusterName, BrokerName: cfg.BrokerName, BrokerID: cfg.BrokerID,
			Addr: b.advertised.Addr, HAAddr: net.JoinHostPort(host, strconv.Itoa(haPort)),
		},
		Source:          topicSource{b.topics},
		Permission:      b.permission.Load,
		Period:          registration.ClampPeriod(ms(cfg.RegisterPeriodMS)),
		Timeout:         ms(cfg.RegisterTimeoutMS),
		OnlyWhenChanged: !cfg.ForceRegister,
		OnAnswer:        b.ordered,
		Notice:          b.notice,
	})
	if err != nil {
		return err
	}
	b.register = r
	return nil
}

func splitAddrs(list string) []string {
	var out []string
	for addr := range strings.SplitSeq(list, ";") {
		if addr = strings.TrimSpace(addr); addr != "" {
			out = append(out, addr)
		}
	}
	return out
}

// announce registers and waits a moment for it, so that a client which starts after the broker
// finds it.
func (b *Broker) announce(ctx context.Context) {
	b.register.Start()
	if b.cfg.NameServers == "" {
		b.log.Warn("no name server is configured, clients cannot find this broker",
			"advice", "set namesrvAddr in broker.conf, or NAMESRV_ADDR, or -n")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	if err := b.register.RegisterAll(ctx); err != nil {
		b.log.Warn("not registered with every name server yet, trying on", "addr",
			b.cfg.NameServers, "err", err)
	}
}

// ordered marks the topics that the name servers keep an order configuration for (RocketMQ
// TopicConfigManager.updateOrderTopicConfig).
func (b *Broker) ordered(a registration.Answer) {
	if len(a.OrderTopics) == 0 {
		return
	}
	err := b.topics.SetOrdered(func(name string) bool {
		_, ok := a.OrderTopics[name]
		return ok
	})
	if err != nil {
		b.log.Error("the order of topics is not persisted", "err", err)
	}
}

// topicSource gives the registration what it sends.
type topicSource struct{ topics *topic.Table }

// TopicConfigs returns all topics with the version of their table.
func (s topicSource) TopicConfigs() *protocol.TopicConfigWrapper {
	all, version := s.topics.All()
	return &protocol.TopicConfigWrapper{DataVersion: version, TopicConfigTable: all}
}
