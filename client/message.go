// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// Limits that RocketMQ's clients keep.
const (
	maxMessageSize = 4 << 20 // bytes of an uncompressed body
	maxProperties  = 32767   // bytes of the property text
)

// Message is what a producer sends. Zero values of the optional fields mean "not set". A send does
// not change it, so it may be sent again.
type Message struct {
	Topic       string
	Tag         string
	Body        []byte
	Keys        []string          // each without blanks; brokers index them
	OrderingKey string            // messages with one key go to one queue, in order
	Properties  map[string]string // user properties; reserved names give ErrInvalidMessage
	Delay       time.Duration     // Delay, DeliverAt, DelayLevel: at most one
	DeliverAt   time.Time
	DelayLevel  int
	Queue       *Queue // explicit queue; nil: selector decides
}

// Queue names one queue of a topic at one broker.
type Queue struct {
	Topic, Broker string
	ID            int
}

// String returns topic/broker/id.
func (q Queue) String() string { return q.Topic + "/" + q.Broker + "/" + strconv.Itoa(q.ID) }

// Received is a message from a broker. It belongs to the receiver. Attempt is 1 on first delivery.
type Received struct {
	Message
	ID                  string // the producer's unique id; the offset id when it sent none
	OffsetID            string // where the record lies, see RocketMQ's offset message id
	BornHost, StoreHost string // host:port of producer and broker
	Source              Queue
	Offset              int64 // in the queue
	Attempt             int
	BornAt, StoredAt    time.Time
}

// Property names that this package writes or reads itself.
const (
	propKeys        = "KEYS"
	propTags        = "TAGS"
	propWait        = "WAIT"
	propDelay       = "DELAY"
	propTimerDelay  = "TIMER_DELAY_MS"
	propTimerDue    = "TIMER_DELIVER_MS"
	propUniqueID    = "UNIQ_KEY"
	propOrderingKey = "__SHARDINGKEY"
	propRetryTopic  = "RETRY_TOPIC"
	transientPrefix = "__RMQ.TRANSIENT."
)

// reserved are the names that clients and brokers use themselves (RocketMQ's MessageConst). Users
// may not set them; the ones with a field of Message are set through it. It is read only.
var reserved = map[string]bool{
	"KEYS": true, "TAGS": true, "WAIT": true, "DELAY": true, "TIMER_DELAY_SEC": true,
	"TIMER_DELAY_MS": true, "TIMER_DELIVER_MS": true, "TIMER_OUT_MS": true,
	"TIMER_ENQUEUE_MS": true, "TIMER_DEQUEUE_MS": true, "TIMER_ROLL_TIMES": true,
	"TIMER_DEL_UNIQKEY": true, "RETRY_TOPIC": true, "REAL_TOPIC": true,
	"REAL_QID": true, "TRAN_MSG": true, "PGROUP": true, "MIN_OFFSET": true, "MAX_OFFSET": true,
	"ORIGIN_MESSAGE_ID": true, "RECONSUME_TIME": true, "MAX_RECONSUME_TIMES": true,
	"MSG_REGION": true, "TRACE_ON": true, "UNIQ_KEY": true, "EXTEND_UNIQ_INFO": true,
	"CONSUME_START_TIME": true, "INNER_NUM": true, "INNER_BASE": true,
	"CHECK_IMMUNITY_TIME_IN_SECONDS": true, "TRAN_PREPARED_QUEUE_OFFSET": true,
	"__transactionId__": true, "TRANSACTION_CHECK_TIMES": true, "INSTANCE_ID": true,
	"CORRELATION_ID": true, "REPLY_TO_CLIENT": true, "TTL": true, "ARRIVE_TIME": true,
	"PUSH_REPLY_TIME": true, "CLUSTER": true, "MSG_TYPE": true, "POP_CK": true,
	"POP_CK_OFFSET": true, "1ST_POP_TIME": true, "__SHARDINGKEY": true,
	"INNER_MULTI_DISPATCH": true, "INNER_MULTI_QUEUE_OFFSET": true, "TRACE_CONTEXT": true,
	"DLQ_ORIGIN_TOPIC": true, "DLQ_ORIGIN_MESSAGE_ID": true, "BORN_TIMESTAMP": true,
	"__BORNHOST": true, "__CRC32#": true, "BUYER_ID": true, "TRANSFER_FLAG": true,
	"CORRECTION_FLAG": true, "MQ2_FLAG": true, "DUP_INFO": true,
}

func isReserved(name string) bool {
	return reserved[name] || strings.HasPrefix(name, transientPrefix)
}

