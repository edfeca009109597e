// SPDX-License-Identifier: Apache-2.0

// Package group keeps what a broker knows of producer and consumer groups.
//
//   - Configs is the table of subscription groups and the file subscriptionGroup.json.
//   - Members is who is connected: heartbeats, subscriptions, expiry, change notifications.
//   - Locks is the queue locks of ordered consumers.
//
// The package sends nothing itself: a change of a group's members is told to Config.NotifyChange
// before the heartbeat that caused it returns, and the expired connections are handed to whoever
// owns connections. Configs.Lookup and Members.Subscription are on the path of a pull; they take no
// lock and allocate nothing.
package group
