// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// atRest is what a side needs while nothing happens.
type atRest struct {
	Side             string  `json:"side"`
	IdleSeconds      float64 `json:"idle_seconds,omitempty"`
	IdleRSSAnonBytes int64   `json:"idle_rss_anon_bytes,omitempty"`
	IdleCPUPercent   float64 `json:"idle_cpu_percent,omitempty"` // of one core
	Clients          int     `json:"clients,omitempty"`
	ClientsRSSAnon   int64   `json:"clients_rss_anon_bytes,omitempty"`
	ClientsServed    bool    `json:"clients_served,omitempty"`
}

// measureAtRest watches both sides idle at once, then with many idle connections, one after the
// other.
func (b *bench) measureAtRest(ctx context.Context) error {
	rest := make([]atRest, len(b.sides))
	defer b.down("rest")
	for i, s := range b.sides {
		if err := s.up(ctx, nil); err != nil {
			return err
		}
		b.out.noteStart(s)
		rest[i].Side = s.name
	}
	if b.plan.idle > 0 {
		if err := b.watchIdle(ctx, rest); err != nil {
			return err
		}
	}
	for i, s := range b.sides {
		if b.plan.clients > 0 {
			say("connecting %d idle clients to %s", b.plan.clients, s.name)
			if err := measureClients(b.plan.clients, s, &rest[i]); err != nil {
				return fmt.Errorf("%s with %d clients: %w", s.name, b.plan.clients, err)
			}
		}
		if err := s.alive(); err != nil {
			return err
		}
	}
	b.out.rest = rest
	return nil
}

func (b *bench) watchIdle(ctx context.Context, rest []atRest) error {
	before := make([]measure.Usage, len(b.sides))
	for i, s := range b.sides {
		var err error
		if before[i], err = measure.ReadUsage(s.brokerPID()); err != nil {
			return err
		}
	}
	say("watching idle brokers for %v", b.plan.idle)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.plan.idle):
	}
	for i, s := range b.sides {
		after, err := measure.ReadUsage(s.brokerPID())
		if err != nil {
			return err
		}
		rest[i].IdleSeconds = b.plan.idle.Seconds()
		rest[i].IdleCPUPercent = (after.CPUSeconds() - before[i].CPUSeconds()) / b.plan.idle.Seconds() * 100
		rest[i].IdleRSSAnonBytes = after.RSSAnonBytes
	}
	return nil
}

// measureClients holds n connections that have sent one heartbeat each, and asks on the last one.
func measureClients(n int, s *side, rest *atRest) error {
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for i := range n {
		c, err := net.DialTimeout("tcp", s.broker, 5*time.Second)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		body := fmt.Appendf(nil, `{"clientID":"idle@%d","consumerDataSet":[],"producerDataSet":[{"groupName":"idle"}]}`, i)
		if _, err := exchange(c, 34, nil, body); err != nil {
			return fmt.Errorf("heartbeat of client %d: %w", i, err)
		}
	}
	rest.Clients = n
	used, err := measure.ReadUsage(s.brokerPID())
	if err != nil {
		return err
	}
	rest.ClientsRSSAnon = used.RSSAnonBytes
	for _, c := range []net.Conn{conns[0], conns[n-1]} {
		if _, err := exchange(c, 30, map[string]string{"topic": "TBW102", "queueId": "0"}, nil); err != nil {
			return err
		}
	}
	rest.ClientsServed = true
	return nil
}

func dialable(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// sendOne does what a client's first send does: look up the route of TBW102, send to the broker.
func sendOne(names, broker string) error {
	n, err := net.DialTimeout("tcp", names, time.Second)
	if err != nil {
		return err
	}
	defer n.Close()
	if _, err := exchange(n, 105, map[string]string{"topic": "TBW102"}, nil); err != nil {
		return err
	}
	b, err := net.DialTimeout("tcp", broker, time.Second)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = exchange(b, 310, map[string]string{
		"a": "peer", "b": "PeerStart", "c": "TBW102", "d": "4", "e": "0", "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "j": "0", "k": "false", "m": "false",
	}, []byte("first"))
	return err
}

// exchange sends one request and returns the answer's code, which must be 0.
func exchange(c net.Conn, code int, fields map[string]string, body []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	head, err := json.Marshal(map[string]any{
		"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 513, "extFields": fields,
	})
	if err != nil {
		return 0, err
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(head)))
	out = append(append(out, head...), body...)
	if _, err := c.Write(out); err != nil {
		return 0, err
	}
	in := bufio.NewReader(c)
	for {
		var lengths [8]byte
		if _, err := io.ReadFull(in, lengths[:]); err != nil {
			return 0, err
		}
		total, size := binary.BigEndian.Uint32(lengths[:]), binary.BigEndian.Uint32(lengths[4:])&0xffffff
		if total < 4 || total > 16<<20 || size > total-4 {
			return 0, fmt.Errorf("frame of %d bytes with a header of %d", total, size)
		}
		frame := make([]byte, total-4)
		if _, err := io.ReadFull(in, frame); err != nil {
			return 0, err
		}
		var answer struct {
			Code, Flag int
			Remark     string
		}
		if err := json.Unmarshal(frame[:size], &answer); err != nil {
			return 0, err
		}
		if answer.Flag&1 == 0 {
			continue // a request of the server
		}
		if answer.Code != 0 {
			return answer.Code, fmt.Errorf("request %d: code %d, %s", code, answer.Code, answer.Remark)
		}
		return 0, nil
	}
}

// memoryBytes returns one row of /proc/meminfo.
func memoryBytes(row string) (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, row+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/meminfo", row)
}
