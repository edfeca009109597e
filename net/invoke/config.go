// SPDX-License-Identifier: Apache-2.0

package invoke

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

var (
	// ErrClosed is the cause when the pool or the connection was closed on this side.
	ErrClosed = errors.New("closed by this side")
	// ErrBusy is the cause when Config.MaxPending requests wait for answers already.
	ErrBusy = errors.New("too many requests without an answer")
	// ErrIdle is the cause when nothing crossed the connection for Config.IdleTimeout.
	ErrIdle = errors.New("idle for too long")
	// ErrTooLarge is the cause when a request exceeds Config.MaxFrame.
	ErrTooLarge = errors.New("frame too large")

	errUnread = errors.New("the peer does not read its answers")
	errEnded  = errors.New("connection closed by the peer")
)

// Error is what every call fails with. Cause with errors.Is: context errors, ErrClosed, ErrBusy,
// ErrIdle, ErrTooLarge, or an error of the network.
type Error struct {
	Addr string
	Op   string // "dial", "send", "call"
	Sent bool   // the request may have reached the peer
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("invoke: %s %s: %v", e.Op, e.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Config sets up a Pool. Zero values mean the defaults named here.
type Config struct {
	DialTimeout  time.Duration // 3 s; negative: only the caller's context ends a dial
	WriteTimeout time.Duration // 10 s for a write of 1 MiB or less; then the connection is closed
	IdleTimeout  time.Duration // 120 s without traffic and without waiting calls; negative: never

	// Dial makes a connection, for TLS and tests. Default: TCP with keep-alive.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	Language  remoting.Language      // told to the peer in each request
	Serialize remoting.SerializeType // form of request headers
	MaxFrame  int                    // remoting.MaxFrame bytes, both directions
	MaxQueued int                    // 32 MiB waiting to be written on a connection

	// OnRequest answers requests of the peer; nil answers none. cmd is borrowed until it returns.
	// A nil answer sends nothing, as does any answer to a one-way request; Pool.Respond can
	// answer later. It runs on the reader: no answer of this connection is seen meanwhile.
	OnRequest func(addr string, cmd *remoting.Command) *Response

	// OnOpen is told once for each connection, before its first request.
	OnOpen func(addr string)

	// OnClose is told once for each connection, after its calls have failed.
	OnClose func(addr string, err error)

	// Prepare may change each request to a peer before it is encoded, to sign it for instance. r is
	// a copy of its own; it must not change what r points at. It runs on the caller's goroutine
	// with no lock held and may wait; its error fails the request, which then was not sent.
	Prepare func(ctx context.Context, addr string, r *Request) error

	MaxPending int // 65536 requests without an answer on a connection
}

const (
	defaultDialTimeout  = 3 * time.Second
	defaultWriteTimeout = 10 * time.Second
	defaultIdleTimeout  = 120 * time.Second
	defaultMaxPending   = 65536
	defaultMaxQueued    = 32 << 20
)

func (c Config) withDefaults() Config {
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = defaultWriteTimeout
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = defaultIdleTimeout
	}
	if c.MaxFrame <= 0 {
		c.MaxFrame = remoting.MaxFrame
	}
	if c.MaxPending <= 0 {
		c.MaxPending = defaultMaxPending
	}
	if c.MaxQueued <= 0 {
		c.MaxQueued = defaultMaxQueued
	}
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = d.DialContext
	}
	return c
}

// Request is one request. It is read until the method it was given to returns.
type Request struct {
	Code   remoting.RequestCode
	Header remoting.Header // nil: no fields
	Body   []byte
	Bodies [][]byte // follow Body, without a copy made by the caller
	Remark string

	// Timeout ends an asynchronous request with context.DeadlineExceeded, cheaper than a context
	// for each request; 0: only the context ends it. The resolution is about 20 ms.
	Timeout time.Duration

	// Borrow lends the waiter of Start and Async the connection's own buffers: the Response and
	// all it points at are valid until the waiter returns, Remark stays empty on Success, and
	// nothing is allocated. Call ignores it.
	Borrow bool
}

// Response is an answer: received, or given to a request of the peer.
type Response struct {
	Code    remoting.ResponseCode
	Remark  string
	Version int32  // of the peer; received only
	Body    []byte // nil: none

	Command *remoting.Command // received only: the whole frame, owned by the receiver
	Header  remoting.Header   // given only; nil: no fields
}

// Err returns nil for Success and otherwise a *remoting.Error.
func (r *Response) Err() error {
	if r.Code == remoting.Success {
		return nil
	}
	return &remoting.Error{Code: r.Code, Remark: r.Remark}
}

// Waiter receives the outcome of an asynchronous request, exactly once. It must not block.
type Waiter interface {
	// Answered has either an answer or an error. It runs on the connection's reader, or on the
	// goroutine that closes the connection or ends the wait.
	Answered(*Response, error)
}

// WaiterFunc is a Waiter that is a function.
type WaiterFunc func(*Response, error)

// Answered calls f.
func (f WaiterFunc) Answered(r *Response, err error) { f(r, err) }
