// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Seek continues a queue at offset, which must lie between its first message and its end. What was
// fetched before is dropped, and the position counts as done. ErrNotAssigned, ErrOffsetOutOfRange.
func (r *Reader) Seek(ctx context.Context, q Queue, offset int64) error {
	if err := r.reads(q); err != nil {
		return err
	}
	low, err := r.bound(ctx, q, false)
	if err != nil {
		return err
	}
	high, err := r.bound(ctx, q, true)
	if err != nil {
		return err
	}
	if offset < low || offset > high {
		return fmt.Errorf("client: seek queue %s to %d, it holds %d to %d: %w",
			q, offset, low, high, ErrOffsetOutOfRange)
	}
	return r.moveTo(q, offset)
}

// SeekTime continues a queue at the first message stored at or after t, at its end when there is
// none.
func (r *Reader) SeekTime(ctx context.Context, q Queue, t time.Time) error {
	if err := r.reads(q); err != nil {
		return err
	}
	offset, err := r.offsetAt(ctx, q, t.UnixMilli())
	if err != nil {
		return err
	}
	return r.moveTo(q, offset)
}

func (r *Reader) reads(q Queue) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errReaderClosed()
	}
	if r.queues[q] == nil {
		return fmt.Errorf("client: queue %s: %w", q, ErrNotAssigned)
	}
	return nil
}

func (r *Reader) moveTo(q Queue, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.queues[q]
	if f == nil {
		return fmt.Errorf("client: queue %s: %w", q, ErrNotAssigned)
	}
	f.seekLocked(offset)
	return nil
}

// Lag returns for each queue how many offsets lie between what is done and its end. A queue whose
// position is not known yet counts from its start option.
func (r *Reader) Lag(ctx context.Context) (map[Queue]int64, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errReaderClosed()
	}
	fetchers := make([]*fetcher, 0, len(r.queues))
	for _, f := range r.queues {
		fetchers = append(fetchers, f)
	}
	r.mu.Unlock()
	lag := map[Queue]int64{}
	var errs []error
	for _, f := range fetchers {
		high, err := r.bound(ctx, f.queue, true)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.mu.Lock()
		at := f.doneAt
		r.mu.Unlock()
		if at < 0 {
			if at, err = r.origin(ctx, f); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		lag[f.queue] = max(high-at, 0)
	}
	return lag, errors.Join(errs...)
}

// origin works out where a queue begins: the stored position, else the start option.
func (r *Reader) origin(ctx context.Context, f *fetcher) (int64, error) {
	if r.group != "" {
		var at int64
		var ok bool
		var err error
		if r.local != nil {
			at, ok, err = r.local.Load(ctx, r.group, f.queue)
		} else {
			at, ok, err = r.stored(ctx, f.queue, false)
		}
		if err != nil || ok {
			return at, err
		}
	}
	return r.start(ctx, f.queue, f.start)
}
