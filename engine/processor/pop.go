// SPDX-License-Identifier: Apache-2.0

// POP_MESSAGE (200050), after RocketMQ's PopMessageProcessor.
//
// Kept: checks, codes and remarks, the order in which queues and retry topic are read, the offset
// infos, the re-encoded records of retry topics, long polling. Different: a request waits for a queue
// that another one is taking from, where RocketMQ passes it over; messages that were taken back wake
// a waiting request at once; a waiting request whose filter does not want what came waits on. Left
// out: the threshold of messages in flight (enablePopMessageThreshold, off in RocketMQ), the RocksDB
// service (popConsumerKVServiceEnable, off as well), priority and lite topics.

package processor

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/engine/filter"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/pop"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// PopCounters counts what pops deliver. The calls never block.
type PopCounters interface {
	Got(group, topic []byte, messages, bytes int)
}

// PopStore is the store as peeks and acknowledgements see it.
type PopStore interface {
	QueueBounds(topic []byte, queue int32) (lowest, end record.QueueOffset, ok bool)
	Read(req *storage.ReadRequest, res *storage.ReadResult)
}

// Pops answers the requests of pop consumption. Its fields are constant after the start.
type Pops struct {
	Service  *pop.Service
	Waiters  *pop.Waiters // of POP_MESSAGE
	Notified *pop.Waiters // of NOTIFICATION
	Orders   *pop.Orders
	Store    PopStore
	Topics   *topic.Table
	Groups   *group.Configs
	Members  *group.Members
	Offsets  *offset.Table
	Filters  *filter.Manager
	Counters PopCounters

	Broker         string
	Address        string // the broker's IP, in remarks
	TimerOff       bool   // timerWheelEnable is false: nothing can be popped
	ReviveQueues   int32
	RetryPercent   int  // popFromRetryProbability
	RetryV2        bool // enableRetryTopicV2
	RetryV1Too     bool // retrieveMessageFromPopRetryTopicV1
	ActualRetry    bool // popResponseReturnActualRetryTopic
	PropertyFilter bool
	Readable       func() bool
	Now            func() time.Time
	// Hand runs work on a worker; false: too much waits.
	Hand func(size int, work func()) bool

	turn atomic.Uint32 // of the revive queues
}

// Register adds the request codes.
func (p *Pops) Register(t Cold) {
	t[remoting.PopMessage] = func(c *Caller, cmd *remoting.Command) Reply {
		var r protocol.PopRequest
		if err := r.Decode(cmd); err != nil {
			return Fail(err)
		}
		if r.BornMS == 0 {
			r.BornMS = p.Now().UnixMilli()
		}
		return p.pop(c, &r)
	}
	p.registerAcks(t)
	p.registerLooks(t)
}

// popMax is how many messages a pop may ask for.
const popMax = 32

// wanted is a checked request.
type wanted struct {
	config *protocol.TopicConfig
	codes  []int32
	filter storage.Filter
	order  bool
}

// popRefused answers an error in the form of this request: the header is there whatever happens.
func popRefused(err error) Reply {
	r := Fail(err)
	r.Header = &protocol.PopResponse{}
	return r
}

// check makes the checks of the reference in its order.
func (p *Pops) check(c *Caller, r *protocol.PopRequest) (w wanted, err error) {
	now := p.Now().UnixMilli()
	switch {
	case r.PollMS > 0 && now-r.BornMS-r.PollMS > 500:
		return w, remoting.Errorf(remoting.PollingTimeout,
			"the broker[%s] pop message is timeout too much", p.Address)
	case !p.Readable():
		return w, remoting.Errorf(remoting.NoPermission,
			"the broker[%s] pop message is forbidden", p.Address)
	case r.MaxMessages > popMax:
		return w, remoting.Errorf(remoting.InvalidParameter,
			"the broker[%s] pop message's num is greater than 32", p.Address)
	case p.TimerOff:
		return w, remoting.Errorf(remoting.SystemError,
			"the broker[%s] pop message is forbidden because timerWheelEnable is false", p.Address)
	}
	w.order = r.Order != nil && *r.Order
	if w.config, err = p.topicOf(c, r.Topic, r.QueueID); err != nil {
		return w, err
	}
	if err := p.groupOf(r.Group); err != nil {
		return w, err
	}
	if r.InvisibleMS < 0 {
		return w, remoting.Errorf(remoting.InvalidParameter, "the field invisibleTime is %d", r.InvisibleMS)
	}
	return w, p.filterOf(r, &w)
}

