// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"strconv"

	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// wantsInner reports whether a client's batch becomes one record, which the consumer takes apart: its
// topic has batch queues, and the batch as a whole has a unique key (RocketMQ
// SendMessageProcessor.sendBatchMessage). Cost for other topics: one length.
func wantsInner(cfg *protocol.TopicConfig, props []byte) bool {
	if !topic.HasBatchQueues(cfg) {
		return false
	}
	_, ok := record.Property(props, "UNIQ_KEY")
	return ok
}

// makeInner marks a send as an inner batch and adds how many messages it has. Unlike RocketMQ it reads
// every element first: one that cannot be taken apart would stop each consumer that comes to it.
func (s *Send) makeInner(seen sent, body []byte) (sent, error) {
	elements := record.NewBatchReader(body)
	for {
		if _, _, _, ok := elements.Next(); !ok {
			break
		}
	}
	n := elements.Index()
	switch err := elements.Err(); {
	case err != nil:
		return seen, remoting.Errorf(remoting.MessageIllegal, "the message is illegal: %v", err)
	case n == 0:
		return seen, remoting.Errorf(remoting.MessageIllegal, "the message is illegal: the batch is empty")
	case n > consumequeue.MaxBatchCount:
		return seen, remoting.Errorf(remoting.MessageIllegal,
			"the message is illegal: the batch has %d messages, the limit is %d for one record", n,
			consumequeue.MaxBatchCount)
	}
	start := len(s.scratch) - len(seen.text)
	s.scratch = append(s.scratch, "INNER_NUM\x01"...) // of several the last one counts
	s.scratch = strconv.AppendInt(s.scratch, int64(n), 10)
	s.scratch = append(s.scratch, valueEnd)
	seen.text, seen.innerNum = s.scratch[start:], true
	s.req.SysFlag |= protocol.SysFlagInnerBatch | protocol.SysFlagNeedUnwrap
	return seen, nil
}
