// SPDX-License-Identifier: Apache-2.0

// SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325) and PUSH_REPLY_MESSAGE_TO_CLIENT (326, sent to
// requesters), after RocketMQ's ReplyMessageProcessor: the reply goes to the connection of the client
// that asked, and is stored as well if storeReplyMessageEnable says so. Which request it answers is
// told by the property CORRELATION_ID, and only the requester looks at it.

package processor

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Properties of a reply.
const (
	propReplyTo  = "REPLY_TO_CLIENT" // client id of the requester
	propPushTime = "PUSH_REPLY_TIME"
)

// pushTimeout is how long the requester may take to confirm a reply.
const pushTimeout = 10 * time.Second

// Replies passes replies on to the clients that asked.
type Replies struct {
	Topics   *topic.Table
	Members  *group.Members
	Clients  ClientCaller
	Counters SendCounters
	Store    interface{ Append(es []storage.Entry) }

	Region       string
	TraceOn      bool
	StoreHost    netip.AddrPort
	AcceptFromMS int64 // replies before this moment are refused
	StoreReplies bool  // storeReplyMessageEnable
	Writable     func() bool
	NowMS        func() int64
	Notice       func(msg string, kv ...any)

	noticedMS atomic.Int64
}

// Register adds the request codes. Both may wait for a client for 10 s.
func (p *Replies) Register(t Cold) {
	t[remoting.SendReplyMessage] = p.reply
	t[remoting.SendReplyMessageV2] = p.reply
}

func (p *Replies) reply(c *Caller, cmd *remoting.Command) Reply {
	var r protocol.SendRequest
	if err := r.Decode(cmd); err != nil {
		return Fail(err)
	}
	if cmd.Body == nil {
		return Fail(errNoBody)
	}
	header := &protocol.SendResponse{Region: p.Region, TraceOn: p.TraceOn, NoMessage: true}
	if err := p.check(c, &r); err != nil {
		out := Fail(err)
		out.Header = header
		return out
	}
	own := record.AppendProperty(nil, "MSG_REGION", p.Region)
	own = record.AppendProperty(own, "TRACE_ON", strconv.FormatBool(p.TraceOn))
	properties, seen := rewrite(nil, r.Properties, own)
	out := Reply{Header: header}
	if remark := p.push(c, &r, properties, cmd.Body); remark != "" {
		p.notice("reply does not reach its requester", "topic", string(r.Topic), "group",
			string(r.Group), "addr", c.Peer.String(), "err", remark)
		out.Code, out.Remark = remoting.SystemError, remark
	} else {
		header.NoMessage, header.MsgID, header.QueueID = false, []byte("0"), r.QueueID
	}
	if p.StoreReplies && !seen.innerNum { // no reply is an inner batch
		p.store(c, &r, properties, cmd.Body, header)
	}
	return out
}

// notice speaks once a minute: any client can cause it as often as it likes.
func (p *Replies) notice(msg string, kv ...any) {
	now, last := p.NowMS(), p.noticedMS.Load()
	if now-last >= time.Minute.Milliseconds() && p.noticedMS.CompareAndSwap(last, now) {
		p.Notice(msg, kv...)
	}
}

