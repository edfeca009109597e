// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"unicode/utf8"

	"github.com/skylarkmq/skylark/net/remoting"
)

// Topic names with a meaning of their own (RocketMQ's TopicValidator).
const (
	// TBW102 is the template from which topics are created on the first send.
	TBW102 = "TBW102"
	// ScheduleTopic parks messages with a delay level; the queue id is the level minus one.
	ScheduleTopic = "SCHEDULE_TOPIC_XXXX"
	// HalfTopic parks half messages of transactions, OpHalfTopic what became of them.
	HalfTopic   = "RMQ_SYS_TRANS_HALF_TOPIC"
	OpHalfTopic = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	// TransCheckMaxTimeTopic takes half messages that were checked too often.
	TransCheckMaxTimeTopic = "TRANS_CHECK_MAX_TIME_TOPIC"
	// TimerTopic parks messages with a delivery time.
	TimerTopic        = "rmq_sys_wheel_timer"
	TraceTopic        = "RMQ_SYS_TRACE_TOPIC"
	BenchmarkTopic    = "BenchmarkTest"
	SelfTestTopic     = "SELF_TEST_TOPIC"
	OffsetMovedTopic  = "OFFSET_MOVED_EVENT"
	CheckpointTopic   = "CHECKPOINT_TOPIC"
	RocksDBHalfTopic  = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
	RocksDBOpTopic    = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
	SystemTopicPrefix = "rmq_sys_"

	// RetryPrefix and DLQPrefix stand before a group's name; LMQPrefix marks a light queue.
	RetryPrefix = "%RETRY%"
	DLQPrefix   = "%DLQ%"
	LMQPrefix   = "%LMQ%"
	// ReplyTopicSuffix follows the cluster's name in the topic of replies.
	ReplyTopicSuffix = "_REPLY_TOPIC"
	// SyncMemberTopicPrefix stands before a broker's name in the topic of its member notices.
	SyncMemberTopicPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"
	// ReviveTopicPrefix stands before a cluster's name in the topic of pop check points.
	ReviveTopicPrefix = "rmq_sys_REVIVE_LOG_"
)

// Group names with a meaning of their own (RocketMQ's MixAll).
const (
	SystemGroupPrefix    = "CID_RMQ_SYS_"
	TransGroup           = "CID_RMQ_SYS_TRANS"
	ToolsConsumerGroup   = "TOOLS_CONSUMER"
	FilterSrvGroup       = "FILTERSRV_CONSUMER"
	SelfTestGroup        = "SELF_TEST_C_GROUP"
	OnsHTTPProxyGroup    = "CID_ONS-HTTP-PROXY"
	OnsAPIPermission     = "CID_ONSAPI_PERMISSION"
	OnsAPIOwner          = "CID_ONSAPI_OWNER"
	OnsAPIPull           = "CID_ONSAPI_PULL"
	InnerProducerGroup   = "CLIENT_INNER_PRODUCER"
	DefaultProducerGroup = "DEFAULT_PRODUCER"
	DefaultConsumerGroup = "DEFAULT_CONSUMER"
)

// OrderTopicNamespace is the name server's key-value namespace of ordered topics.
const OrderTopicNamespace = "ORDER_TOPIC_CONFIG"

// Permission bits of topics and brokers (RocketMQ's PermName).
const (
	PermInherit  int32 = 1 // a topic that may serve as template
	PermWrite    int32 = 2
	PermRead     int32 = 4
	PermPriority int32 = 8
)

// PermText returns the text form, such as RW-, as RocketMQ prints it.
func PermText(perm int32) string {
	text := []byte("---")
	for i, bit := range []int32{PermRead, PermWrite, PermInherit} {
		if perm&bit != 0 {
			text[i] = "RWX"[i]
		}
	}
	return string(text)
}

// Topic system flags, also those of groups (RocketMQ's TopicSysFlag).
const (
	TopicFlagUnit    int32 = 1
	TopicFlagUnitSub int32 = 2
)

// Lengths of names in characters.
const (
	TopicLenMax      = 127
	RetryTopicLenMax = 255 // topics with RetryPrefix or DLQPrefix
	GroupLenMax      = 120

	namePattern = "^[%|a-zA-Z0-9_-]+$"
)

