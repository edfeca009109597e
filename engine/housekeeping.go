// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/lag"
	"github.com/skylarkmq/skylark/net/protocol"
)

// watchConsumers looks at the positions of the groups that are online, and names those that stand
// still while messages come in. It runs on the timer of the membership, four times within the time
// that makes a standstill.
func (b *Broker) watchConsumers(now time.Time) {
	last := b.lookedMS.Load()
	if now.UnixMilli()-last < b.cfg.StuckMS/4 || !b.lookedMS.CompareAndSwap(last, now.UnixMilli()) {
		return
	}
	var samples []lag.Sample
	b.members.EachView(func(name string, v *group.View) {
		if v.Model == protocol.Broadcasting {
			return // its clients keep their positions themselves
		}
		for topic := range v.Subs {
			for queue, committed := range b.offsets.Queues(name, topic) {
				_, end, ok := b.store.QueueBounds([]byte(topic), queue)
				if ok {
					samples = append(samples, lag.Sample{
						Group: name, Topic: topic, Queue: queue, Committed: committed, End: int64(end),
					})
				}
			}
		}
	})
	for _, f := range b.lag.Look(now, samples) {
		b.log.Warn("consumers are stuck: their position does not move while messages come in",
			"group", f.Group, "topic", f.Topic, "queues", f.Queues, "backlog", f.Backlog,
			"for", f.For.Round(time.Second).String(), "clients", b.clientsOf(f.Group))
	}
}

// clientsOf names the members of a group, a few of them.
func (b *Broker) clientsOf(name string) string {
	const most = 8
	var list []string
	for _, c := range b.members.Consumers(name) {
		if len(list) == most {
			list = append(list, "...")
			break
		}
		list = append(list, c.ID+" "+c.Channel.RemoteAddr())
	}
	return strings.Join(list, ", ")
}

// showHousekeeping adds to GET_BROKER_RUNTIME_INFO what an operator should look at.
func (b *Broker) showHousekeeping(table map[string]string) {
	var stuck []string
	for _, f := range b.lag.Stuck() {
		stuck = append(stuck, f.String())
	}
	if len(stuck) > 0 {
		table["stuckConsumers"] = strings.Join(stuck, "; ")
	}
	if n := b.transactions.Waiting(); n > 0 {
		table["transactionsWaiting"] = strconv.Itoa(n)
	}
	if text := b.unseen.String(); text != "" {
		table["unconsumedDeleted"] = text
	}
	if cold := b.store.Info().Cold; cold.Reads > 0 || cold.Units > 0 {
		table["coldReadTimes"] = strconv.FormatInt(cold.Reads, 10)
		table["coldReadBytes"] = strconv.FormatInt(cold.Bytes, 10)
		table["coldQueueReadTimes"] = strconv.FormatInt(cold.Units, 10)
	}
	mixed := b.members.Mixed()
	if len(mixed) > 0 {
		table["mixedSubscriptions"] = strings.Join(mixed, ", ")
	}
}
