// SPDX-License-Identifier: Apache-2.0

// Package processor answers requests: one file for each subject, one function for each request
// code. A processor checks, calls one or two leaves of engine or the store, and answers; it keeps
// no state of its own beyond counters and scratch space.
//
// There are two kinds. Send and pull are hot: they belong to one event loop, run on it, never
// wait and allocate nothing. Everything else is cold: a Func gets an owned command, runs on a
// worker goroutine and may block on a file or a peer.
//
// Processors take typed requests; the functions that decode a remoting command and encode its
// answer are thin and stand beside them, so that another transport can call the typed ones.
package processor

import (
	"errors"
	"net/netip"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
)

// FAQ ends the remarks for which RocketMQ's FAQUrl adds its pointer; operators search for it.
const FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

// Caller is who asks, as far as a processor may know.
type Caller struct {
	Channel  group.Channel // identity of the connection, and the way back to its client
	Peer     netip.AddrPort
	Version  int32 // protocol version of the request
	Language remoting.Language
	Listener int // 0 main port, 1 fast port

	// Answer answers a request whose processor returned a Silent reply, once, from any goroutine.
	Answer func(r Reply)
}

// Reply is the answer of a cold processor. The zero value is SUCCESS without a header.
type Reply struct {
	Code   remoting.ResponseCode
	Remark string
	Header remoting.Header // nil: none
	Body   []byte          // owned by the reply
	Silent bool            // nothing is answered at all
}

// Func answers one cold request. It runs on a worker goroutine, owns cmd and may block.
type Func func(c *Caller, cmd *remoting.Command) Reply

// Cold maps request codes to their functions. It is filled before the broker starts and constant
// afterwards.
type Cold map[remoting.RequestCode]Func

// LightFunc answers a cold request on the event loop of its connection, where that touches no file and
// waits for nobody: handing it to a worker and its answer back wakes two threads, which costs several
// times what it does. ok is false when a worker must do it; nothing has happened then. It borrows cmd and
// keeps nothing of it.
type LightFunc func(cmd *remoting.Command) (r Reply, ok bool)

// Light maps request codes to their functions, as Cold, which has all of them too.
type Light map[remoting.RequestCode]LightFunc

// Fail turns an error into an answer: the one place where that happens.
func Fail(err error) Reply {
	code, remark := Outcome(err)
	return Reply{Code: code, Remark: remark}
}

// Outcome gives the response code and remark for an error of a leaf or of the store.
func Outcome(err error) (remoting.ResponseCode, string) {
	var wire *remoting.Error
	var illegal *storage.IllegalError
	switch {
	case err == nil:
		return remoting.Success, ""
	case errors.As(err, &wire):
		return wire.Code, wire.Remark
	case errors.As(err, &illegal):
		return remoting.MessageIllegal, illegalRemark(illegal)
	case errors.Is(err, storage.ErrDiskFull), errors.Is(err, storage.ErrReadOnly),
		errors.Is(err, storage.ErrClosed):
		return remoting.ServiceNotAvailable, "service not available now. It may be caused by one " +
			"of the following reasons: " + err.Error()
	default:
		return remoting.SystemError, err.Error()
	}
}

// illegalRemark keeps the wording of RocketMQ's SendMessageProcessor and adds what is wrong.
func illegalRemark(e *storage.IllegalError) string { return illegal + " " + e.Error() }

// illegal is what RocketMQ says of a message that is too large; what exactly is wrong follows it.
const illegal = "the message is illegal, maybe msg body or properties length not matched. " +
	"msg body length limit 4194304B, msg properties length limit 32KB."
