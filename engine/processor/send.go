// SPDX-License-Identifier: Apache-2.0

// SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), as in RocketMQ's
// SendMessageProcessor and AbstractSendMessageProcessor.
//
// Kept: the order of checks, their codes and remarks, topic creation from a template, the retry
// topic's way to the dead-letter topic, the properties that the broker adds, the response fields,
// inner batches. Left out: send hooks, static topics.

package processor

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/engine/watermark"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/indexfile"
	"github.com/skylarkmq/skylark/storage/record"
)

// SendShared is what the Send processors of all loops have in common. It is set before the broker
// starts and constant afterwards.
type SendShared struct {
	Store     *storage.Store
	Topics    *topic.Table
	Groups    *group.Configs
	Locks     *group.Locks
	Delays    *delay.Rules
	Counters  SendCounters
	UniqueIDs *record.UniqueIDs

	Broker, Cluster, Region string
	TraceOn                 bool
	StoreHost               netip.AddrPort // what clients are told; part of each message id
	MaxMessageSize          int            // bytes of a body
	AcceptFromMS            int64          // sends before this moment are refused
	Writable                func() bool    // the broker's own permission
	NowMS                   func() int64

	// Transactions is told of half messages; RejectHalf refuses them (rejectTransactionMessage).
	Transactions *transaction.Service
	RejectHalf   bool

	// Flushed holds sends that wait for the disk; nil under ASYNC_FLUSH.
	Flushed *watermark.List[*FlushWait]
	// Hand runs work that may block and keeps size bytes of memory, off the loop; false when too
	// much is waiting.
	Hand func(size int, work func()) bool
}

// SendCounters counts what was stored. The calls are cheap and never block.
type SendCounters interface {
	Put(topic []byte, sends, messages, bytes int)
	PutFailed()
}

// Send answers sends on one event loop. Sends of one turn are collected by Add and stored by Flush in one critical section of the store.
//
// Cost in the steady state: no allocation, one copy of the properties into scratch, one copy of
// the body into the log.
type Send struct {
	*SendShared

	own     []byte                // properties that each message gets
	common  *remoting.FixedFields // of every answer
	entries []storage.Entry
	calls   []sendCall
	scratch []byte // properties and topics of the collected sends
	ids     []byte
	req     protocol.SendRequest
	waits   []*FlushWait // spare ones
	pending map[string]*pending
	waiting int // bytes of the sends that wait for a topic
	halves  int // half messages among the collected sends
}

// sendCall is one collected send: what its answer needs.
type sendCall struct {
	conn   *eventloop.Conn
	head   remoting.Head
	oneway bool
	noWait bool
	queue  int32  // what the client is told: a message that waits lies in another one
	uniq   []byte // view in scratch
	inner  bool   // it is a batch in one record
	recall []byte // handle of a timer message, view in scratch; nil: none
}

// NewSend makes the processor of one loop.
func NewSend(shared *SendShared) *Send {
	fields := protocol.SendResponse{
		Region: shared.Region, TraceOn: shared.TraceOn, NoMessage: true,
	}
	return &Send{
		SendShared: shared,
		own:        ownProperties(shared.Region, shared.Cluster, shared.TraceOn),
		common:     remoting.NewFixedFields(fields.AppendFields),
		pending:    make(map[string]*pending),
	}
}

// Add checks one send and collects it; refusals are answered at once. Everything it keeps of cmd is
// copied, except the body, which must stay until Flush: it lies in what the turn has read.
func (s *Send) Add(c *eventloop.Conn, cmd *remoting.Command) {
	if err := s.req.Decode(cmd); err != nil {
		s.refuseFrame(c, cmd, err)
		return
	}
	if cmd.Body == nil {
		s.refuseFrame(c, cmd, errNoBody)
		return
	}
	cfg, err := s.checkTopic(c, cmd)
	if err != nil {
		s.refuse(c, cmd, err)
		return
	}
	if cfg == nil {
		return // a worker creates the topic and sends the command round again
	}
	if err := s.collect(c, cmd, cfg); err != nil {
		s.refuse(c, cmd, err)
	}
}

