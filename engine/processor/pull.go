// SPDX-License-Identifier: Apache-2.0

// PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), as in RocketMQ's PullMessageProcessor and
// DefaultPullMessageResultHandler.
//
// Kept: the order of checks with their codes, remarks and forbiddenType, the commit that rides on
// a pull (first execution only), server-side offset resets, the mapping of read results, held
// pulls. Different: a held pull that is woken by messages of other tags stays held, from where the
// scan ended, in place of an answer without messages; its client sees the same offsets with fewer
// round trips; an SQL92 expression that comes with a pull and cannot be compiled is answered 23,
// where RocketMQ then filters nothing. Left out: static topics, broadcast offsets kept by the broker
// for proxies, cold-data flow control. SQL92: pullfilter.go.

package processor

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/skylarkmq/skylark/engine/filter"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/longpoll"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// PullShared is what the Pull processors of all loops have in common, constant after the start.
type PullShared struct {
	Store    *storage.Store
	Topics   *topic.Table
	Groups   *group.Configs
	Members  *group.Members
	Offsets  *offset.Table
	Held     *longpoll.Table
	Filters  *filter.Manager
	Counters PullCounters

	Address          netip.AddrPort // in remarks
	LitePull         bool
	SlaveRead        bool
	ServerSideResets bool
	PropertyFilter   bool // enablePropertyFilter
	FilterRetry      bool // filterSupportRetry
	LongPolling      bool
	ShortPolling     time.Duration // hold time when LongPolling is off
	HoldMax          time.Duration // cap of a client's suspend time
	Readable         func() bool
	Now              func() time.Time

	// Hand runs work that may block and keeps size bytes of memory, off the loop; false when too
	// much is waiting.
	Hand func(size int, work func()) bool
	// ReadCold runs the reading of uncached log bytes on the reader pool; false when it is full.
	ReadCold func(size int, work func()) bool
}

// PullCounters counts what was delivered. The calls are cheap and never block.
type PullCounters interface {
	Got(group, topic []byte, messages, bytes int)
	GotNothing()
}

// Forbidden types of a refused pull (RocketMQ ForbiddenType).
const (
	forbiddenBroker       = 1
	forbiddenGroup        = 2
	forbiddenTopic        = 3
	forbiddenBroadcast    = 4
	forbiddenSubscription = 5
)

// Flags of a pull (RocketMQ PullSysFlag).
const (
	pullCommit       = 1
	pullSuspend      = 2
	pullSubscription = 4
)

// Pull answers pulls on one event loop. Cost in the steady state: no allocation; message bytes are
// not touched, they leave as regions of the log.
type Pull struct {
	*PullShared

	req   protocol.PullRequest
	read  storage.ReadRequest
	res   storage.ReadResult
	codes []int32
	spare []*heldPull
}

// NewPull makes the processor of one loop.
func NewPull(shared *PullShared) *Pull { return &Pull{PullShared: shared} }

// pulled is one pull on its way: the request in typed form and what its answer needs.
type pulled struct {
	req       *protocol.PullRequest
	head      remoting.Head
	codes     []int32 // tag hashes; nil: every message
	filter    storage.Filter
	topicFlag int32
	config    *protocol.SubscriptionGroupConfig
}

// Handle answers one pull, or holds it, or hands it to a worker.
func (p *Pull) Handle(c *eventloop.Conn, cmd *remoting.Command) {
	head := cmd.Reply(remoting.Success)
	if err := p.req.Decode(cmd); err != nil {
		p.refuse(c, head, err, 0)
		return
	}
	call := pulled{req: &p.req, head: head}
	forbidden, err := p.check(c, cmd, &call)
	if err != nil {
		p.refuse(c, head, err, forbidden)
		return
	}
	if call.config == nil {
		return // a worker looks up the group and sends the command round again
	}
	if p.req.SysFlag&pullCommit != 0 {
		p.Offsets.Commit(p.req.Group, p.req.Topic, p.req.QueueID, p.req.CommitOffset)
	}
	p.serve(c, &call, nil)
}

