// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/netip"
	"runtime/debug"

	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/remoting"
)

// loopHandler is what one event loop does with the commands of its connections. All of it is
// confined to that loop. It is the one place through which each command passes before its
// processor.
type loopHandler struct {
	broker *Broker
	send   *processor.Send
	pull   *processor.Pull
}

// versionGoAway is V5_3_1: newer clients understand GO_AWAY and look for another connection; older
// ones are served until the end.
const versionGoAway = 475

func (b *Broker) newLoopHandler(*eventloop.Loop) eventloop.Handler {
	return &loopHandler{
		broker: b, send: processor.NewSend(&b.sendShared), pull: processor.NewPull(&b.pullShared),
	}
}

// Open gives the connection its identity.
func (h *loopHandler) Open(c *eventloop.Conn) {
	c.SetValue(&channel{ref: c.Ref(), remote: c.RemoteAddr().String()})
}

// Command handles one command. Sends are collected until the end of the turn, so that all that had
// arrived is one append; anything else first lets the collected sends happen, which keeps the order that a
// client sees on its connection.
func (h *loopHandler) Command(c *eventloop.Conn, cmd *remoting.Command) {
	if cmd.IsResponse() {
		h.broker.calls.resolve(c.Value().(*channel), cmd)
		return
	}
	if cmd.Version > versionGoAway && h.broker.closing.Load() {
		h.reply(c, cmd, processor.Reply{Code: remoting.GoAway, Remark: "please go away"})
		return
	}
	switch remoting.RequestCode(cmd.Code) {
	case remoting.SendMessage, remoting.SendMessageV2, remoting.SendBatchMessage:
		h.send.Add(c, cmd)
	case remoting.PullMessage, remoting.LitePullMessage:
		h.send.Flush()
		h.pull.Handle(c, cmd)
	default:
		h.send.Flush()
		h.cold(c, cmd)
	}
}

// ReadDone stores what the turn brought.
func (h *loopHandler) ReadDone() { h.send.Flush() }

// Close tells the membership that a client has gone. Leaving a group notifies the others, which
// may take a while, so a worker does it.
func (h *loopHandler) Close(c *eventloop.Conn, _ error) {
	ch, ok := c.Value().(*channel)
	if !ok {
		return
	}
	ch.closed.Store(true)
	if !ch.known.Load() {
		return
	}
	leave := func() {
		h.broker.calls.gone(ch)
		h.broker.locks.Release(ch) // before the members that stay are told
		h.broker.members.ChannelClosed(ch)
	}
	if !h.broker.workers.hand(0, leave) {
		go leave() // the pool is full or closing; the membership must still be told
	}
}

// cold hands a command to a worker, which answers through the connection's loop.
func (h *loopHandler) cold(c *eventloop.Conn, cmd *remoting.Command) {
	b := h.broker
	process, ok := b.cold[remoting.RequestCode(cmd.Code)]
	if !ok {
		h.reply(c, cmd, processor.Reply{
			Code:   remoting.RequestCodeNotSupported,
			Remark: fmt.Sprintf(" request type %d not supported%s", cmd.Code, b.notYet(cmd.Code)),
		})
		return
	}
	if b.light[remoting.RequestCode(cmd.Code)] != nil && h.light(c, cmd) {
		return
	}
	ch := c.Value().(*channel)
	caller := &processor.Caller{
		Channel: ch, Peer: c.RemoteAddr(), Version: cmd.Version, Language: cmd.Language,
		Listener: c.Listener(),
	}
	if joins(cmd.Code) {
		ch.known.Store(true)
	}
	ch.unread.Store(c.Queued())
	size, pool := cmd.Memory(), b.workers
	switch code := remoting.RequestCode(cmd.Code); {
	case code == remoting.SendReplyMessage || code == remoting.SendReplyMessageV2:
		pool = b.replies
	case size > largeCommand:
		pool = b.large
	}
	if pool.full(size) {
		h.reply(c, cmd, busyReply())
		return
	}
	job := &coldJob{broker: b, ref: c.Ref(), channel: ch, cmd: cmd.Clone()}
	later := &coldJob{broker: b, ref: job.ref, channel: ch, cmd: envelope(cmd)}
	caller.Answer = later.answerLater
	if !pool.hand(size, func() { b.work(job, process, caller) }) {
		h.reply(c, cmd, busyReply())
	}
}

// light answers a command here, if that takes no worker.
func (h *loopHandler) light(c *eventloop.Conn, cmd *remoting.Command) (done bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var reply processor.Reply
	defer func() {
		if p := recover(); p != nil {
			reply, done = h.broker.failed(p, cmd.Code, c.RemoteAddr()), true
		}
		if done && !reply.Silent {
			h.reply(c, cmd, reply)
		}
	}()
	reply, done = h.broker.light[remoting.RequestCode(cmd.Code)](cmd)
	return done
}

// work runs one cold command on a worker.
func (b *Broker) work(job *coldJob, process processor.Func, caller *processor.Caller) {
	ch, asks := job.channel, asksOnly(job.cmd.Code)
	switch {
	case ch.closed.Load() && (b.closing.Load() && !job.cmd.IsOneway() || asks):
		return // nobody can be answered any more, and nobody was promised anything
	case asks && (ch.unread.Load() > unreadMax || b.produced.Load() > producedMax):
		job.reply = busyReply()
	default:
		job.reply = b.run(process, caller, job.cmd)
	}
	// From here on the answer waits for its loop, which may be busier than the workers.
	b.produced.Add(int64(len(job.reply.Body)))
	ch.unread.Add(int64(len(job.reply.Body)))
	if joins(job.cmd.Code) && ch.closed.Load() {
		// The connection ended while its heartbeat waited here: its end was told too early.
		b.locks.Release(ch)
		b.members.ChannelClosed(ch)
	}
	if job.cmd.IsOneway() || job.reply.Silent {
		b.produced.Add(-int64(len(job.reply.Body)))
		return
	}
	job.ref.Post(job)
}