// checkTopic is preSend: name, permission, existence, queue. Nil without an error means that the
// command went to a worker.
func (s *Send) checkTopic(c *eventloop.Conn, cmd *remoting.Command) (*protocol.TopicConfig, error) {
	if s.AcceptFromMS > 0 && s.AcceptFromMS > s.NowMS() {
		return nil, remoting.Errorf(remoting.SystemError, "broker unable to service, until %d",
			s.AcceptFromMS)
	}
	name := s.req.Topic
	cfg, ok := s.Topics.Lookup(name)
	if !ok {
		if err := protocol.ValidTopic(name); err != nil {
			return nil, err
		}
		if string(name) == protocol.RetryPrefix || string(name) == protocol.DLQPrefix {
			return nil, remoting.Errorf(remoting.InvalidParameter,
				"The specified topic: %s names no group.", name)
		}
	}
	if protocol.RefusedOnSend(name) {
		return nil, remoting.Errorf(remoting.NoPermission,
			"Sending message to topic[%s] is forbidden.", name)
	}
	if len(s.pending) > 0 {
		if p := s.pending[string(name)]; p != nil {
			return nil, s.wait(c, cmd, p)
		}
	}
	if !ok {
		return nil, s.createTopic(c, cmd)
	}
	return cfg, s.checkQueue(c, cfg)
}

// checkQueue checks what depends on the topic's configuration.
func (s *Send) checkQueue(c *eventloop.Conn, cfg *protocol.TopicConfig) error {
	if cfg.Order && !s.Writable() {
		return remoting.Errorf(remoting.NoPermission,
			"the broker[%s] sending message is forbidden", s.StoreHost.Addr())
	}
	if s.req.QueueID >= max(cfg.WriteQueueNums, cfg.ReadQueueNums) {
		return remoting.Errorf(remoting.InvalidParameter,
			"request queueId[%d] is illegal, %s Producer: %s", s.req.QueueID, describe(cfg),
			c.RemoteAddr())
	}
	return nil
}

// collect turns the checked request into an entry of the batch.
func (s *Send) collect(c *eventloop.Conn, cmd *remoting.Command, cfg *protocol.TopicConfig) error {
	r := &s.req
	if err := s.checkKind(cfg, cmd); err != nil {
		return err
	}
	if r.QueueID < 0 {
		r.QueueID = rand.Int32N(max(cfg.WriteQueueNums, 1))
	}
	target, dead, err := s.retry(c, cmd, cfg)
	if err != nil || target == nil {
		return err
	}
	own, inner := s.own, r.Batch && wantsInner(cfg, r.Properties)
	if r.Batch && !inner {
		own = nil // elements are stored with the producer's own bytes
	}
	var seen sent
	s.scratch, seen = rewrite(s.scratch, r.Properties, own)
	if inner {
		if seen, err = s.makeInner(seen, cmd.Body); err != nil {
			return err
		}
	}
	if err := s.checkProperties(&seen); err != nil {
		return err
	}
	if len(seen.uniq) == 0 && !r.Batch {
		seen = s.addUniqueID(seen)
	}
	if dead {
		r.QueueID = 0
		s.scratch = append(s.scratch, "DELAY\x01-1\x02"...)
		seen.text = s.scratch[len(s.scratch)-len(seen.text)-len("DELAY\x01-1\x02"):]
	}
	if r.Batch {
		if i, property := scheduledElement(cmd.Body); i >= 0 {
			return remoting.Errorf(remoting.MessageIllegal,
				"element %d of the batch has the property %s, which a batch cannot carry", i, property)
		}
	}
	sysFlag, queue := r.SysFlag, r.QueueID
	if seen.transaction || sysFlag&protocol.SysFlagTransactionMask != 0 {
		if target, seen, err = s.half(seen, target); err != nil {
			return err
		}
		sysFlag &^= protocol.SysFlagTransactionMask
	}
	if target.TopicFilterType == protocol.MultiTag {
		sysFlag |= protocol.SysFlagMultiTags
	}
	plain := !r.Batch && !dead && !seen.later() && target != halfTopic
	s.entry(storage.Entry{Batch: r.Batch && !inner, Draft: record.Draft{
		Topic: s.keepTopic(target), QueueID: r.QueueID, Flag: r.Flag, SysFlag: sysFlag,
		ReconsumeTimes: r.ReconsumeTimes, BornMS: r.BornMS, BornHost: c.RemoteAddr(),
		StoreHost: s.StoreHost, Body: cmd.Body, Properties: seen.text,
		TagsCode: record.TagsCode(seen.tags),
	}, AwaitsFlush: !seen.noWait, KeysKnown: plain, Keys: indexfile.Keys{
		Unique: seen.uniq, Keys: seen.keys, Tags: seen.tags,
	}})
	s.calls = append(s.calls, sendCall{
		conn: c, head: cmd.Reply(remoting.Success), oneway: cmd.IsOneway(), noWait: seen.noWait,
		queue: queue, uniq: seen.uniq, inner: inner,
	})
	if seen.later() && !dead && target != halfTopic {
		return s.postpone(cfg)
	}
	return nil
}

