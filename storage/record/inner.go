// SPDX-License-Identifier: Apache-2.0

package record

import "strconv"

// Properties of an inner batch, which is one record with several messages (RocketMQ MessageConst).
const (
	PropertyInnerNum  = "INNER_NUM"  // how many messages
	PropertyInnerBase = "INNER_BASE" // queue offset of the first
)

// Messages returns the queue offset of the record's first message and how many it has, as its
// properties tell (RocketMQ CommitLog.setBatchSizeIfNeeded). Without both of them, or with one that is
// no number, the record is one message.
func (v View) Messages() (base QueueOffset, count int16) {
	number, ok := Property(v.Properties(), PropertyInnerNum)
	first, too := Property(v.Properties(), PropertyInnerBase)
	if !ok || !too {
		return v.QueueOffset(), 1
	}
	n, err := strconv.ParseInt(string(number), 10, 16)
	at, failed := strconv.ParseInt(string(first), 10, 64)
	if err != nil || failed != nil || n <= 0 || at < 0 {
		return v.QueueOffset(), 1
	}
	return QueueOffset(at), int16(n)
}
