// SPDX-License-Identifier: Apache-2.0

// Package eventloop is the reactor of a server: it accepts connections, cuts what they send into
// RocketMQ command frames, hands these to a Handler, and sends what the handler queued, in order
// and without copying file regions. It decides when bytes move, who is too slow, too idle or too
// strange to stay, and never what a command means.
//
// A Server has a few loops. Each connection belongs to one of them for its whole life, and each
// loop has a Handler of its own whose methods run one at a time: state that a handler keeps for its
// loop needs no lock. Methods of Conn may be called from there only. Other goroutines keep a Ref,
// a plain value, and reach the connection by posting a Task; the task learns that the connection is
// gone by being run without one.
//
// Three backends stand behind this: "epoll" and "gnet" on Linux, and "net", a goroutine for each
// direction of each connection, everywhere. They pass the same tests. net/docs/eventloop.md tells
// how they work, lists every bound, and says what happens there.
//
//	srv, err := eventloop.Listen(eventloop.DefaultConfig(), []string{":10911", ":10909"},
//		func(l *eventloop.Loop) eventloop.Handler { return newHandler(l) })
//	...
//	err = srv.Close(ctx)
package eventloop
