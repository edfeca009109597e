// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"errors"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// versionRetryLimit is V3_4_9: from there on a producer's own maxReconsumeTimes counts.
const versionRetryLimit = 121

// pending is a topic that a worker is creating. Sends to it wait in the order in which they came:
// a send that found the topic created must not overtake those that asked for it, or a producer's
// messages would be stored out of order.
type pending struct {
	topic   string
	waiting []*resend // not yet posted to their connections
	left    int       // posted and not yet handled
	created bool
	err     error
}

// pendingMax and pendingBytesMax bound the sends of one loop that wait for one topic, and the memory
// of those that wait for any; more are answered SYSTEM_BUSY.
const (
	pendingMax      = 16384
	pendingBytesMax = 64 << 20
)

var errBusy = remoting.Errorf(remoting.SystemBusy,
	"[OVERLOAD]system busy, start flow control for a while")

// createTopic hands a send to an unknown topic to a worker: creating one writes a file and tells
// the name servers, and only then does RocketMQ answer. An error means that no worker is free.
func (s *Send) createTopic(c *eventloop.Conn, cmd *remoting.Command) error {
	req := topic.CreateOnSend{
		Topic: string(s.req.Topic), DefaultTopic: string(s.req.DefaultTopic),
		DefaultQueues: s.req.DefaultTopicQueues, UnitMode: s.req.UnitMode,
	}
	p := &pending{topic: req.Topic}
	done := &topicDone{send: s, pending: p}
	ref := c.Ref()
	handed := s.Hand(0, func() {
		_, p.err = s.Topics.CreateOnSend(req)
		if errors.Is(p.err, topic.ErrNotCreatable) {
			p.err = errNoTopic(req.Topic)
		}
		ref.Post(done)
	})
	if !handed {
		return errBusy
	}
	s.pending[req.Topic] = p
	return s.wait(c, cmd, p)
}

func errNoTopic(name string) error {
	return remoting.Errorf(remoting.TopicNotExist, "topic[%s] not exist, apply first please!%s",
		name, FAQ)
}

// wait queues a copy of cmd behind the sends that wait for the same topic already.
func (s *Send) wait(c *eventloop.Conn, cmd *remoting.Command, p *pending) error {
	size := cmd.Memory()
	if len(p.waiting)+p.left >= pendingMax || s.waiting > 0 && s.waiting+size > pendingBytesMax {
		return errBusy
	}
	s.waiting += size
	r := &resend{send: s, cmd: cmd.Clone(), ref: c.Ref(), pending: p}
	if p.created {
		p.left++
		r.ref.Post(r)
		return nil
	}
	p.waiting = append(p.waiting, r)
	return nil
}

// topicDone tells the loop that a worker has finished.
type topicDone struct {
	send    *Send
	pending *pending
}

// Run sends everything that waited round again, in order. It runs on the loop even when the
// connection that asked first is gone.
func (d *topicDone) Run(*eventloop.Conn) {
	p := d.pending
	p.created = true
	p.left += len(p.waiting)
	for _, r := range p.waiting {
		r.ref.Post(r)
	}
	p.waiting = nil
	if p.left == 0 { // all were refused for want of room
		delete(d.send.pending, p.topic)
	}
}

// resend is a send that comes round again after a worker prepared the way for it.
type resend struct {
	send    *Send
	cmd     *remoting.Command
	ref     eventloop.Ref
	err     error
	pending *pending // nil: no other sends wait with it
}

// later runs prepare on a worker and then handles a copy of cmd on this loop again.
func (s *Send) later(c *eventloop.Conn, cmd *remoting.Command, prepare func() error) error {
	r := &resend{send: s, cmd: cmd.Clone(), ref: c.Ref()}
	handed := s.Hand(r.cmd.Memory(), func() {
		r.err = prepare()
		r.ref.Post(r)
	})
	if !handed {
		return errBusy
	}
	return nil
}

