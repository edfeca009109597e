// SPDX-License-Identifier: Apache-2.0

// Package filter keeps the SQL92 expressions of consumer groups, as RocketMQ's ConsumerFilterManager
// does: what a group's heartbeats asked for, topic by topic, compiled, with the file
// consumerFilter.json. It does not know how expressions are read (sqlfilter) or where messages are.
//
// Get is for the event loops: it takes no lock. Everything else is cold and may block on the file.
package filter
