// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// Tags of what is in the revive topic.
const (
	tagCheckpoint = "ck"
	tagAck        = "ack"
	tagBatchAck   = "bAck"
)

// checkpointLeadMS is how long before its messages are due a checkpoint comes into the revive topic
// (RocketMQ PopAckConstants.ackTimeInterval).
const checkpointLeadMS = 1000

// Checkpoint is what one pop took out of one queue (RocketMQ PopCheckPoint). The members are in the
// order in which RocketMQ writes them.
type Checkpoint struct {
	BitMap       int32   `json:"bm"` // always 0 in the log
	Broker       string  `json:"bn,omitempty"`
	Group        string  `json:"c"`
	Diffs        []int32 `json:"d,omitempty"` // of each message to Start; none: 0, 1, 2, ...
	InvisibleMS  int64   `json:"it"`
	Num          int32   `json:"n"`
	PopMS        int64   `json:"pt"`
	Queue        int32   `json:"q"`
	ReviveMS     int64   `json:"reviveTime"` // derived; RocketMQ writes it and ignores it
	ReviveOffset int64   `json:"ro"`
	RePut        string  `json:"rp,omitempty"` // how often its messages could not be copied
	Start        int64   `json:"so"`
	Suspend      bool    `json:"sp"`
	Topic        string  `json:"t"`
}

// ack is an AckMsg, or a BatchAckMsg when Offsets is set.
type ack struct {
	Offset  int64   `json:"ao"`
	Offsets []int64 `json:"aol,omitempty"`
	Broker  string  `json:"bn,omitempty"`
	Group   string  `json:"c"`
	PopMS   int64   `json:"pt"`
	Queue   int32   `json:"q"`
	Start   int64   `json:"so"`
	Topic   string  `json:"t"`
}

// numMax is how many messages fit into a checkpoint's bit map.
const numMax = 32

// check refuses what no broker writes, so that the rest can rely on it.
func (c *Checkpoint) check() error {
	if c.Num < 0 || c.Num > numMax || len(c.Diffs) > 0 && len(c.Diffs) != int(c.Num) {
		return fmt.Errorf("pop: checkpoint of %d messages with %d offsets", c.Num, len(c.Diffs))
	}
	if c.Topic == "" || c.Group == "" || c.InvisibleMS < 0 || c.PopMS < 0 {
		return fmt.Errorf("pop: checkpoint of topic %.40q and group %.40q at %d for %d ms",
			c.Topic, c.Group, c.PopMS, c.InvisibleMS)
	}
	return nil
}

func (c *Checkpoint) dueMS() int64 { return c.PopMS + c.InvisibleMS }

// offset returns the queue offset of message i.
func (c *Checkpoint) offset(i int) int64 {
	if len(c.Diffs) == 0 {
		return c.Start + int64(i)
	}
	return c.Start + int64(c.Diffs[i])
}

// index finds the message at a queue offset; -1: it is none of these.
func (c *Checkpoint) index(offset int64) int {
	for i := range int(c.Num) {
		if c.offset(i) == offset {
			return i
		}
	}
	return -1
}

// uniqueKey is the UNIQ_KEY of a record in the revive topic.
func uniqueKey(topic string, queue int32, offset int64, group string, popMS int64, broker, tag string) string {
	return fmt.Sprintf("%s@%d@%d@%s@%d@%s@%s", topic, queue, offset, group, popMS, broker, tag)
}

// author writes records of the revive topic.
type author struct {
	topic string // the revive topic
	host  netip.AddrPort
	rules *delay.Rules
}

// checkpoint makes the entry of a checkpoint. nowMS decides whether it waits in the timer.
func (a *author) checkpoint(c *Checkpoint, reviveQueue int32, nowMS int64) (storage.Entry, error) {
	written := *c
	written.BitMap, written.ReviveOffset, written.ReviveMS = 0, 0, c.dueMS()
	key := uniqueKey(c.Topic, c.Queue, c.Start, c.Group, c.PopMS, c.Broker, tagCheckpoint)
	return a.entry(protocol.Marshal(written), tagCheckpoint, key, reviveQueue,
		c.dueMS()-checkpointLeadMS, nowMS)
}

// ack makes the entry that acknowledges messages of a checkpoint, which is due at dueMS.
func (a *author) ack(k *ckKey, broker string, offsets []int64, reviveQueue int32, dueMS, nowMS int64) (
	storage.Entry, error,
) {
	b := ack{
		Broker: broker, Group: k.group, PopMS: k.popMS, Queue: k.queue, Start: k.start, Topic: k.topic,
	}
	tag := tagAck
	if len(offsets) == 1 {
		b.Offset = offsets[0]
	} else {
		b.Offset, b.Offsets, tag = -1, offsets, tagBatchAck
	}
	key := uniqueKey(b.Topic, b.Queue, b.Offset, b.Group, b.PopMS, b.Broker, tagAck)
	return a.entry(protocol.Marshal(b), tag, key, reviveQueue, dueMS, nowMS)
}

// entry lets a record wait for its time, or puts it into the revive topic when that is over.
func (a *author) entry(
	body []byte, tag, key string, queue int32, dueMS, nowMS int64,
) (storage.Entry, error) {
	var props []byte
	props = record.AppendProperty(props, "TAGS", tag)
	props = record.AppendProperty(props, delay.PropTimerDeliver, strconv.FormatInt(dueMS, 10))
	props = record.AppendProperty(props, "UNIQ_KEY", key)
	e := storage.Entry{Draft: record.Draft{
		Topic: []byte(a.topic), QueueID: queue, BornMS: nowMS, BornHost: a.host, StoreHost: a.host,
		Body: body, Properties: props, TagsCode: record.TagsCode([]byte(tag)),
	}}
	if dueMS <= nowMS {
		return e, nil
	}
	_, _, err := a.rules.Park(&e, nil, nowMS)
	return e, err
}
