// SPDX-License-Identifier: Apache-2.0

// Package protocol gives the fields and bodies of RocketMQ's commands their types.
//
// It owns one struct per custom header, one struct per JSON body, the JSON dialect of those bodies,
// and the name and hash rules on which both sides of a connection must agree. It leaves frames to
// remoting and has no state, no clock and no I/O; everything may be used from any goroutine, each
// value by one at a time.
//
// A header decodes from a command and appends its fields to an encoder. A field that is missing or
// ill-typed gives a *remoting.Error that names it, ready to be answered: code 1, as RocketMQ
// answers when its decoder leaves a null behind. The headers of the send and pull path hold byte
// slices borrowed from the command; all others hold strings of their own. Member names are
// RocketMQ's, with its spelling ("droped", "proxyFrowardClientId").
//
//	var req protocol.PullRequest
//	if err := req.Decode(cmd); err != nil {
//		return err
//	}
package protocol
