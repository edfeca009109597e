// SPDX-License-Identifier: Apache-2.0

package otelmq

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/client"
	"go.opentelemetry.io/otel/attribute"
)

// Attributes of the semantic conventions for messaging and for RocketMQ, and two of our own.
const (
	attrSystem        = attribute.Key("messaging.system")
	attrOperation     = attribute.Key("messaging.operation.name")
	attrOperationType = attribute.Key("messaging.operation.type")
	attrDestination   = attribute.Key("messaging.destination.name")
	attrPartition     = attribute.Key("messaging.destination.partition.id")
	attrGroup         = attribute.Key("messaging.consumer.group.name")
	attrMessageID     = attribute.Key("messaging.message.id")
	attrBodySize      = attribute.Key("messaging.message.body.size")
	attrTag           = attribute.Key("messaging.rocketmq.message.tag")
	attrKeys          = attribute.Key("messaging.rocketmq.message.keys")
	attrOrderingKey   = attribute.Key("messaging.rocketmq.message.group")
	attrDelayLevel    = attribute.Key("messaging.rocketmq.message.delay_time_level")
	attrDeliverAt     = attribute.Key("messaging.rocketmq.message.delivery_timestamp")
	attrErrorType     = attribute.Key("error.type")

	attrStatus  = attribute.Key("messaging.rocketmq.send.status")
	attrAttempt = attribute.Key("messaging.rocketmq.message.delivery_attempt")
)

type attrs = []attribute.KeyValue

// metricAttributes have few values, as metrics need it.
func metricAttributes(operation, topic string) attrs {
	return attrs{
		attrSystem.String("rocketmq"), attrOperation.String(operation), attrDestination.String(topic),
	}
}

func messageAttributes(operation string, m *client.Message) attrs {
	list := append(metricAttributes(operation, m.Topic), attrOperationType.String(operation),
		attrBodySize.Int(len(m.Body)))
	if m.Tag != "" {
		list = append(list, attrTag.String(m.Tag))
	}
	if len(m.Keys) > 0 {
		list = append(list, attrKeys.StringSlice(m.Keys))
	}
	if m.OrderingKey != "" {
		list = append(list, attrOrderingKey.String(m.OrderingKey))
	}
	switch {
	case m.DelayLevel > 0:
		list = append(list, attrDelayLevel.Int(m.DelayLevel))
	case m.Delay > 0:
		list = append(list, attrDeliverAt.Int64(time.Now().Add(m.Delay).UnixMilli()))
	case !m.DeliverAt.IsZero():
		list = append(list, attrDeliverAt.Int64(m.DeliverAt.UnixMilli()))
	}
	return list
}

// partitionOf names a queue among those of a topic: brokers number theirs alike.
func partitionOf(q client.Queue) attribute.KeyValue {
	return attrPartition.String(q.Broker + "/" + strconv.Itoa(q.ID))
}

// errorType is a word for an error: few values, so that metrics can have it.
func errorType(err error) attribute.KeyValue {
	var be *client.BrokerError
	switch {
	case errors.As(err, &be):
		return attrErrorType.String(strconv.Itoa(be.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return attrErrorType.String("timeout")
	case errors.Is(err, context.Canceled):
		return attrErrorType.String("canceled")
	default:
		return attrErrorType.String("_OTHER")
	}
}

// properties carry a context. What a message cannot have as a property is left out.
type properties map[string]string

// Get returns a property, empty when there is none.
func (p properties) Get(key string) string { return p[key] }

// Set sets a property, unless it is empty or has a character that separates properties.
func (p properties) Set(key, value string) {
	if key == "" || value == "" || strings.ContainsAny(key+value, "\x01\x02") {
		delete(p, key) // one that came along with a message that is passed on says nothing any more
		return
	}
	p[key] = value
}

// Keys lists the properties.
func (p properties) Keys() []string {
	list := make([]string, 0, len(p))
	for key := range p {
		list = append(list, key)
	}
	return list
}