// check refuses what no broker would take. The error wraps ErrInvalidMessage or
// ErrMessageTooLarge.
func (m *Message) check() error {
	if m == nil {
		return fmt.Errorf("client: message is nil: %w", ErrInvalidMessage)
	}
	if err := protocol.ValidTopic([]byte(m.Topic)); err != nil {
		return fmt.Errorf("client: topic %q: %w: %w", m.Topic, ErrInvalidMessage, err)
	}
	if protocol.RefusedOnSend(m.Topic) {
		return fmt.Errorf("client: topic %s belongs to the broker: %w", m.Topic, ErrInvalidMessage)
	}
	if len(m.Body) == 0 {
		return fmt.Errorf("client: message to %s has no body: %w", m.Topic, ErrInvalidMessage)
	}
	if len(m.Body) > maxMessageSize {
		return fmt.Errorf("client: body of %d bytes to %s, at most %d: %w",
			len(m.Body), m.Topic, maxMessageSize, ErrMessageTooLarge)
	}
	ways := 0
	for _, set := range []bool{m.Delay != 0, !m.DeliverAt.IsZero(), m.DelayLevel != 0} {
		if set {
			ways++
		}
	}
	if ways > 1 || m.Delay < 0 || m.DelayLevel < 0 {
		return fmt.Errorf("client: message to %s needs at most one of Delay, DeliverAt and "+
			"DelayLevel, not negative: %w", m.Topic, ErrInvalidMessage)
	}
	if q := m.Queue; q != nil && (q.Topic != m.Topic || q.ID < 0 || q.Broker == "") {
		return fmt.Errorf("client: message to %s has queue %s: %w", m.Topic, q, ErrInvalidMessage)
	}
	return nil
}

// properties renders the property text, with names in a fixed order.
func (m *Message) properties(id string) ([]byte, error) {
	var p []byte
	var bad error
	add := func(name, value string) {
		if value == "" {
			return
		}
		if !record.ValidProperty(value) {
			bad = fmt.Errorf("client: property %s of a message to %s has a separator: %w",
				name, m.Topic, ErrInvalidMessage)
		}
		p = record.AppendProperty(p, name, value)
	}
	add(propTags, m.Tag)
	for _, k := range m.Keys {
		if k == "" || strings.ContainsRune(k, ' ') {
			return nil, fmt.Errorf("client: key %q of a message to %s: empty or with a blank: %w",
				k, m.Topic, ErrInvalidMessage)
		}
	}
	add(propKeys, strings.Join(m.Keys, " "))
	add(propOrderingKey, m.OrderingKey)
	add(propUniqueID, id)
	add(propWait, "true")
	switch {
	case m.Delay != 0:
		add(propTimerDelay, strconv.FormatInt(m.Delay.Milliseconds(), 10))
	case !m.DeliverAt.IsZero():
		add(propTimerDue, strconv.FormatInt(m.DeliverAt.UnixMilli(), 10))
	case m.DelayLevel != 0:
		add(propDelay, strconv.Itoa(m.DelayLevel))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		value := m.Properties[name]
		if isReserved(name) || !record.ValidProperty(name) || value == "" {
			return nil, fmt.Errorf("client: property %q of a message to %s is reserved or empty: %w",
				name, m.Topic, ErrInvalidMessage)
		}
		add(name, value)
	}
	if bad == nil && len(p) > maxProperties {
		bad = fmt.Errorf("client: %d bytes of properties of a message to %s, at most %d: %w",
			len(p), m.Topic, maxProperties, ErrMessageTooLarge)
	}
	return p, bad
}

// timed reports whether the message is to be delivered later.
func (m *Message) timed() bool {
	return m.Delay != 0 || !m.DeliverAt.IsZero() || m.DelayLevel != 0
}

// receive builds what a stored record means to the application. body is already decompressed.
func receive(v record.View, source Queue, offsetDelta int64, body []byte) *Received {
	host := v.StoreHost()
	offsetID := string(record.AppendOffsetID(nil, host, v.PhysicalOffset()))
	m := &Received{
		Message:  Message{Topic: string(v.Topic()), Body: body},
		ID:       offsetID,
		OffsetID: offsetID,
		BornHost: v.BornHost().String(), StoreHost: host.String(),
		Source:  source,
		Offset:  int64(v.QueueOffset()) + offsetDelta,
		Attempt: int(v.ReconsumeTimes()) + 1,
		BornAt:  time.UnixMilli(v.BornMS()), StoredAt: time.UnixMilli(v.StoreMS()),
	}
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		switch string(name) {
		case propTags:
			m.Tag = string(value)
		case propKeys:
			m.Keys = strings.Fields(string(value))
		case propOrderingKey:
			m.OrderingKey = string(value)
		case propUniqueID:
			m.ID = string(value)
		case propRetryTopic:
			if strings.HasPrefix(m.Topic, protocol.RetryPrefix) {
				m.Topic = string(value)
			}
		default:
			if n := string(name); !isReserved(n) {
				if m.Properties == nil {
					m.Properties = map[string]string{}
				}
				m.Properties[n] = string(value)
			}
		}
		return true
	})
	return m
}

// brokerError turns an answer into an error, nil for success.
func brokerError(op, broker, addr string, code remoting.ResponseCode, remark string) error {
	if code == remoting.Success {
		return nil
	}
	return &BrokerError{Op: op, Broker: broker, Addr: addr, Remark: remark, Code: int(code)}
}