// topicOf returns a topic that may be read; a negative queue means any.
func (p *Pops) topicOf(c *Caller, name string, queue int32) (*protocol.TopicConfig, error) {
	cfg, ok := p.Topics.Find(name)
	switch {
	case !ok:
		return nil, remoting.Errorf(remoting.TopicNotExist, "topic[%s] not exist, apply first please! %s",
			name, FAQ)
	case cfg.Perm&protocol.PermRead == 0:
		return nil, remoting.Errorf(remoting.NoPermission, "the topic[%s] peeking message is forbidden", name)
	case queue >= cfg.ReadQueueNums:
		return nil, illegalQueue(remoting.InvalidParameter, c, cfg, queue)
	}
	if why := p.Topics.Unserved(cfg); why != "" {
		return nil, remoting.Errorf(remoting.SystemError, "%s", why)
	}
	return cfg, nil
}

func illegalQueue(
	code remoting.ResponseCode, c *Caller, cfg *protocol.TopicConfig, queue int32,
) error {
	return remoting.Errorf(code, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] "+
		"consumer:[/%s]", queue, cfg.TopicName, cfg.ReadQueueNums, c.Peer)
}

func (p *Pops) groupOf(name string) error {
	cfg, ok, err := p.Groups.LookupOrCreate(name)
	switch {
	case err != nil:
		return err
	case !ok:
		return remoting.Errorf(remoting.SubscriptionGroupNotExist,
			"subscription group [%s] does not exist, %s", name, FAQ)
	case !cfg.ConsumeEnable:
		return remoting.Errorf(remoting.NoPermission, "subscription group no permission, %s", name)
	}
	return nil
}

// filterOf reads the expression of a pop, and remembers it for who asks what the group reads.
func (p *Pops) filterOf(r *protocol.PopRequest, w *wanted) error {
	expression, kind := r.Expression, r.ExpressionType
	if expression == "" {
		expression, kind = protocol.SubscribeAll, protocol.ExpressionTag
	}
	data, err := protocol.ParseSubscription(r.Topic, expression, kind)
	if err != nil {
		return errBadSubscription
	}
	if data.IsTag() {
		if len(data.CodeSet) > pullTagsMax {
			return errBadSubscription
		}
		if expression != protocol.SubscribeAll {
			w.codes = data.CodeSet
		}
	} else {
		if kind != protocol.ExpressionSQL92 {
			return errBadSubscription
		}
		e, err := p.Filters.Compile(expression)
		if err != nil {
			return remoting.Errorf(remoting.SubscriptionParseFailed,
				"parse the consumer's subscription failed: %v", err)
		}
		w.filter = e
	}
	data.SubVersion = p.Now().UnixMilli()
	p.Members.Compensate(r.Group, r.Topic, data)
	return nil
}

// pop answers one request, or lets it wait.
func (p *Pops) pop(c *Caller, r *protocol.PopRequest) Reply {
	w, err := p.check(c, r)
	if err != nil {
		return popRefused(err)
	}
	if gone, ok := c.Channel.(interface{ Closed() bool }); ok && gone.Closed() {
		return Reply{Silent: true} // what it got would be out until its time is over
	}
	a := p.gather(r, &w)
	defer a.release()
	if a.err != nil && a.messages == 0 {
		return popRefused(a.err)
	}
	if a.messages > 0 {
		p.Counters.Got([]byte(r.Group), []byte(r.Topic), a.messages, len(a.body))
		if a.rest > 0 {
			p.Waiters.WakeOne(r.Topic, r.Group, r.QueueID)
		}
		return Reply{Remark: "FOUND", Header: a.header(r), Body: a.body}
	}
	wait := &popWait{pops: p, caller: c, request: *r}
	switch p.park(wait, r, w.order, a.rest) {
	case pop.ParkedHeld:
		return Reply{Silent: true}
	case pop.ParkedFull:
		return Reply{Code: remoting.PollingFull, Remark: "NO_MESSAGE_IN_QUEUE", Header: a.header(r)}
	default:
		return Reply{Code: remoting.PollingTimeout, Remark: "NO_MESSAGE_IN_QUEUE", Header: a.header(r)}
	}
}

// gathered is what a request gets.
type gathered struct {
	popMS    int64
	revive   int32
	order    bool
	infos    pop.Infos
	body     []byte
	messages int
	rest     int64
	taken    []pop.Taken
	err      error
}

func (a *gathered) header(r *protocol.PopRequest) *protocol.PopResponse {
	h := &protocol.PopResponse{
		PopMS: a.popMS, InvisibleMS: r.InvisibleMS, ReviveQueueID: a.revive, RestNum: a.rest,
		StartOffsetInfo: a.infos.Starts(), MsgOffsetInfo: a.infos.Offsets(), HasInfo: true,
	}
	if a.order {
		h.OrderCountInfo = a.infos.Counts()
	}
	return h
}

