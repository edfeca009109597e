// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// TxState is what has become of a transaction.
type TxState uint8

// The states.
const (
	TxUnknown    TxState = iota // not decided yet: the broker asks again
	TxCommitted                 // consumers get the message
	TxRolledBack                // nobody gets the message
)

// String names the state.
func (s TxState) String() string {
	switch s {
	case TxCommitted:
		return "committed"
	case TxRolledBack:
		return "rolled back"
	default:
		return "unknown"
	}
}

// wire is the state as EndTransaction carries it.
func (s TxState) wire() int32 {
	switch s {
	case TxCommitted:
		return protocol.TransactionCommit
	case TxRolledBack:
		return protocol.TransactionRollback
	default:
		return protocol.TransactionUnknown
	}
}

// Checker answers a broker's question about a half message whose end it has not heard of, begun by
// any process of the group. ctx ends when the producer's Close gives up waiting. A panic counts as
// TxUnknown. Several may run at once.
type Checker func(ctx context.Context, m *Received) TxState

// Bounds of the broker's questions.
const (
	checksAtOnce = 8
	checksMost   = 2000 // waiting; more are dropped, since the broker asks again
)

// Properties of half messages.
const (
	propTransaction   = "TRAN_MSG"
	propProducerGroup = "PGROUP"
)

// TransactionProducer sends half messages, which consumers see once they are committed. It is safe
// for concurrent use. Goroutines: up to eight that run the Checker, while there are questions.
//
// Brokers ask a process that they know: one that has sent to a topic of theirs, or any process
// while brokers create topics by themselves.
type TransactionProducer struct {
	producer *Producer
	check    Checker

	wg sync.WaitGroup // checks

	// Guards what follows.
	mu      sync.Mutex
	closed  bool
	running int
	queue   []txCheck

	closing atomic.Bool
	done    chan struct{}
	failure error
}

// txCheck is a broker's question.
type txCheck struct {
	addr   string
	header protocol.CheckTransactionStateRequest
	stored []byte // the half message
}

// Tx is a transaction whose half message is stored. One of Commit and Rollback ends it; without one
// the broker asks the Checker.
type Tx struct {
	SendResult

	producer *TransactionProducer
	topic    string
	tag      string
	keys     []string
	addr     string
	at       int64 // physical offset of the half message

	mu    sync.Mutex
	state TxState
}

// NewTransactionProducer makes a producer of a group whose members answer for one another's
// transactions: check must be able to tell from the message alone. It makes no connection by
// itself, and asks the name servers which brokers may have questions.
func (c *Client) NewTransactionProducer(
	group string, check Checker, opts ...ProducerOption,
) (*TransactionProducer, error) {
	p, err := c.newProducer(group, opts)
	if err == nil && check == nil {
		p.cancel(ErrClosed)
		p.wg.Wait()
		err = errors.New("client: options of producer: checker is nil: brokers need an answer for " +
			"transactions whose end they have not heard of")
	}
	if err != nil {
		return nil, err
	}
	t := &TransactionProducer{producer: p, check: check, done: make(chan struct{})}
	if err := c.join(t); err != nil {
		p.cancel(ErrClosed)
		p.wg.Wait()
		return nil, err
	}
	c.routes.stale(protocol.TBW102) // heartbeats go to the brokers that are known
	c.wakeHeartbeats()
	return t, nil
}

func (t *TransactionProducer) beatInto(h *protocol.HeartbeatData) { t.producer.beatInto(h) }

// Begin stores the half message. Commit or Rollback follows. A half message of which flush or
// replication is not confirmed is rolled back, and Begin fails. Transactional messages cannot be
// delayed.
func (t *TransactionProducer) Begin(ctx context.Context, m *Message) (*Tx, error) {
	p := t.producer
	if m != nil && m.timed() {
		return nil, fmt.Errorf("client: a transactional message to %s cannot be delayed: %w",
			m.Topic, ErrInvalidMessage)
	}
	m, w := p.watch(ctx, m)
	r, err := p.sendAlone(ctx, m, &extras{
		sysFlag: protocol.SysFlagPrepared,
		fields: []field{
			{propTransaction, "true"}, {propProducerGroup, string(p.wireGroup)},
		},
	}, w)
	if w != nil {
		w.kind = kindHalf
		p.unwatch(w, r, err)
	}
	if err != nil {
		return nil, err
	}
	tx, err := t.begun(m, r)
	if err != nil {
		return nil, err
	}
	if r.Status != Stored {
		err = tx.Rollback(context.WithoutCancel(ctx))
		return nil, &SendError{
			Topic: m.Topic, MaybeStored: err != nil, stop: errors.Join(fmt.Errorf(
				"half message %s was stored with %s and is rolled back", r.ID, r.Status), err),
		}
	}
	return tx, nil
}