// joins tells the codes after which a connection's end matters to others.
func joins(code int32) bool {
	return remoting.RequestCode(code) == remoting.HeartBeat ||
		remoting.RequestCode(code) == remoting.LockBatchMQ
}

// producedMax is how many bytes of answers may wait for their loops while costly questions are still
// worked out.
const producedMax = 16 << 20

// unreadMax is how many bytes of answers a client may leave unread and still have costly questions
// worked out; beyond it they are answered SYSTEM_BUSY.
const unreadMax = 1 << 20

// largeCommand is the size in bytes above which cold commands are worked on one at a time: read into
// values, a body takes up to 60 times its size.
const largeCommand = 64 << 10

// asksOnly are costly codes that change nothing, and pops, whose messages would be out with nobody:
// work for a connection that has gone is in vain.
func asksOnly(code int32) bool {
	switch remoting.RequestCode(code) {
	case remoting.QueryMessage, remoting.ViewMessageByID, remoting.GetAllTopicConfig,
		remoting.GetAllSubscriptionGroupConfig, remoting.GetAllConsumerOffset,
		remoting.GetBrokerConfig, remoting.GetBrokerRuntimeInfo, remoting.GetTopicStatsInfo,
		remoting.GetConsumeStats, remoting.GetBrokerConsumeStats, remoting.QueryConsumeQueue,
		remoting.PopMessage, remoting.PeekMessage:
		return true
	default:
		return false
	}
}

func busyReply() processor.Reply {
	return processor.Reply{
		Code:   remoting.SystemBusy,
		Remark: "[OVERLOAD]system busy, start flow control for a while",
	}
}

func (h *loopHandler) reply(c *eventloop.Conn, cmd *remoting.Command, r processor.Reply) {
	if !cmd.IsOneway() {
		writeReply(c, cmd, &r)
	}
}

// run calls a cold processor. A panic in one is a fault of ours: it is logged with its stack and
// answered as SYSTEM_ERROR, because one bad request must not take the broker down. The hot path has
// no such net: there a panic means that the log itself may be wrong.
func (b *Broker) run(process processor.Func, caller *processor.Caller, cmd *remoting.Command) (
	reply processor.Reply,
) {
	defer func() {
		if p := recover(); p != nil {
			reply = b.failed(p, cmd.Code, caller.Peer)
		}
	}()
	return process(caller, cmd)
}

// failed is the answer when a processor panicked.
func (b *Broker) failed(p any, code int32, from netip.AddrPort) processor.Reply {
	b.log.Error("a processor failed", "code", code, "addr", from.String(),
		"err", fmt.Sprint(p), "stack", string(debug.Stack()))
	return processor.Reply{
		Code: remoting.SystemError, Remark: fmt.Sprintf("request code %d: %v", code, p),
	}
}

// coldJob is a cold command on its way to a worker and back.
type coldJob struct {
	broker  *Broker
	channel *channel
	ref     eventloop.Ref
	cmd     *remoting.Command
	reply   processor.Reply
}

// envelope is what the answer to a command needs of it: a request that waits keeps no more.
func envelope(cmd *remoting.Command) *remoting.Command {
	return &remoting.Command{
		Code: cmd.Code, Flag: cmd.Flag, Language: cmd.Language, Version: cmd.Version,
		Opaque: cmd.Opaque, Serialize: cmd.Serialize,
	}
}

// answerLater sends an answer that its processor did not have at once.
func (j *coldJob) answerLater(r processor.Reply) {
	if j.cmd.IsOneway() {
		return
	}
	later := &coldJob{broker: j.broker, channel: j.channel, ref: j.ref, cmd: j.cmd, reply: r}
	j.broker.produced.Add(int64(len(r.Body)))
	j.channel.unread.Add(int64(len(r.Body)))
	j.ref.Post(later)
}

// Run writes the answer on the connection's own loop.
func (j *coldJob) Run(c *eventloop.Conn) {
	j.broker.produced.Add(-int64(len(j.reply.Body)))
	if c != nil {
		writeReply(c, j.cmd, &j.reply)
		j.channel.unread.Store(c.Queued())
	}
}

// replyHead is more than most headers of cold answers need.
const replyHead = 512

func writeReply(c *eventloop.Conn, cmd *remoting.Command, r *processor.Reply) {
	e := remoting.Begin(c.ReserveSize(len(r.Body)+replyHead), cmd.Reply(r.Code))
	if r.Remark != "" {
		e.Remark(r.Remark)
	}
	if r.Header != nil {
		r.Header.AppendFields(&e)
	}
	c.Commit(e.End(r.Body))
}

// notYet names what a refused code belongs to, so that an operator knows that it is not a mistake.
func (b *Broker) notYet(code int32) string {
	switch remoting.RequestCode(code) {
	case remoting.PopRollback:
		return ": it belongs to a store of RocksDB, which this broker does not have"
	default:
		return ""
	}
}