func (a *gathered) release() {
	for i := range a.taken {
		for j := range a.taken[i].Regions {
			a.taken[i].Regions[j].Release()
		}
	}
	a.taken = nil
}

// gather takes messages from the retry topic and from the queues, in the order of the reference.
func (p *Pops) gather(r *protocol.PopRequest, w *wanted) *gathered {
	a := &gathered{popMS: p.Now().UnixMilli(), order: w.order, revive: pop.OrderQueue}
	if !w.order {
		a.revive = int32((p.turn.Add(1) - 1) % uint32(p.ReviveQueues))
	}
	random := rand.IntN(100)
	retryFirst := random < p.RetryPercent
	retry := pop.RetryTopic(r.Topic, r.Group, p.RetryV2)
	if p.RetryV2 && p.RetryV1Too && random%2 == 0 {
		retry = pop.RetryTopic(r.Topic, r.Group, false)
	}
	if retryFirst && !w.order {
		p.takeAll(a, r, w, retry, random)
	}
	if r.QueueID < 0 {
		p.takeAll(a, r, w, r.Topic, random)
	} else {
		p.take(a, r, w, r.Topic, r.QueueID)
	}
	if !retryFirst && !w.order && a.messages < int(r.MaxMessages) {
		p.takeAll(a, r, w, retry, random)
	}
	return a
}

// takeAll takes from all queues of a topic, from a random one on.
func (p *Pops) takeAll(a *gathered, r *protocol.PopRequest, w *wanted, name string, random int) {
	cfg, ok := p.Topics.Find(name)
	if !ok {
		return
	}
	for i := range cfg.ReadQueueNums {
		p.take(a, r, w, name, (int32(random)+i)%cfg.ReadQueueNums)
	}
}

// take takes from one queue what still fits.
func (p *Pops) take(a *gathered, r *protocol.PopRequest, w *wanted, name string, queue int32) {
	room := int(r.MaxMessages) - a.messages
	if len(a.body) >= popBodyMax {
		room = 0
	}
	t, err := p.Service.Take(&pop.Wish{
		Topic: name, Group: r.Group, Queue: queue, Max: room, PopMS: a.popMS, InvisibleMS: r.InvisibleMS,
		ReviveQueue: a.revive, FromEnd: r.InitMode == 1, Order: w.order, AttemptID: r.AttemptID,
		TagCodes: w.codes, Filter: w.filter,
	})
	a.rest += t.Rest
	if err != nil {
		a.err = err
		return
	}
	if len(t.Records) == 0 {
		return
	}
	a.taken = append(a.taken, t)
	a.messages += len(t.Records)
	a.infos.Add(name, queue, t.Start, t.Offsets)
	if w.order {
		a.infos.AddCounts(name, queue, t.Offsets, t.Counts)
	}
	for i := range t.Records {
		a.body = p.appendRecord(a, r, &t, i, name)
	}
}

// popBodyMax bounds the bytes of one answer: what is beyond it comes with the next.
const popBodyMax = 4 << 20

// appendRecord adds a record to the body. One from a retry topic gets the name of the topic that was
// asked for, and its receipt, since the client cannot know where it was read.
func (p *Pops) appendRecord(
	a *gathered, r *protocol.PopRequest, t *pop.Taken, i int, name string,
) []byte {
	v := t.Records[i]
	if name == r.Topic || p.ActualRetry {
		return append(a.body, v.Bytes()...)
	}
	d := v.Draft()
	d.Topic = []byte(r.Topic)
	if _, has := record.Property(d.Properties, propPopCK); !has {
		receipt := pop.Receipt{
			StartOffset: t.Start, PopMS: a.popMS, InvisibleMS: r.InvisibleMS, ReviveQueue: a.revive,
			Kind: pop.KindOf(name), Broker: p.Broker, Queue: v.QueueID(), Offset: int64(v.QueueOffset()),
		}
		props := append(make([]byte, 0, len(d.Properties)+128), d.Properties...)
		d.Properties = record.AppendProperty(props, propPopCK, receipt.String())
	}
	if len(d.Properties) > record.MaxProperties {
		return append(a.body, v.Bytes()...) // as if ActualRetry were on: there is no room for the receipt
	}
	at := len(a.body)
	a.body = append(a.body, make([]byte, d.Size())...)
	d.Encode(a.body[at:], v.Place())
	return a.body
}

// propPopCK is the property with a message's receipt.
const propPopCK = "POP_CK"