// check makes the checks of the reference in its order. A nil call.config without an error means
// that the command went to a worker.
func (p *Pull) check(c *eventloop.Conn, cmd *remoting.Command, call *pulled) (int32, error) {
	r := &p.req
	if !p.Readable() {
		return forbiddenBroker, remoting.Errorf(remoting.NoPermission,
			"the broker[%s] pulling message is forbidden", p.Address.Addr())
	}
	if cmd.Code == int32(remoting.LitePullMessage) && !p.LitePull {
		return forbiddenBroker, remoting.Errorf(remoting.NoPermission,
			"the broker[%s] for lite pull consumer is forbidden", p.Address.Addr())
	}
	config, ok := p.Groups.Lookup(r.Group)
	if !ok {
		return 0, p.lookupGroup(c, cmd)
	}
	if !config.ConsumeEnable {
		return forbiddenGroup, remoting.Errorf(remoting.NoPermission,
			"subscription group no permission, %s", r.Group)
	}
	cfg, ok := p.Topics.Lookup(r.Topic)
	if !ok {
		return 0, remoting.Errorf(remoting.TopicNotExist, "topic[%s] not exist, apply first please! %s",
			r.Topic, FAQ)
	}
	if cfg.Perm&protocol.PermRead == 0 {
		return forbiddenTopic, remoting.Errorf(remoting.NoPermission,
			"the topic[%s] pulling message is forbidden", r.Topic)
	}
	if why := p.Topics.Unserved(cfg); why != "" {
		return 0, remoting.Errorf(remoting.SystemError, "%s", why)
	}
	if r.QueueID < 0 || r.QueueID >= cfg.ReadQueueNums {
		return 0, remoting.Errorf(remoting.InvalidParameter,
			"queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] consumer:[/%s]",
			r.QueueID, r.Topic, cfg.ReadQueueNums, c.RemoteAddr())
	}
	call.topicFlag = cfg.TopicSysFlag
	call.config = config
	return p.subscription(call)
}

// subscription finds the tags that the pull wants.
func (p *Pull) subscription(call *pulled) (int32, error) {
	r := call.req
	if r.SysFlag&pullSubscription != 0 {
		return 0, p.ownSubscription(call)
	}
	sub, state := p.Members.Subscription(r.Group, r.Topic)
	if !state.Online {
		return 0, remoting.Errorf(remoting.SubscriptionNotExist,
			"the consumer's group info not exist%s", FAQ)
	}
	if state.Broadcasting && !call.config.ConsumeBroadcastEnable {
		return forbiddenBroadcast, remoting.Errorf(remoting.NoPermission,
			"the consumer group[%s] can not consume by broadcast way", r.Group)
	}
	if p.Groups.Forbidden(r.Group, r.Topic)&group.ForbidRead != 0 {
		return forbiddenSubscription, remoting.Errorf(remoting.NoPermission,
			"the consumer group[%s] is forbidden for topic[%s]", r.Group, r.Topic)
	}
	if sub == nil {
		return 0, remoting.Errorf(remoting.SubscriptionNotExist,
			"the consumer's subscription not exist%s", FAQ)
	}
	if sub.Data.SubVersion < r.SubVersion {
		return 0, remoting.Errorf(remoting.SubscriptionNotLatest,
			"the consumer's subscription not latest")
	}
	if !tagType(sub.Data.ExpressionType) {
		return 0, p.registeredFilter(call)
	}
	if len(sub.Codes) > pullTagsMax {
		return 0, errBadSubscription // each message is compared with all of them
	}
	call.codes = sub.Codes
	return 0, nil
}

var errNoSQL = remoting.Errorf(remoting.SystemError,
	"The broker does not support consumer to filter message by SQL92")

func tagType(kind string) bool { return kind == "" || kind == "TAG" }

// ownSubscription reads the expression that came with the pull: "*" or nothing is all, else
// tags between "||" (RocketMQ FilterAPI).
func (p *Pull) ownSubscription(call *pulled) error {
	r := call.req
	if kind := r.ExpressionType; len(kind) > 0 && string(kind) != "TAG" {
		return p.ownFilter(call)
	}
	text := r.Subscription
	if len(text) == 0 || string(text) == "*" {
		return nil
	}
	p.codes = p.codes[:0]
	for len(text) > 0 {
		var tag []byte
		tag, text, _ = bytes.Cut(text, []byte("||"))
		if tag = bytes.TrimSpace(tag); len(tag) > 0 {
			p.codes = append(p.codes, protocol.JavaHash(tag))
		}
		if len(p.codes) > pullTagsMax {
			return errBadSubscription
		}
	}
	if len(p.codes) == 0 {
		return errBadSubscription
	}
	call.codes = p.codes
	return nil
}