// Run is called on the loop that owns the connection.
func (r *resend) Run(c *eventloop.Conn) {
	s := r.send
	if p := r.pending; p != nil {
		r.err = p.err
		s.waiting -= r.cmd.Memory()
		if p.left--; p.left == 0 {
			delete(s.pending, p.topic)
		}
	}
	switch {
	case c == nil:
	case r.err != nil:
		s.refuse(c, r.cmd, r.err)
	default:
		s.again(c, r.cmd)
	}
}

// again handles a send for the second time. What it needs may be gone again; then it is refused, so
// that nothing goes round for ever.
func (s *Send) again(c *eventloop.Conn, cmd *remoting.Command) {
	if err := s.req.Decode(cmd); err != nil {
		s.refuse(c, cmd, err)
		return
	}
	cfg, ok := s.Topics.Lookup(s.req.Topic)
	if !ok {
		s.refuse(c, cmd, errNoTopic(string(s.req.Topic)))
		return
	}
	if err := s.checkQueue(c, cfg); err != nil {
		s.refuse(c, cmd, err)
		return
	}
	if err := s.collect(c, cmd, cfg); err != nil {
		s.refuse(c, cmd, err)
		return
	}
	s.Flush()
}

// retry decides what becomes of a message for a %RETRY% topic: it stays (target is cfg), goes to
// the dead-letter topic (dead), or has to wait for that topic's creation (target is nil).
func (s *Send) retry(c *eventloop.Conn, cmd *remoting.Command, cfg *protocol.TopicConfig) (
	target *protocol.TopicConfig, dead bool, err error,
) {
	group, isRetry := bytes.CutPrefix(s.req.Topic, []byte(protocol.RetryPrefix))
	if !isRetry {
		return cfg, false, nil
	}
	if s.req.Batch {
		return nil, false, remoting.Errorf(remoting.MessageIllegal,
			"batch request does not support retry group %s", group)
	}
	group, _, _ = bytes.Cut(group, []byte("+")) // the second form of pop's retry topics
	config, ok := s.Groups.Lookup(group)
	if !ok {
		return nil, false, s.createGroup(c, cmd, string(group))
	}
	limit := config.RetryMaxTimes
	if s.req.MaxReconsumeTimes >= 0 && cmd.Version >= versionRetryLimit {
		limit = s.req.MaxReconsumeTimes
	}
	if s.req.ReconsumeTimes <= limit && !s.Locks.HasUnexpired(string(group)) {
		return cfg, false, nil
	}
	name := protocol.DLQPrefix + string(group)
	if target, ok = s.Topics.Lookup([]byte(name)); ok {
		return target, true, nil
	}
	return nil, true, s.later(c, cmd, func() error {
		_, err := s.Topics.CreateRetry(name, 1, protocol.PermRead|protocol.PermWrite, false, false)
		return err
	})
}

// createGroup lets a worker create the group of a retry topic, if that is allowed.
func (s *Send) createGroup(c *eventloop.Conn, cmd *remoting.Command, name string) error {
	absent := remoting.Errorf(remoting.SubscriptionGroupNotExist,
		"subscription group not exist, %s %s", name, FAQ)
	if !s.Groups.Creatable([]byte(name)) {
		return absent
	}
	return s.later(c, cmd, func() error {
		_, ok, err := s.Groups.LookupOrCreate(name)
		if err == nil && !ok {
			err = absent
		}
		return err
	})
}

// halfTopic is where half messages are stored.
var halfTopic = &protocol.TopicConfig{TopicName: protocol.HalfTopic}

