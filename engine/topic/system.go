// SPDX-License-Identifier: Apache-2.0

package topic

import "github.com/skylarkmq/skylark/net/protocol"

const (
	defaultQueues   = 8
	benchmarkQueues = 1024
	clusterQueues   = 16
	scheduleQueues  = 18 // one for each delay level
	reviveQueues    = 8
)

// startTopics lists the topics a broker has before the first client comes (RocketMQ
// TopicConfigManager.init). They are system topics from then on.
func startTopics(cfg Config) []*protocol.TopicConfig {
	const (
		readWrite = protocol.PermRead | protocol.PermWrite
		inherited = readWrite | protocol.PermInherit
	)
	permOf := func(off bool) int32 {
		if off {
			return protocol.PermInherit
		}
		return inherited
	}
	topics := []*protocol.TopicConfig{
		newTopic(protocol.SelfTestTopic, 1, readWrite),
		newTopic(protocol.BenchmarkTopic, benchmarkQueues, readWrite),
		newTopic(protocol.OffsetMovedTopic, 1, readWrite),
		newTopic(protocol.ScheduleTopic, scheduleQueues, readWrite),
		newTopic(protocol.HalfTopic, 1, readWrite),
		newTopic(protocol.OpHalfTopic, 1, readWrite),
		newTopic(protocol.RocksDBHalfTopic, 1, readWrite),
		newTopic(protocol.RocksDBOpTopic, 1, readWrite),
	}
	add := func(c *protocol.TopicConfig) { topics = append(topics, c) }
	if cfg.AutoCreate {
		add(newTopic(protocol.TBW102, orDefault(cfg.DefaultQueues, defaultQueues), inherited))
	}
	if cfg.ClusterName != "" {
		add(newTopic(cfg.ClusterName, clusterQueues, permOf(cfg.ClusterTopicOff)))
		add(newTopic(cfg.ClusterName+protocol.ReplyTopicSuffix, 1, readWrite))
		add(newTopic(protocol.ReviveTopicPrefix+cfg.ClusterName,
			orDefault(cfg.ReviveQueues, reviveQueues), readWrite))
	}
	if cfg.BrokerName != "" {
		add(newTopic(cfg.BrokerName, 1, permOf(cfg.BrokerTopicOff)))
		add(newTopic(protocol.SyncMemberTopicPrefix+cfg.BrokerName, 1, protocol.PermInherit))
	}
	if cfg.TraceTopic {
		name := cfg.TraceTopicName
		if name == "" {
			name = protocol.TraceTopic
		}
		add(newTopic(name, 1, readWrite))
	}
	if cfg.TimerWheel {
		add(newTopic(protocol.TimerTopic, 1, readWrite))
	}
	return topics
}

func newTopic(name string, queues, perm int32) *protocol.TopicConfig {
	queues = max(queues, 0)
	return &protocol.TopicConfig{
		TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm,
		TopicFilterType: protocol.SingleTag, Attributes: map[string]string{},
	}
}

func orDefault(n, def int32) int32 {
	if n <= 0 {
		return def
	}
	return n
}
