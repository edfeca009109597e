// SPDX-License-Identifier: Apache-2.0

// Sends of messages that ask to be delivered later, as in RocketMQ's HookUtils.handleScheduleMessage
// and the recall handle of its SendMessageProcessor.

package processor

import (
	"encoding/base64"
	"strconv"

	"github.com/skylarkmq/skylark/net/protocol"
)

// postpone lets the send that was collected last wait if it asks for it. After an error it is not
// collected any more.
func (s *Send) postpone(cfg *protocol.TopicConfig) error {
	n := len(s.entries) - 1
	e, call := &s.entries[n], &s.calls[n]
	grown, outMS, err := s.Delays.Park(e, s.scratch, s.NowMS())
	s.scratch = grown
	if err != nil {
		s.entries, s.calls = s.entries[:n], s.calls[:n]
		return err
	}
	if outMS > 0 && !protocol.IsRetryTopic(cfg.TopicName) {
		start := len(s.scratch)
		s.scratch = AppendRecallHandle(s.scratch, cfg.TopicName, s.Broker, outMS+1, call.uniq)
		call.recall = s.scratch[start:len(s.scratch):len(s.scratch)]
	}
	return nil
}

// AppendRecallHandle appends the handle by which a timer message can be recalled (RocketMQ
// RecallMessageHandle.HandleV1): version, topic, broker, time in milliseconds and unique key, in the
// URL's form of base64.
func AppendRecallHandle(dst []byte, topic, broker string, ms int64, uniq []byte) []byte {
	plain := make([]byte, 0, 128)
	plain = append(plain, "v1 "...)
	plain = append(plain, topic...)
	plain = append(plain, ' ')
	plain = append(plain, broker...)
	plain = append(plain, ' ')
	plain = strconv.AppendInt(plain, ms, 10)
	plain = append(plain, ' ')
	plain = append(plain, uniq...)
	return base64.URLEncoding.AppendEncode(dst, plain)
}
