// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Resend is a bulk resend of a group's dead letters.
type Resend struct {
	Letters DeadLetterQuery
	// ToRetry sends to the group's retry topic: only this group gets the messages again. Otherwise
	// they go to the topic they were first sent to, where all its groups get them. Groups that consume
	// in order have no retry topic: brokers make such a message a dead letter at once.
	ToRetry bool
	// DryRun sends nothing and stores nothing.
	DryRun bool
	// StateFile keeps how far the resend is, so that another call with the same letters goes on there:
	// after an error, after a crash, or later, for letters that have come since. It is a file of this
	// one resend; one of another resend is refused. Empty: every call begins with the first letter.
	StateFile string
	// SkipRefused passes over letters that a broker refuses or whose topic is gone. They are counted
	// and told to OnRefused, and stay where they are. Otherwise the first of them ends the call.
	SkipRefused bool

	OnProgress func(ResendProgress)    // after each letter that was looked at; nil: none
	OnLetter   func(DeadLetter)        // that was sent, or would be; nil: none
	OnRefused  func(DeadLetter, error) // nil: none
}

// ResendProgress is how far a resend is.
type ResendProgress struct {
	Total   int64 // letters to look at in this call
	Seen    int64 // of these, looked at
	Resent  int64 // stored again; with DryRun: would be
	Refused int64
	Behind  int64 // letters that an earlier call had looked at already, by the state file
}

