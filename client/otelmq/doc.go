// SPDX-License-Identifier: Apache-2.0

// Package otelmq connects package client with OpenTelemetry: spans for sends and for handlers, the
// trace context carried in message properties, and metrics.
//
//	hooks, err := otelmq.New()
//	c, err := client.New(endpoints, client.WithHooks(hooks))
//
// It is a module of its own, so that users of the client alone do not depend on OpenTelemetry.
//
// Names of spans, attributes and metrics follow OpenTelemetry's semantic conventions for messaging.
// A send is a span of kind producer, from the call until its result, whatever the number of
// attempts; its context goes along in the properties that the propagator names, traceparent and
// tracestate by default. The call of a handler is a span of kind consumer whose parent is the span
// that sent the message, and so is each redelivery. Messages of a Reader give no span, since nobody
// tells when they are done: ContextOf has their sender as parent for a span of the caller's own.
package otelmq