// half turns a checked send into a half message (RocketMQ TransactionalMessageBridge): the property
// TRAN_MSG makes it one, the flag alone does not, and a batch or a delayed message cannot be one. A
// committed message that a consumer sends back with a delay still has the property and stays plain.
func (s *Send) half(seen sent, target *protocol.TopicConfig) (*protocol.TopicConfig, sent, error) {
	switch {
	case seen.transaction && seen.asksDelay() && s.req.ReconsumeTimes > 0:
		return target, seen, nil
	case s.RejectHalf && seen.transaction:
		return nil, seen, remoting.Errorf(remoting.NoPermission,
			"the broker[%s] sending transaction message is forbidden", s.StoreHost.Addr())
	case !seen.transaction:
		return nil, seen, remoting.Errorf(remoting.MessageIllegal, "the message is illegal: sysFlag "+
			"says that it is part of a transaction, and the property TRAN_MSG does not")
	case s.req.Batch:
		return nil, seen, remoting.Errorf(remoting.MessageIllegal,
			"the message is illegal: a batch cannot be part of a transaction")
	case seen.asksDelay():
		return nil, seen, remoting.Errorf(remoting.MessageIllegal,
			"the message is illegal: half of a transaction cannot be delivered later")
	}
	start := len(s.scratch) - len(seen.text)
	s.scratch = transaction.AppendHalf(s.scratch, seen.uniq, target.TopicName, s.req.QueueID)
	seen.text = s.scratch[start:]
	if n := len(seen.text); n > record.MaxProperties-transaction.CopyRoom {
		return nil, seen, remoting.Errorf(remoting.MessageIllegal, "the message is illegal: properties "+
			"of %d bytes, the limit is %d for half of a transaction", n,
			record.MaxProperties-transaction.CopyRoom)
	}
	s.req.QueueID = 0
	s.halves++
	return halfTopic, seen, nil
}

// countHalves counts the half messages that were stored, by the topics that they shall go to.
func (s *Send) countHalves() {
	for i := range s.entries {
		d := &s.entries[i].Draft
		if s.entries[i].Err != nil || string(d.Topic) != protocol.HalfTopic {
			continue
		}
		if name, ok := record.Property(d.Properties, delay.PropRealTopic); ok {
			s.Transactions.Prepared(name)
		}
	}
}

// FlushWait is a stored send whose answer waits for the disk.
type FlushWait struct {
	send    *Send
	ref     eventloop.Ref
	loop    *eventloop.Loop
	call    sendCall // its slices are owned
	entry   storage.Entry
	reached bool
}

// park holds the answer until the record is on disk. False: it is there already, or the list is
// full, in which case the answer goes out at once as FLUSH_DISK_TIMEOUT.
func (s *Send) park(call *sendCall, e *storage.Entry) bool {
	w := s.spareWait()
	w.ref, w.loop = call.conn.Ref(), call.conn.Loop()
	uniq := append(w.call.uniq[:0], call.uniq...)
	w.call = *call
	w.call.conn = nil
	if call.uniq != nil {
		w.call.uniq = uniq
	}
	w.call.recall = bytes.Clone(call.recall)
	places := append(w.entry.Places[:0], e.Places...)
	w.entry = *e
	w.entry.Places = places
	// The draft's bytes belong to the read that is being handled: only numbers are kept.
	w.entry.Draft.Topic, w.entry.Draft.Body, w.entry.Draft.Properties = nil, nil, nil
	parked, reached := s.Flushed.Add(int64(e.End), w)
	if parked {
		return true
	}
	s.waits = append(s.waits, w)
	if !reached {
		_ = s.Store.WriteOut() // the store has told of a failure
		call.head.Code = int32(remoting.FlushDiskTimeout)
	}
	return false
}

func (s *Send) spareWait() *FlushWait {
	if n := len(s.waits); n > 0 {
		w := s.waits[n-1]
		s.waits = s.waits[:n-1]
		return w
	}
	return &FlushWait{send: s}
}

// Loop is where the waiting connection lives; waiters are posted to each loop once.
func (w *FlushWait) Loop() *eventloop.Loop { return w.loop }

// Released notes how the wait ended and gives what is to be posted.
func (w *FlushWait) Released(reached bool) eventloop.Posted {
	w.reached = reached
	return eventloop.Posted{To: w.ref, Task: w}
}

// Run answers on the connection's own loop.
func (w *FlushWait) Run(c *eventloop.Conn) {
	s := w.send
	if c != nil {
		if !w.reached {
			w.call.head.Code = int32(remoting.FlushDiskTimeout) // stored, but not known to be on disk
		}
		s.answer(c, &w.call, &w.entry)
	}
	if len(s.waits) < waitsSpareMax {
		s.waits = append(s.waits, w)
	}
}

// waitsSpareMax bounds the FlushWaits that a loop keeps for later.
const waitsSpareMax = 8192
