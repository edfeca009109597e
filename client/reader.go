// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// commitEvery is how often positions of what is done are stored.
const commitEvery = 5 * time.Second

// Reader hands out messages at the caller's pace. It reads the queues given to Assign, or with
// WithSubscription all queues of the subscribed topics, including those that appear later; it does
// not share them with other readers of the group. It is safe for concurrent use, though messages of
// one queue keep their order only for one caller.
//
// A message is done when the next Poll or iteration asks for more. Positions of what is done are
// stored for the group every 5 s and by Close; a reader without a group stores none.
//
// Goroutines: one for each queue that fetches, one that stores positions, and with subscriptions
// one that looks for queues. Close ends them.
type Reader struct {
	client *Client
	group  string // empty: none
	cfg    readerConfig
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	// Guards what follows, and the fields of each fetcher that say so. Never held across I/O.
	mu        sync.Mutex
	closed    bool
	assigned  bool // Assign was called
	queues    map[Queue]*fetcher
	ready     []*fetcher      // with messages, in turn
	arrived   chan struct{}   // closed and replaced when messages or errors come
	errs      []error         // for Poll
	positions map[Queue]int64 // of queues that went away
	closing   sync.Once
	done      chan struct{}
	failure   error
}

// NewReader makes a reader. Without subscriptions it waits for Assign. An empty group is allowed:
// it stores no positions and shows in no broker's list of groups.
func (c *Client) NewReader(group string, opts ...ConsumerOption) (*Reader, error) {
	cfg := readerConfig{prefetch: 1000, prefetchBytes: 100 << 20, start: Latest}
	for _, o := range opts {
		o(&cfg)
	}
	err := cfg.check()
	if group != "" {
		if verr := protocol.ValidGroup([]byte(group)); verr != nil {
			err = errors.Join(fmt.Errorf("group %q: %w", group, verr), err)
		} else if group == protocol.DefaultConsumerGroup {
			err = errors.Join(fmt.Errorf("group %s is refused: choose a name of your own", group), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("client: options of reader: %w", err)
	}
	r := &Reader{
		client: c, group: group, cfg: cfg, queues: map[Queue]*fetcher{},
		arrived: make(chan struct{}), positions: map[Queue]int64{}, done: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	if err := c.join(r); err != nil {
		return nil, err
	}
	if group != "" {
		r.wg.Go(r.commitLoop)
		c.wakeHeartbeats()
	}
	for _, s := range cfg.subscriptions {
		r.wg.Go(func() { r.watch(s) })
	}
	return r, nil
}

// pullGroup is the group that pulls name. Readers without one use that of RocketMQ's tools, which
// every broker knows.
func (r *Reader) pullGroup() string {
	if r.group == "" {
		return protocol.ToolsConsumerGroup
	}
	return r.client.onWire(r.group)
}

func (r *Reader) beatInto(h *protocol.HeartbeatData) {
	if r.group == "" {
		return
	}
	d := protocol.ConsumerData{
		GroupName: r.client.onWire(r.group), ConsumeType: protocol.ConsumeActively,
		MessageModel: protocol.Clustering, ConsumeFromWhere: r.cfg.start.where(),
		SubscriptionDataSet: []protocol.SubscriptionData{},
	}
	for _, s := range r.cfg.subscriptions {
		data := s.data
		data.Topic = r.client.onWire(data.Topic)
		d.SubscriptionDataSet = append(d.SubscriptionDataSet, data)
	}
	h.ConsumerDataSet = append(h.ConsumerDataSet, d)
}

// Assign replaces the queues that are read. Queues that stay keep their position. ErrUnsupported
// with subscriptions, ErrClosed after Close.
func (r *Reader) Assign(qs ...Queue) error {
	if len(r.cfg.subscriptions) > 0 {
		return fmt.Errorf("client: assigning queues to a reader with subscriptions: %w", ErrUnsupported)
	}
	for _, q := range qs {
		if q.Topic == "" || q.Broker == "" || q.ID < 0 {
			return fmt.Errorf("client: assigning queue %s: %w", q, ErrNotAssigned)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errReaderClosed()
	}
	r.assigned = true
	for q, f := range r.queues {
		if !slices.Contains(qs, q) {
			r.dropLocked(f)
		}
	}
	for _, q := range qs {
		r.addLocked(q, protocol.SubscriptionData{SubString: "*"}, r.cfg.start)
	}
	return nil
}

func errReaderClosed() error { return fmt.Errorf("client: reader: %w", ErrClosed) }

// addLocked starts reading a queue that is not read yet.
func (r *Reader) addLocked(q Queue, sub protocol.SubscriptionData, start Start) {
	if r.closed || r.queues[q] != nil {
		return
	}
	f := newFetcher(r, q, sub, start)
	if at, ok := r.positions[q]; ok {
		f.next, f.handed, f.doneAt = at, at, at
	}
	r.queues[q] = f
	r.wg.Go(f.run)
}

// dropLocked stops reading a queue and remembers where.
func (r *Reader) dropLocked(f *fetcher) {
	delete(r.queues, f.queue)
	r.ready = slices.DeleteFunc(r.ready, func(o *fetcher) bool { return o == f })
	if f.doneAt >= 0 {
		r.positions[f.queue] = f.doneAt
	}
	f.stopLocked()
}

// Poll waits for 1..limit messages, of one queue as long as it has some. They count as done at the
// next Poll. It fails with the error of ctx, ErrClosed, a *DecodeError for a record that cannot be
// handed out, or a *BrokerError that waiting does not cure; polling on is possible after the last
// two.
func (r *Reader) Poll(ctx context.Context, limit int) ([]*Received, error) {
	if limit < 1 {
		return nil, fmt.Errorf("client: polling for %d messages: %w", limit, ErrUnsupported)
	}
	r.mu.Lock()
	for _, f := range r.queues {
		f.doneAt = f.handed
	}
	r.mu.Unlock()
	return r.take(ctx, limit)
}

// take waits for messages without marking anything as done.
func (r *Reader) take(ctx context.Context, limit int) ([]*Received, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, errReaderClosed()
		}
		if ms := r.takeLocked(limit); len(ms) > 0 {
			r.mu.Unlock()
			return ms, nil
		}
		if len(r.errs) > 0 {
			err := r.errs[0]
			r.errs = r.errs[1:]
			r.mu.Unlock()
			return nil, err
		}
		arrived := r.arrived
		r.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
}

func (r *Reader) takeLocked(limit int) []*Received {
	var ms []*Received
	for len(ms) < limit && len(r.ready) > 0 {
		f := r.ready[0]
		got := f.takeLocked(limit - len(ms))
		ms = append(ms, got...)
		if len(f.buffer) == 0 {
			r.ready = r.ready[1:]
		} else if len(ms) >= limit {
			r.ready = append(r.ready[1:], f) // the next poll begins with another queue
		}
	}
	return ms
}

// wakeLocked tells pollers that something came.
func (r *Reader) wakeLocked() {
	close(r.arrived)
	r.arrived = make(chan struct{})
}

// report has the next Poll fail with err. A few are kept; more of them add nothing.
func (r *Reader) report(err error) {
	const errsMax = 16
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < errsMax && !r.closed {
		r.errs = append(r.errs, err)
		r.wakeLocked()
	}
}

// Messages yields until Close, or until ctx ends: then the last pair is nil and its error. A
// message counts as done when the loop asks for the next; the one at which the loop is left is
// handed out again. Errors are those of Poll; the loop decides whether to go on.
func (r *Reader) Messages(ctx context.Context) iter.Seq2[*Received, error] {
	return func(yield func(*Received, error) bool) {
		for {
			ms, err := r.Poll(ctx, 1)
			if errors.Is(err, ErrClosed) {
				return
			}
			if err != nil {
				if !yield(nil, err) || ctx.Err() != nil {
					return
				}
				continue
			}
			if !yield(ms[0], nil) {
				r.putBack(ms[0])
				return
			}
		}
	}
}

// putBack returns a message that was handed out last of its queue.
func (r *Reader) putBack(m *Received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.queues[m.Source]
	if f == nil || f.handed != m.Offset+1 {
		return
	}
	f.handed = m.Offset
	f.buffer = append([]*Received{m}, f.buffer...)
	f.bytes += len(m.Body)
	if !slices.Contains(r.ready, f) {
		r.ready = append([]*fetcher{f}, r.ready...)
	}
}

// Commit stores positions at the brokers: behind ms, or behind all that is done when there is none.
// ErrUnsupported without a group, ErrNotAssigned for a message of a queue that is not read.
func (r *Reader) Commit(ctx context.Context, ms ...*Received) error {
	if r.group == "" {
		return fmt.Errorf("client: a reader without a group stores no positions: %w", ErrUnsupported)
	}
	at := map[Queue]int64{}
	r.mu.Lock()
	for _, m := range ms {
		f := r.queues[m.Source]
		if f == nil {
			r.mu.Unlock()
			return fmt.Errorf("client: commit: queue %s: %w", m.Source, ErrNotAssigned)
		}
		at[m.Source] = max(at[m.Source], m.Offset+1)
		f.doneAt = max(f.doneAt, m.Offset+1) // or Close would store the position before it
	}
	if len(ms) == 0 {
		for q, f := range r.queues {
			if f.doneAt >= 0 && f.doneAt != f.committed {
				at[q] = f.doneAt
			}
		}
	}
	r.mu.Unlock()
	var errs []error
	for q, offset := range at {
		if err := r.store(ctx, q, offset); err != nil {
			errs = append(errs, err)
			continue
		}
		r.mu.Lock()
		if f := r.queues[q]; f != nil {
			f.committed = offset
		}
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (r *Reader) store(ctx context.Context, q Queue, offset int64) error {
	return r.ask(ctx, "commit", q, &invoke.Request{
		Code: remoting.UpdateConsumerOffset, Header: &protocol.UpdateConsumerOffsetRequest{
			Group: r.client.onWire(r.group), Topic: r.client.onWire(q.Topic),
			QueueID: int32(q.ID), HasQueueID: true,
			CommitOffset: offset, HasOffset: true,
		},
	}, nil)
}

// ask calls the master of a queue's broker; decode may be nil.
func (r *Reader) ask(
	ctx context.Context, op string, q Queue, req *invoke.Request,
	decode func(*remoting.Command) error,
) error {
	ctx, cancel := r.client.bounded(ctx)
	defer cancel()
	addr, err := r.address(ctx, q, 0)
	if err != nil {
		return fmt.Errorf("client: %s of queue %s: %w", op, q, err)
	}
	res, err := r.client.call(ctx, op, q.Broker, addr, req)
	var lost *invoke.Error
	if errors.As(err, &lost) && ctx.Err() == nil {
		// The connection broke. What is asked here may be asked twice.
		res, err = r.client.call(ctx, op, q.Broker, addr, req)
	}
	if err == nil && decode != nil {
		err = decode(res.Command)
	}
	if err != nil {
		return fmt.Errorf("client: %s of queue %s: %w", op, q, err)
	}
	return nil
}

func (r *Reader) address(ctx context.Context, q Queue, id int64) (string, error) {
	rt := r.client.routes.cached(q.Topic)
	if rt == nil || rt.template {
		var err error
		if rt, err = r.client.routes.fetch(ctx, q.Topic); err != nil {
			return "", err
		}
	}
	addr := rt.reader(q.Broker, id)
	if addr == "" {
		return "", fmt.Errorf("broker %s serves topic %s no more: %w", q.Broker, q.Topic, ErrNoRoute)
	}
	return addr, nil
}

func (r *Reader) commitLoop() {
	for {
		t := time.NewTimer(jitter(commitEvery))
		select {
		case <-t.C:
		case <-r.ctx.Done():
			t.Stop()
			return
		}
		ctx, cancel := context.WithTimeout(r.ctx, r.client.cfg.callTimeout)
		if err := r.Commit(ctx); err != nil && r.ctx.Err() == nil {
			r.client.cfg.logger.Warn("storing positions", "group", r.group, "err", err)
		}
		cancel()
	}
}

// Close commits what is done, unregisters the group and waits for the goroutines. It may be called
// again and concurrently; all calls return the same error.
func (r *Reader) Close(ctx context.Context) error {
	r.closing.Do(func() {
		if r.group != "" {
			r.failure = r.Commit(ctx)
		}
		r.mu.Lock()
		r.closed = true
		for _, f := range r.queues {
			f.stopLocked()
		}
		r.wakeLocked()
		r.mu.Unlock()
		r.cancel(ErrClosed)
		r.wg.Wait()
		r.client.leave(r)
		if r.group != "" {
			r.client.unregister(context.WithoutCancel(ctx), "", r.client.onWire(r.group))
		}
		close(r.done)
	})
	<-r.done
	return r.failure
}
