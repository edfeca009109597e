// SPDX-License-Identifier: Apache-2.0

package otelmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skylarkmq/skylark/client"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope names this package to tracers and meters.
const scope = "github.com/skylarkmq/skylark/client/otelmq"

// Option sets up Hooks.
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider sets where spans go. The default is OpenTelemetry's global provider at the time
// of New.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers = p }
}

// WithMeterProvider turns metrics on. The default is none.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithPropagator sets which properties carry the context. The default is W3C's trace context.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagator = p }
}

// Hooks are hooks for client.WithHooks. They may serve several clients.
type Hooks struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	meters     *meters // nil: no metrics
}

var (
	_ client.SendHook    = (*Hooks)(nil)
	_ client.SentHook    = (*Hooks)(nil)
	_ client.ReceiveHook = (*Hooks)(nil)
	_ client.HandledHook = (*Hooks)(nil)
)

// New makes Hooks. It fails for options that are nil, and when the meter provider refuses an
// instrument.
func New(opts ...Option) (*Hooks, error) {
	c := config{tracers: otel.GetTracerProvider(), propagator: propagation.TraceContext{}}
	for _, o := range opts {
		o(&c)
	}
	if c.tracers == nil || c.propagator == nil {
		return nil, errors.New("otelmq: tracer provider or propagator is nil: leave the option out " +
			"for the default")
	}
	h := &Hooks{tracer: c.tracers.Tracer(scope), propagator: c.propagator}
	if c.meters != nil {
		m, err := newMeters(c.meters.Meter(scope))
		if err != nil {
			return nil, fmt.Errorf("otelmq: make instruments: %w", err)
		}
		h.meters = m
	}
	return h, nil
}

type sendKey struct{}

// sending is a send under way.
type sending struct {
	span trace.Span
	from time.Time
}

// OnSend implements client.SendHook: it begins the span and puts its context into the message.
func (h *Hooks) OnSend(ctx context.Context, m *client.Message) context.Context {
	ctx, span := h.tracer.Start(ctx, "send "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer))
	if span.IsRecording() {
		span.SetAttributes(messageAttributes("send", m)...)
	}
	h.propagator.Inject(ctx, properties(m.Properties))
	return context.WithValue(ctx, sendKey{}, &sending{span, time.Now()})
}

// OnSent implements client.SentHook: it ends the span.
func (h *Hooks) OnSent(ctx context.Context, m *client.Message, r client.SendResult, err error) {
	s, ok := ctx.Value(sendKey{}).(*sending)
	if !ok {
		return // not of ours: another hook has replaced the context
	}
	if s.span.IsRecording() && err == nil && r.ID != "" { // one-way sends have no result
		s.span.SetAttributes(attrMessageID.String(r.ID), partitionOf(r.Queue),
			attrStatus.String(r.Status.String()))
	}
	end(s.span, err)
	h.meters.sent(ctx, m, s.from, err)
}

type handlingKey struct{}

// handling is one message at a handler, and those before it in the same batch.
type handling struct {
	m      *client.Received
	span   trace.Span
	from   time.Time
	before *handling
}

func handlingOf(ctx context.Context, m *client.Received) *handling {
	at, _ := ctx.Value(handlingKey{}).(*handling)
	for at != nil && at.m != m {
		at = at.before
	}
	return at
}

// OnReceive implements client.ReceiveHook: it begins the span of a message that a handler is to get.
func (h *Hooks) OnReceive(ctx context.Context, m *client.Received) context.Context {
	group, ok := client.HandlerGroup(ctx)
	if !ok {
		h.meters.received(ctx, m, "")
		return ctx
	}
	// Without a sender that traces it is a root, whatever span Run or the message before it had.
	clean := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	parent := h.propagator.Extract(clean, properties(m.Properties))
	with, span := h.tracer.Start(parent, "process "+m.Topic, trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		span.SetAttributes(messageAttributes("process", &m.Message)...)
		span.SetAttributes(attrGroup.String(group), attrMessageID.String(m.ID), partitionOf(m.Source),
			attrAttempt.Int(m.Attempt))
	}
	h.meters.received(ctx, m, group)
	before, _ := ctx.Value(handlingKey{}).(*handling)
	return context.WithValue(with, handlingKey{}, &handling{m, span, time.Now(), before})
}

// OnHandled implements client.HandledHook: it ends the span.
func (h *Hooks) OnHandled(ctx context.Context, m *client.Received, err error) {
	at := handlingOf(ctx, m)
	if at == nil {
		return
	}
	end(at.span, err)
	group, _ := client.HandlerGroup(ctx)
	h.meters.handled(ctx, m, group, at.from, err)
}

// ContextOf returns ctx as a parent for spans that belong to m. In a handler it has the span of m,
// which in a BatchHandler tells the messages apart: the context given has the span of the last one.
// For a message of a Reader it has the span that sent m.
func (h *Hooks) ContextOf(ctx context.Context, m *client.Received) context.Context {
	if at := handlingOf(ctx, m); at != nil {
		return trace.ContextWithSpan(ctx, at.span)
	}
	return h.propagator.Extract(ctx, properties(m.Properties))
}

// end ends a span as err says.
func end(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(errorType(err))
	}
	span.End()
}
