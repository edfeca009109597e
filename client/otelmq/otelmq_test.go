// SPDX-License-Identifier: Apache-2.0

package otelmq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/clienttest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/skylarkmq/skylark/client/otelmq"
)

// setup is a real broker, a client with Hooks, and what they exported.
type setup struct {
	ctx     context.Context
	c       *client.Client
	hooks   *otelmq.Hooks
	tracer  trace.Tracer
	spans   *tracetest.InMemoryExporter
	metrics *sdkmetric.ManualReader
}

func start(t *testing.T) *setup {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	s := &setup{
		ctx: ctx, spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader(),
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	s.tracer = tp.Tracer("test")
	hooks, err := otelmq.New(otelmq.WithTracerProvider(tp),
		otelmq.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.metrics))))
	if err != nil {
		t.Fatal(err)
	}
	s.hooks = hooks
	s.c = clienttest.Start(t, clienttest.WithTopic("orders", 1)).Client(t, client.WithHooks(hooks))
	return s
}

func (s *setup) producer(t *testing.T) *client.Producer {
	t.Helper()
	p, err := s.c.NewProducer("shop")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *setup) consumer(t *testing.T, opts ...client.ConsumerOption) *client.Consumer {
	t.Helper()
	k, err := s.c.NewConsumer("billing", append(opts,
		client.WithSubscription("orders", client.All()), client.WithStart(client.Earliest))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// named returns the spans of a name, in the order they ended.
func (s *setup) named(name string) tracetest.SpanStubs {
	var list tracetest.SpanStubs
	for _, span := range s.spans.GetSpans() {
		if span.Name == name {
			list = append(list, span)
		}
	}
	return list
}

func attributesOf(span tracetest.SpanStub) map[attribute.Key]string {
	m := map[attribute.Key]string{}
	for _, kv := range span.Attributes {
		m[kv.Key] = kv.Value.String()
	}
	return m
}

func want(t *testing.T, span tracetest.SpanStub, attributes map[attribute.Key]string) {
	t.Helper()
	got := attributesOf(span)
	maps.DeleteFunc(got, func(k attribute.Key, _ string) bool { _, ok := attributes[k]; return !ok })
	if !maps.Equal(got, attributes) {
		t.Errorf("span %s has %v, want %v", span.Name, attributesOf(span), attributes)
	}
}

// One trace goes from the sender's span over the send to each try of the handler and what that does.
func TestTraceThroughBroker(t *testing.T) {
	t.Parallel()
	s := start(t)
	p, k := s.producer(t), s.consumer(t)
	ctx, checkout := s.tracer.Start(s.ctx, "checkout")
	m := &client.Message{Topic: "orders", Tag: "eu", Keys: []string{"7"}, Body: []byte("order 7")}
	res, err := p.Send(ctx, m)
	checkout.End()
	if err != nil || m.Properties != nil {
		t.Fatalf("%v; the caller's message has properties %v", err, m.Properties)
	}
	running, stop := context.WithCancel(s.ctx)
	err = k.Run(running, func(ctx context.Context, m *client.Received) error {
		_, inner := s.tracer.Start(ctx, "bill")
		defer inner.End()
		if m.Attempt == 1 {
			return client.RetryAfter(0, errors.New("bank is busy"))
		}
		stop()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sends, handled, inner := s.named("send orders"), s.named("process orders"), s.named("bill")
	if len(sends) != 1 || len(handled) != 2 || len(inner) != 2 {
		t.Fatalf("spans %d, %d and %d: %+v", len(sends), len(handled), len(inner), s.spans.GetSpans())
	}
	send := sends[0]
	if send.Parent.SpanID() != checkout.SpanContext().SpanID() || send.SpanKind != trace.SpanKindProducer {
		t.Errorf("send %+v", send)
	}
	want(t, send, map[attribute.Key]string{
		"messaging.system": "rocketmq", "messaging.operation.type": "send",
		"messaging.destination.name": "orders", "messaging.message.id": res.ID,
		"messaging.message.body.size": "7", "messaging.rocketmq.message.tag": "eu",
		"messaging.rocketmq.message.keys": `["7"]`,
	})
	for i, span := range handled {
		if span.Parent.SpanID() != send.SpanContext.SpanID() || !span.Parent.IsRemote() ||
			span.SpanContext.TraceID() != checkout.SpanContext().TraceID() ||
			span.SpanKind != trace.SpanKindConsumer || (span.Status.Code == codes.Error) != (i == 0) {
			t.Errorf("handler's span %d: %+v", i, span)
		}
		want(t, span, map[attribute.Key]string{
			"messaging.consumer.group.name": "billing", "messaging.message.id": res.ID,
			"messaging.rocketmq.message.delivery_attempt": fmt.Sprint(i + 1),
		})
		if inner[i].Parent.SpanID() != span.SpanContext.SpanID() {
			t.Errorf("span of the application below %s", inner[i].Parent.SpanID())
		}
	}
}

// Each message of a batch has a span of its own, in the trace it came from; one whose sender does not
// trace is a root.
func TestBatches(t *testing.T) {
	t.Parallel()
	s := start(t)
	bare, err := s.c.NewProducer("bare")
	if err != nil {
		t.Fatal(err)
	}
	ms := []*client.Message{
		{Topic: "orders", Body: []byte("a")},
		{Topic: "orders", Body: []byte("b")},
		{Topic: "orders", Body: []byte("c")},
	}
	if _, errs := bare.SendBatch(s.ctx, ms...); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	running, stop := context.WithCancel(s.ctx)
	seen := map[string]trace.SpanID{}
	err = s.consumer(t).RunBatch(running, 3, func(ctx context.Context, ms []*client.Received) []error {
		for _, m := range ms {
			seen[m.ID] = trace.SpanContextFromContext(s.hooks.ContextOf(ctx, m)).SpanID()
		}
		if len(seen) == 3 {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sends := map[trace.SpanID]string{} // to the id of the message
	for _, span := range s.named("send orders") {
		sends[span.SpanContext.SpanID()] = attributesOf(span)["messaging.message.id"]
	}
	handled := s.named("process orders")
	if len(handled) != 3 || len(sends) != 3 || len(seen) != 3 {
		t.Fatalf("%d sends, %d handled, seen %v", len(sends), len(handled), seen)
	}
	for _, span := range handled {
		id := attributesOf(span)["messaging.message.id"]
		if sends[span.Parent.SpanID()] != id || seen[id] != span.SpanContext.SpanID() {
			t.Errorf("message %s: span %+v, in the handler %s", id, span, seen[id])
		}
	}
}

// A Reader opens no span that nobody would end; ContextOf gives the sender's.
func TestReader(t *testing.T) {
	t.Parallel()
	s := start(t)
	if _, err := s.producer(t).Send(s.ctx, &client.Message{Topic: "orders", Body: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	r, err := s.c.NewReader("", client.WithSubscription("orders", client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	ms, err := r.Poll(s.ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	spans := s.spans.GetSpans()
	of := trace.SpanContextFromContext(s.hooks.ContextOf(s.ctx, ms[0]))
	if len(spans) != 1 || of.SpanID() != spans[0].SpanContext.SpanID() || !of.IsRemote() {
		t.Errorf("context %+v, spans %+v", of, spans)
	}
}

// A failed send says so.
func TestFailedSend(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, err := s.producer(t).Send(s.ctx, &client.Message{Topic: "orders"})
	if !errors.Is(err, client.ErrInvalidMessage) {
		t.Fatal(err)
	}
	spans := s.named("send orders")
	if len(spans) != 1 || spans[0].Status.Code != codes.Error || len(spans[0].Events) != 1 {
		t.Errorf("spans %+v", spans)
	}
	want(t, spans[0], map[attribute.Key]string{"error.type": "_OTHER"})
}

// Metrics count what was sent, received and handled.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := s.producer(t)
	for range 3 {
		if _, err := p.Send(s.ctx, &client.Message{Topic: "orders", Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	running, stop := context.WithCancel(s.ctx)
	n := 0
	err := s.consumer(t, client.WithConcurrency(1)).Run(running,
		func(context.Context, *client.Received) error {
			if n++; n == 3 {
				stop()
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	var data metricdata.ResourceMetrics
	if err := s.metrics.Collect(s.ctx, &data); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			got[m.Name] = d.DataPoints[0].Value
		case metricdata.Histogram[float64]:
			got[m.Name] = int64(d.DataPoints[0].Count)
		}
	}
	if w := map[string]int64{
		"messaging.client.sent.messages": 3, "messaging.client.operation.duration": 3,
		"messaging.client.consumed.messages": 3, "messaging.process.duration": 3,
	}; !maps.Equal(got, w) {
		t.Errorf("metrics %v, want %v", got, w)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if _, err := otelmq.New(otelmq.WithTracerProvider(nil)); err == nil {
		t.Error("no tracer provider")
	}
	if _, err := otelmq.New(otelmq.WithPropagator(nil)); err == nil {
		t.Error("no propagator")
	}
}
