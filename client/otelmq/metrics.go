// SPDX-License-Identifier: Apache-2.0

package otelmq

import (
	"context"
	"errors"
	"time"

	"github.com/skylarkmq/skylark/client"
	"go.opentelemetry.io/otel/metric"
)

// meters are the instruments. A nil one does nothing.
type meters struct {
	sentMessages, consumedMessages metric.Int64Counter
	sendTime, processTime          metric.Float64Histogram // seconds
}

func newMeters(m metric.Meter) (*meters, error) {
	var x meters
	var errs [4]error
	x.sentMessages, errs[0] = m.Int64Counter("messaging.client.sent.messages",
		metric.WithUnit("{message}"), metric.WithDescription("Messages whose send has ended."))
	x.consumedMessages, errs[1] = m.Int64Counter("messaging.client.consumed.messages",
		metric.WithUnit("{message}"), metric.WithDescription("Messages given to the application."))
	// From a fifth of a millisecond, which a broker nearby takes, to a timeout.
	bounds := metric.WithExplicitBucketBoundaries(
		0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
	x.sendTime, errs[2] = m.Float64Histogram("messaging.client.operation.duration",
		metric.WithUnit("s"), bounds, metric.WithDescription("From a call to send until its result."))
	x.processTime, errs[3] = m.Float64Histogram("messaging.process.duration",
		metric.WithUnit("s"), bounds, metric.WithDescription("Time that handlers take."))
	return &x, errors.Join(errs[:]...)
}

func (x *meters) sent(ctx context.Context, m *client.Message, from time.Time, err error) {
	if x == nil {
		return
	}
	list := metricAttributes("send", m.Topic)
	if err != nil {
		list = append(list, errorType(err))
	}
	with := metric.WithAttributes(list...)
	x.sentMessages.Add(ctx, 1, with)
	x.sendTime.Record(ctx, time.Since(from).Seconds(), with)
}

func (x *meters) received(ctx context.Context, m *client.Received, group string) {
	if x == nil {
		return
	}
	list := metricAttributes("receive", m.Topic)
	if group != "" {
		list = append(list, attrGroup.String(group))
	}
	x.consumedMessages.Add(ctx, 1, metric.WithAttributes(list...))
}

func (x *meters) handled(
	ctx context.Context, m *client.Received, group string, from time.Time, err error,
) {
	if x == nil {
		return
	}
	list := append(metricAttributes("process", m.Topic), attrGroup.String(group))
	if err != nil {
		list = append(list, errorType(err))
	}
	x.processTime.Record(ctx, time.Since(from).Seconds(), metric.WithAttributes(list...))
}
