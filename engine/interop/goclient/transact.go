// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// transactional is a transaction producer. The property "local" says how a local transaction ends,
// "check" how a check of it does; the default is commit.
type transactional struct {
	rocketmq.TransactionProducer

	mu     sync.Mutex
	checks []received
}

// ExecuteLocalTransaction implements primitive.TransactionListener.
func (t *transactional) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return transactionState(m.GetProperty("local"))
}

// CheckLocalTransaction implements primitive.TransactionListener.
func (t *transactional) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks = append(t.checks, receive(m))
	return transactionState(m.GetProperty("check"))
}

func transactionState(word string) primitive.LocalTransactionState {
	switch word {
	case "rollback":
		return primitive.RollbackMessageState
	case "unknown":
		return primitive.UnkonwnState
	default:
		return primitive.CommitMessageState
	}
}

func registerTransactions(ops map[string]operation) {
	var known handles[*transactional]
	ops["transactional.start"] = func(a arguments) (any, error) {
		t := &transactional{}
		p, err := rocketmq.NewTransactionProducer(t,
			producer.WithNameServer([]string{a.NameServer}), producer.WithGroupName(a.Group),
			producer.WithInstanceName(a.Instance), producer.WithSendMsgTimeout(sendTimeout))
		if err != nil {
			return nil, err
		}
		t.TransactionProducer = p
		return known.add(t), p.Start()
	}
	ops["transactional.send"] = func(a arguments) (any, error) {
		t, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		r, err := t.SendMessageInTransaction(context.Background(), a.message())
		if err != nil {
			return nil, err
		}
		return outcome(r.SendResult, nil)
	}
	ops["transactional.checks"] = func(a arguments) (any, error) {
		t, err := known.get(a.Handle)
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		return append([]received{}, t.checks...), nil
	}
	ops["transactional.stop"] = func(a arguments) (any, error) {
		t, err := known.remove(a.Handle)
		if err != nil {
			return nil, err
		}
		return nil, t.Shutdown()
	}
}
