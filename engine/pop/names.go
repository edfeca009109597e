// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
)

const (
	// ReviveGroup reads the revive topic. Its committed offsets name the last message of a queue
	// that is done with, not the next.
	ReviveGroup = "CID_RMQ_SYS_REVIVE_GROUP"
	// OrderQueue stands for the revive queue in the receipts of ordered pops.
	OrderQueue = 999
)

// Kinds of a topic in receipts and offset infos.
const (
	kindNormal  = "0"
	kindRetryV1 = "1"
	kindRetryV2 = "2"
)

// RetryTopic names the topic for messages that a group has popped and not acknowledged (RocketMQ
// KeyBuilder.buildPopRetryTopic).
func RetryTopic(topic, group string, v2 bool) string {
	if v2 {
		return protocol.RetryPrefix + group + "+" + topic
	}
	return protocol.RetryPrefix + group + "_" + topic
}

// NormalTopic names the topic that a group's messages came from first: topic itself, unless it is
// the group's retry topic of pop.
func NormalTopic(topic, group string) string {
	for _, v2 := range []bool{true, false} {
		if rest, ok := strings.CutPrefix(topic, RetryTopic("", group, v2)); ok && rest != "" {
			return rest
		}
	}
	return topic
}

// KindOf tells the kind of the topic that a message was read from.
func KindOf(topic string) string {
	switch {
	case !protocol.IsRetryTopic(topic):
		return kindNormal
	case strings.Contains(topic, "+"):
		return kindRetryV2
	default:
		return kindRetryV1
	}
}

// TopicOfKind is the topic that a kind stands for.
func TopicOfKind(kind, topic, group string) (string, error) {
	switch kind {
	case kindNormal:
		return topic, nil
	case kindRetryV1:
		return RetryTopic(topic, group, false), nil
	case kindRetryV2:
		return RetryTopic(topic, group, true), nil
	}
	return "", fmt.Errorf("pop: kind of topic %.20q, not 0, 1 or 2", kind)
}

// Receipt is what a consumer gives back to acknowledge a message (RocketMQ ExtraInfoUtil): the
// property POP_CK, and extraInfo of the requests.
type Receipt struct {
	StartOffset        int64 // of the checkpoint
	PopMS, InvisibleMS int64
	ReviveQueue        int32
	Kind               string
	Broker             string
	Queue              int32
	Offset             int64 // of the message
}

// Ordered says that the message came from an ordered pop.
func (r *Receipt) Ordered() bool { return r.ReviveQueue == OrderQueue }

// String writes the receipt.
func (r *Receipt) String() string {
	return fmt.Sprintf("%d %d %d %d %s %s %d %d", r.StartOffset, r.PopMS, r.InvisibleMS, r.ReviveQueue,
		r.Kind, r.Broker, r.Queue, r.Offset)
}

// ParseReceipt reads a receipt; the last two fields may be missing. The error names what is wrong.
func ParseReceipt(text string) (Receipt, error) {
	fields := strings.Fields(text)
	if len(fields) < 6 || len(fields) > 9 {
		return Receipt{}, fmt.Errorf("extraInfo %.60q has %d fields, not 6 to 9", text, len(fields))
	}
	r := Receipt{Kind: fields[4], Broker: fields[5]}
	var err error
	number := func(i, bits int) (n int64) {
		if err == nil && i < len(fields) {
			if n, err = strconv.ParseInt(fields[i], 10, bits); err != nil {
				err = fmt.Errorf("extraInfo %.60q: field %d is no number", text, i)
			}
		}
		return n
	}
	r.StartOffset, r.PopMS, r.InvisibleMS = number(0, 64), number(1, 64), number(2, 64)
	r.ReviveQueue, r.Queue, r.Offset = int32(number(3, 32)), int32(number(6, 32)), number(7, 64)
	return r, err
}

// Infos collects the offset infos of an answer.
type Infos struct{ start, offsets, counts strings.Builder }

// Add notes the messages that were read from one queue.
func (i *Infos) Add(topic string, queue int32, start int64, offsets []int64) {
	kind := KindOf(topic)
	if i.start.Len() > 0 {
		i.start.WriteByte(';')
		i.offsets.WriteByte(';')
	}
	fmt.Fprintf(&i.start, "%s %d %d", kind, queue, start)
	fmt.Fprintf(&i.offsets, "%s %d ", kind, queue)
	for n, off := range offsets {
		if n > 0 {
			i.offsets.WriteByte(',')
		}
		i.offsets.WriteString(strconv.FormatInt(off, 10))
	}
}

// AddCounts notes how often messages of an ordered queue were popped before.
func (i *Infos) AddCounts(topic string, queue int32, offsets []int64, counts map[int64]int32) {
	kind := KindOf(topic)
	least := int32(-1)
	add := func(key string, count int32) {
		if i.counts.Len() > 0 {
			i.counts.WriteByte(';')
		}
		fmt.Fprintf(&i.counts, "%s %s %d", kind, key, count)
	}
	for _, off := range offsets {
		count := counts[off]
		if least < 0 || count < least {
			least = count
		}
		if count > 0 {
			add(fmt.Sprintf("qo%d%%%d", queue, off), count)
		}
	}
	add(strconv.Itoa(int(queue)), max(least, 0))
}

// Starts lists where each queue's checkpoint starts.
func (i *Infos) Starts() string { return i.start.String() }

// Offsets lists the offsets of the messages.
func (i *Infos) Offsets() string { return i.offsets.String() }

// Counts lists how often messages were popped before; ordered pops only.
func (i *Infos) Counts() string { return i.counts.String() }