// IsSystemTopic reports whether a topic belongs to the broker itself. The topics named after the
// broker and its cluster also count for RocketMQ; only the broker knows those.
func IsSystemTopic[T string | []byte](name T) bool {
	switch string(name) {
	case TBW102, ScheduleTopic, BenchmarkTopic, HalfTopic, TraceTopic, OpHalfTopic,
		TransCheckMaxTimeTopic, SelfTestTopic, OffsetMovedTopic, CheckpointTopic,
		RocksDBHalfTopic, RocksDBOpTopic:
		return true
	}
	return hasPrefix(name, SystemTopicPrefix)
}

// SystemTopics returns the fixed names for which IsSystemTopic holds.
func SystemTopics() []string {
	return []string{
		TBW102, ScheduleTopic, BenchmarkTopic, HalfTopic, TraceTopic, OpHalfTopic,
		TransCheckMaxTimeTopic, SelfTestTopic, OffsetMovedTopic, CheckpointTopic,
		RocksDBHalfTopic, RocksDBOpTopic,
	}
}

// RefusedOnSend reports whether clients may not send to a topic; the answer is NoPermission.
func RefusedOnSend[T string | []byte](name T) bool {
	switch string(name) {
	case ScheduleTopic, HalfTopic, OpHalfTopic, TransCheckMaxTimeTopic, SelfTestTopic,
		OffsetMovedTopic:
		return true
	}
	return false
}

// IsRetryTopic reports whether a topic holds messages for another try.
func IsRetryTopic[T string | []byte](name T) bool { return hasPrefix(name, RetryPrefix) }

// IsDLQTopic reports whether a topic holds dead letters.
func IsDLQTopic[T string | []byte](name T) bool { return hasPrefix(name, DLQPrefix) }

// IsSystemGroup reports whether a consumer group belongs to the broker itself.
func IsSystemGroup[T string | []byte](name T) bool { return hasPrefix(name, SystemGroupPrefix) }

func hasPrefix[T string | []byte](s T, prefix string) bool {
	return len(s) >= len(prefix) && string(s[:len(prefix)]) == prefix
}

// ValidTopic checks a topic's name by the rules of RocketMQ's TopicValidator. The error is a
// *remoting.Error with InvalidParameter and RocketMQ's wording.
func ValidTopic(name []byte) error {
	if blank(name) {
		return remoting.Errorf(remoting.InvalidParameter, "The specified topic is blank.")
	}
	if !legal(name) {
		return remoting.Errorf(remoting.InvalidParameter,
			"The specified topic: %s, contains illegal characters, allowing only %s",
			name, namePattern)
	}
	limit := TopicLenMax
	if IsRetryTopic(name) || IsDLQTopic(name) {
		limit = RetryTopicLenMax
	}
	if len(name) > limit {
		return remoting.Errorf(remoting.InvalidParameter,
			"The specified topic: %s, is longer than topic max length: %d", name, limit)
	}
	return nil
}

// ValidGroup checks a group's name, like ValidTopic.
func ValidGroup(name []byte) error {
	if blank(name) {
		return remoting.Errorf(remoting.InvalidParameter, "The specified group is blank.")
	}
	if !legal(name) {
		return remoting.Errorf(remoting.InvalidParameter,
			"The specified group: %s, contains illegal characters, allowing only %s",
			name, namePattern)
	}
	if len(name) > GroupLenMax {
		return remoting.Errorf(remoting.InvalidParameter,
			"The specified group: %s, is longer than group max length: %d", name, GroupLenMax)
	}
	return nil
}

func blank(name []byte) bool { return len(bytes.TrimSpace(name)) == 0 }

func legal(name []byte) bool {
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '%', c == '|', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// JavaHash is Java's String.hashCode of UTF-8 text: h = 31h + c over UTF-16 units, wrapping at 32
// bits. It is the hash of tags, in queues and in subscriptions. It does not allocate.
func JavaHash(s []byte) int32 {
	var h int32
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			h = 31*h + int32(s[i])
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		i += size
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + (0xd800 + r>>10)
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + r
	}
	return h
}
