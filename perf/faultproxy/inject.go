// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/remoting"
)

// opaqueOwn is the first opaque of requests that the proxy makes up; clients count up from 0 or
// from numbers far above.
const opaqueOwn = -1_000_000_000

// link is one connection to the broker.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	// Confined to the goroutine that reads the client.
	held map[string][]byte // by queue: a send that waits for the next one of its queue
	own  remoting.Opaque

	// Guards the client's socket, which both directions write, and what follows.
	mu      sync.Mutex
	discard map[remoting.Opaque]bool // answers that the client must not see
}

func (p *Proxy) relayBroker(client, server net.Conn) {
	l := &link{
		proxy: p, client: client, server: server, held: map[string][]byte{}, own: opaqueOwn,
		discard: map[remoting.Opaque]bool{},
	}
	both(client, server, l.up, l.down)
}

// up passes the client's requests on, with faults.
func (l *link) up() error {
	in := bufio.NewReaderSize(l.client, 64<<10)
	var c remoting.Command
	for {
		frame, err := readFrame(in)
		if err != nil {
			return err
		}
		if err := c.Decode(frame[lengthSize:]); err != nil {
			return err
		}
		if !isSend(&c) {
			if _, err := l.server.Write(frame); err != nil {
				return err
			}
			continue
		}
		if err := l.send(&c, frame); err != nil {
			return err
		}
	}
}

// send passes one send on, or does to it what the proxy is there for.
func (l *link) send(c *remoting.Command, frame []byte) error {
	queue := queueOf(c)
	after := l.held[queue] // goes behind this one
	delete(l.held, queue)
	out := frame
	if after == nil && l.proxy.turn() {
		var err error
		if out, err = l.hit(c, frame, queue); err != nil {
			return err
		}
	}
	if len(out)+len(after) == 0 {
		return nil
	}
	_, err := l.server.Write(append(out[:len(out):len(out)], after...))
	return err
}

// turn reports whether this send is one to be hit, and counts it if so.
func (p *Proxy) turn() bool {
	if p.cfg.Fault == None || p.sends.Add(1)%p.cfg.Every != 0 {
		return false
	}
	if n := p.injected.Add(1); p.cfg.Count > 0 && n > p.cfg.Count {
		p.injected.Add(-1)
		return false
	}
	return true
}

// hit returns what the broker gets now in the place of frame.
func (l *link) hit(c *remoting.Command, frame []byte, queue string) ([]byte, error) {
	switch l.proxy.cfg.Fault {
	case None:
	case Drop:
		return nil, l.answer(forgedSuccess(c))
	case Duplicate:
		return append(frame, l.disguised(c)...), nil
	case Swap:
		l.held[queue] = l.disguised(c)
		return nil, l.answer(forgedSuccess(c))
	case Flip:
		frame[len(frame)-1] ^= 1
	case Delay:
		t := time.NewTimer(l.proxy.cfg.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.proxy.closing:
		}
	}
	return frame, nil
}

// disguised is the send under an opaque of the proxy's, whose answer the client does not get.
func (l *link) disguised(c *remoting.Command) []byte {
	l.own++
	l.mu.Lock()
	l.discard[l.own] = true
	l.mu.Unlock()
	return withOpaque(c, l.own)
}

func (l *link) answer(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.client.Write(frame)
	return err
}

// down passes the broker's answers on, but for those to requests of the proxy's.
func (l *link) down() error {
	in := bufio.NewReaderSize(l.server, 64<<10)
	var c remoting.Command
	for {
		frame, err := readFrame(in)
		if err != nil {
			return err
		}
		if err := c.Decode(frame[lengthSize:]); err != nil {
			return err
		}
		l.mu.Lock()
		if c.IsResponse() && l.discard[c.Opaque] {
			delete(l.discard, c.Opaque)
		} else {
			_, err = l.client.Write(frame)
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
