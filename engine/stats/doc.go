// SPDX-License-Identifier: Apache-2.0

// Package stats counts what a broker did, under the names of RocketMQ's BrokerStatsManager.
//
// Counters are added to by sends and pulls, without a lock and without an allocation once a topic
// or group is known. There is no timer: a window's snapshots are taken when a counter is touched or
// read after a snapshot was due, from the value the counter had then, so the numbers are those that
// a timer would have found.
//
//	m := stats.New(stats.Config{Cluster: "DefaultCluster"})
//	m.Topic(topic).Put(nowMS, messages, bytes)
//	data, ok := m.View("TOPIC_PUT_NUMS", "Order", nowMS)
package stats
