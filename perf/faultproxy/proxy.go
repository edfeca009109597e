// SPDX-License-Identifier: Apache-2.0

// Package faultproxy stands between clients and a real broker and does to some sends what a broker
// must never do: it drops acknowledged messages, doubles them, changes their order or their bytes,
// or holds them back. Tests of the load generator's verification use it; a check that has never
// seen a fault proves nothing.
//
// Clients are given the proxy's name server, whose answers name the proxy in the place of the
// broker. What is injected is counted, so that a test can ask for the exact verdict. The proxy
// understands frames and the heads of sends, and passes everything else on as it came.
//
//	p, err := faultproxy.Start(faultproxy.Config{
//		NameServer: names, Broker: broker, Fault: faultproxy.Drop, Every: 100, Count: 5,
//	})
//	// clients use p.NameServer()
//	p.Close()
package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what the proxy does to a send.
type Fault string

// The faults. None passes everything on.
const (
	None Fault = ""
	// Drop answers the send with success and forgets it: an acknowledged message is lost.
	Drop Fault = "drop"
	// Duplicate sends it to the broker twice and answers once: the queue holds it twice.
	Duplicate Fault = "duplicate"
	// Swap answers the send with success and passes it on behind the next one of the same connection
	// and queue: an acknowledged message is stored behind one that was sent later.
	Swap Fault = "swap"
	// Flip changes one bit of the last byte of the body: the broker stores other bytes than were
	// sent, under a checksum that fits them.
	Flip Fault = "flip"
	// Delay holds the send, and all that follows it on its connection, for Config.Delay.
	Delay Fault = "delay"
)

// Faults are all faults that can be injected.
func Faults() []Fault { return []Fault{Drop, Duplicate, Swap, Flip, Delay} }

// Config says where the proxy stands and what it does. Fields without a default must be set.
type Config struct {
	NameServer string // host:port of the real name server
	Broker     string // host:port of the real broker, as the name server tells it
	Fault      Fault
	Every      int64         // every so many sends one is hit; at least 1
	Count      int64         // sends to hit in all; 0: no limit
	Delay      time.Duration // for the fault Delay
}

// Proxy is a running proxy. Its methods may be called from any goroutine.
type Proxy struct {
	cfg      Config
	names    net.Listener
	broker   net.Listener
	sends    atomic.Int64
	injected atomic.Int64
	closing  chan struct{}
	running  sync.WaitGroup

	// Guards what follows.
	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

// Start listens on two free loopback ports and passes on until Close.
func Start(cfg Config) (*Proxy, error) {
	if cfg.Every < 1 {
		return nil, fmt.Errorf("faultproxy: Every is %d, at least 1 is needed", cfg.Every)
	}
	if cfg.Fault == Delay && cfg.Delay <= 0 {
		return nil, errors.New("faultproxy: the fault Delay needs a Delay above 0")
	}
	p := &Proxy{cfg: cfg, closing: make(chan struct{}), open: map[net.Conn]bool{}}
	var err error
	if p.names, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	if p.broker, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		_ = p.names.Close()
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p.running.Go(func() { p.accept(p.names, cfg.NameServer, p.relayNames) })
	p.running.Go(func() { p.accept(p.broker, cfg.Broker, p.relayBroker) })
	return p, nil
}

// NameServer is the host:port that clients use.
func (p *Proxy) NameServer() string { return p.names.Addr().String() }

// Broker is the host:port of the proxy in the place of the broker.
func (p *Proxy) Broker() string { return p.broker.Addr().String() }

// Injected is how many sends were hit so far.
func (p *Proxy) Injected() int64 { return p.injected.Load() }

// Close ends all connections and returns when nothing of the proxy runs any more. It may be called
// again.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
		_ = p.names.Close()
		_ = p.broker.Close()
		for c := range p.open {
			_ = c.Close()
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}

// accept makes a connection to the real server for each that comes.
func (p *Proxy) accept(l net.Listener, addr string, relay func(client, server net.Conn)) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.DialTimeout("tcp", addr, 3*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.running.Go(func() {
			relay(client, server)
			p.drop(client, server)
		})
	}
}

// keep remembers connections so that Close ends them; false when it has come already.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
			continue
		}
		p.open[c] = true
	}
	return !p.closed
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}

// both runs the two directions of a connection; the end of one ends the other.
func both(client, server net.Conn, up, down func() error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = down()
		_ = client.Close()
		_ = server.Close()
	}()
	_ = up()
	_ = client.Close()
	_ = server.Close()
	<-done
}

// relayNames passes requests on unseen, and puts the proxy's address in the place of the broker's
// in the answers.
func (p *Proxy) relayNames(client, server net.Conn) {
	both(client, server, func() error {
		_, err := io.Copy(server, client)
		return err
	}, func() error {
		in := bufio.NewReader(server)
		for {
			frame, err := readFrame(in)
			if err != nil {
				return err
			}
			if _, err := client.Write(replaceInBody(frame, p.cfg.Broker, p.Broker())); err != nil {
				return err
			}
		}
	})
}
