// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	nullBroker  = "null"
	nullQueues  = 8
	nullRead    = 1 << 20
	nullRecords = 32 // in one pull answer
	nullEnd     = int64(1) << 40
)

// NullServer is a name server and a broker on one port that does nothing: every topic exists, every
// send succeeds and is forgotten, every pull brings the same 32 messages. What a load run costs
// against it is the cost of the load generator; see perf/README.md. It has one goroutine for each
// connection and keeps nothing.
type NullServer struct {
	listener net.Listener
	size     int
	sends    atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed
	wg    sync.WaitGroup
}

// NewNullServer listens on addr (port 0: any). Messages it gives out have bodySize bytes.
func NewNullServer(ctx context.Context, addr string, bodySize int) (*NullServer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("workload: null server: %w", err)
	}
	s := &NullServer{listener: l, size: bodySize, conns: map[net.Conn]struct{}{}}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr returns host:port, of name server and broker alike.
func (s *NullServer) Addr() string { return s.listener.Addr().String() }

// Sends returns how many send requests were answered.
func (s *NullServer) Sends() int64 { return s.sends.Load() }

// Close ends all connections and waits for their goroutines. It is idempotent.
func (s *NullServer) Close() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *NullServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.conns == nil {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[conn] = struct{}{}
		s.wg.Go(func() { s.serve(conn) })
		s.mu.Unlock()
	}
}

// serve answers all frames of a read with one write.
func (s *NullServer) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	c := &nullConn{server: s}
	c.in.reset(nullRead)
	for {
		if c.in.fill(conn) != nil {
			return
		}
		for {
			frame, err := c.in.next()
			if err != nil || frame != nil && c.answer(frame) != nil {
				return
			}
			if frame == nil {
				break
			}
		}
		if c.sends > 0 {
			s.sends.Add(c.sends)
			c.sends = 0
		}
		if len(c.out) == 0 {
			continue
		}
		if _, err := conn.Write(c.out); err != nil {
			return
		}
		c.out = c.out[:0]
	}
}

// nullConn is the state of one connection, owned by its goroutine.
type nullConn struct {
	server  *NullServer
	in      frameBuffer
	out     []byte
	command remoting.Command
	records []byte // of every pull answer
	sends   int64
}

// answer appends the answer to one request. Sends are recognised by their code and opaque alone;
// everything else is decoded.
func (c *nullConn) answer(frame []byte) error {
	if a, _, ok := scanHead(frame); ok && isSend(a.code) {
		c.sends++
		c.out = appendSendAnswer(c.out, a.opaque)
		return nil
	}
	cmd := &c.command
	if err := cmd.Decode(frame); err != nil {
		return err
	}
	switch {
	case cmd.IsResponse() || cmd.IsOneway():
		return nil
	case isSend(cmd.Code):
		c.sends++
		c.out = appendSendAnswer(c.out, int32(cmd.Opaque))
		return nil
	}
	return c.cold(cmd)
}

func isSend(code int32) bool {
	switch remoting.RequestCode(code) {
	case remoting.SendMessageV2, remoting.SendMessage, remoting.SendBatchMessage:
		return true
	default:
		return false
	}
}

// Parts of the answer to a send around its opaque.
const (
	sendAnswerHead = `{"code":0,"extFields":{"msgId":"7F0000010000000000000000000000000000",` +
		`"queueId":"0","queueOffset":"0"},"flag":1,"language":"GO","opaque":`
	sendAnswerTail = `,"serializeTypeCurrentRPC":"JSON","version":513}`
)

func appendSendAnswer(dst []byte, opaque int32) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, sendAnswerHead...)
	dst = strconv.AppendInt(dst, int64(opaque), 10)
	dst = append(dst, sendAnswerTail...)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	binary.BigEndian.PutUint32(dst[at+4:], uint32(len(dst)-at-8))
	return dst
}

func (c *nullConn) cold(cmd *remoting.Command) error {
	h := remoting.Head{
		Flag: remoting.FlagResponse, Opaque: cmd.Opaque, Version: remoting.ProtocolVersion,
	}
	var fields remoting.Header
	var body []byte
	switch remoting.RequestCode(cmd.Code) {
	case remoting.GetRouteInfoByTopic:
		body = c.route()
	case remoting.GetMaxOffset:
		fields = &protocol.OffsetResponse{Offset: nullEnd}
	case remoting.GetMinOffset, remoting.QueryConsumerOffset, remoting.SearchOffsetByTimestamp:
		fields = &protocol.OffsetResponse{}
	case remoting.PullMessage:
		var r protocol.PullRequest
		if err := r.Decode(cmd); err != nil {
			return err
		}
		fields = &protocol.PullResponse{
			NextOffset: r.QueueOffset + nullRecords, MaxOffset: nullEnd,
			TopicSysFlag: -1, GroupSysFlag: -1, ForbiddenType: -1,
		}
		body = c.pulled(r.Topic)
	default: // heartbeats and the like: success
	}
	e := remoting.Begin(c.out, h)
	if fields != nil {
		fields.AppendFields(&e)
	}
	c.out = e.End(body)
	return nil
}

func (c *nullConn) route() []byte {
	return protocol.MarshalStandard(&protocol.TopicRouteData{
		BrokerDatas: []protocol.BrokerData{{
			BrokerName: nullBroker, Cluster: nullBroker,
			BrokerAddrs: map[int64]string{0: c.server.Addr()},
		}},
		QueueDatas: []protocol.QueueData{{
			BrokerName: nullBroker, Perm: protocol.PermRead | protocol.PermWrite,
			ReadQueueNums: nullQueues, WriteQueueNums: nullQueues,
		}},
	})
}

// pulled returns the records of a pull answer, encoded once for each connection.
func (c *nullConn) pulled(topic []byte) []byte {
	if c.records != nil {
		return c.records
	}
	d := record.Draft{Topic: topic, Body: bytes.Repeat([]byte{'.'}, c.server.size)}
	for i := range nullRecords {
		at := len(c.records)
		c.records = append(c.records, make([]byte, d.Size())...)
		d.Encode(c.records[at:], record.Place{Queue: record.QueueOffset(i)})
	}
	return c.records
}
