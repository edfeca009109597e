// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Handler is called with one message. nil means done; RetryAfter, DeadLetter and Skip steer; any
// other error has the message delivered again, after the delay that the group's table gives for its
// Attempt. A panic counts as an error and is logged with its stack.
//
// ctx has the values of the context given to Run, but not its end: it ends when the queue of the
// message is lost to another consumer, when the handler timeout passes, when draining is over, and
// after the handler returned. Handlers run on several goroutines at once, see WithConcurrency and
// WithOrdered.
type Handler func(ctx context.Context, m *Received) error

// BatchHandler is called with up to the size given to RunBatch of messages of one queue, in the
// order of their offsets. It returns nil when all are done, or one entry for each message, nil for
// those that are done; a missing entry counts as an error. With WithOrdered(false) everything from
// the first entry that asks for another try on is delivered again.
type BatchHandler func(ctx context.Context, ms []*Received) (errs []error)

// verdict says what becomes of a message that a handler has seen.
type verdict uint8

const (
	handled    verdict = iota // done
	again                     // deliver again
	deadLetter                // to the dead-letter topic
	skipped                   // done, though not handled
)

// decision is what the steering errors are.
type decision struct {
	how   verdict
	after time.Duration // of again; negative: the group's table decides
	cause error
}

func (d *decision) Error() string {
	var what string
	switch d.how {
	case again:
		what = "retry after " + d.after.String()
	case deadLetter:
		what = "dead letter"
	default:
		what = "skip"
	}
	if d.cause == nil {
		return "client: " + what
	}
	return "client: " + what + ": " + d.cause.Error()
}

func (d *decision) Unwrap() error { return d.cause }

// RetryAfter has a message delivered again no sooner than after d. Brokers know a fixed table of
// delays, 1s 5s 10s 30s 1m to 10m, 20m, 30m, 1h, 2h by default: the next one not below d is taken.
// With WithOrdered the queue, or the key, waits for d in place. cause may be nil.
func RetryAfter(d time.Duration, cause error) error {
	return &decision{how: again, after: max(d, 0), cause: cause}
}

// DeadLetter moves a message to the group's dead-letter topic, %DLQ% and the group, at once. cause
// may be nil.
func DeadLetter(cause error) error { return &decision{how: deadLetter, cause: cause} }

// Skip has a message count as done. cause is told to hooks and logged at debug level; it may be nil.
func Skip(cause error) error { return &decision{how: skipped, cause: cause} }

// decide reads a handler's error.
func decide(err error) decision {
	if err == nil {
		return decision{how: handled}
	}
	if d := (*decision)(nil); errors.As(err, &d) {
		return *d
	}
	return decision{how: again, after: -1, cause: err}
}

// HandleJSON adapts a function that takes a value decoded from the body. A message whose body does
// not decode goes to the dead-letter topic.
func HandleJSON[T any](fn func(ctx context.Context, v T, m *Received) error) Handler {
	return func(ctx context.Context, m *Received) error {
		var v T
		if err := json.Unmarshal(m.Body, &v); err != nil {
			return DeadLetter(fmt.Errorf("client: body of message %s of topic %s: %w",
				m.ID, m.Topic, err))
		}
		return fn(ctx, v, m)
	}
}

// panicked is the error that a panic of a handler becomes.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("client: handler panicked: %v", p.value) }

// protect calls a handler and turns a panic into an error.
func protect(ctx context.Context, h Handler, m *Received) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{value: v, stack: debug.Stack()}
		}
	}()
	return h(ctx, m)
}

// protectBatch is protect for batches.
func protectBatch(ctx context.Context, h BatchHandler, ms []*Received) (errs []error) {
	defer func() {
		if v := recover(); v != nil {
			err := &panicked{value: v, stack: debug.Stack()}
			errs = make([]error, len(ms))
			for i := range errs {
				errs[i] = err
			}
		}
	}()
	return h(ctx, ms)
}
