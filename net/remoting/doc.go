// SPDX-License-Identifier: Apache-2.0

// Package remoting reads and writes the command frames of RocketMQ's TCP protocol.
//
// It owns the frame layout, both header forms (JSON and ROCKETMQ binary), the request and response
// codes, the correlation ids and the typed Error that a server turns into an answer. It leaves
// sockets to eventloop and invoke, and the meaning of fields and bodies to protocol. The layout is
// described in net/docs/remoting.md.
//
// Nothing here keeps state between calls apart from the scratch space of a Command and the Shapes that
// Commands may share, so these and an Encoder belong to one goroutine at a time and everything else may
// be used from any.
//
//	var cmd remoting.Command
//	if err := cmd.Decode(frame); err != nil { // frame: what follows the length field
//		return err // close the connection
//	}
//	e := remoting.Begin(out, cmd.Reply(remoting.Success))
//	e.Int("offset", 42)
//	out = e.End(nil)
package remoting