// begun makes the transaction of a stored half message.
func (t *TransactionProducer) begun(m *Message, r SendResult) (*Tx, error) {
	_, at, err := record.ParseOffsetID(r.OffsetID)
	if err != nil {
		return nil, fmt.Errorf("client: half message %s: %w", r.ID, err)
	}
	addr := ""
	if rt := t.producer.client.routes.cached(m.Topic); rt != nil {
		addr = rt.master(r.Queue.Broker)
	}
	return &Tx{
		SendResult: r, producer: t, topic: m.Topic, tag: m.Tag, keys: m.Keys, addr: addr, at: int64(at),
	}, nil
}

// Commit has consumers get the message. When it fails, the broker asks the Checker later. ctx
// bounds it; without a deadline the call timeout does. Committing twice does no harm; after
// Rollback it fails with ErrUnsupported.
func (tx *Tx) Commit(ctx context.Context) error { return tx.end(ctx, TxCommitted) }

// Rollback has the message dropped. It is otherwise like Commit.
func (tx *Tx) Rollback(ctx context.Context) error { return tx.end(ctx, TxRolledBack) }

func (tx *Tx) end(ctx context.Context, state TxState) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == state {
		return nil
	}
	if tx.state != TxUnknown {
		return fmt.Errorf("client: transaction %s is %s already: %w", tx.ID, tx.state, ErrUnsupported)
	}
	c := tx.producer.producer.client
	addr := tx.addr
	if rt := c.routes.cached(tx.topic); rt != nil && rt.master(tx.Queue.Broker) != "" {
		addr = rt.master(tx.Queue.Broker) // the broker may have moved
	}
	_, err := c.call(ctx, "end transaction", tx.Queue.Broker, addr, &invoke.Request{
		Code: remoting.EndTransaction,
		Header: &protocol.EndTransactionRequest{
			Topic: c.onWire(tx.topic), ProducerGroup: string(tx.producer.producer.wireGroup),
			TranStateTableOffset: tx.Offset, CommitLogOffset: tx.at, CommitOrRollback: state.wire(),
			MsgID: tx.ID, TransactionID: tx.ID, BrokerName: tx.Queue.Broker, HasBrokerName: true,
		},
	})
	if err != nil {
		return fmt.Errorf("client: transaction %s is not known to be %s, the broker will ask the "+
			"checker: %w", tx.ID, state, err)
	}
	tx.state = state
	m := &Message{Topic: tx.topic, Tag: tx.tag, Keys: tx.keys}
	tx.producer.producer.tracer.ended(m, tx.ID, addr, state, false)
	return nil
}

// Transact does all: it stores the half message, calls fn, and commits when fn returns nil, else
// rolls back and returns fn's error. A panic of fn is logged and is an error. When the end does not
// reach the broker, the result comes with the error: the broker will ask the Checker.
func (t *TransactionProducer) Transact(
	ctx context.Context, m *Message, fn func(ctx context.Context, tx *Tx) error,
) (SendResult, error) {
	tx, err := t.Begin(ctx, m)
	if err != nil {
		return SendResult{}, err
	}
	err = t.run(ctx, tx, fn)
	end := context.WithoutCancel(ctx) // the half message must not wait because ctx ended in fn
	if err != nil {
		return tx.SendResult, errors.Join(err, tx.Rollback(end))
	}
	return tx.SendResult, tx.Commit(end)
}

