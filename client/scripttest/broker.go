// SPDX-License-Identifier: Apache-2.0

package scripttest

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Broker keeps records in memory, queue by queue, and answers sends, pulls and offset calls as a
// RocketMQ master does. Its switches make faults.
type Broker struct {
	*Server
	Name string

	mu       sync.Mutex
	queues   map[queueKey][][]byte
	size     int64 // of all records, as a physical offset
	arrived  chan struct{}
	offsets  map[string]int64
	refusals []remoting.ResponseCode
	dropped  int           // sends whose answer is still to be swallowed after storing
	stall    chan struct{} // sends wait for it to be closed; nil: none
	spoil    func(n int, rec []byte) [][]byte
	stored   int
	topics   map[string]bool
	groups   *groups
}

type queueKey struct {
	topic string
	queue int32
}

// Refuse answers the next n sends with code.
func (b *Broker) Refuse(code remoting.ResponseCode, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		b.refusals = append(b.refusals, code)
	}
}

// Swallow stores the next n sends and never answers them.
func (b *Broker) Swallow(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped += n
}

// Stall makes sends wait until the returned function is called.
func (b *Broker) Stall() (resume func()) {
	gate := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stall = gate
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.stall == gate {
			b.stall = nil
		}
		close(gate)
	}
}

// Spoil passes every record that is to be stored through f, with its number from 0: it returns what
// is stored instead, nothing to lose the record.
func (b *Broker) Spoil(f func(n int, rec []byte) [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spoil = f
}

// Records returns copies of the records of a queue, in order.
func (b *Broker) Records(topic string, queue int32) [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out [][]byte
	for _, r := range b.queues[queueKey{topic, queue}] {
		out = append(out, bytes.Clone(r))
	}
	return out
}

// Offset returns the position a group has stored, -1 without one.
func (b *Broker) Offset(group, topic string, queue int32) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := b.offsets[offsetKey(group, topic, queue)]; ok {
		return v
	}
	return -1
}

func offsetKey(group, topic string, queue int32) string {
	return group + "@" + topic + "@" + strconv.Itoa(int(queue))
}

// Put stores a record as if a producer had sent it.
func (b *Broker) Put(topic string, queue, sysFlag int32, body, props []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putLocked(queueKey{topic, queue}, sysFlag, 0, body, props)
}

func newBroker(t testing.TB, name string) *Broker {
	b := &Broker{
		Server: NewServer(t), Name: name, queues: map[queueKey][][]byte{},
		arrived: make(chan struct{}), offsets: map[string]int64{}, topics: map[string]bool{},
	}
	b.groups = newGroups(b)
	b.Handle(remoting.SendMessageV2, b.send)
	b.Handle(remoting.SendBatchMessage, b.send)
	b.Handle(remoting.PullMessage, b.pull)
	b.Handle(remoting.LitePullMessage, b.pull)
	b.Handle(remoting.GetMaxOffset, b.maxOffset)
	b.Handle(remoting.GetMinOffset, b.minOffset)
	b.Handle(remoting.SearchOffsetByTimestamp, b.search)
	b.Handle(remoting.QueryConsumerOffset, b.queryOffset)
	b.Handle(remoting.UpdateConsumerOffset, b.updateOffset)
	return b
}

func failed(err error) *Reply {
	return &Reply{Code: remoting.SystemError, Remark: err.Error()}
}

func (b *Broker) send(r *Request) *Reply {
	var h protocol.SendRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	b.mu.Lock()
	stall := b.stall
	b.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-r.Done:
			return nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.refusals) > 0 {
		code := b.refusals[0]
		b.refusals = b.refusals[1:]
		return &Reply{Code: code, Remark: "scripted refusal"}
	}
	key := queueKey{string(h.Topic), h.QueueID}
	b.topics[key.topic] = true
	first := int64(len(b.queues[key]))
	var ids []string
	if h.Batch {
		br := record.NewBatchReader(r.Body)
		for {
			_, body, props, ok := br.Next()
			if !ok {
				break
			}
			ids = append(ids, b.putLocked(key, h.SysFlag, h.BornMS, body, props))
		}
		if err := br.Err(); err != nil {
			return &Reply{Code: remoting.MessageIllegal, Remark: err.Error()}
		}
	} else {
		ids = append(ids, b.putLocked(key, h.SysFlag, h.BornMS, r.Body, h.Properties))
	}
	if b.dropped > 0 {
		b.dropped--
		return nil
	}
	return &Reply{Header: &protocol.SendResponse{
		MsgID: []byte(strings.Join(ids, ",")), QueueID: h.QueueID, QueueOffset: first,
		Region: "DefaultRegion", TraceOn: true,
	}}
}

// putLocked stores one record and returns its offset id.
func (b *Broker) putLocked(key queueKey, sysFlag int32, bornMS int64, body, props []byte) string {
	host := netip.MustParseAddrPort(b.Addr)
	now := time.Now().UnixMilli()
	if bornMS == 0 {
		bornMS = now
	}
	d := record.Draft{
		Topic: []byte(key.topic), QueueID: key.queue, SysFlag: sysFlag, BornMS: bornMS,
		BornHost: host, Body: body, Properties: props,
	}
	return b.storeLocked(key, d)
}

