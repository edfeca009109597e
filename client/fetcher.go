// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	pullBatch    = 32
	pullMaxBytes = 1 << 20
	pullSuspend  = 20 * time.Second // how long the broker holds a pull with nothing to return
	pullTimeout  = 30 * time.Second
	retryFirst   = 100 * time.Millisecond
	retryMost    = 3 * time.Second
)

// fetcher reads one queue ahead. Its goroutine alone pulls.
type fetcher struct {
	reader *Reader
	queue  Queue
	sub    protocol.SubscriptionData
	start  Start
	room   chan struct{} // capacity 1: buffer space, a seek, or the end

	ctx    context.Context // ends when the queue is no longer read
	cancel context.CancelFunc

	// Guarded by Reader.mu.
	epoch     uint64 // counts seeks: what was fetched for an older one is dropped
	abort     context.CancelFunc
	next      int64 // offset to fetch; -1: to be found out
	handed    int64 // behind what was handed out; -1: unknown
	doneAt    int64 // behind what is done; -1: unknown
	committed int64 // as the broker has it; -1: unknown
	buffer    []*Received
	bytes     int

	brokerID int64 // where to read, as the last answer suggested; the goroutine's own
	older    bool  // its broker has no lite pull, as before RocketMQ 5; the goroutine's own
	decoder  decoder
}

func newFetcher(r *Reader, q Queue, sub protocol.SubscriptionData, start Start) *fetcher {
	f := &fetcher{
		reader: r, queue: q, sub: sub, start: start, room: make(chan struct{}, 1),
		next: -1, handed: -1, doneAt: -1, committed: -1,
		decoder: newDecoder(q, r.client.onWire(q.Topic), r.client.offWire),
	}
	f.ctx, f.cancel = context.WithCancel(r.ctx)
	return f
}

func (f *fetcher) stopLocked() {
	f.cancel()
	f.buffer, f.bytes = nil, 0
}

func (f *fetcher) signal() {
	select {
	case f.room <- struct{}{}:
	default:
	}
}

// takeLocked hands out up to n messages.
func (f *fetcher) takeLocked(n int) []*Received {
	n = min(n, len(f.buffer))
	ms := slices.Clone(f.buffer[:n])
	for i, m := range ms {
		f.bytes -= len(m.Body)
		f.buffer[i] = nil
	}
	f.buffer = f.buffer[n:]
	if n > 0 {
		f.handed = ms[n-1].Offset + 1
		f.signal()
	}
	return ms
}

func (f *fetcher) seekLocked(offset int64) {
	f.epoch++
	f.next, f.handed, f.doneAt = offset, offset, offset
	f.buffer, f.bytes = nil, 0
	r := f.reader
	r.ready = slices.DeleteFunc(r.ready, func(o *fetcher) bool { return o == f })
	if f.abort != nil {
		f.abort()
	}
	f.signal()
}

// run fetches until the queue is no longer read.
func (f *fetcher) run() {
	wait := retryFirst
	for f.ctx.Err() == nil {
		at, epoch, ctx, ok := f.begin()
		if !ok {
			select {
			case <-f.room:
			case <-f.ctx.Done():
			}
			continue
		}
		err := f.fetch(ctx, at, epoch)
		if err == nil || f.ctx.Err() != nil || ctx.Err() != nil {
			wait = retryFirst
			continue
		}
		f.complain(err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-f.ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, retryMost)
	}
}

// begin reads what to fetch next; ok is false while the buffer is full. ctx ends with a seek.
func (f *fetcher) begin() (at int64, epoch uint64, ctx context.Context, ok bool) {
	r := f.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(f.buffer) >= r.cfg.prefetch || f.bytes >= r.cfg.prefetchBytes || r.pausedLocked(f.queue) {
		return 0, 0, nil, false
	}
	if f.abort != nil {
		f.abort()
	}
	ctx, f.abort = context.WithCancel(f.ctx)
	return f.next, f.epoch, ctx, true
}

// complain decides who hears of a failed fetch: errors that waiting does not cure go to Poll.
func (f *fetcher) complain(err error) {
	r := f.reader
	f.brokerID = 0
	r.client.routes.stale(f.queue.Topic)
	if errors.Is(err, remoting.ErrFrameTooLarge) {
		r.report(advised(err))
		return
	}
	var be *BrokerError
	if errors.As(err, &be) {
		switch remoting.ResponseCode(be.Code) {
		case remoting.NoPermission, remoting.SubscriptionParseFailed, remoting.InvalidParameter:
			r.report(err)
			return
		default:
		}
	}
	r.client.cfg.logger.Debug("fetch", "group", r.group, "queue", f.queue.String(), "err", err)
}