// ResendDeadLetters sends dead letters of a group again, queue by queue and from the oldest on, one
// after the other, each with body, keys, tag, unique id and all properties but those that would
// have it wait or count as it did before. The letters stay in the dead-letter topic until
// they expire: nothing is lost when something goes wrong.
//
// Letters are resent at least once. When the process dies or an answer is lost, the next call with
// the same StateFile begins with the first letter that is not known to be stored, which may resend
// up to 32 letters twice; consumers tell doubles by their unique id. Letters that come while the
// call runs, also those that die again, are left for the next one.
//
// The progress is right also with an error. ErrNotFound when the group has no dead letters.
func (a *Admin) ResendDeadLetters(ctx context.Context, r Resend) (ResendProgress, error) {
	op := "resend dead letters of group " + r.Letters.Group
	x := &resending{a: a, r: &r, op: op, routes: map[string]*resendRoute{}}
	queues, err := a.letterQueues(ctx, op, &r.Letters)
	if err != nil {
		return x.done, err
	}
	if x.state, err = openResendState(op, &r); err != nil {
		return x.done, err
	}
	for i := range queues {
		if err := x.resume(ctx, &queues[i]); err != nil {
			return x.done, err
		}
	}
	for _, lq := range queues {
		if err = x.queue(ctx, lq); err != nil {
			break
		}
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return x.done, err
}

// resending is one call. It belongs to one goroutine.
type resending struct {
	a      *Admin
	r      *Resend
	op     string
	state  *resendState
	routes map[string]*resendRoute
	done   ResendProgress
}

// resume moves the beginning of a queue to where the last call came.
func (x *resending) resume(ctx context.Context, lq *letterQueue) error {
	defer func() { x.done.Total += max(lq.to-lq.from, 0) }()
	at, ok := x.state.position(lq.queue)
	if !ok || at.Next <= lq.from {
		return nil
	}
	// A topic that was deleted and made again counts from zero: then the letter before the position is
	// not the one that the state names, and what lies below it was never resent.
	if at.Next > lq.to {
		return nil
	}
	body, _, err := x.a.pull(ctx, x.op, lq.broker, lq.queue, at.Next-1, 1)
	if err != nil {
		return err
	}
	if v, err := record.Parse(body); err == nil && int64(v.QueueOffset()) == at.Next-1 {
		id := string(record.AppendOffsetID(nil, v.StoreHost(), v.PhysicalOffset()))
		if id != at.Last {
			return nil
		}
	}
	x.done.Behind += at.Next - lq.from
	lq.from = at.Next
	return nil
}

// queue resends the letters of one queue.
func (x *resending) queue(ctx context.Context, lq letterQueue) error {
	last := ""
	return x.a.scan(ctx, x.op, lq, func(l *DeadLetter) error {
		if err := x.letter(ctx, l); err != nil {
			return errors.Join(err, x.keep(lq.queue, l.Offset, last))
		}
		last = l.OffsetID
		n := x.r.Letters.Limit
		if n == 0 || x.done.Resent+x.done.Refused < int64(n) {
			return nil
		}
		if err := x.keep(lq.queue, l.Offset+1, last); err != nil {
			return err
		}
		return errEnough
	}, func(next int64) error { return x.keep(lq.queue, next, last) })
}

// keep stores how far a queue is.
func (x *resending) keep(q client.Queue, next int64, last string) error {
	if x.r.DryRun || last == "" {
		return nil
	}
	return explain(x.op, x.state.save(q, resendPosition{Next: next, Last: last}))
}

// letter resends one letter, if it is meant. A refused one gives nil when such are passed over.
func (x *resending) letter(ctx context.Context, l *DeadLetter) error {
	defer func() {
		x.done.Seen++
		if x.r.OnProgress != nil {
			x.r.OnProgress(x.done)
		}
	}()
	if !x.r.Letters.fits(l) {
		return nil
	}
	err := x.send(ctx, l)
	var be *client.BrokerError
	if err != nil {
		refused := errors.As(err, &be) || errors.Is(err, client.ErrNoRoute) || errors.Is(err, ErrInvalid)
		if !refused || !x.r.SkipRefused {
			return err
		}
		x.done.Refused++
		if x.r.OnRefused != nil {
			x.r.OnRefused(*l, err)
		}
		return nil
	}
	x.done.Resent++
	if x.r.OnLetter != nil {
		x.r.OnLetter(*l)
	}
	return nil
}

// resendRoute is where messages of one topic can be sent.
type resendRoute struct {
	queues []client.Queue
	addrs  map[string]string // of masters, by broker name
}

func (x *resending) route(ctx context.Context, topic string) (*resendRoute, error) {
	if r := x.routes[topic]; r != nil {
		return r, nil
	}
	route, err := x.a.TopicRoute(ctx, topic)
	if err != nil {
		return nil, err
	}
	r := &resendRoute{addrs: map[string]string{}}
	for _, b := range route.Brokers {
		if addr := b.Addrs[0]; addr != "" {
			r.addrs[b.Name] = addr
		}
	}
	for _, q := range route.Queues {
		if q.Perm&PermWrite == 0 || r.addrs[q.Broker] == "" {
			continue
		}
		for id := range q.WriteQueues {
			r.queues = append(r.queues, client.Queue{Topic: topic, Broker: q.Broker, ID: id})
		}
	}
	if len(r.queues) == 0 {
		return nil, &Error{
			Op: x.op, Err: fmt.Errorf("topic %s has no queue to write to: %w", topic, client.ErrNoRoute),
			Next: "start its broker, or give the topic write permission with UpdateTopic",
		}
	}
	x.routes[topic] = r
	return r, nil
}

// pick is the queue for a letter: one of the broker where the letter lies, if that has the topic;
// with an ordering key always the same one, as Java's SelectMessageQueueByHash.
func (r *resendRoute) pick(l *DeadLetter) client.Queue {
	if l.OrderingKey != "" {
		return r.queues[client.HashJava.Select(&l.Received.Message, r.queues)]
	}
	near := slices.DeleteFunc(slices.Clone(r.queues), func(q client.Queue) bool {
		return q.Broker != l.Source.Broker
	})
	if len(near) == 0 {
		near = r.queues
	}
	return near[rand.IntN(len(near))]
}

// Busy brokers are asked again: resending takes what is left of their time.
const (
	busyTries = 6
	busyWait  = 50 * time.Millisecond // doubled each time
)

// send stores a letter again.
func (x *resending) send(ctx context.Context, l *DeadLetter) error {
	topic := l.OriginTopic
	if topic == "" {
		return invalid(x.op, "letter %s does not say which topic it was sent to", l.OffsetID)
	}
	if x.r.ToRetry {
		topic = protocol.RetryPrefix + x.r.Letters.Group
	}
	r, err := x.route(ctx, topic)
	if err != nil {
		return err
	}
	if x.r.DryRun {
		return nil
	}
	to := r.pick(l)
	b := Broker{Name: to.Broker, Addr: r.addrs[to.Broker]}
	v := l.stored
	h := &protocol.SendRequest{
		Group: []byte(protocol.InnerProducerGroup), Topic: []byte(topic),
		DefaultTopic: []byte(protocol.TBW102), DefaultTopicQueues: 4, QueueID: int32(to.ID),
		SysFlag: v.SysFlag() & keptFlags, Flag: v.Flag(), BornMS: v.BornMS(),
		Properties: resendProperties(v.Properties(), l.OriginTopic, x.r.ToRetry),
		// -1: the group's own limit counts. It begins anew, or the letter would die at its first failure.
		MaxReconsumeTimes: -1, BrokerName: []byte(to.Broker),
	}
	wait := busyWait
	for try := 1; ; try++ {
		_, err := x.a.ask(ctx, x.op, b, remoting.SendMessageV2, h, v.Body())
		code := remoting.Success
		if be := (*client.BrokerError)(nil); errors.As(err, &be) {
			code = remoting.ResponseCode(be.Code)
		}
		switch {
		case code == remoting.FlushDiskTimeout, code == remoting.FlushSlaveTimeout,
			code == remoting.SlaveNotAvailable: // these have stored it
			err = nil
		case (code == remoting.SystemBusy || code == remoting.FlowControl) && try < busyTries:
			if err := pause(ctx, wait); err != nil {
				return explain(x.op, err)
			}
			wait *= 2
			continue
		}
		if err != nil {
			delete(x.routes, topic) // it may have moved: the next letter, or call, asks again
			return err
		}
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keptFlags are the bits of a system flag that say how the body is to be read: compressed, by which
// codec, and whether it holds inner messages (RocketMQ's MessageSysFlag). The bits of addresses are
// the broker's to set, those of transactions would make it a half message.
const keptFlags = 0x1 | 0x700 | 0xC0

// spent are properties of an earlier life of the message (RocketMQ's MessageConst): they would have
// it wait again, count as consumed, be a half message, withdraw a timer, or are told anew by the
// broker. WAIT is false in a letter, and here the answer is to wait for the disk.
var spent = map[string]bool{
	"DELAY": true, "TIMER_DELAY_SEC": true, "TIMER_DELAY_MS": true, "TIMER_DELIVER_MS": true,
	"TIMER_OUT_MS": true, "TIMER_ENQUEUE_MS": true, "TIMER_DEQUEUE_MS": true,
	"TIMER_ROLL_TIMES": true, "TIMER_DEL_UNIQKEY": true, "REAL_TOPIC": true, "REAL_QID": true,
	propRetryTopic: true, "RECONSUME_TIME": true, "MAX_RECONSUME_TIMES": true,
	propDLQTopic: true, propDLQID: true,
	"POP_CK": true, "POP_CK_OFFSET": true, "1ST_POP_TIME": true,
	"TRAN_MSG": true, "PGROUP": true, "TRAN_PREPARED_QUEUE_OFFSET": true,
	"__transactionId__": true, "TRANSACTION_CHECK_TIMES": true,
	"CHECK_IMMUNITY_TIME_IN_SECONDS": true,
	"MIN_OFFSET":                     true, "MAX_OFFSET": true, "CONSUME_START_TIME": true,
	"WAIT":    true,
	"CLUSTER": true, "MSG_REGION": true, "TRACE_ON": true, "__CRC32#": true,
}

// resendProperties are those of a letter without what is spent. ORIGIN_MESSAGE_ID stays: a letter
// that dies once more still names its first message. In the retry topic consumers need to be told
// the topic.
func resendProperties(of []byte, topic string, toRetry bool) []byte {
	var out []byte
	record.EachProperty(of, func(name, value []byte) bool {
		if !spent[string(name)] {
			out = record.AppendProperty(out, string(name), value)
		}
		return true
	})
	if toRetry {
		out = record.AppendProperty(out, propRetryTopic, topic)
	}
	return out
}
