// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
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
	defaultMessageSize = 4 << 20  // bytes of an uncompressed body, unless WithMaxMessageSize says more
	greatestMessage    = 64 << 20 // what WithMaxMessageSize may be set to
	maxProperties      = 32767    // bytes of the property text
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

	asked *question // a request that wants a reply; nil: none
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
	propInstanceID  = "INSTANCE_ID"
	transientPrefix = "__RMQ.TRANSIENT."

	valueEnd = 0x02 // ends each property (record.AppendProperty)
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

// check refuses what no broker would take, apart from the topic's name, and bodies of more than most
// bytes. The error wraps ErrInvalidMessage or ErrMessageTooLarge.
func (m *Message) check(most int) error {
	if len(m.Body) == 0 {
		return fmt.Errorf("client: message to %s has no body: %w", m.Topic, ErrInvalidMessage)
	}
	if len(m.Body) > most {
		return fmt.Errorf("client: body of %d bytes to %s, at most %d (WithMaxMessageSize): %w",
			len(m.Body), m.Topic, most, ErrMessageTooLarge)
	}
	ways := 0
	if m.Delay != 0 {
		ways++
	}
	if !m.DeliverAt.IsZero() {
		ways++
	}
	if m.DelayLevel != 0 {
		ways++
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

// propertyNames is how many user properties are put in order without an allocation.
const propertyNames = 16

// appendProperties renders the property text behind dst, with names in a fixed order. more comes
// last and is not checked. Cost: no allocation beyond that of dst.
func (p *Producer) appendProperties(
	dst []byte, m *Message, id []byte, more []field,
) ([]byte, error) {
	from := len(dst)
	if m.Tag != "" {
		if !record.ValidProperty(m.Tag) {
			return nil, separatorError(propTags, m)
		}
		dst = record.AppendProperty(dst, propTags, m.Tag)
	}
	dst, err := appendKeys(dst, m)
	if err != nil {
		return nil, err
	}
	if m.OrderingKey != "" {
		if !record.ValidProperty(m.OrderingKey) {
			return nil, separatorError(propOrderingKey, m)
		}
		dst = record.AppendProperty(dst, propOrderingKey, m.OrderingKey)
	}
	dst = record.AppendProperty(dst, propUniqueID, id)
	dst = record.AppendProperty(dst, propWait, "true")
	switch {
	case m.Delay != 0:
		dst = record.AppendProperty(dst, propTimerDelay, strconv.FormatInt(m.Delay.Milliseconds(), 10))
	case !m.DeliverAt.IsZero():
		dst = record.AppendProperty(dst, propTimerDue, strconv.FormatInt(m.DeliverAt.UnixMilli(), 10))
	case m.DelayLevel != 0:
		dst = record.AppendProperty(dst, propDelay, strconv.Itoa(m.DelayLevel))
	}
	if p.client.cfg.namespace != "" {
		dst = record.AppendProperty(dst, propInstanceID, p.client.cfg.namespace)
	}
	if len(m.Properties) > 0 {
		if dst, err = appendUserProperties(dst, m); err != nil {
			return nil, err
		}
	}
	for _, f := range more {
		dst = record.AppendProperty(dst, f.name, f.value)
	}
	if n := len(dst) - from; n > maxProperties {
		return nil, fmt.Errorf("client: %d bytes of properties of a message to %s, at most %d: %w",
			n, m.Topic, maxProperties, ErrMessageTooLarge)
	}
	return dst, nil
}

// appendKeys joins the keys with blanks.
func appendKeys(dst []byte, m *Message) ([]byte, error) {
	if len(m.Keys) == 0 {
		return dst, nil
	}
	for i, k := range m.Keys {
		if k == "" || strings.ContainsRune(k, ' ') {
			return nil, fmt.Errorf("client: key %q of a message to %s: empty or with a blank: %w",
				k, m.Topic, ErrInvalidMessage)
		}
		if !record.ValidProperty(k) {
			return nil, separatorError(propKeys, m)
		}
		if i == 0 {
			dst = record.AppendProperty(dst, propKeys, k)
			continue
		}
		dst[len(dst)-1] = ' ' // instead of the end of the value
		dst = append(append(dst, k...), valueEnd)
	}
	return dst, nil
}

func appendUserProperties(dst []byte, m *Message) ([]byte, error) {
	var room [propertyNames]string
	names := room[:0]
	for name := range m.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := m.Properties[name]
		if isReserved(name) || !record.ValidProperty(name) || value == "" {
			return nil, fmt.Errorf("client: property %q of a message to %s is reserved or empty: %w",
				name, m.Topic, ErrInvalidMessage)
		}
		if !record.ValidProperty(value) {
			return nil, separatorError(name, m)
		}
		dst = record.AppendProperty(dst, name, value)
	}
	return dst, nil
}

func separatorError(name string, m *Message) error {
	return fmt.Errorf("client: property %s of a message to %s has one of the separators 0x01 and "+
		"0x02: %w", name, m.Topic, ErrInvalidMessage)
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
			if m.ID == m.OffsetID { // RocketMQ 4.9 adds that of the batch's request at the end
				m.ID = string(value)
			}
		case propCorrelation:
			m.asked = questionOf(v.Properties())
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