// check is preSend of a reply: it makes the topic if that may be.
func (p *Replies) check(c *Caller, r *protocol.SendRequest) error {
	if p.AcceptFromMS > p.NowMS() {
		return remoting.Errorf(remoting.SystemError, "broker unable to service, until %d",
			p.AcceptFromMS)
	}
	cfg, ok := p.Topics.Lookup(r.Topic)
	if !ok {
		if err := protocol.ValidTopic(r.Topic); err != nil {
			return err
		}
	}
	if protocol.RefusedOnSend(r.Topic) {
		return remoting.Errorf(remoting.NoPermission,
			"Sending message to topic[%s] is forbidden.", r.Topic)
	}
	if !ok {
		made, err := p.Topics.CreateOnSend(topic.CreateOnSend{
			Topic: string(r.Topic), DefaultTopic: string(r.DefaultTopic),
			DefaultQueues: r.DefaultTopicQueues, UnitMode: r.UnitMode,
		})
		if err != nil {
			return errNoTopic(string(r.Topic))
		}
		cfg = made
	}
	switch queues := max(cfg.WriteQueueNums, cfg.ReadQueueNums); {
	case cfg.Order && !p.Writable():
		return remoting.Errorf(remoting.NoPermission, "the broker[%s] sending message is forbidden",
			p.StoreHost.Addr())
	case r.QueueID >= queues:
		return remoting.Errorf(remoting.InvalidParameter, "request queueId[%d] is illegal, %s Producer: %s",
			r.QueueID, describe(cfg), c.Peer)
	case r.QueueID < 0:
		r.QueueID = rand.Int32N(max(cfg.WriteQueueNums, 1))
	}
	return nil
}

// push sends the reply to the requester's connection and waits until it is confirmed. What went wrong
// comes back in RocketMQ's words, empty: nothing.
func (p *Replies) push(c *Caller, r *protocol.SendRequest, properties, body []byte) (remark string) {
	id, ok := record.Property(properties, propReplyTo)
	if !ok {
		return fmt.Sprintf("reply message properties[%s] is null", propReplyTo)
	}
	ch, ok := p.Members.ProducerByID(string(id))
	if !ok {
		return fmt.Sprintf("push reply message fail, channel of <%s> not found.", id)
	}
	now := p.NowMS()
	pushed := record.AppendProperty(
		append([]byte(nil), properties...), propPushTime, strconv.FormatInt(now, 10))
	answer, err := p.Clients.Call(ch, remoting.PushReplyMessageToClient, &protocol.ReplyPush{
		Group: string(r.Group), Topic: string(r.Topic), DefaultTopic: string(r.DefaultTopic),
		DefaultTopicQueues: r.DefaultTopicQueues, QueueID: r.QueueID, SysFlag: r.SysFlag, Flag: r.Flag,
		BornMS: r.BornMS, StoreMS: now, BornHost: c.Peer.String(), StoreHost: p.StoreHost.String(),
		Properties: string(pushed), ReconsumeTimes: r.ReconsumeTimes, UnitMode: r.UnitMode,
	}, body, pushTimeout)
	if err != nil || answer.Code != int32(remoting.Success) {
		return fmt.Sprintf("push reply message to %sfail.", id)
	}
	return ""
}

// store keeps the reply in its topic. What goes wrong is no matter of the client: the requester has
// the reply. Of its sysFlag only what says how the body is compressed is stored; RocketMQ stores 0, so
// that a compressed reply cannot be read there.
func (p *Replies) store(
	c *Caller, r *protocol.SendRequest, properties, body []byte, header *protocol.SendResponse,
) {
	tags, _ := record.Property(properties, "TAGS")
	entries := []storage.Entry{{Draft: record.Draft{
		Topic: r.Topic, QueueID: r.QueueID, Flag: r.Flag, ReconsumeTimes: r.ReconsumeTimes,
		SysFlag: r.SysFlag & (record.SysCompressed | record.SysCompressionMask), BornMS: r.BornMS, BornHost: c.Peer,
		StoreHost: p.StoreHost, Body: body, Properties: properties, TagsCode: record.TagsCode(tags),
	}}}
	e := &entries[0]
	p.Store.Append(entries)
	if e.Err != nil {
		p.Counters.PutFailed()
		p.notice("reply is not stored", "topic", string(r.Topic), "err", e.Err)
		return
	}
	p.Counters.Put(r.Topic, 1, 1, len(body))
	header.NoMessage, header.QueueID, header.QueueOffset = false, r.QueueID, int64(e.QueueOffset)
	header.MsgID = record.AppendOffsetID(nil, p.StoreHost, e.At)
}