// entry appends e but keeps the result capacity of the slot it reuses.
func (s *Send) entry(e storage.Entry) {
	n := len(s.entries)
	if n < cap(s.entries) {
		e.Places = s.entries[:n+1][n].Places[:0]
	}
	s.entries = append(s.entries, e)
}

// keepTopic copies the topic's name where it outlives the command.
func (s *Send) keepTopic(cfg *protocol.TopicConfig) []byte {
	at := len(s.scratch)
	s.scratch = append(s.scratch, cfg.TopicName...)
	return s.scratch[at:len(s.scratch):len(s.scratch)]
}

// addUniqueID gives the message the id that its producer did not.
func (s *Send) addUniqueID(seen sent) sent {
	start := len(s.scratch) - len(seen.text)
	s.scratch = append(s.scratch, "UNIQ_KEY\x01"...)
	at := len(s.scratch)
	s.scratch = s.UniqueIDs.Append(s.scratch)
	seen.uniq = s.scratch[at:len(s.scratch):len(s.scratch)]
	s.scratch = append(s.scratch, valueEnd)
	seen.text = s.scratch[start:]
	return seen
}

// checkKind refuses what the message itself is too large or too special for.
func (s *Send) checkKind(cfg *protocol.TopicConfig, cmd *remoting.Command) error {
	r := &s.req
	if len(cmd.Body) > s.MaxMessageSize {
		code := remoting.MessageIllegal
		if r.Batch {
			code = remoting.SystemError // RocketMQ throws here, and clients know that answer
		}
		return remoting.Errorf(code, "%s The body has %d bytes, the limit maxMessageSize is %d.",
			illegal, len(cmd.Body), s.MaxMessageSize)
	}
	if r.SysFlag&protocol.SysFlagInnerBatch != 0 && !topic.HasBatchQueues(cfg) {
		return remoting.Errorf(remoting.MessageIllegal, "the message is illegal: sysFlag says that it "+
			"is an inner batch, and topic %s has not the attribute queue.type=BatchCQ", cfg.TopicName)
	}
	if why := s.Topics.Unserved(cfg); why != "" {
		return remoting.Errorf(remoting.SystemError, "%s", why)
	}
	if r.Batch && len(r.Topic) > 127 {
		return remoting.Errorf(remoting.MessageIllegal, "message topic length too long %d",
			len(r.Topic))
	}
	return nil
}

// checkProperties refuses what a message of its kind cannot ask for.
func (s *Send) checkProperties(seen *sent) error {
	inner := s.req.SysFlag&protocol.SysFlagInnerBatch != 0
	if (s.req.Batch || inner) && seen.asksDelay() {
		return remoting.Errorf(remoting.MessageIllegal, "the message is illegal: a batch cannot be "+
			"delivered later")
	}
	if inner && seen.transaction {
		return remoting.Errorf(remoting.MessageIllegal,
			"the message is illegal: a batch cannot be part of a transaction")
	}
	if seen.innerNum && !inner {
		return remoting.Errorf(remoting.MessageIllegal,
			"the message is illegal: property INNER_NUM on a message that is no inner batch")
	}
	return nil
}

// Flush stores what Add has collected and answers it, in order. Under SYNC_FLUSH the answers
// wait for the disk.
func (s *Send) Flush() {
	if len(s.entries) == 0 {
		return
	}
	s.Store.Append(s.entries)
	s.count()
	if s.halves > 0 {
		s.countHalves()
		s.Transactions.Stored()
		s.halves = 0
	}
	for i := range s.entries {
		s.settle(&s.calls[i], &s.entries[i])
	}
	clear(s.calls)
	s.entries, s.calls, s.scratch = s.entries[:0], s.calls[:0], s.scratch[:0]
	if cap(s.scratch) > scratchMax {
		s.scratch = nil
	}
}