// pullTagsMax bounds the tags of one pull: a held one keeps their hashes, and many may be held.
const pullTagsMax = 4096

var errBadSubscription = remoting.Errorf(remoting.SubscriptionParseFailed,
	"parse the consumer's subscription failed")

// lookupGroup lets a worker create the group if that is allowed: it writes a file.
func (p *Pull) lookupGroup(c *eventloop.Conn, cmd *remoting.Command) error {
	name := string(p.req.Group)
	again := &repull{pull: p, cmd: cmd.Clone()}
	ref := c.Ref()
	handed := p.Hand(again.cmd.Memory(), func() {
		if _, ok, err := p.Groups.LookupOrCreate(name); err != nil {
			again.err = err
		} else if !ok {
			again.err = remoting.Errorf(remoting.SubscriptionGroupNotExist,
				"subscription group [%s] does not exist, %s", name, FAQ)
		}
		ref.Post(again)
	})
	if !handed {
		return remoting.Errorf(remoting.SystemBusy,
			"[OVERLOAD]system busy, start flow control for a while")
	}
	return nil
}

// repull is a pull that comes round again after a worker has looked up its group.
type repull struct {
	pull *Pull
	cmd  *remoting.Command
	err  error
}

// Run is called on the loop that owns the connection.
func (r *repull) Run(c *eventloop.Conn) {
	if c == nil {
		return
	}
	p := r.pull
	if r.err == nil {
		if err := p.req.Decode(r.cmd); err != nil {
			r.err = err
		} else if _, ok := p.Groups.Lookup(p.req.Group); !ok {
			r.err = remoting.Errorf(remoting.SubscriptionGroupNotExist,
				"subscription group [%s] does not exist, %s", p.req.Group, FAQ)
		}
	}
	if r.err != nil {
		p.refuse(c, r.cmd.Reply(remoting.Success), r.err, 0)
		return
	}
	p.Handle(c, r.cmd)
}

// serve reads and answers, or parks the pull, in which case waits is true. held is the pull's own
// hold when it was woken, nil on its first run.
func (p *Pull) serve(c *eventloop.Conn, call *pulled, held *heldPull) (waits bool) {
	if p.ServerSideResets {
		if at, ok := p.Offsets.TakeReset(call.req.Group, call.req.Topic, call.req.QueueID); ok {
			p.answerReset(c, call, at)
			return false
		}
	}
	r := call.req
	if call.filter != nil && !p.Store.Recent(r.Topic, r.QueueID, record.QueueOffset(r.QueueOffset)) {
		p.readAside(c, call, held)
		return true
	}
	p.readStore(call)
	if p.res.ColdUnits {
		p.readAside(c, call, held)
		return true
	}
	return p.finish(c, call, held)
}

// finish answers with what was read, or parks the pull, as serve.
func (p *Pull) finish(c *eventloop.Conn, call *pulled, held *heldPull) (waits bool) {
	switch {
	case p.res.Err != nil:
		p.refuse(c, call.head, p.res.Err, 0)
	case p.res.Status == storage.Found && p.res.Cold:
		p.answerCold(c, call)
	case p.res.Status == storage.Found:
		p.answerFound(c, call)
	case held == nil && p.holdable(call.req) && p.hold(c, call),
		held != nil && !held.due && p.waitsOn(call.req) && p.holdOn(held):
		return true
	default:
		p.Counters.GotNothing()
		p.answer(c, call, nothingCode(p.res.Status, call.req.QueueOffset), p.res.Status.String())
	}
	return false
}

func (p *Pull) readStore(call *pulled) {
	p.read = readRequest(call)
	p.read.MemoryOnly = true
	p.Store.Read(&p.read, &p.res)
}

func readRequest(call *pulled) storage.ReadRequest {
	r := call.req
	return storage.ReadRequest{
		Topic: r.Topic, Queue: r.QueueID, From: record.QueueOffset(r.QueueOffset),
		MaxMessages: max(int(r.MaxMessages), 1), TagCodes: call.codes, Filter: call.filter,
	}
}

