// SPDX-License-Identifier: Apache-2.0

// END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39, sent to producers) and
// RESUME_CHECK_HALF_MESSAGE (323), after RocketMQ's EndTransactionProcessor,
// AbstractTransactionalMessageCheckListener and AdminBrokerProcessor. What becomes of half messages
// is decided in engine/transaction.

package processor

import (
	"errors"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Transactions answers what producers say of their transactions.
type Transactions struct{ *Leaves }

// Register adds the request codes.
func (p *Transactions) Register(t Cold) {
	t[remoting.EndTransaction] = onHeader(
		func(_ *Caller, r *protocol.EndTransactionRequest) Reply { return p.End(r) })
	t[remoting.ResumeCheckHalfMessage] = onHeader(
		func(_ *Caller, r *protocol.ResumeCheckHalfRequest) Reply { return done(p.Resume(r)) })
}

// End commits or rolls back. A producer that does not know yet is not answered at all: it sends one
// way, and the broker asks it again.
func (p *Transactions) End(r *protocol.EndTransactionRequest) Reply {
	commit := r.CommitOrRollback == protocol.TransactionCommit
	if !commit && r.CommitOrRollback != protocol.TransactionRollback {
		return Reply{Silent: true}
	}
	err := p.Transactions.End(&transaction.End{
		Commit: commit, FromCheck: r.FromCheck, Group: r.ProducerGroup,
		Offset: r.TranStateTableOffset, At: record.PhysicalOffset(r.CommitLogOffset),
	})
	var illegal *storage.IllegalError
	switch {
	case errors.As(err, &illegal):
		return Reply{Code: remoting.MessageIllegal, Remark: "The message is illegal, maybe msg body or " +
			"properties length not matched. msg body length limit 128k, msg properties length limit 32k. " +
			illegal.Error()}
	case errors.Is(err, storage.ErrDiskFull), errors.Is(err, storage.ErrReadOnly),
		errors.Is(err, storage.ErrClosed):
		return Reply{
			Code: remoting.ServiceNotAvailable, Remark: "Service not available now. " + err.Error(),
		}
	case err != nil:
		return Fail(err)
	case commit:
		return Reply{}
	}
	return Reply{Remark: notSet}
}

// endLight answers on an event loop those that do not know yet how their transaction ends.
func endLight(cmd *remoting.Command) (Reply, bool) {
	var r protocol.EndTransactionRequest
	if err := r.Decode(cmd); err != nil {
		return Fail(err), true
	}
	undecided := r.CommitOrRollback != protocol.TransactionCommit &&
		r.CommitOrRollback != protocol.TransactionRollback
	return Reply{Silent: true}, undecided
}

// Resume lets a half message that was given up be checked from the beginning.
func (p *Transactions) Resume(r *protocol.ResumeCheckHalfRequest) error {
	_, at, err := record.ParseOffsetID(r.MsgID)
	if err != nil {
		return remoting.Errorf(remoting.SystemError, "the field msgId is no offset id: %v", err)
	}
	if err := p.Transactions.Resume(at); err != nil {
		return remoting.Errorf(remoting.SystemError, "Put message back to %s failed. %v",
			protocol.HalfTopic, err)
	}
	return nil
}

// producerTries is how many producers of a group are looked at for one that is still connected.
const producerTries = 3

// AskProducer returns what transaction.Config.Producer wants: it chooses a connected producer of a
// group, each in turn, and sends it a one-way CHECK_TRANSACTION_STATE.
func AskProducer(clients ClientCaller, members *group.Members, broker string) func(name string) (
	p transaction.Producer, ok bool,
) {
	return func(name string) (transaction.Producer, bool) {
		for range producerTries {
			ch, ok := members.PickProducer(name)
			if !ok {
				return nil, false
			}
			if c, known := ch.(interface{ Closed() bool }); known && c.Closed() {
				continue
			}
			return asked{clients, ch, broker}, true
		}
		return nil, false
	}
}

// asked is a producer and the way to it.
type asked struct {
	clients ClientCaller
	ch      group.Channel
	broker  string
}

// Ask implements transaction.Producer.
func (a asked) Ask(checks []transaction.Check) {
	a.clients.Oneways(a.ch, remoting.CheckTransactionState, len(checks),
		func(i int) (remoting.Header, []byte) {
			return checkHeader(&checks[i], a.broker), checks[i].Record
		})
}

func checkHeader(c *transaction.Check, broker string) *protocol.CheckTransactionStateRequest {
	return &protocol.CheckTransactionStateRequest{
		Topic: protocol.HalfTopic, TranStateTableOffset: c.Offset, CommitLogOffset: int64(c.At),
		MsgID: c.UniqueKey, TransactionID: c.UniqueKey,
		OffsetMsgID: string(record.AppendOffsetID(nil, c.StoreHost, c.At)), BrokerName: broker,
	}
}
