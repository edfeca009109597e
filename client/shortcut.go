// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
)

// The calls of this file make, use and close what most programs need only once.

// Consume is NewConsumer and Run: it hands the messages of a group to h until ctx ends, drains, stores
// positions and leaves the group. Who wants to pause, subscribe or close meanwhile makes a Consumer.
func (c *Client) Consume(
	ctx context.Context, group string, h Handler, opts ...ConsumerOption,
) error {
	if h == nil {
		return fmt.Errorf("client: consumer %s: handler is nil: %w", group, ErrUnsupported)
	}
	k, err := c.NewConsumer(group, opts...)
	if err != nil {
		return err
	}
	return k.Run(ctx, h)
}

// Read is NewReader and Reader.Messages: a loop over it has a reader of its own, which is closed when
// the loop is left. Options that do not fit are the first and only error. Positions that cannot be
// stored at the end are logged: the messages come again.
func (c *Client) Read(
	ctx context.Context, group string, opts ...ConsumerOption,
) iter.Seq2[*Received, error] {
	return func(yield func(*Received, error) bool) {
		r, err := c.NewReader(group, opts...)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.callTimeout)
			defer cancel()
			if err := r.Close(end); err != nil {
				c.cfg.logger.Warn("closing a reader", "group", group, "err", err)
			}
		}()
		for m, err := range r.Messages(ctx) {
			if !yield(m, err) {
				return
			}
		}
	}
}

// SendAll sends the messages of a sequence as SendAsync does, waiting while WithBuffer's messages or
// bytes are full, and returns when each has its result: nil when brokers have all of them, otherwise a
// *SendAllError. It takes no further message once ctx has ended or the producer is closed.
func (p *Producer) SendAll(ctx context.Context, messages iter.Seq[*Message]) error {
	t := tally{}
	taken := 0
	for m := range messages {
		taken++
		if err := p.SendAsync(ctx, m, t.count); err != nil {
			t.count(SendResult{}, err)
			if ctx.Err() != nil || errors.Is(err, ErrClosed) {
				break
			}
		}
	}
	flushed := p.Flush(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stored == taken {
		return nil
	}
	if t.first == nil {
		t.first = flushed
	}
	return &SendAllError{Taken: taken, Stored: t.stored, First: t.first}
}

// SendAllError says how many messages of a SendAll are stored. The others failed, or had no result
// when the context ended.
type SendAllError struct {
	Taken, Stored int   // messages
	First         error // what the first one that failed met
}

func (e *SendAllError) Error() string {
	return fmt.Sprintf("client: %d of %d messages are not known to be stored, the first: %v",
		e.Taken-e.Stored, e.Taken, e.First)
}

// Unwrap returns the first failure.
func (e *SendAllError) Unwrap() error { return e.First }

// tally counts the results of many sends.
type tally struct {
	mu     sync.Mutex // guards what follows
	stored int
	first  error
}

func (t *tally) count(_ SendResult, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.stored++
	} else if t.first == nil {
		t.first = err
	}
}