func (t *TransactionProducer) run(
	ctx context.Context, tx *Tx, fn func(ctx context.Context, tx *Tx) error,
) (err error) {
	defer func() {
		if v := recover(); v != nil {
			t.producer.client.cfg.logger.Error("panic in a transaction", "topic", tx.topic, "id", tx.ID,
				"err", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("client: panic in transaction %s: %v", tx.ID, v)
		}
	}()
	return fn(ctx, tx)
}

// brokerAsks takes questions about half messages of the group.
func (t *TransactionProducer) brokerAsks(
	addr string, cmd *remoting.Command,
) (*invoke.Response, bool) {
	if cmd.Request() != remoting.CheckTransactionState {
		return nil, false
	}
	v, err := record.Parse(cmd.Body)
	if err != nil {
		return nil, false
	}
	group, _ := record.Property(v.Properties(), propProducerGroup)
	if string(group) != string(t.producer.wireGroup) {
		return nil, false
	}
	var h protocol.CheckTransactionStateRequest
	if err := h.Decode(cmd); err != nil {
		t.producer.client.cfg.logger.Debug("check of a transaction", "addr", addr, "err", err)
		return nil, true
	}
	t.enqueue(txCheck{addr: addr, header: h, stored: append([]byte(nil), cmd.Body...)})
	return nil, true // the answer is a request of its own
}

func (t *TransactionProducer) enqueue(q txCheck) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.queue) >= checksMost {
		return
	}
	t.queue = append(t.queue, q)
	if t.running < checksAtOnce {
		t.running++
		t.wg.Go(t.runChecks)
	}
}

func (t *TransactionProducer) runChecks() {
	for {
		t.mu.Lock()
		if len(t.queue) == 0 || t.closed {
			t.running--
			t.mu.Unlock()
			return
		}
		q := t.queue[0]
		t.queue[0] = txCheck{}
		t.queue = t.queue[1:]
		t.mu.Unlock()
		t.answer(q)
	}
}

// answer asks the Checker and tells the broker.
func (t *TransactionProducer) answer(q txCheck) {
	p := t.producer
	c := p.client
	m, err := ParseStored(q.header.BrokerName, q.stored)
	var state TxState // unknown, so far
	var remark string
	if err != nil {
		remark = err.Error()
	} else {
		m.Topic = c.offWire(m.Topic)
		state, remark = t.ask(m)
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.cfg.callTimeout)
	defer cancel()
	conn, cerr := c.pool.Conn(ctx, q.addr)
	if cerr == nil {
		cerr = conn.OnewayWritten(ctx, &invoke.Request{
			Code: remoting.EndTransaction, Remark: remark,
			Header: &protocol.EndTransactionRequest{
				Topic: q.header.Topic, ProducerGroup: string(p.wireGroup),
				TranStateTableOffset: q.header.TranStateTableOffset,
				CommitLogOffset:      q.header.CommitLogOffset, CommitOrRollback: state.wire(),
				FromCheck: true, MsgID: q.header.MsgID, TransactionID: q.header.TransactionID,
				BrokerName: q.header.BrokerName, HasBrokerName: true,
			},
		})
	}
	if m != nil {
		p.tracer.ended(&m.Message, q.header.MsgID, q.addr, state, true)
	}
	if err = errors.Join(err, cerr); err != nil {
		c.cfg.logger.Warn("answering the check of a transaction", "group", p.group,
			"id", q.header.MsgID, "err", err)
	}
}

// ask calls the Checker.
func (t *TransactionProducer) ask(m *Received) (state TxState, remark string) {
	defer func() {
		if v := recover(); v != nil {
			t.producer.client.cfg.logger.Error("panic in a checker", "topic", m.Topic, "id", m.ID,
				"err", v, "stack", string(debug.Stack()))
			state, remark = TxUnknown, fmt.Sprintf("checker panicked: %v", v)
		}
	}()
	return t.check(t.producer.ctx, m), ""
}

// Close refuses new messages and new questions, waits for checks that run, and ends as
// Producer.Close does. It may be called again and concurrently, as that.
func (t *TransactionProducer) Close(ctx context.Context) error {
	if !t.closing.CompareAndSwap(false, true) {
		if err := awaitClose(ctx, "producer "+t.producer.group, t.done); err != nil {
			return err
		}
		return t.failure
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	checked := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(checked)
	}()
	select {
	case <-checked:
	case <-ctx.Done():
		t.failure = fmt.Errorf("client: checks of producer %s: %w", t.producer.group,
			context.Cause(ctx))
		t.producer.cancel(ErrClosed) // the checkers' context ends
	}
	t.producer.client.leave(t)
	t.failure = errors.Join(t.failure, t.producer.Close(ctx))
	close(t.done)
	return t.failure
}