// fetch finds out where to begin, or pulls once.
func (f *fetcher) fetch(ctx context.Context, at int64, epoch uint64) error {
	if at < 0 {
		at, err := f.reader.origin(ctx, f)
		if err != nil {
			return err
		}
		f.reader.mu.Lock()
		defer f.reader.mu.Unlock()
		if f.epoch == epoch {
			f.next, f.handed, f.doneAt = at, at, at
		}
		return nil
	}
	res, addr, err := f.pull(ctx, at)
	if err != nil {
		return err
	}
	switch res.Code {
	case remoting.Success, remoting.PullNotFound, remoting.PullRetryImmediately,
		remoting.PullOffsetMoved:
	default:
		return brokerError("pull", f.queue.Broker, addr, res.Code, res.Remark)
	}
	var h protocol.PullResponse
	if err := h.Decode(res.Command); err != nil {
		return fmt.Errorf("client: pull: answer of %s: %w", addr, err)
	}
	f.brokerID = h.SuggestBrokerID
	var ms []*Received
	var bad error
	if res.Code == remoting.Success {
		ms, bad = f.decode(res.Body, h.OffsetDelta)
	}
	if res.Code == remoting.PullOffsetMoved {
		f.reader.client.cfg.logger.Warn("position corrected", "group", f.reader.group,
			"queue", f.queue.String(), "offset", at, "next", h.NextOffset)
	}
	f.keep(epoch, ms, h.NextOffset, res.Code == remoting.PullOffsetMoved)
	if bad != nil {
		f.reader.report(bad)
	}
	return nil
}

func (f *fetcher) pull(ctx context.Context, at int64) (*invoke.Response, string, error) {
	r := f.reader
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	addr, err := r.address(ctx, f.queue, f.brokerID)
	if err != nil {
		return nil, "", err
	}
	code := remoting.LitePullMessage
	if f.older {
		code = remoting.PullMessage
	}
	res, err := r.client.pool.Call(ctx, addr, &invoke.Request{
		Code: code,
		Header: &protocol.PullRequest{
			Group: []byte(r.pullGroup()), Topic: []byte(r.client.onWire(f.queue.Topic)),
			QueueID:     int32(f.queue.ID),
			QueueOffset: at, MaxMessages: int32(min(pullBatch, r.cfg.prefetch)),
			SysFlag:   protocol.PullSuspend | protocol.PullSubscription | protocol.PullLite,
			SuspendMS: pullSuspend.Milliseconds(), Subscription: []byte(f.sub.SubString),
			SubVersion: f.sub.SubVersion, ExpressionType: []byte(f.expressionType()),
			MaxBytes: pullMaxBytes, RequestSource: -1, BrokerName: []byte(f.queue.Broker),
		},
	})
	if err != nil {
		return nil, addr, fmt.Errorf("client: pull from queue %s: %w", f.queue, err)
	}
	if res.Code == remoting.RequestCodeNotSupported && !f.older {
		f.older = true
		return f.pull(ctx, at)
	}
	return res, addr, nil
}

// keep puts fetched messages into the buffer, unless a seek came between. moved: the position did
// not exist, so that nothing before next can be done any more.
func (f *fetcher) keep(epoch uint64, ms []*Received, next int64, moved bool) {
	r := f.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.epoch != epoch || f.ctx.Err() != nil {
		return
	}
	empty := len(f.buffer) == 0
	f.next = next
	for _, m := range ms {
		f.buffer = append(f.buffer, m)
		f.bytes += len(m.Body)
	}
	if empty && len(ms) == 0 && (moved || f.handed == f.doneAt) {
		// Nothing is in anybody's hands: what was passed over, filtered or gone, is done.
		f.handed, f.doneAt = next, next
	}
	if empty && len(ms) > 0 {
		r.listLocked(f)
		r.wakeLocked()
	}
}

func (f *fetcher) expressionType() string {
	if f.sub.IsTag() {
		return protocol.ExpressionTag
	}
	return f.sub.ExpressionType
}

// decode turns the records of an answer into messages. Bodies share the answer's memory unless they
// are compressed. A record that does not decode is left out and told of by the error.
func (f *fetcher) decode(body []byte, offsetDelta int64) ([]*Received, error) {
	n, texts := measure(body)
	slab := make([]Received, n)
	ms := make([]*Received, 0, n)
	var bad []error
	f.decoder.start(texts)
	defer f.decoder.end()
	for i := range n {
		v, _ := record.Parse(body) // measure did it before
		body = body[v.TotalSize():]
		inflated, err := inflate(v.Body(), v.SysFlag())
		switch {
		case err != nil:
		case v.SysFlag()&sysUnwrap == sysUnwrap:
			err = unwrap(v, inflated, func(one record.View) {
				if wants(&f.sub, tagOf(one)) {
					m := &Received{}
					f.decoder.fill(m, one, offsetDelta, one.Body())
					ms = append(ms, m)
				}
			})
		case wants(&f.sub, tagOf(v)):
			f.decoder.fill(&slab[i], v, offsetDelta, inflated)
			ms = append(ms, &slab[i])
		}
		if err != nil {
			offset := int64(v.QueueOffset()) + offsetDelta
			bad = append(bad, &DecodeError{Source: f.queue, Offset: offset, Err: err})
		}
	}
	if len(body) > 0 {
		_, err := record.Parse(body)
		bad = append(bad, &DecodeError{Source: f.queue, Offset: -1, Err: err})
	}
	return ms, errors.Join(bad...)
}
