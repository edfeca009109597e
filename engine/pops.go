// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"

	"github.com/skylarkmq/skylark/engine/pop"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
)

// pops is what pop consumption consists of. nil before the store is open.
type pops struct {
	orders    *pop.Orders
	service   *pop.Service
	processor *processor.Pops
	running   bool
}

// wirePops makes the service and the processor of pop consumption.
func (b *Broker) wirePops() error {
	cfg := &b.cfg
	orders, err := pop.OpenOrders(b.configDir(), cfg.AllowEmpty, b.notice)
	if err != nil {
		return err
	}
	p := &pops{orders: orders}
	p.processor = &processor.Pops{
		Waiters: pop.NewWaiters(time.Now), Notified: pop.NewWaiters(time.Now), Orders: orders,
		Store: b.store, Topics: b.topics, Groups: b.groups, Members: b.members, Offsets: b.offsets,
		Filters: b.filters, Counters: b.count, Broker: cfg.BrokerName,
		Address: b.advertised.Host.Addr().String(), TimerOff: b.delayed.timers == nil,
		ReviveQueues: cfg.ReviveQueues, RetryPercent: cfg.PopRetryPercent, RetryV2: cfg.PopRetryV2,
		RetryV1Too: cfg.PopRetryV1Too, ActualRetry: cfg.PopActualRetry, Readable: b.readable,
		Now: time.Now, Hand: b.workers.hand,
	}
	serviceConfig := pop.Config{
		Store: b.store, Topics: b.topics, Groups: b.groups, Offsets: b.offsets, Orders: orders,
		Wake: p.processor.Wake, Rules: &b.delayed.rules,
		ReviveTopic:  protocol.ReviveTopicPrefix + cfg.ClusterName,
		ReviveQueues: cfg.ReviveQueues, Broker: cfg.BrokerName, StoreHost: b.advertised.Host,
		RetryV2: cfg.PopRetryV2, FromMemory: cfg.PopInitFromMemory,
		SyncFlush: cfg.FlushDiskType == "SYNC_FLUSH", Now: time.Now, Notice: b.notice,
	}
	if b.delayed.timers != nil {
		serviceConfig.Timer = b.delayed.timers
	}
	p.service = pop.New(serviceConfig)
	p.processor.Service = p.service
	p.processor.Register(b.cold)
	b.pops = p
	return nil
}

// start begins to take back what was popped and not acknowledged, for which timers must be on.
func (p *pops) start(timers bool) {
	if timers {
		p.running = true
		p.service.Start()
	}
}

// arrived tells those that wait for it what came into a queue.
func (p *pops) arrived(d *storage.Dispatched) {
	if p == nil {
		return
	}
	if d.Topic == p.service.ReviveTopic() {
		p.service.Arrived()
		return
	}
	p.processor.Arrived(d.Topic, d.Queue)
}

// wakeAll answers whoever waits; nobody waits afterwards.
func (p *pops) wakeAll() {
	if p != nil {
		p.processor.Waiters.Close()
		p.processor.Notified.Close()
	}
}

// close commits how far groups are and writes the orders. The store is still open.
func (p *pops) close() error {
	if p == nil {
		return nil
	}
	var err error
	if p.running {
		err = p.service.Close()
	}
	return errors.Join(err, p.orders.Close())
}

// removeTopic forgets what is out of a topic.
func (p *pops) removeTopic(name string) { p.service.RemoveTopic(name) }

// PopsInFlight is the number of pops whose messages are not all acknowledged.
func (b *Broker) PopsInFlight() int { return b.pops.service.InFlight() }

// PopsWaiting is the number of pops that wait for messages.
func (b *Broker) PopsWaiting() int { return b.pops.processor.Waiters.Len() }
