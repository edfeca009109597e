// SPDX-License-Identifier: Apache-2.0

// LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42), after RocketMQ's AdminBrokerProcessor. Left out:
// lockInStrictMode, which asks the replicas as well. Added: locks end with the connection of their
// holder, and when it leaves its group; they outlive a restart of the broker.

package processor

import (
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// QueueLocks answers the lock requests of ordered consumers.
type QueueLocks struct{ *Leaves }

// Register adds the request codes.
func (p *QueueLocks) Register(t Cold) {
	t[remoting.LockBatchMQ] = onBody(func(c *Caller, r *protocol.LockBatchRequest) Reply {
		granted, err := p.Lock(c, r)
		return jsonReply(granted, err)
	})
	t[remoting.UnlockBatchMQ] = onBody(func(_ *Caller, r *protocol.UnlockBatchRequest) Reply {
		return done(p.Unlock(r))
	})
}

// Lock locks queues for a client and returns those it holds now.
func (p *QueueLocks) Lock(c *Caller, r *protocol.LockBatchRequest) (protocol.LockBatchResponse, error) {
	if err := needed("consumerGroup", r.ConsumerGroup, "clientId", r.ClientID); err != nil {
		return protocol.LockBatchResponse{}, err
	}
	granted := p.Locks.LockBatch(r.ConsumerGroup, r.ClientID, c.Channel, r.MQSet)
	return protocol.LockBatchResponse{LockOKMQSet: granted}, nil
}

// Unlock gives queues up.
func (p *QueueLocks) Unlock(r *protocol.UnlockBatchRequest) error {
	if err := needed("consumerGroup", r.ConsumerGroup, "clientId", r.ClientID); err != nil {
		return err
	}
	p.Locks.UnlockBatch(r.ConsumerGroup, r.ClientID, r.MQSet)
	return nil
}
