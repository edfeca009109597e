// SPDX-License-Identifier: Apache-2.0

// Package topic keeps the topics of one broker: their configuration, the topics every broker has,
// the rules by which a send or a heartbeat creates one, and the file topics.json.
//
// It knows nothing of queues on disk, of routes or of connections: who needs to act on a change
// (registration with the name servers, deletion of queue files) passes Config.OnChange.
//
// Lookup may be called from anywhere and takes no lock. Changes are serialized, and those that come
// while the file is being written share the next write; readers see a change when it is written, so
// a topic that was answered for is on disk.
//
//	topics, err := topic.Open(dir, topic.Config{BrokerName: "broker-a", AutoCreate: true})
//	cfg, ok := topics.Lookup([]byte("Order"))
package topic