// count tells the counters of what was stored, neighbours of one topic at once.
func (s *Send) count() {
	var topic []byte
	sends, messages, size := 0, 0, 0
	for i := range s.entries {
		e := &s.entries[i]
		if e.Err != nil {
			continue
		}
		if sends > 0 && !bytes.Equal(topic, e.Draft.Topic) {
			s.Counters.Put(topic, sends, messages, size)
			sends, messages, size = 0, 0, 0
		}
		topic = e.Draft.Topic
		sends++
		messages += int(e.Count)
		size += len(e.Draft.Body)
	}
	if sends > 0 {
		s.Counters.Put(topic, sends, messages, size)
	}
}

// scratchMax bounds what one loop keeps of a burst of large property strings.
const scratchMax = 4 << 20

func (s *Send) settle(call *sendCall, e *storage.Entry) {
	if errors.Is(e.Err, storage.ErrUnsure) {
		call.head.Code = int32(remoting.FlushDiskTimeout) // the same: stored, and no more is known
		e.Err = nil
	}
	if e.Err != nil {
		s.Counters.PutFailed()
		if !call.oneway {
			code, remark := Outcome(e.Err)
			s.answerError(call.conn, call.head, code, remark)
		}
		return
	}
	if call.oneway {
		return
	}
	if s.Flushed != nil && !call.noWait && s.park(call, e) {
		return
	}
	s.answer(call.conn, call, e)
}

// answer writes the success header; region and trace are in the common fields.
func (s *Send) answer(c *eventloop.Conn, call *sendCall, e *storage.Entry) {
	s.ids = s.messageIDs(s.ids[:0], e)
	r := protocol.SendResponse{
		MsgID: s.ids, TransactionID: call.uniq, QueueID: call.queue,
		QueueOffset: int64(e.QueueOffset), RecallHandle: call.recall,
	}
	if call.inner {
		r.BatchUniqID = call.uniq
	}
	out := remoting.Begin(c.Reserve(), call.head)
	out.Fixed(s.common)
	r.AppendFields(&out)
	c.Commit(out.End(nil))
}

// messageIDs builds the offset id, or for a batch the comma-separated ids of its records.
func (s *Send) messageIDs(dst []byte, e *storage.Entry) []byte {
	if !e.Batch {
		return record.AppendOffsetID(dst, s.StoreHost, e.At)
	}
	for i, at := range e.Places {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = record.AppendOffsetID(dst, s.StoreHost, at)
	}
	return dst
}

// errNoBody refuses a frame that ends with its header.
var errNoBody = remoting.Errorf(remoting.SystemError,
	"the request has no body: a message has at least one byte")

// describe is RocketMQ's text form of a topic's configuration (TopicConfig.toString).
func describe(c *protocol.TopicConfig) string {
	attributes := make([]string, 0, len(c.Attributes))
	for _, key := range slices.Sorted(maps.Keys(c.Attributes)) {
		attributes = append(attributes, key+"="+c.Attributes[key])
	}
	return fmt.Sprintf("TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, perm=%s, "+
		"topicFilterType=%s, topicSysFlag=%d, order=%v, attributes={%s}]", c.TopicName,
		c.ReadQueueNums, c.WriteQueueNums, protocol.PermText(c.Perm), c.TopicFilterType,
		c.TopicSysFlag, c.Order, strings.Join(attributes, ", "))
}

// refuseFrame answers a frame that is no proper send, without the fields of a send's answer.
func (s *Send) refuseFrame(c *eventloop.Conn, cmd *remoting.Command, err error) {
	s.Counters.PutFailed()
	if cmd.IsOneway() {
		return
	}
	code, remark := Outcome(err)
	e := remoting.Begin(c.Reserve(), cmd.Reply(code))
	e.Remark(remark)
	c.Commit(e.End(nil))
}

// refuse answers an error; nothing was stored.
func (s *Send) refuse(c *eventloop.Conn, cmd *remoting.Command, err error) {
	s.Counters.PutFailed()
	if cmd.IsOneway() {
		return
	}
	code, remark := Outcome(err)
	s.answerError(c, cmd.Reply(remoting.Success), code, remark)
}

func (s *Send) answerError(c *eventloop.Conn, head remoting.Head, code remoting.ResponseCode,
	remark string,
) {
	head.Code = int32(code)
	e := remoting.Begin(c.Reserve(), head)
	e.Remark(remark)
	e.String("MSG_REGION", s.Region)
	e.Bool("TRACE_ON", s.TraceOn)
	c.Commit(e.End(nil))
}
