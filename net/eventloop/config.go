// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

// Names of the backends for Config.Backend.
const (
	BackendEpoll = "epoll" // Linux: own loop around epoll
	BackendGnet  = "gnet"  // Linux: gnet's loop
	BackendNet   = "net"   // everywhere: goroutines of package net
)

// Config are the settings of a server. Start from DefaultConfig: a zero is a bound of its own only
// where the comment says so, and means the default otherwise.
type Config struct {
	// Backend is "epoll", "gnet" or "net"; empty is the best one for the platform.
	Backend string
	// Loops is the number of loops; 0 is one less than the processors, at least one.
	Loops int
	// MaxFrame limits a frame, its length field included, in bytes: remoting.MaxFrame, 16 MiB.
	MaxFrame int
	// IdleTimeout closes a connection on which nothing moved in either direction: 120 s, as
	// RocketMQ's serverChannelMaxIdleTimeSeconds. Negative: never. With unsent answers the cause is
	// ErrSlowReader.
	IdleTimeout time.Duration
	// FrameTimeout closes a connection that has not completed the frame it began: 60 s. The idle
	// timeout does not catch a peer that sends a byte a second. Negative: never.
	FrameTimeout time.Duration
	// ReadBuffer is the most that one read takes from a socket, in bytes: 256 KiB. Each loop has
	// one such buffer; the net backend has 16 KiB for each connection instead.
	ReadBuffer int
	// MaxOutBytes closes a connection whose unread answers hold more memory once its socket takes no
	// more, in bytes: 64 MiB. From an eighth of it on nothing more is read or handled for that
	// connection until half has gone, so that one who reads does not come to the bound. File regions
	// count with what keeps account of them.
	MaxOutBytes int64
	// MaxOutTotal bounds the memory of the unread answers of all connections, in bytes: 256 MiB. From
	// half of it on a connection is not read from at 256 KiB of its own. At it, of those that have more
	// than that and whose sockets take no more, the one that has been silent for longest is closed.
	MaxOutTotal int64
	// MaxOutSegments is the number of unsent pieces, which file regions are, from which on nothing more
	// is read or handled for a connection until half has gone: 1024.
	MaxOutSegments int
	// MaxConns is the number of connections from which on further ones are closed at once: 65536.
	MaxConns int
	// Congestion is the TCP congestion control of accepted connections: "cubic", since pacing by
	// BBR costs large answers most of their speed. Empty leaves the system's. Where the system does
	// not allow it, a notice says so and the server goes on.
	Congestion string

	// A region is copied below CopyBelow bytes (8 KiB). A single one goes by sendfile from
	// SendfileFrom bytes on (16 KiB), one of several from ScatteredFrom on (64 KiB); what lies
	// between goes by writev from its mapping. Each number is where the costs cross on the reference
	// machine.
	CopyBelow, SendfileFrom, ScatteredFrom int

	// Notice receives what an operator should know: start, refused connections, at most one line a
	// minute for each peer. It may be called from any goroutine and must not block. Nil: nothing.
	Notice func(msg string, kv ...any)
}

// DefaultConfig returns the defaults that the fields of Config name.
func DefaultConfig() Config {
	return Config{
		Loops:          max(1, runtime.GOMAXPROCS(0)-1),
		MaxFrame:       remoting.MaxFrame,
		IdleTimeout:    120 * time.Second,
		FrameTimeout:   60 * time.Second,
		ReadBuffer:     256 << 10,
		MaxOutBytes:    64 << 20,
		MaxOutTotal:    256 << 20,
		MaxOutSegments: 1024,
		MaxConns:       65536,
		Congestion:     "cubic",
		CopyBelow:      8 << 10,
		SendfileFrom:   16 << 10,
		ScatteredFrom:  64 << 10,
	}
}

// Causes with which the loop itself closes a connection.
var (
	ErrServerClosed   = errors.New("server closed")
	ErrSlowReader     = errors.New("peer does not read its answers")
	ErrIdle           = errors.New("idle for too long")
	ErrFrameTimeout   = errors.New("frame not completed in time")
	ErrTooManyConns   = errors.New("too many connections")
	ErrOtherProtocol  = errors.New("peer speaks another protocol")
	ErrRegionUnread   = errors.New("region cannot be read")
	errUnknownBackend = errors.New("no such backend on this platform")
)

// complete fills in defaults for zeros and checks the rest.
func (c *Config) complete() error {
	d := DefaultConfig()
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"Loops", &c.Loops, d.Loops},
		{"MaxFrame", &c.MaxFrame, d.MaxFrame},
		{"ReadBuffer", &c.ReadBuffer, d.ReadBuffer},
		{"MaxOutSegments", &c.MaxOutSegments, d.MaxOutSegments},
		{"MaxConns", &c.MaxConns, d.MaxConns},
		{"CopyBelow", &c.CopyBelow, d.CopyBelow},
		{"SendfileFrom", &c.SendfileFrom, d.SendfileFrom},
		{"ScatteredFrom", &c.ScatteredFrom, d.ScatteredFrom},
	} {
		if *f.value < 0 {
			return fmt.Errorf("eventloop: configuration: %s is %d", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if c.MaxOutBytes < 0 {
		return fmt.Errorf("eventloop: configuration: MaxOutBytes is %d", c.MaxOutBytes)
	}
	if c.MaxOutBytes == 0 {
		c.MaxOutBytes = d.MaxOutBytes
	}
	if c.MaxOutTotal < 0 {
		return fmt.Errorf("eventloop: configuration: MaxOutTotal is %d", c.MaxOutTotal)
	}
	if c.MaxOutTotal == 0 {
		c.MaxOutTotal = d.MaxOutTotal
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = d.IdleTimeout
	}
	if c.FrameTimeout == 0 {
		c.FrameTimeout = d.FrameTimeout
	}
	if c.Notice == nil {
		c.Notice = func(string, ...any) {}
	}
	return nil
}