// holdable says whether the last read's result is one that a long poll waits on.
func (p *Pull) holdable(r *protocol.PullRequest) bool {
	switch p.res.Status {
	case storage.OffsetFoundNull, storage.OffsetOverflowOne:
	case storage.NoMatchedLogicQueue, storage.NoMessageInQueue:
		if r.QueueOffset != 0 {
			return false
		}
	default:
		return false
	}
	return r.SysFlag&pullSuspend != 0 && r.SuspendMS > 0
}

// waitsOn says whether a woken pull goes on waiting: nothing came, or nothing with its tags.
func (p *Pull) waitsOn(r *protocol.PullRequest) bool {
	return p.res.Status == storage.NoMatchedMessage || p.holdable(r)
}

// nothingCode maps a read without messages to its response code (DefaultPullMessageResultHandler).
func nothingCode(status storage.ReadStatus, asked int64) remoting.ResponseCode {
	switch status {
	case storage.NoMatchedMessage, storage.MessageWasRemoving:
		return remoting.PullRetryImmediately
	case storage.NoMatchedLogicQueue, storage.NoMessageInQueue:
		if asked != 0 {
			return remoting.PullOffsetMoved
		}
		return remoting.PullNotFound
	case storage.OffsetFoundNull, storage.OffsetOverflowOne:
		return remoting.PullNotFound
	default:
		return remoting.PullOffsetMoved
	}
}

func (p *Pull) answerFound(c *eventloop.Conn, call *pulled) {
	r := call.req
	p.Counters.Got(r.Group, r.Topic, p.res.Messages, p.res.Bytes)
	p.Offsets.SetPulled(r.Group, r.Topic, r.QueueID, int64(p.res.Next))
	e := remoting.Begin(c.Reserve(), call.head)
	e.Remark("FOUND")
	header := p.header(call)
	header.AppendFields(&e)
	c.Commit(e.EndRegions(p.res.Bytes))
	c.WriteRegions(p.res.Regions)
	p.res.Regions = p.res.Regions[:0]
}

// answer is one without messages.
func (p *Pull) answer(c *eventloop.Conn, call *pulled, code remoting.ResponseCode, remark string) {
	p.Offsets.SetPulled(call.req.Group, call.req.Topic, call.req.QueueID, int64(p.res.Next))
	call.head.Code = int32(code)
	e := remoting.Begin(c.Reserve(), call.head)
	e.Remark(remark)
	header := p.header(call)
	header.AppendFields(&e)
	c.Commit(e.End(nil))
}

// answerReset moves the consumer to the offset that an operator has set.
func (p *Pull) answerReset(c *eventloop.Conn, call *pulled, at int64) {
	low, high, _ := p.Store.QueueBounds(call.req.Topic, call.req.QueueID)
	p.res = storage.ReadResult{
		Next: record.QueueOffset(at), Min: low, Max: high, Regions: p.res.Regions[:0],
	}
	p.answer(c, call, remoting.PullOffsetMoved, "OFFSET_RESET")
}

func (p *Pull) header(call *pulled) protocol.PullResponse {
	return protocol.PullResponse{
		SuggestBrokerID: p.suggest(call), NextOffset: int64(p.res.Next),
		MinOffset: int64(p.res.Min), MaxOffset: int64(p.res.Max),
		TopicSysFlag: call.topicFlag, GroupSysFlag: call.config.GroupSysFlag, ForbiddenType: -1,
	}
}

// suggest is the broker the client should ask next: a slave when the reader has fallen so far
// behind that serving it would push newer messages out of the page cache.
func (p *Pull) suggest(call *pulled) int64 {
	switch {
	case !p.SlaveRead:
		return 0
	case p.res.SuggestSlave:
		return call.config.WhichBrokerWhenConsumeSlowly
	default:
		return call.config.BrokerID
	}
}

// refuse answers an error.
func (p *Pull) refuse(c *eventloop.Conn, head remoting.Head, err error, forbidden int32) {
	code, remark := Outcome(err)
	head.Code = int32(code)
	e := remoting.Begin(c.Reserve(), head)
	e.Remark(remark)
	if forbidden != 0 {
		// The client unboxes these whatever the code is.
		header := protocol.PullResponse{
			ForbiddenType: forbidden, TopicSysFlag: -1, GroupSysFlag: -1,
		}
		header.AppendFields(&e)
	} else {
		e.EmptyFields()
	}
	c.Commit(e.End(nil))
}