// storeLocked stores a record and returns its offset id.
func (b *Broker) storeLocked(key queueKey, d record.Draft) string {
	host := netip.MustParseAddrPort(b.Addr)
	now := time.Now().UnixMilli()
	d.StoreHost = host
	rec := make([]byte, d.Size())
	at := record.PhysicalOffset(b.size)
	d.Encode(rec, record.Place{
		Queue: record.QueueOffset(len(b.queues[key])), Physical: at, StoreMS: now,
	})
	b.size += int64(len(rec))
	list := [][]byte{rec}
	if b.spoil != nil {
		list = b.spoil(b.stored, rec)
	}
	b.stored++
	b.queues[key] = append(b.queues[key], list...)
	close(b.arrived)
	b.arrived = make(chan struct{})
	return string(record.AppendOffsetID(nil, host, at))
}

// atLocked finds the record that lies at a place in the log.
func (b *Broker) atLocked(at int64) []byte {
	for _, list := range b.queues {
		for _, rec := range list {
			if v, err := record.Parse(rec); err == nil && int64(v.PhysicalOffset()) == at {
				return rec
			}
		}
	}
	return nil
}

func (b *Broker) pull(r *Request) *Reply {
	var h protocol.PullRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	key := queueKey{string(h.Topic), h.QueueID}
	if h.SysFlag&protocol.PullCommitOffset != 0 {
		b.mu.Lock()
		b.offsets[offsetKey(string(h.Group), key.topic, key.queue)] = h.CommitOffset
		b.mu.Unlock()
	}
	timeout := time.NewTimer(time.Duration(h.SuspendMS) * time.Millisecond)
	defer timeout.Stop()
	for {
		b.mu.Lock()
		list, arrived := b.queues[key], b.arrived
		reply := answerPull(&h, list)
		b.mu.Unlock()
		if reply.Code != remoting.PullNotFound || h.SysFlag&protocol.PullSuspend == 0 {
			return reply
		}
		select {
		case <-arrived:
		case <-timeout.C:
			return reply
		case <-r.Done:
			return nil
		}
	}
}

func answerPull(h *protocol.PullRequest, list [][]byte) *Reply {
	end := int64(len(list))
	res := &protocol.PullResponse{
		NextOffset: h.QueueOffset, MaxOffset: end, TopicSysFlag: -1, GroupSysFlag: -1,
		ForbiddenType: -1,
	}
	switch {
	case h.QueueOffset < 0 || h.QueueOffset > end:
		res.NextOffset = min(max(h.QueueOffset, 0), end)
		return &Reply{Code: remoting.PullOffsetMoved, Remark: "OFFSET_OVERFLOW_BADLY", Header: res}
	case h.QueueOffset == end:
		return &Reply{Code: remoting.PullNotFound, Remark: "OFFSET_OVERFLOW_ONE", Header: res}
	}
	var body []byte
	for n := int32(0); n < max(h.MaxMessages, 1) && res.NextOffset < end; n++ {
		body = append(body, list[res.NextOffset]...)
		res.NextOffset++
	}
	return &Reply{Remark: "FOUND", Header: res, Body: body}
}

func (b *Broker) maxOffset(r *Request) *Reply {
	var h protocol.MaxOffsetRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int64(len(b.queues[queueKey{h.Topic, h.QueueID}]))
	return &Reply{Header: &protocol.OffsetResponse{Offset: n}}
}

func (b *Broker) minOffset(*Request) *Reply {
	return &Reply{Header: &protocol.OffsetResponse{}}
}

func (b *Broker) search(r *Request) *Reply {
	var h protocol.SearchOffsetRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.queues[queueKey{h.Topic, h.QueueID}]
	for i, rec := range list {
		if v, err := record.Parse(rec); err == nil && v.StoreMS() >= h.Timestamp {
			return &Reply{Header: &protocol.OffsetResponse{Offset: int64(i)}}
		}
	}
	return &Reply{Header: &protocol.OffsetResponse{Offset: int64(len(list))}}
}

func (b *Broker) queryOffset(r *Request) *Reply {
	var h protocol.QueryConsumerOffsetRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	at := b.Offset(h.Group, h.Topic, h.QueueID)
	if at < 0 {
		return &Reply{Code: remoting.QueryNotFound, Remark: "Not found, maybe this group is new"}
	}
	return &Reply{Header: &protocol.OffsetResponse{Offset: at}}
}

func (b *Broker) updateOffset(r *Request) *Reply {
	var h protocol.UpdateConsumerOffsetRequest
	if err := h.Decode(r.Command); err != nil {
		return failed(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offsets[offsetKey(h.Group, h.Topic, h.QueueID)] = h.CommitOffset
	return &Reply{}
}
