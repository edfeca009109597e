// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// The limit of a load is what a null handler costs on our own event loop: frames are read, decoded
// and answered with success, and nothing is stored; readers get the last messages from memory. It is
// measured by the same client after the rounds of the load, in a process of its own.

const (
	limitServe   = "serve-null-handler" // this program's only argument in that process
	limitRelay   = "serve-null-relay"   // the same for loads that read
	limitAddress = "127.0.0.1:19976"
	limitQueues  = 8
)

// nullHandler answers every request with success, a route with itself, and a send like a broker.
type nullHandler struct {
	addr  *atomic.Pointer[string]
	relay *relay // nil: messages are dropped, and pulls get nothing
}

// Open, ReadDone and Close have nothing to do.
func (*nullHandler) Open(*eventloop.Conn) {}

// ReadDone has nothing to flush: answers are written as they are made.
func (*nullHandler) ReadDone() {}

// Close forgets the pulls of a connection.
func (h *nullHandler) Close(c *eventloop.Conn, _ error) {
	if h.relay != nil {
		h.relay.forget(c)
	}
}

// Command answers one frame.
func (h *nullHandler) Command(c *eventloop.Conn, cmd *remoting.Command) {
	if cmd.IsResponse() || cmd.IsOneway() {
		return
	}
	offset := int64(1)
	if h.relay != nil {
		done, end, err := h.relayed(c, cmd)
		if err != nil {
			c.CloseWith(err)
		}
		if done {
			return
		}
		offset = end
	}
	e := remoting.Begin(c.Reserve(), cmd.Reply(remoting.Success))
	var body []byte
	switch cmd.Request() {
	case remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage:
		r := protocol.SendResponse{MsgID: nullID, QueueOffset: offset}
		r.AppendFields(&e)
	case remoting.GetMinOffset:
		e.Int("offset", 0)
	case remoting.GetMaxOffset:
		e.Int("offset", offset)
	case remoting.GetRouteInfoByTopic:
		body = h.route()
	default:
	}
	c.Commit(e.End(body))
}

// relayed takes a message or answers a pull, which is then done. For the other requests it returns
// the offset of their answer.
func (h *nullHandler) relayed(c *eventloop.Conn, cmd *remoting.Command) (done bool, offset int64, err error) {
	switch cmd.Request() {
	case remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage:
		offset, err = h.relay.take(cmd)
		return err != nil, offset, err
	case remoting.PullMessage:
		return true, 0, h.relay.read(c, cmd)
	case remoting.GetMaxOffset:
		return false, h.relay.end(cmd), nil
	default:
	}
	return false, 0, nil
}

var nullID = []byte("00000000000000000000000000000000") // read only

func (h *nullHandler) route() []byte {
	const readAndWrite = 6
	text, err := json.Marshal(map[string]any{
		"brokerDatas": []any{map[string]any{
			"brokerAddrs": map[string]string{"0": *h.addr.Load()}, "brokerName": "null", "cluster": "null",
		}},
		"queueDatas": []any{map[string]any{
			"brokerName": "null", "perm": readAndWrite, "readQueueNums": limitQueues,
			"writeQueueNums": limitQueues, "topicSysFlag": 0,
		}},
	})
	if err != nil {
		return nil
	}
	return text
}

// listenNull serves on a host:port; port 0 takes a free one, which clients are told.
func listenNull(addr string, relays bool) (*eventloop.Server, error) {
	var told atomic.Pointer[string]
	told.Store(&addr)
	cfg := eventloop.DefaultConfig()
	if relays {
		cfg.Loops = 1 // the relay belongs to one
	}
	s, err := eventloop.Listen(cfg, []string{addr}, func(*eventloop.Loop) eventloop.Handler {
		h := &nullHandler{addr: &told}
		if relays {
			h.relay = &relay{}
		}
		return h
	})
	if err != nil {
		return nil, err
	}
	bound := s.Addrs()[0].String()
	told.Store(&bound)
	return s, nil
}

// serveNull is the process of the limit; it ends with ctx.
func serveNull(ctx context.Context, addr string, relays bool) error {
	s, err := listenNull(addr, relays)
	if err != nil {
		return err
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.Close(ending)
}

// limitSide is the null handler, serving as told, as a side that b.perf can load.
func (b *bench) limitSide(ctx context.Context, work, serve string) (*side, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddrPort(limitAddress)
	if err != nil {
		return nil, err
	}
	s := &side{name: "limit", names: addr.String(), broker: addr.String(), dir: filepath.Join(work, "limit")}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.run("null handler", exec.CommandContext(ctx, self, serve), "null.out"); err != nil {
		return nil, err
	}
	return s, s.waitFor(ctx, 10*time.Second, func() error { return dialable(s.broker) })
}

// limitRounds bounds the measured runs of the limit.
const limitRounds = 3

// measureLimit measures the limit of a load, once warmed up. The result stands with the other
// outcomes, under the side "limit".
func (b *bench) measureLimit(ctx context.Context, r *row, work string) error {
	l := &r.load
	if l.java || l.coldRead || l.settings != nil {
		return nil // another client, or the disk, is part of what such a load costs
	}
	serve := limitServe
	if l.consume != nil || l.endToEnd != nil {
		serve = limitRelay
	}
	s, err := b.limitSide(ctx, work, serve)
	if err != nil {
		return err
	}
	defer s.down("", l.name)
	if err := b.makeBacklog(ctx, l, s); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	for round := range 1 + min(b.plan.rounds, limitRounds) {
		d := b.plan.duration
		if round == 0 {
			d /= 2 // warms up
		}
		o, err := b.once(ctx, r, s, d)
		if err != nil {
			return fmt.Errorf("limit: %w", err)
		}
		o.Round = round
		r.outcomes = append(r.outcomes, o)
	}
	var perCPU, tail []float64
	for _, o := range r.rounds(s.name) {
		perCPU = append(perCPU, o.Result.Broker.MessagesPerCPUSecond)
		tail = append(tail, float64(o.tail(l).Latency.P999))
	}
	p999 := "-" // with few messages there is none
	if m := median(tail); !math.IsNaN(m) {
		p999 = fmt.Sprintf("%.3g", m)
	}
	say("%s: a null handler answers %.0f messages a CPU-second, p99.9 %s ms", l.name, median(perCPU), p999)
	return nil
}
